"""One subscriber: a durable subscription of which one message at a time is handed out and acknowledged."""

from __future__ import annotations

import asyncio
from typing import Any, Final, NamedTuple

from milepost.client import AsyncClient
from milepost.client.durable import DurableSubscription
from milepost.errors import AckMismatch, NotExpectingAck, TopicMismatch

PREFETCH_ROWS: Final = 16  # handed to the gateway ahead of requests: some, to save trips, and few, for other consumers
GRACE_S: Final = 0.05  # that a get which does not wait gives a message on its way from the broker
BACKLOG_S: Final = 5.0  # that it waits when the broker says that there are messages
NUMBER_BITS: Final = 40  # of a message number for the offset: a thousand billion messages; the log stands above them


def message_number(log: int, offset: int) -> int:
    """The number that ZeroMQ clients know a message by: of the first log, its offset counted from 1.

    Only brokers that share a PostgreSQL have other logs. There numbers are unique, and rise within each log.
    """
    return (max(log, 1) - 1 << NUMBER_BITS) + offset + 1


class InHand(NamedTuple):
    """A message that was handed out and is not acknowledged."""

    number: int
    message: Any
    log: int
    offset: int


class Subscriber:
    """What the gateway knows of one sub_id. Its requests take turns (`turn`), as those of a REQ socket do anyway."""

    def __init__(self, sub_id: str, topic: str) -> None:
        self.sub_id: Final = sub_id
        self.topic = topic
        self.turn: Final = asyncio.Lock()
        self.queued = 0  # requests that have or wait for their turn
        self.used = 0.0  # when the last request came, on the event loop's clock
        self.known = False  # it was attached at some time, so the topic is right
        self.in_hand: InHand | None = None
        self._subscription: DurableSubscription | None = None
        self._consumed: dict[int, int] = {}  # by log, the offset behind the last message that was acknowledged
        self._waiting: asyncio.Task[Any] | None = None

    @property
    def attached(self) -> bool:
        """Whether the broker hands its messages to us."""
        return self._subscription is not None and not self._subscription.ended

    def require_topic(self, topic: str) -> None:
        """A subscriber has one topic."""
        if topic != self.topic:
            raise TopicMismatch(
                f"{self.sub_id!r} is subscribed to {self.topic!r}, not to {topic!r}: "
                "unsubscribe first, or take another id"
            )

    def attach(self, subscription: DurableSubscription, *, made: bool) -> None:
        """The broker serves us; `made`: the subscription is new, and nothing of it was consumed."""
        self._subscription = subscription
        self.known = True
        self.in_hand = None
        self._consumed = {} if made else dict(subscription.position)

    async def detach(self) -> None:
        """Give the subscription back. What was handed out and not acknowledged comes again."""
        subscription, self._subscription, self.in_hand = self._subscription, None, None
        if subscription is not None and not subscription.ended:
            await subscription.detach()

    def interrupt(self) -> None:
        """Somebody else wants a turn: a get that waits answers now. Its client has most likely gone away."""
        if self._waiting is not None:
            self._waiting.cancel()

    async def get(self, client: AsyncClient, seconds: float) -> InHand | None:
        """The message in hand, or the next one; None when there is none."""
        if self.in_hand is None:
            self.in_hand = await self._next(seconds or GRACE_S)
        if self.in_hand is None and not seconds and await self._behind(client):
            self.in_hand = await self._next(BACKLOG_S)  # it is on its way: "nothing there" would be wrong
        return self.in_hand

    async def ack(self, number: int) -> None:
        """The client has the message in hand. Saying so again, when the answer was lost, does no harm."""
        if self.in_hand is None and not self._is_last(number):
            # A message that an earlier life of this gateway handed out comes again, with the same number.
            self.in_hand = await self._next(GRACE_S)
        if self.in_hand is None or self.in_hand.number != number:
            if self._is_last(number):
                return
            if self.in_hand is None:
                raise NotExpectingAck(f"nothing is handed out to {self.sub_id!r}: get a message first")
            raise AckMismatch(f"{self.sub_id!r} has message {self.in_hand.number} in hand, and not {number}")
        try:
            await self._acknowledge(self.in_hand)
        except NotExpectingAck:
            # The connection to the broker broke since: the message comes again, unless another consumer has it by now.
            self.in_hand = await self._next(BACKLOG_S)
            if self.in_hand is None or self.in_hand.number != number:
                raise
            await self._acknowledge(self.in_hand)

    async def _acknowledge(self, held: InHand) -> None:
        assert self._subscription is not None
        await self._subscription.ack(held.message)
        self.in_hand = None
        self._consumed[held.log] = held.offset + 1

    def _is_last(self, number: int) -> bool:
        """Whether a message is the one that was acknowledged last, of its log."""
        return any(message_number(log, after - 1) == number for log, after in self._consumed.items() if after)

    async def _next(self, seconds: float) -> InHand | None:
        subscription = self._subscription
        assert subscription is not None
        while True:
            self._waiting = asyncio.ensure_future(subscription.get(seconds))
            try:
                message = await self._waiting
            except asyncio.CancelledError:
                if not self._waiting.cancelled() or _cancelling():
                    raise
                return None
            finally:
                self._waiting = None
            if message is None:
                return None
            log, offset = subscription.log, subscription.offset
            if offset >= self._consumed.get(log, 0):
                return InHand(message_number(log, offset), message, log, offset)
            await subscription.ack(message)  # acknowledged before a connection was lost, and handed out again

    async def _behind(self, client: AsyncClient) -> bool:
        found = await client.look(self.topic)
        return any(each["name"] == self.sub_id and each["behind"] for each in found["subscriptions"])


def _cancelling() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
