"""The client: topics, puts and subscriptions over one connection that comes back by itself."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Final

from milepost.batch.collector import REFUSED
from milepost.client.connection import Connection, software
from milepost.client.publisher import Publisher
from milepost.client.session import Session
from milepost.client.statistics import ClientStatistics
from milepost.client.subscription import Subscription
from milepost.client.topic import KnownTopic, TopicInfo, declaration, described, require_text, schema_from
from milepost.errors import Closed, ConnectionLost, MilepostError, UnknownSubscription
from milepost.transport import parse_address
from milepost.wire import Control, Delete, Hello, List, Status, Subscribe, Unsubscribe, Welcome

DEFAULT_ADDRESS: Final = "milepost://127.0.0.1:7450"
WINDOW_BYTES: Final = 4 << 20  # of deliveries under way: some milliseconds of the fastest publisher

Callback = Callable[[Any], Awaitable[None] | None]
_log = logging.getLogger("milepost.client")


class AsyncClient:
    """A client of one broker.

    ::

        async with milepost.AsyncClient("milepost://127.0.0.1:7450", name="feed") as client:
            await client.declare_topic("quotes", "quote: [symbol: string, price: double, size: int]")
            await client.put("quotes", {"symbol": "IBM", "price": 101.5, "size": 200})

    Live topics are at-most-once. When the connection breaks, the client connects again by itself, with growing random
    delays, for ever; topics that it declared and subscriptions are there again, and rows that wait in its outboxes are
    sent. What had been sent and not yet been processed by the broker is lost; `flush` says that it may be. With
    `reconnect=False` everything fails with `ConnectionLost` instead.

    All methods belong to the event loop that `connect` ran in. `name` identifies a publisher: of two clients with one
    name the older is closed. `slow` ("throttle", "drop" or "disconnect") replaces, for this client, what topics say
    about slow subscribers. `window` is the number of bytes of deliveries that may be under way or waiting here,
    `timeout` the seconds that a request may take, waiting for a connection included. `clock` gives the time for
    stamps, in seconds since 1970; by default it is the broker's.
    """

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        *,
        name: str = "",
        slow: str | None = None,
        window: int = WINDOW_BYTES,
        reconnect: bool = True,
        timeout: float = 10.0,
        clock: Callable[[], float] | None = None,
    ) -> None:
        require_text("the name of a client", name)
        hello = Hello(name=name, auth={"method": "none"}, software=software(), window=window, slow=slow)
        self._subscriptions: dict[int, Subscription] = {}
        self._numbers = 0
        self._session = Session(_Host(self), self._subscriptions, parse_address(address), hello, timeout, reconnect)
        self._publisher = Publisher(self._session, clock)
        self._boxes = self._publisher.boxes
        self._delivered = [0, 0, 0]  # rows, batches, bytes of connections that are gone
        self._dropped = 0  # of subscriptions that are gone

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
        """Send what waits in outboxes, for at most the client's timeout, and leave. Without `drain`, leave now."""
        try:
            if drain and self._publisher.waiting and self._session.failure is None:
                try:
                    async with asyncio.timeout(self._session.timeout):
                        await self._publisher.emptied()
                except (TimeoutError, MilepostError) as error:
                    rows = self._publisher.waiting
                    _log.warning("%d rows were not sent before the client was closed: %s", rows, error)
        finally:
            await self._session.end()

    # Topics

    async def declare_topic(self, name: str, schema: Any, *, slow: str | None = None) -> TopicInfo:
        """Make a topic, or a new version of its schema; a topic that is there as declared stays as it is.

        `schema` is a text, a `Schema`, a `MessageType` or a dataclass. `slow` says what happens to subscribers that
        are slow: "throttle" the publishers (the default), "drop" the oldest rows, or "disconnect". Raises
        `IncompatibleSchema` when readers of the existing versions would break.
        """
        wanted = schema_from(schema)
        reply = await self._session.ask(declaration(name, wanted, slow))
        created = bool(reply["created"])
        self._publisher.declare(name, int(reply["number"]), wanted, slow)
        known = None if self._session.connection is None else self._session.connection.by_name.get(name)
        if known is None:
            return TopicInfo(name, wanted, (wanted,), slow or "throttle", created)
        return known.info(created)

    async def delete_topic(self, name: str) -> None:
        """Remove a topic and every subscription to it; `UnknownTopic` when it is not there."""
        require_text("the name of a topic", name)
        await self._session.ask(lambda request: Delete(request=request, name=name), again=False)
        self._publisher.forget(name)
        for subscription in list(self._subscriptions.values()):
            if subscription.pattern == name:
                self._stop(subscription, told=True)

    async def topics(self, pattern: str = ">") -> list[TopicInfo]:
        """The topics of a pattern, with the broker's figures about them."""
        require_text("a pattern", pattern)
        found = await self._session.ask(lambda request: List(request=request, pattern=pattern))
        return [described(each) for each in found]

    async def status(self) -> dict[str, Any]:
        """The broker's statistics."""
        found: dict[str, Any] = await self._session.ask(lambda request: Status(request=request))
        return found

    # Putting

    async def put(self, topic: str, row: Any) -> None:
        """Put one message: a dict, a dataclass, a node, or a row of another batch.

        Returns when the message is in the client's outbox, which is bounded: while the broker does not keep up, this
        waits. The first message leaves at once; those that come while it is in flight leave together. Raises
        `InvalidValue` or `CheckFailed`, and then nothing was put; `UnknownTopic` for a topic that nobody declared. A
        put that was cancelled has put nothing.
        """
        box = self._boxes.get(topic)
        if box is None or not box.gathering:
            if box is None or not self._publisher.put_alone(box, row):
                await self._publisher.put(topic, row)
            return
        try:
            box.add(row)
        except REFUSED:
            box.take(row)
        if len(box.collected) >= box.most:
            await self._publisher.breathe(box)

    async def put_many(self, topic: str, source: Any) -> int:
        """Put many messages: rows, columns, a frame, whatever `milepost.encode` takes, or a `Batch`; their number.

        A source that is an iterator is encoded and sent piece by piece; any other is encoded whole first, so that
        either all of its messages are put or, when one does not fit, none. Returns when all are handed to the network,
        and waits while the broker does not keep up. A batch gets IDs of this client.
        """
        return await self._publisher.put_many(topic, source)

    async def flush(self, timeout: float | None = None) -> None:
        """Wait until the broker has processed everything that was put before.

        Raises what went wrong with puts since the last flush: the error of one that the broker refused, or
        `ConnectionLost` when the connection broke and some may not have arrived. `TimedOut` after `timeout` seconds,
        by default the client's.
        """
        await self._publisher.flush(timeout)

    # Subscribing

    async def subscribe(
        self, pattern: str, where: str | None = None, *, callback: Callback | None = None, batches: bool = False
    ) -> Subscription:
        """Have the messages of a topic delivered, or of all topics of a pattern, those that satisfy `where` only.

        In a pattern `*` stands for one part of a name between dots and `>` for all that follow; topics that are
        declared later are covered too, and topics whose schema `where` does not fit are in `skipped`.

        Iterate over what this returns; or give a `callback`, a plain or an async function, which is called with one
        message after the other, or with `batches=True` with whole batches. A plain function may be called by the event
        loop itself, outside of any task. An exception in it is logged and ends this
        subscription: it is in `error`, and raised by `unsubscribe`. Raises `UnknownTopic` for a plain name that nobody
        declared, `QuerySyntaxError` or `QueryTypeError` for a predicate that does not fit.
        """
        self._session.require_open()
        require_text("a pattern", pattern)
        if where is not None:
            require_text("a predicate", where)
        self._numbers += 1
        subscription = Subscription(self, self._numbers, pattern, where)
        self._subscriptions[subscription.number] = subscription  # deliveries may come right behind the reply
        try:
            _confirm(subscription, await self._session.ask(_subscribe(subscription)))
        except BaseException as error:
            del self._subscriptions[subscription.number]
            if self._session.connection is not None and not isinstance(error, MilepostError):
                self._session.connection.unsubscribe(subscription.number)  # cancelled: the broker may have it
            raise
        if callback is not None:
            self._session.start(self._serve(subscription, callback, batches), f"callback of {subscription.name}")
        return subscription

    async def _serve(self, subscription: Subscription, callback: Callback, batches: bool) -> None:
        """The task of a callback."""
        try:
            if not batches:
                await subscription.serve(callback)
                return
            async for batch in subscription.batches():
                made = callback(batch)
                if made is not None and inspect.isawaitable(made):
                    await made
        except Exception as error:
            if error is not subscription.error:  # otherwise the connection ended it, and has said so
                _log.exception("the callback of the subscription to %s failed; it ends here", subscription.name)
                self._stop(subscription, error)

    async def unsubscribe(self, subscription: str | Subscription) -> None:
        """Take no more of a subscription, or of all subscriptions to a topic or pattern of this name."""
        if isinstance(subscription, str):
            found = [each for each in self._subscriptions.values() if each.pattern == subscription]
            if not found:
                raise UnknownSubscription(f"nothing is subscribed to {subscription!r}")
            for each in found:
                await self.unsubscribe(each)
            return
        if self._subscriptions.pop(subscription.number, None) is not None:
            number = subscription.number
            self._dropped += subscription.dropped
            subscription.end()
            if self._session.connection is not None and self._session.failure is None:
                try:
                    await self._session.ask(lambda request: Unsubscribe(request=request, subscription=number))
                except (UnknownSubscription, ConnectionLost):
                    pass  # either way it is gone
        if subscription.error is not None:
            raise subscription.error

    def _stop(self, subscription: Subscription, error: BaseException | None = None, *, told: bool = False) -> None:
        """End a subscription that cannot go on; `told`: the broker knows."""
        if self._subscriptions.pop(subscription.number, None) is not None:
            self._dropped += subscription.dropped
            if self._session.connection is not None and not told:
                self._session.connection.unsubscribe(subscription.number)
        subscription.end(error)

    def statistics(self) -> ClientStatistics:
        """The client's figures."""
        connection, publisher = self._session.connection, self._publisher
        now = (connection.rows, connection.batches, connection.bytes) if connection is not None else (0, 0, 0)
        rows, batches, size = (before + here for before, here in zip(self._delivered, now, strict=True))
        return ClientStatistics(
            connected=connection is not None,
            reconnects=self._session.reconnected,
            subscriptions=len(self._subscriptions),
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
            rows_dropped=self._dropped + sum(each.dropped for each in list(self._subscriptions.values())),
            bytes_queued=0 if connection is None else connection.queued,
        )


class _Host:
    """The client as its session sees it: kept apart, so that none of this is among the client's verbs."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    def welcomed(self, welcome: Welcome) -> None:
        self._client._publisher.welcomed(welcome)

    def room(self) -> None:
        self._client._publisher.room()

    def announced(self, topic: KnownTopic) -> None:
        self._client._publisher.announced(topic)

    def put_refused(self, error: MilepostError, topic: str) -> None:
        self._client._publisher.refuse(error, topic)

    def subscription_ended(self, number: int, error: MilepostError) -> None:
        """What waits can still be taken; the error is raised behind it."""
        client = self._client
        subscription = client._subscriptions.pop(number, None)
        if subscription is not None:
            client._dropped += subscription.dropped
            subscription.end(error, keep=True)

    def lost(self, connection: Connection, error: MilepostError, was_used: bool) -> None:
        delivered = self._client._delivered
        for place, count in enumerate((connection.rows, connection.batches, connection.bytes)):
            delivered[place] += count
        if was_used:
            self._client._publisher.lost(error)

    def failed(self, error: MilepostError) -> None:
        """Messages that are here can still be taken, unless the client was closed on purpose."""
        self._client._publisher.stop()
        closed = isinstance(error, Closed)
        for subscription in list(self._client._subscriptions.values()):
            subscription.end(None if closed else error, keep=not closed)

    async def restore(self, connection: Connection) -> None:
        client = self._client
        await client._publisher.restore(connection)
        for subscription in list(client._subscriptions.values()):
            if not subscription.confirmed or subscription.ended:
                continue  # whoever asked for it is still asking, or no longer wants it
            try:
                if subscription.pattern in client._publisher.schemas:
                    await client._publisher.redeclare(connection, subscription.pattern)
                _confirm(subscription, await connection.ask(_subscribe(subscription)))
                if subscription.number not in client._subscriptions:  # given up meanwhile, with nobody to tell
                    connection.unsubscribe(subscription.number)
            except ConnectionLost:
                raise
            except MilepostError as error:
                _log.error("the subscription to %s did not come back: %s", subscription.name, error)
                client._stop(subscription, error)


def _confirm(subscription: Subscription, reply: dict[str, Any]) -> None:
    subscription.confirmed = True
    subscription.topics.update(reply["topics"])
    subscription.skipped.update(reply["skipped"])


def _subscribe(subscription: Subscription) -> Callable[[int], Control]:
    return lambda request: Subscribe(
        request=request, subscription=subscription.number, pattern=subscription.pattern, where=subscription.where
    )
