"""A subscription: messages one by one as they arrive, or in whole batches."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from milepost.batch import Batch
from milepost.client.connection import BrokerConnection
from milepost.client.dispatch import Rows
from milepost.client.logbatch import LogBatch
from milepost.client.topic import advance
from milepost.client.waiters import WaitingTasks
from milepost.client.window import DeliveryCredit, DeliveryWindow
from milepost.wire import Subscribe

if TYPE_CHECKING:
    from milepost.client.async_client import AsyncClient

TURN_ROWS: Final = 4_096  # messages that are handed out before other tasks run
SKIPPED_KEPT: Final = 1_000  # topics that are named, with reasons: other clients may create any number of topics
WILD: Final = frozenset("*>")  # words of a pattern

_log = logging.getLogger("milepost.client")


class Delivered(NamedTuple):
    """Rows of a batch that wait to be taken."""

    topic: str
    batch: Batch
    rows: Rows
    credit: DeliveryCredit


class Subscription:
    """Messages of one topic, or of all topics that match a pattern. Made by `AsyncClient.subscribe`.

    ::

        async for message in subscription: ...             # message.price, message["price"], message.id
        async for batch in subscription.batches(): ...     # batch.column("price"), batch.to_arrow()
        message = await subscription.get(timeout=1.0)      # or None

    Messages are light views of their batch: to keep data, keep values, not views. Iteration ends when the subscription
    or the client is closed. For an application that stops reading, the topic's policy throttles publishers, drops rows
    or disconnects it: at most the client's window of bytes waits here. After a disconnection for being slow, iteration
    raises `SlowConsumer` after the rows that had arrived.

    After a lost connection it resumes durable topics where it stopped, and live topics with the next put.
    """

    def __init__(self, client: AsyncClient, number: int, pattern: str, where: str | None) -> None:
        self._client = client
        self.number: Final = number  # on the wire: the tag of its deliveries
        self.pattern = pattern
        self.where: Final = where
        self.topics: set[str] = set()  # covered so far; a pattern may cover new ones
        self.skipped: dict[str, str] = {}  # topics of the pattern that deliver nothing, with reasons; bounded
        self.dropped = 0  # rows that will not come: this client was slow, or they are in `lost`
        self.lost: list[tuple[int, int, int]] = []  # rows gone from a log: log, first offset, offset after the last
        self.error: BaseException | None = None  # the error that ended it; None if the application did
        self.topic = ""  # of the message or batch handed out last
        self.confirmed = False  # the broker has confirmed it
        self.complete = False  # it had a stop, and all rows before that have arrived
        # By the store's number of a durable topic: the position before which all rows have arrived. While the
        # subscription is live, `KnownTopic.reached` is ahead of it.
        self._positions: dict[int, dict[int, int]] = {}
        self._on: BrokerConnection | None = None  # the connection that it is on
        self._behind: dict[str, int] = {}  # topics whose missed rows come from the log: name -> store's number
        self.hand: Callable[[Any], Any] | None = None  # a callback, while it waits for its next message
        self._outcome: Awaitable[Any] | BaseException | None = None  # the result of `hand`, for the task of `serve`
        self._queue: deque[Delivered] = deque()
        self._waiters = WaitingTasks()
        self._ended = False
        self._batch: Batch | None = None  # being handed out
        self._indexes: Iterator[int] = iter(())  # of its rows, those left in this turn
        self.current: Iterator[Any] = iter(())  # the same rows as messages
        self._rest: Sequence[int] = ()  # rows after this turn
        self._credit: DeliveryCredit | None = None
        self._turn_rows = 0  # rows handed out without a pause
        self._at_once = TURN_ROWS  # rows that are prepared together

    def __repr__(self) -> str:
        where = f" where {self.where}" if self.where is not None else ""
        return f"<Subscription {self.number} to {self.pattern}{where}>"

    @property
    def name(self) -> str:
        """A description for people: the pattern and the predicate."""
        return f"{self.pattern!r}" + (f" where {self.where}" if self.where is not None else "")

    @property
    def ended(self) -> bool:
        """Whether nothing more will be delivered; messages that are here may still be taken."""
        return self._ended

    # Taking

    async def __aiter__(self) -> AsyncIterator[Any]:
        while True:
            # The iterator is the subscription's, not the loop's: after a `break`, the next loop continues it.
            for message in self.current:
                yield message
            if not await self.advance():
                return

    async def __anext__(self) -> Any:
        message = await self.get()
        if message is None:
            raise StopAsyncIteration
        return message

    async def get(self, timeout: float | None = None) -> Any:
        """The next message; None when none came within `timeout` seconds, or when the subscription has ended."""
        for message in self.current:
            return message
        await self._let_others_run()
        if timeout is None or self._step():  # setting up a timeout costs as much as all the rest
            while True:
                for message in self.current:
                    return message
                if not await self.advance():
                    return None
        try:
            async with asyncio.timeout(timeout):
                return await self.get()
        except TimeoutError:
            return None

    async def batches(self) -> AsyncIterator[Batch]:
        """The same messages in the batches that they arrived in."""
        while (batch := await self.next_batch()) is not None:
            yield batch

    async def next_batch(self) -> Batch | None:
        """The next batch, or the rest of the one whose messages are being taken; None at the end."""
        while True:
            rest = [*self._indexes, *self._rest]
            if rest and self._batch is not None:
                self._rest = ()
                return self._batch if len(rest) == len(self._batch) else self._batch.take(rest)
            if not await self.advance():
                return None

    async def serve(self, callback: Callable[[Any], Any]) -> None:
        """Call a function with one message after the other, to the end. Raises its exception.

        A single message that arrives while a plain function waits need not wait for this task: `take` calls the
        function directly, which saves a turn of the event loop. Its result or exception is handled here.
        """
        run: Callable[..., Any] = copy_context().run
        hand = None if inspect.iscoroutinefunction(callback) else partial(run, callback)
        more = True
        while more:
            for message in self.current:
                made = callback(message)
                if made is not None and inspect.isawaitable(made):
                    hand = None
                    await made
            more = await self.advance(hand)

    async def advance(self, hand: Callable[[Any], Any] | None = None) -> bool:
        """Make the next messages `current`, once the earlier ones were taken. Returns False at the end.

        `hand` may be given messages while this waits for them.
        """
        await self._let_others_run()
        while not self._step():
            if self._ended:
                if self.error is not None:
                    raise self.error
                return False
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            if hand is not None:
                self.hand = hand
            try:
                await waiter
                if hand is not None:
                    self.hand = None
                    await self._settle()
            finally:
                self._waiters.remove(waiter)
                if hand is not None:
                    self.hand = None
                    if inspect.iscoroutine(self._outcome):
                        self._outcome.close()  # cancelled before it had begun
        return True

    async def _settle(self) -> None:
        outcome, self._outcome = self._outcome, None
        if isinstance(outcome, BaseException):
            raise outcome
        if outcome is not None:
            await outcome

    async def _let_others_run(self) -> None:
        """Let other tasks run after many messages without a pause."""
        if self._turn_rows >= TURN_ROWS:
            self._turn_rows = 0
            await asyncio.sleep(0)

    def _step(self) -> bool:
        """Advance to messages that are here. Earlier ones are done: their bytes are returned."""
        if self._rest:
            self._prepare(self._rest)
            return True
        if self._credit is not None:
            self._credit.release()
            self._credit = self._batch = None
        if not self._queue:
            self._turn_rows = 0
            return False
        self.topic, self._batch, rows, self._credit = self._queue.popleft()
        self._prepare(range(len(self._batch)) if rows is None else rows.tolist())
        return True

    def _prepare(self, rows: Sequence[int]) -> None:
        assert self._batch is not None
        now, self._rest = rows[: self._at_once], rows[self._at_once :]
        self._turn_rows += len(now)
        self._indexes = iter(now)
        self.current = self._batch.messages(self._indexes)

    # Called by the connection

    def deliver(self, topic: str, batch: Batch, rows: Rows, credit: DeliveryCredit) -> None:
        """Called when rows for this subscription arrive."""
        if self._ended:
            credit.release()
            return
        if topic not in self.topics:
            self._cover(topic)
        self._queue.append(Delivered(topic, batch, rows, credit))
        if self._waiters:
            self._waiters.wake()

    def take(self, topic: str, batch: Batch, window: DeliveryWindow, size: int) -> None:
        """One row arrived while a callback waits: `hand` is set. Its bytes are returned once it is handled."""
        hand, self.hand = self.hand, None  # rows that arrive while it runs are queued
        if hand is None or self._queue or self._ended:
            self.deliver(topic, batch, None, DeliveryCredit(window, size, 1))
            return
        self.topic = topic
        if topic not in self.topics:
            self._cover(topic)
        try:
            made = hand(batch.only())
        except (Exception, asyncio.CancelledError) as error:
            self._outcome = error
        else:
            if made is None or not inspect.isawaitable(made):
                if not self._ended:
                    self.hand = hand
                window.consumed(size)
                return
            self._outcome = made
        self._credit = DeliveryCredit(window, size, 1)
        self._waiters.wake()

    def handed(self, topic: str, batch: LogBatch, credit: DeliveryCredit) -> None:
        """Called with rows that were put while the connection was lost."""
        stored = self._behind.get(topic)
        if stored is not None:
            advance(self._positions.setdefault(stored, {}), {batch.log: int(batch.offsets[-1]) + 1})
        self.deliver(topic, batch, None, credit)

    def _cover(self, *topics: str) -> None:
        self.topics.update(topics)
        for topic in topics if self.skipped else ():
            self.skipped.pop(topic, None)  # it was created again, or has a version that `where` fits

    def skip(self, topics: Mapping[str, str]) -> None:
        """Note new topics of the pattern that are not delivered: `where` does not fit, or there are too many."""
        for topic, why in topics.items():
            self.topics.discard(topic)
            if len(self.skipped) < SKIPPED_KEPT:
                self.skipped[topic] = why

    def drop(self, rows: int) -> None:
        """The broker reports that it dropped rows."""
        self.dropped += rows

    def lose(self, log: int, first: int, after: int) -> None:
        """Undelivered rows of a log are gone: retention or an operator removed them."""
        self.lost.append((log, first, after))
        _log.warning("rows %d to %d of log %d of %s were removed unread", first, after - 1, log, self.name)

    def caught_up(self, topic: int, position: dict[int, int]) -> None:
        """All rows of a durable topic before a position have arrived; later ones are delivered as they come."""
        self._behind = {name: stored for name, stored in self._behind.items() if stored != topic}
        advance(self._positions.setdefault(topic, {}), position)

    # Called by the client

    @property
    def resumable(self) -> bool:
        """Whether it has durable topics, which resume where they stopped."""
        return bool(self._positions or self._behind)

    def request(self, number: int, *, back: bool = False) -> Subscribe:
        """The request for the broker; `back`: to resume on a new connection what this client had on an old one."""
        resume = self._positions if back and self.resumable else None
        return Subscribe(
            request=number, subscription=self.number, pattern=self.pattern, where=self.where, resume=resume
        )

    def attached(self, connection: BrokerConnection, reply: Mapping[str, Any]) -> None:
        """Called when the broker has it on this connection."""
        self.confirmed = True
        self._on = connection
        self._cover(*reply["topics"])
        self.skip(reply["skipped"])
        self._behind = dict(reply.get("behind", {}))
        now = dict(reply.get("positions", {})) | {stored: {} for stored in self._behind.values()}
        self._positions = {stored: self._positions.get(stored, {}) for stored in now}  # drops deleted topics
        for stored, position in now.items():
            advance(self._positions[stored], position)
        if self.resumable:
            connection.resumable = True
        if not connection.alive:
            self.detached(connection)

    def detached(self, connection: BrokerConnection) -> None:
        """A connection is gone: note how far it has delivered, if this subscription was on it.

        A connection that breaks during `restore` may have delivered rows to other subscriptions, and none to this one.
        """
        if self._on is not connection:
            return
        self._on = None
        for topic in connection.topics.values():
            mine = topic.name == self.pattern or not WILD.isdisjoint(self.pattern)
            if topic.stored and mine and topic.name not in self._behind:
                advance(self._positions.setdefault(topic.stored, {}), topic.reached)

    # Ending

    async def unsubscribe(self) -> None:
        """End the subscription and drop its waiting messages. Raises the error that ended it before, if any."""
        await self._client.unsubscribe(self)

    close = unsubscribe

    async def __aenter__(self) -> Subscription:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            await self.unsubscribe()
        except Exception:
            if kind is None:  # otherwise an exception is being raised already
                raise

    def end(self, error: BaseException | None = None, *, keep: bool = False) -> None:
        """Nothing more will be delivered. `keep` leaves waiting messages to be taken; `error` is raised after them."""
        if not self._ended:
            self._ended = True
            self.error = error
        if not keep:
            self._drop_waiting()
        self._waiters.wake()

    def _drop_waiting(self) -> None:
        """Drop the waiting messages and return their bytes."""
        while self._queue:
            self._queue.popleft().credit.release()
        deque(self._indexes, maxlen=0)  # also ends a loop that iterates over them
        self._rest = ()
        if self._credit is not None:
            self._credit.release()
            self._credit = self._batch = None
