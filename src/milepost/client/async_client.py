"""The client: topics, puts and subscriptions over one connection that comes back by itself."""

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
WINDOW_BYTES: Final = 4 << 20  # of deliveries under way: some milliseconds of the fastest publisher
ANSWER_S: Final = (
    15.0  # for a request: longer than a broker waits for its store (`lease_s`), whose word comes first then
)
INSTANCE_BYTES: Final = 16

_log = logging.getLogger("milepost.client")


class AsyncClient(QueueVerbs):
    """A client of one broker.

    ::

        async with milepost.AsyncClient("milepost://127.0.0.1:7450", name="feed") as client:
            await client.declare_topic("quotes", "quote: [symbol: string, price: double, size: int]")
            await client.put("quotes", {"symbol": "IBM", "price": 101.5, "size": 200})

    Live topics are at-most-once. When the connection breaks, the client connects again by itself, with growing random
    delays, for ever; topics that it declared and subscriptions are there again, and rows that wait in its outboxes are
    sent. What had been sent and not yet been processed by the broker is lost; `flush` says that it may be. With
    `reconnect=False` everything fails with `ConnectionLost` instead.

    Durable topics are exactly-once: a put that returned is stored, and one that was under way when a connection broke
    is sent again and stored once. `broker_id` names what the broker has stored, and changes only when that was lost:
    then everything raises `StateLost`, if this client has used a durable topic, or was told what to expect by
    `known_broker_id`. Several addresses, with commas between them, are tried one after the other.

    All methods belong to the event loop that `connect` ran in. `name` identifies a publisher: of two clients with one
    name the older is closed. `slow` ("throttle", "drop" or "disconnect") replaces, for this client, what topics say
    about slow subscribers. `window` is the number of bytes of deliveries that may be under way or waiting here,
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
        """Connect. `ConnectionLost` when no broker is there: only a connection that was there comes back by itself."""
        await self._session.begin()
        return self

    async def __aenter__(self) -> AsyncClient:
        return await self.connect()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(drain=kind is None)

    async def close(self, *, drain: bool = True) -> None:
        """Send what waits in outboxes, for at most the client's timeout, and leave. Without `drain`, leave now.

        Also waits for durable puts and for acknowledgements that are under way. Named subscriptions stay.
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
        """The ID of what the broker has stored, which changes only when that was lost; empty: it stores nothing.

        An application that keeps it, and gives it as `known_broker_id` the next time, is told of a loss even then.
        """
        if self._host.broker_id is None:
            raise Closed("this client is not connected; write `async with AsyncClient(...)`, or await connect()")
        return self._host.broker_id

    @property
    def failure(self) -> MilepostError | None:
        """What ended this client for good, closing it included; None while it works, or connects again by itself."""
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
        """Make a topic, or a new version of its schema; a topic that is there as declared stays as it is.

        `schema` is a text, a `Schema`, a `MessageType` or a dataclass. `slow` says what happens to subscribers that
        are slow: "throttle" the publishers (the default), "drop" the oldest rows, or "disconnect". `durable` keeps its
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
        """Remove a topic and every subscription to it; `UnknownTopic` when it is not there."""
        require_text("the name of a topic", name)
        await self._session.ask(lambda request: Delete(request=request, name=name), again=False)
        self._publisher.forget(name)
        for subscription in list(self._subscriptions.by_number.values()):
            if subscription.pattern == name:
                self._subscriptions.stop(subscription, told=True)

    async def topics(self, pattern: str = ">") -> list[TopicInfo]:
        """The topics of a pattern, with the broker's figures about them."""
        require_text("a pattern", pattern)
        found = await self._session.ask(lambda request: ListTopics(request=request, pattern=pattern))
        return [described(each) for each in found]

    async def versions(self, topic: str, *, again: bool = False) -> tuple[Schema, ...]:
        """The versions of a topic's schema, the oldest first, as the broker announced them; `again` asks it anew."""
        return await self._publisher.versions(topic, again)

    async def status(self) -> dict[str, Any]:
        """The broker's statistics."""
        found: dict[str, Any] = await self._session.ask(lambda request: StatusRequest(request=request))
        return found

    async def look(self, topic: str, start: Start = None) -> dict[str, Any]:
        """A durable topic as the broker stores it: "logs" and their sizes, named "subscriptions" and their cursors.

        With `start`, as `subscribe` takes it, "position" is where that is now. `NotDurable` for a live topic.
        """
        require_text("the name of a topic", topic)
        wanted = await self._resolved(topic, start_on_wire(start))
        found: dict[str, Any] = await self._session.ask(
            lambda request: Look(request=request, topic=topic, start=wanted)
        )
        return found

    async def trim(self, topic: str, before: int | Mapping[int, int]) -> int:
        """Remove the rows of a durable topic before a position, or an offset of its only log; how many went.

        Also those that a named subscription has not consumed: it is told which it lost.
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

        A hold is a named cursor that nobody is served from: retention with `hold`, the default, waits for it as it does
        for a named subscription. A new one is made at `position`, or at what is there; one that is there moves forward
        only, log by log. Returns where it is, so the same again changes nothing. `unsubscribe(name=...)` removes it.
        `SubscriptionExists` when a subscription has this name, and `subscribe` raises it for the name of a hold.
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
        not keep up, it waits. The first message leaves at once; those that come while it is in flight leave together.
        Raises `InvalidValue` or `CheckFailed`, and then nothing was put; `UnknownTopic` for a topic that nobody
        declared. A put that was cancelled has put nothing.

        On a durable topic it returns when the message is stored: committed, and synced to disk. Puts that run at the
        same time are stored together. With `wait=False` it returns as on a live topic, which costs far less than a
        task for each message; `flush` then waits for all of them, and raises what failed. A `key`, a UUID or 16
        bytes, makes it idempotent beyond this client's life: `DuplicateMessage` when it was used before in this topic,
        within the broker's `remember_s`, a day by default. With `wait=False` it is `flush` that raises it.
        While the connection is lost, or the broker's store in doubt, it goes on waiting, also beyond the client's
        `timeout`: it returns or raises when it is known what became of the message. One that was cancelled may have
        been stored.
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
        """Put many messages: rows, columns, a frame, whatever `milepost.encode` takes, or a `Batch`; their number.

        A source that is an iterator is encoded and sent piece by piece; any other is encoded whole first, so that
        either all of its messages are put or, when one does not fit, none. Returns when all are handed to the network,
        and waits while the broker does not keep up; on a durable topic, when all are stored. A source of more than a
        megabyte is stored in several pieces, of which one may fail: see `atomic`. `LimitExceeded` names a row that is
        larger than a frame may be; rows before it may have been put. A batch gets IDs of this client.
        Columns are copied when they leave, so leave arrays as they are until this returns.
        """
        return await self._publisher.put_many(topic, source)

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until the broker has processed everything that was put before, and stored what is durable.

        Raises what went wrong with puts since the last flush: the error of one that the broker refused, or
        `ConnectionLost` when the connection broke and some may not have arrived. `TimedOut` after `timeout` seconds,
        by default the client's.
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
        """Store rows of a durable topic that nobody sees before `publish` names them; their number.

        A sink is whoever writes epochs, one after the other, and each whole or not at all, as a query of Spark does.
        `part` is which share of the epoch this is, `attempt` which try at it: take a number that no other try had, a
        random one if there is nothing better. `source` is what `put_many` takes, checked as there. It is stored in
        pieces, and several calls for an attempt add up, in order, also for several topics. Returns when all is
        stored; a connection that breaks meanwhile is waited for, as by `put`. When this raises, something of the
        source may be staged: go on with a new attempt.

        What one client stages under an attempt takes the place of what another one had staged under the same numbers.
        Rows for an epoch that is published already are thrown away.
        """
        return await self._publisher.staging.stage(sink, epoch, part, attempt, topic, source)

    async def publish(
        self,
        sink: str,
        epoch: int,
        parts: Sequence[tuple[int, int]],
        extra: Mapping[str, Any] | None = None,
    ) -> Published:
        """Let the staged rows of an epoch be seen, all at once: the parts in this order, each by one attempt.

        In the same transaction `extra`, {topic: rows}, is appended behind them, the sink's epoch moves, and what else
        was staged for it up to this epoch is thrown away. An epoch that is not above the last one was published
        before: `repeated` is True, and nothing changes; so this may be done again after any error. `StagingLost` when
        nothing is staged for one of the parts: then nothing was published. A part without rows is not named.
        """
        return await self._publisher.staging.publish(sink, epoch, parts, extra)

    async def published(self, sink: str) -> int | None:
        """The last epoch that a sink has published; None before the first."""
        return await self._publisher.staging.published(sink)

    async def unstage(self, sink: str, epoch: int) -> None:
        """Throw away what is staged for an epoch of a sink. What is published stays."""
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
        """Have the messages of a topic delivered, or of all topics of a pattern, those that satisfy `where` only.

        In a pattern `*` stands for one part of a name between dots and `>` for all that follow; topics that are
        declared later are covered too, and topics whose schema `where` does not fit are in `skipped`.

        Iterate over what this returns; or give a `callback`, a plain or an async function, which is called with one
        message after the other, or with `batches=True` with whole batches. A plain function may be called by the event
        loop itself, outside of any task. An exception in it is logged and ends this
        subscription: it is in `error`, and raised by `unsubscribe`. Raises `UnknownTopic` for a plain name that nobody
        declared, `QuerySyntaxError` or `QueryTypeError` for a predicate that does not fit.

        A `name` or a `start` makes it a `DurableSubscription`, to one durable topic. With a name its cursor is stored:
        it goes on where it was, and clients that share the name share its messages. `start` is where a new one begins:
        "new" (the default), "earliest", a datetime, a position {log: offset}, or an offset when the topic has one log;
        without a name it is a replay from there. `ack="explicit"` leaves acknowledging to you, `prefetch` is the number
        of messages that may be here and not acknowledged, and one that came `max_deliveries` times goes to the topic
        `dead_letter`. `ack="handed"` is for programs that hand messages on to clients of their own, which is stored:
        it makes a `HandoutSubscription`. With `create=False` the subscription must be there; an empty `pattern` then
        stands for its topic. A `token` of 16 bytes names the request: made again with the same one, also by another
        client, it has the effect that it had, and `created` says so. Raises `SubscriptionExists` or `TopicMismatch`
        when the name belongs to another one, or to one that this client has;
        `NotDurable` for a live topic.
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

        It ends by itself, leaves nothing behind at the broker, and goes on where it was after a lost connection. Logs
        that `stop` does not name are not read; one that `start` does not name is read from 0 on. Rows of one log come
        in order. Raises `RowsGone` when rows of the range are kept no more (`hold` keeps them), and `BrokerError` when
        a log ends before `stop`.
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
        """The same for `Client`, which takes several batches at once, and detaches it when it gives up."""
        self._session.require_open()
        if where is not None:
            require_text("a predicate", where)
        reading = LogRead(self, self._subscriptions.next_number(), topic, where, start, stop)
        self._host.used = True
        await self._subscriptions.begin(reading)
        return reading

    async def get(self, topic: str, timeout: float | None = None) -> Any:
        """The next message of this client's subscription to a topic, or of that name; None after `timeout` seconds.

        Of a named subscription it is acknowledged before this returns, and so will not be returned again.
        """
        return await self._subscriptions.one(topic).get(timeout)

    async def get_many(self, topic: str, count: int, timeout: float | None = None) -> list[Any]:
        """The same for up to `count` messages, with one acknowledgement; those that are here, at least one."""
        subscription = self._subscriptions.one(topic)
        if not isinstance(subscription, DurableSubscription):
            raise InvalidValue(f"the subscription to {topic!r} is not durable; iterate over it, or over its batches()")
        return await subscription.get_many(count, timeout)

    async def unsubscribe(
        self, subscription: str | Subscription | None = None, *, name: str | None = None, token: bytes | None = None
    ) -> None:
        """Take no more of a subscription, or of all subscriptions to a topic or pattern of this name.

        A named one is removed for good, whoever shares it; `detach` leaves it. `name` removes one that this client
        does not take part in; `UnknownSubscription` when there is none, unless the request with this `token`, of 16
        bytes, was what removed it.
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
        """Take no more of a durable subscription here. A named one stays, and collects what comes."""
        if not isinstance(subscription, DurableSubscription):
            raise InvalidValue(f"detach takes a subscription with a name or a start, not {subscription!r:.60}")
        await self._subscriptions.detach(subscription)

    def statistics(self) -> ClientStatistics:
        """The client's figures."""
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
    """The addresses between commas."""
    require_text("an address", text)
    if "://" in text and parse_address(text.partition(",")[0].strip()).scheme == DATABASE:
        return [parse_address(text.strip())]  # its commas are between hosts of one database
    return [parse_address(each.strip()) for each in text.split(",")]


def _token(token: bytes | None) -> bytes:
    """The name of a request: what makes its repetition the same one."""
    if token is None:
        return os.urandom(TOKEN_BYTES)
    if not isinstance(token, bytes) or len(token) != TOKEN_BYTES:
        raise InvalidValue(f"a token is {TOKEN_BYTES} bytes")
    return token
