"""The client: topics, puts and subscriptions over one connection that it makes again when it breaks."""

from __future__ import annotations

import asyncio
import logging
import os
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, ClassVar, Final, Literal, overload

from milepost.address import DATABASE
from milepost.batch.collector import REFUSED
from milepost.client.atomic import Atomic
from milepost.client.connection import software
from milepost.client.durable import TOKEN_BYTES, DurableSubscription
from milepost.client.handout import HandoutSubscription
from milepost.client.logbatch import LogBatch
from milepost.client.options import PREFETCH, checked_options
from milepost.client.publisher import Publisher
from milepost.client.queue_session import QueueSession
from milepost.client.queues import QueueVerbs
from milepost.client.read import LogRead
from milepost.client.session import ClientSession
from milepost.client.session_handler import SessionHandler
from milepost.client.staging import Published
from milepost.client.start import Start, position_on_wire, start_on_wire
from milepost.client.statistics import ClientStatistics
from milepost.client.subscription import Subscription
from milepost.client.subscriptions import Callback, Subscriptions
from milepost.client.topic import Retention, TopicInfo, declaration, described, require_text, schema_from
from milepost.client.worker import QueueWorkers
from milepost.errors import (
    Closed,
    InvalidValue,
    MilepostError,
    UnknownSubscription,
)
from milepost.schema import Schema
from milepost.transport import Address, parse_address
from milepost.wire import Delete, Hello, ListTopics, Look, RetentionHold, StatusRequest, Trim

DEFAULT_ADDRESS: Final = "milepost://127.0.0.1:7450"
WINDOW_BYTES: Final = 4 << 20  # of deliveries in flight: some milliseconds of the fastest publisher
ANSWER_S: Final = (
    15.0  # for a request: longer than a broker waits for its store (`lease_s`), so the broker's error arrives first
)
INSTANCE_BYTES: Final = 16

_log = logging.getLogger("milepost.client")


class AsyncClient(QueueVerbs):
    """A client of one broker.

    ::

        async with milepost.AsyncClient("milepost://127.0.0.1:7450", name="feed") as client:
            await client.declare_topic("quotes", "quote: [symbol: string, price: double, size: int]")
            await client.put("quotes", {"symbol": "IBM", "price": 101.5, "size": 200})

    Live topics are at-most-once. When the connection breaks, the client reconnects for ever, with growing random
    delays. It then declares its topics again, restores its subscriptions and sends the rows that wait in its outboxes.
    Rows that were sent but not yet processed by the broker are lost; `flush` raises when that is possible. With
    `reconnect=False` every call fails with `ConnectionLost` instead.

    Durable topics are exactly-once: a put that returned is stored, and a put that was in flight when a connection broke
    is sent again and stored once. `broker_id` identifies the broker's stored state, and changes only when that is lost:
    then every call raises `StateLost`, if this client has used a durable topic or was given a `known_broker_id`.
    Several addresses, separated by commas, are tried one after the other.

    All methods belong to the event loop that `connect` ran in. `name` identifies a publisher: of two clients with one
    name the older is closed. `slow` ("throttle", "drop" or "disconnect") overrides, for this client, the topics' policy
    for slow subscribers. `window` is the number of bytes of deliveries that may be in flight or waiting here,
    `timeout` the seconds that a request may take, waiting for a connection included. `clock` gives the time for
    stamps, in seconds since 1970; by default it is the broker's.
    """

    _kind: ClassVar = "client"  # of its connections; a gateway's clients say "gateway"

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        *,
        name: str = "",
        slow: str | None = None,
        window: int = WINDOW_BYTES,
        reconnect: bool = True,
        timeout: float = ANSWER_S,
        clock: Callable[[], float] | None = None,
        known_broker_id: str | None = None,
    ) -> None:
        require_text("the name of a client", name)
        if known_broker_id is not None:
            require_text("the ID of a broker", known_broker_id)
        hello = Hello(
            kind=self._kind,
            name=name,
            auth={"method": "none"},
            software=software(),
            window=window,
            slow=slow,
            instance=os.urandom(INSTANCE_BYTES),
        )
        self._subscriptions = Subscriptions()
        self._host = SessionHandler(self._subscriptions, known_broker_id)
        inboxes = self._subscriptions.by_number
        self._session = ClientSession(self._host, inboxes, _addresses(address), hello, timeout, reconnect)
        self._publisher = Publisher(self._session, clock)
        self._host.session = self._subscriptions.session = self._session
        self._host.publisher = self._publisher
        self._queue_session = QueueSession(self._session, self._subscriptions, self._host.use)
        self._host.queue_session = self._queue_session
        self._workers = QueueWorkers()
        self._boxes, self._durable_puts = self._publisher.boxes, self._publisher.durable_puts

    # Connecting and closing

    async def connect(self) -> AsyncClient:
        """Connect. Raises `ConnectionLost` when no broker answers: the client retries only after a first connection."""
        await self._session.begin()
        return self

    async def __aenter__(self) -> AsyncClient:
        return await self.connect()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(drain=kind is None)

    async def close(self, *, drain: bool = True) -> None:
        """Send the rows in outboxes, for at most the client's timeout, and disconnect. Without `drain`, disconnect now.

        Also waits for durable puts and acknowledgements in flight. Named subscriptions stay.
        """
        try:
            if drain and self._session.failure is None and self._session.begun:
                try:
                    async with asyncio.timeout(self._session.timeout):
                        if self._publisher.waiting or self._durable_puts.unsettled:
                            await self._publisher.drained()
                        for subscription in self._subscriptions.durable():
                            await subscription.settle()
                except (TimeoutError, MilepostError) as error:
                    rows, batches = self._publisher.waiting, len(self._durable_puts.unsettled)
                    _log.warning(
                        "%d rows were not sent, and %d batches perhaps not stored, before the client was closed: %s",
                        rows, batches, error,
                    )  # fmt: skip
        finally:
            self._subscriptions.leave()
            await self._session.end()

    @property
    def broker_id(self) -> str:
        """The ID of the broker's stored state, which changes only when that is lost; empty if it stores nothing.

        An application that passes it as `known_broker_id` in its next run learns of a loss between runs too.
        """
        if self._host.broker_id is None:
            raise Closed("this client is not connected; write `async with AsyncClient(...)`, or await connect()")
        return self._host.broker_id

    @property
    def failure(self) -> MilepostError | None:
        """The error that ended this client for good, `Closed` included; None while it works or reconnects."""
        return self._session.failure

    # Topics

    async def declare_topic(
        self,
        name: str,
        schema: Any,
        *,
        slow: str | None = None,
        durable: bool | None = None,
        retain: Retention | Mapping[str, Any] | None = None,
    ) -> TopicInfo:
        """Create a topic, or a new version of its schema. A topic that already is as declared stays unchanged.

        `schema` is a text, a `Schema`, a `MessageType` or a dataclass. `slow` is the policy for slow subscribers:
        "throttle" the publishers (the default), "drop" the oldest rows, or "disconnect". `durable` keeps the topic's
        messages in a log, for as long as `retain` says: see `Retention`. Raises `IncompatibleSchema` when readers of
        the existing versions would break.
        """
        wanted = schema_from(schema)
        if durable is not None and not isinstance(durable, bool):
            raise InvalidValue(f"durable={durable!r}: takes True, False, or None for as it is")
        reply = await self._session.ask(declaration(name, wanted, slow, durable, retain))
        created = bool(reply["created"])
        self._publisher.declare(name, int(reply["number"]), wanted, slow)
        known = None if self._session.connection is None else self._session.connection.by_name.get(name)
        if known is None:
            kept = name in self._publisher.durable
            return TopicInfo(name, wanted, (wanted,), slow or "throttle", created, durable=kept)
        return known.info(created)

    async def delete_topic(self, name: str) -> None:
        """Remove a topic and every subscription to it. Raises `UnknownTopic` when it does not exist."""
        require_text("the name of a topic", name)
        await self._session.ask(lambda request: Delete(request=request, name=name), again=False)
        self._publisher.forget(name)
        for subscription in list(self._subscriptions.by_number.values()):
            if subscription.pattern == name:
                self._subscriptions.stop(subscription, told=True)

    async def topics(self, pattern: str = ">") -> list[TopicInfo]:
        """The topics that match a pattern, with the broker's statistics of each."""
        require_text("a pattern", pattern)
        found = await self._session.ask(lambda request: ListTopics(request=request, pattern=pattern))
        return [described(each) for each in found]

    async def versions(self, topic: str, *, again: bool = False) -> tuple[Schema, ...]:
        """The versions of a topic's schema, oldest first, as the broker announced them; `again` asks it anew."""
        return await self._publisher.versions(topic, again)

    async def status(self) -> dict[str, Any]:
        """The broker's statistics."""
        found: dict[str, Any] = await self._session.ask(lambda request: StatusRequest(request=request))
        return found

    async def look(self, topic: str, start: Start = None) -> dict[str, Any]:
        """A durable topic as the broker stores it: "logs" and their sizes, named "subscriptions" and their cursors.

        With `start`, as `subscribe` takes it, "position" is its current position. Raises `NotDurable` for a live topic.
        """
        require_text("the name of a topic", topic)
        wanted = await self._resolved(topic, start_on_wire(start))
        found: dict[str, Any] = await self._session.ask(
            lambda request: Look(request=request, topic=topic, start=wanted)
        )
        return found

    async def trim(self, topic: str, before: int | Mapping[int, int]) -> int:
        """Remove rows of a durable topic before a position, or an offset of its only log. Returns the number removed.

        Rows that a named subscription has not consumed go too: the subscription is told which rows it lost.
        """
        require_text("the name of a topic", topic)
        if isinstance(before, Mapping):
            position = position_on_wire(before)
        elif isinstance(before, int) and not isinstance(before, bool):
            position = (await self._resolved(topic, start_on_wire(before)))["position"]
        else:
            raise InvalidValue(f"trim takes an offset or a position {{log: offset}}, not {before!r:.60}")
        reply = await self._session.ask(lambda request: Trim(request=request, topic=topic, before=position))
        return int(reply["rows"])

    async def hold(self, topic: str, name: str, position: Mapping[int, int] | None = None) -> dict[int, int]:
        """Keep the rows of a durable topic from `position`, {log: offset}, on, until the hold of this name moves.

        A hold is a named cursor without a consumer: retention with `hold`, the default, waits for it as for a named
        subscription. A new hold is made at `position`, or at the earliest row; an existing one only moves forward, log
        by log. Returns the hold's position, so a repeated call changes nothing. `unsubscribe(name=...)` removes the
        hold. `SubscriptionExists` when a subscription has this name; `subscribe` raises it for the name of a hold.
        """
        require_text("the name of a topic", topic)
        require_text("the name of a hold", name)
        wanted = None if position is None else position_on_wire(position)
        self._host.used = True
        reply = await self._session.ask(
            lambda request: RetentionHold(request=request, topic=topic, name=name, position=wanted)
        )
        return dict(reply["position"])

    async def _resolved(self, topic: str, start: Any) -> Any:
        """`start` with the log's number where only an offset was given."""
        if not isinstance(start, int):
            return start
        logs = [int(each["log"]) for each in (await self.look(topic))["logs"]]
        if len(logs) > 1:
            raise InvalidValue(
                f"topic {topic!r} has {len(logs)} logs, and an offset is a place in one: give {{log: offset}}"
            )
        if not logs and start:
            raise InvalidValue(f"topic {topic!r} has no messages yet, and so no offset {start}; begin with 0")
        return {"position": dict.fromkeys(logs, start)}

    # Putting

    async def put(self, topic: str, row: Any, key: bytes | uuid.UUID | None = None, *, wait: bool = True) -> None:
        """Put one message: a dict, a dataclass, a node, or a row of another batch.

        On a live topic this returns when the message is in the client's outbox, which is bounded: while the broker does
        not keep up, it waits. The first message is sent at once; messages put while it is in flight are sent together.
        After `InvalidValue` or `CheckFailed`, nothing was put. Raises `UnknownTopic` for a topic that was never
        declared. A cancelled put has put nothing.

        On a durable topic it returns when the message is stored: committed, and synced to disk. Concurrent puts are
        stored together. With `wait=False` it returns as on a live topic, which costs far less than a task for each
        message; `flush` then waits for all of them, and raises their errors. A `key`, a UUID or 16 bytes, makes the put
        idempotent beyond this client's life: `DuplicateMessage` when the key was used before in this topic, within the
        broker's `remember_s`, a day by default. With `wait=False`, `flush` raises it.
        While the connection is lost, or the broker's store in doubt, a put keeps waiting, also beyond the client's
        `timeout`: it returns or raises when the outcome is known. A cancelled put may have been stored.
        """
        box = self._boxes.get(topic)
        if box is None or not box.gathering or key is not None or (wait and box.durable):
            if box is None or key is not None:
                await self._publisher.put(topic, row, key, wait)
            elif box.durable and self._durable_puts.ready(box):
                stored = self._durable_puts.put(box, row, wait)
                if stored is not None:
                    await stored
            elif not self._publisher.put_alone(box, row):
                await self._publisher.put(topic, row, None, wait)
            return
        try:
            box.add(row)
        except REFUSED:
            box.take(row)
        if len(box.collected) >= box.most:
            await self._publisher.let_others_run(box)

    async def put_many(self, topic: str, source: Any) -> int:
        """Put many messages: a `Batch`, or rows, columns, a frame, as `milepost.encode` takes. Returns their number.

        An iterator is encoded and sent piece by piece. Any other source is encoded whole first, so that either all of
        its messages are put or, when one does not fit the schema, none. Returns when all are handed to the network, and
        waits while the broker does not keep up; on a durable topic, when all are stored. A source of more than a
        megabyte is stored in several pieces, of which one may fail: see `atomic`. `LimitExceeded` names a row that is
        larger than a frame may be; rows before it may have been put. The rows of a batch get new IDs of this client.
        Columns are copied when they are sent, so do not change arrays until this returns.
        """
        return await self._publisher.put_many(topic, source)

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until the broker has processed all earlier puts, and stored the durable ones.

        Raises the error of puts since the last flush: that of a put which the broker refused, or `ConnectionLost` when
        the connection broke and some rows may not have arrived. `TimedOut` after `timeout` seconds, by default the
        client's.
        """
        await self._publisher.flush(timeout)

    def atomic(self) -> Atomic:
        """Put into several durable topics, all or nothing::

            async with client.atomic() as together:
                together.put("orders", order)
                together.put_many("lines", lines)

        The broker holds all of it: `LimitExceeded` above its `put_window`. `stage` and `publish` take more.
        """
        self._session.require_open()
        return Atomic(self._publisher)

    # Staging: rows that become visible together

    async def stage(self, sink: str, epoch: int, part: int, attempt: int, topic: str, source: Any) -> int:
        """Store rows of a durable topic that stay invisible until `publish` names them. Returns their number.

        A sink is a program that writes epochs in order, each whole or not at all, as a query of Spark does. `part` is
        the number of this share of the epoch. `attempt` distinguishes retries of a part: use a number that no other
        attempt had, a random one if there is nothing better. `source` is what `put_many` takes, with the same checks.
        It is stored in pieces; several calls for one attempt add up, in order, also for several topics. Returns when
        all rows are stored, and waits for a broken connection as `put` does. When this raises, part of the source may
        be staged: continue with a new attempt.

        Rows that one client stages under an attempt replace those that another client staged under the same numbers.
        Rows for an epoch that is already published are discarded.
        """
        return await self._publisher.staging.stage(sink, epoch, part, attempt, topic, source)

    async def publish(
        self,
        sink: str,
        epoch: int,
        parts: Sequence[tuple[int, int]],
        extra: Mapping[str, Any] | None = None,
    ) -> Published:
        """Make the staged rows of an epoch visible, all at once: the parts in this order, each by one attempt.

        The same transaction appends `extra`, {topic: rows}, behind them, moves the sink's epoch, and discards all other
        rows staged for the sink up to this epoch. An epoch that is not above the last one was published before:
        `repeated` is True and nothing changes, so this may be repeated after any error. Raises `StagingLost` when
        nothing is staged for one of the parts: then nothing was published. Do not name a part without rows.
        """
        return await self._publisher.staging.publish(sink, epoch, parts, extra)

    async def published(self, sink: str) -> int | None:
        """The last epoch that a sink has published; None before the first."""
        return await self._publisher.staging.published(sink)

    async def unstage(self, sink: str, epoch: int) -> None:
        """Discard the rows staged for an epoch of a sink. Published rows stay."""
        await self._publisher.staging.unstage(sink, epoch)

    # Subscribing

    @overload
    async def subscribe(
        self, pattern: str, where: str | None = None, *, callback: Callback | None = None, batches: bool = False
    ) -> Subscription: ...
    @overload
    async def subscribe(
        self,
        pattern: str,
        where: str | None = None,
        *,
        callback: Callback | None = None,
        batches: bool = False,
        name: str | None = None,
        start: Start = None,
        ack: Literal["auto", "explicit", "handed"] = "auto",
        prefetch: int = PREFETCH,
        max_deliveries: int | None = None,
        dead_letter: str | None = None,
        create: bool = True,
        token: bytes | None = None,
    ) -> DurableSubscription: ...
    async def subscribe(
        self,
        pattern: str,
        where: str | None = None,
        *,
        callback: Callback | None = None,
        batches: bool = False,
        name: str | None = None,
        start: Start = None,
        ack: Literal["auto", "explicit", "handed"] = "auto",
        prefetch: int = PREFETCH,
        max_deliveries: int | None = None,
        dead_letter: str | None = None,
        create: bool = True,
        token: bytes | None = None,
    ) -> Subscription:
        """Subscribe to a topic, or to all topics that match a pattern; with `where`, only to messages that satisfy it.

        In a pattern `*` stands for one part of a name between dots and `>` for all that follow. Topics that are
        declared later are covered too; topics whose schema `where` does not fit are in `skipped`.

        Iterate over the returned subscription, or give a `callback`, a plain or an async function, which is called with
        one message after the other, or with `batches=True` with whole batches. The event loop may call a plain function
        directly, outside of any task. An exception in the callback is logged and ends the subscription: it is in
        `error`, and `unsubscribe` raises it. Raises `UnknownTopic` for a plain name that was never declared,
        `QuerySyntaxError` or `QueryTypeError` for a predicate that does not fit.

        A `name` or a `start` makes it a `DurableSubscription`, to one durable topic. With a name its cursor is stored:
        it resumes where it stopped, and clients that share the name share its messages. `start` is where a new one
        begins: "new" (the default), "earliest", a datetime, a position {log: offset}, or an offset when the topic has
        one log; without a name it is a replay from there. With `ack="explicit"` the application acknowledges.
        `prefetch` is the number of messages that may be here and not acknowledged. A message delivered `max_deliveries`
        times goes to the topic `dead_letter`. `ack="handed"` makes a `HandoutSubscription`, for programs that hand
        messages on to clients of their own; each handout is stored. With `create=False` the subscription must exist; an
        empty `pattern` then stands for its topic. A `token` of 16 bytes identifies the request: repeated with the same
        token, also by another client, it has its first effect, and `created` says so. Raises `SubscriptionExists` or
        `TopicMismatch` when the name belongs to another subscription or is in use by this client, and `NotDurable` for
        a live topic.
        """
        self._session.require_open()
        require_text("a pattern", pattern)
        if where is not None:
            require_text("a predicate", where)
        if name is None and start is None:
            if (ack, prefetch, max_deliveries, dead_letter, create) != ("auto", PREFETCH, None, None, True):
                raise InvalidValue(
                    "only a durable subscription has ack, prefetch and the like: give it a name or a start"
                )
            subscription = Subscription(self, self._subscriptions.next_number(), pattern, where)
        else:
            asked = checked_options(name, start_on_wire(start), ack, prefetch, max_deliveries, dead_letter, create)
            request = _token(token)
            options = asked._replace(start=await self._resolved(pattern, asked.start))
            number = self._subscriptions.next_number()
            kind = HandoutSubscription if options.hands else DurableSubscription
            subscription = kind(self, number, pattern, where, options, request)
            self._host.used = True
        await self._subscriptions.begin(subscription)
        if subscription.resumable:
            self._host.used = True
        if callback is not None:
            self._session.start(
                self._subscriptions.serve(subscription, callback, batches), f"callback of {subscription.name}"
            )
        return subscription

    async def read(
        self, topic: str, start: Mapping[int, int], stop: Mapping[int, int], where: str | None = None
    ) -> AsyncIterator[LogBatch]:
        """The rows of a durable topic from `start` to before `stop`, {log: offset} both, that satisfy `where`.

        The read ends by itself, leaves no state at the broker, and resumes after a lost connection. Logs that `stop`
        does not name are not read; one that `start` does not name is read from 0 on. Rows of one log come in order.
        Raises `RowsGone` when rows of the range are no longer kept (`hold` keeps them), and `BrokerError` when a log
        ends before `stop`.
        """
        reading = await self._begin_read(topic, start, stop, where)
        try:
            while found := await reading.take_batches():
                for batch in found:
                    yield batch
        finally:
            if not reading.ended:
                await self._subscriptions.detach(reading)

    async def _begin_read(
        self, topic: str, start: Mapping[int, int], stop: Mapping[int, int], where: str | None = None
    ) -> LogRead:
        """`read` for `Client`, which takes several batches at once, and detaches the read when it gives up."""
        self._session.require_open()
        if where is not None:
            require_text("a predicate", where)
        reading = LogRead(self, self._subscriptions.next_number(), topic, where, start, stop)
        self._host.used = True
        await self._subscriptions.begin(reading)
        return reading

    async def get(self, topic: str, timeout: float | None = None) -> Any:
        """The next message of this client's subscription to a topic, or of that name; None after `timeout` seconds.

        A message of a named subscription is acknowledged before this returns, and so is never returned again.
        """
        return await self._subscriptions.one(topic).get(timeout)

    async def get_many(self, topic: str, count: int, timeout: float | None = None) -> list[Any]:
        """Like `get`, for up to `count` messages with one acknowledgement: those already here, at least one."""
        subscription = self._subscriptions.one(topic)
        if not isinstance(subscription, DurableSubscription):
            raise InvalidValue(f"the subscription to {topic!r} is not durable; iterate over it, or over its batches()")
        return await subscription.get_many(count, timeout)

    async def unsubscribe(
        self, subscription: str | Subscription | None = None, *, name: str | None = None, token: bytes | None = None
    ) -> None:
        """End a subscription, or all subscriptions to a topic or pattern of this name.

        A named one is removed for good, for all clients that share it; `detach` keeps it. `name` also removes one that
        this client does not take part in. Raises `UnknownSubscription` when there is none, unless the request with this
        `token`, of 16 bytes, removed it.
        """
        if name is not None:
            require_text("the name of a subscription", name)
            mine = [each for each in self._subscriptions.durable() if each.options.name == name]
            if not mine:
                await self._subscriptions.remove(name, 0, _token(token))
            for each in mine:
                await self._subscriptions.unsubscribe(each)
        elif isinstance(subscription, str):
            called = self._subscriptions.called(subscription)
            if not called:
                raise UnknownSubscription(f"nothing is subscribed to {subscription!r}")
            for one in called:
                await self._subscriptions.unsubscribe(one)
        elif subscription is None:
            raise InvalidValue("unsubscribe takes a subscription, the name of a topic, or name=")
        else:
            await self._subscriptions.unsubscribe(subscription)

    async def detach(self, subscription: DurableSubscription) -> None:
        """Leave a durable subscription. A named one stays, and its backlog grows."""
        if not isinstance(subscription, DurableSubscription):
            raise InvalidValue(f"detach takes a subscription with a name or a start, not {subscription!r:.60}")
        await self._subscriptions.detach(subscription)

    def statistics(self) -> ClientStatistics:
        """The client's counters."""
        connection, publisher = self._session.connection, self._publisher
        now = (connection.rows, connection.batches, connection.bytes) if connection is not None else (0, 0, 0)
        rows, batches, size = (before + here for before, here in zip(self._host.delivered, now, strict=True))
        return ClientStatistics(
            connected=connection is not None,
            reconnects=self._session.reconnected,
            subscriptions=len(self._subscriptions.by_number),
            rows_put=publisher.rows,
            batches_put=publisher.batches,
            bytes_put=publisher.bytes,
            batches_refused=publisher.refused,
            rows_waiting=publisher.waiting,
            put_window=0 if connection is None else connection.put_window,
            put_outstanding=0 if connection is None else connection.outstanding,
            rows_delivered=rows,
            batches_delivered=batches,
            bytes_delivered=size,
            rows_dropped=self._subscriptions.dropped,
            bytes_queued=self._session.window.held,
        )


def _addresses(text: str) -> list[Address]:
    """The addresses of a list with commas."""
    require_text("an address", text)
    if "://" in text and parse_address(text.partition(",")[0].strip()).scheme == DATABASE:
        return [parse_address(text.strip())]  # its commas are between hosts of one database
    return [parse_address(each.strip()) for each in text.split(",")]


def _token(token: bytes | None) -> bytes:
    """The name of a request, under which the broker recognises its repetition."""
    if token is None:
        return os.urandom(TOKEN_BYTES)
    if not isinstance(token, bytes) or len(token) != TOKEN_BYTES:
        raise InvalidValue(f"a token is {TOKEN_BYTES} bytes")
    return token
