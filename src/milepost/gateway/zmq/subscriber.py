"""One subscriber: a durable subscription that hands out one message at a time, until it is acknowledged.

The broker stores which message is handed out, with the subscription. So a message can be acknowledged after a restart
of the broker or the gateway, and a message that was never handed out cannot.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from milepost.client import AsyncClient
from milepost.client.durable import DurableSubscription
from milepost.client.handout import HandoutSubscription, Place, Row
from milepost.errors import AckMismatch, NotExpectingAck, RowsGone, TopicMismatch

PREFETCH_ROWS: Final = 16  # sent to the gateway ahead of requests: some, to save round trips; few, for other consumers
GRACE_S: Final = 0.05  # that a get without a timeout waits for a message in flight from the broker
BACKLOG_S: Final = 5.0  # that it waits when the broker reports messages in flight
HERE_S: Final = 0.001  # for a message that has arrived: it is found without waiting
NUMBER_BITS: Final = 40  # of a message number for the offset: a thousand billion messages; the log is in the bits above


def message_number(log: int, offset: int) -> int:
    """The number by which ZeroMQ clients know a message: for the first log, its offset counted from 1.

    Only brokers that share a PostgreSQL database have other logs. There, numbers are unique, and rise within each log.
    """
    return (max(log, 1) - 1 << NUMBER_BITS) + offset + 1


class InHand(NamedTuple):
    """A message that is handed out and not acknowledged."""

    number: int
    row: Row


class Subscriber:
    """The state of one sub_id. Its requests take turns (`turn`), as the requests of a REQ socket do anyway."""

    def __init__(self, sub_id: str) -> None:
        self.sub_id: Final = sub_id
        self.topic = ""  # set when it is attached
        self.turn: Final = asyncio.Lock()
        self.queued = 0  # requests that have their turn or wait for it
        self.used = 0.0  # time of the last request, on the event loop's clock
        self.known = False  # it was attached once, so the topic is known
        self._subscription: HandoutSubscription | None = None
        self._next_one: Row | None = None  # a message that could not be handed out, because the store failed
        self._rows: dict[Place, Row] = {}  # messages that were handed out here; others are read again
        self._waiting: asyncio.Task[Row | None] | None = None

    @property
    def attached(self) -> bool:
        """Whether the broker sends its messages to this gateway."""
        return self._subscription is not None and not self._subscription.ended

    def require_topic(self, topic: str) -> None:
        """Raise `TopicMismatch` for another topic: a subscriber has one topic."""
        if topic != self.topic:
            raise TopicMismatch(
                f"{self.sub_id!r} is subscribed to {self.topic!r}, not to {topic!r}: "
                "unsubscribe first, or use another id"
            )

    def attach(self, subscription: DurableSubscription) -> None:
        """Use an attached subscription."""
        assert isinstance(subscription, HandoutSubscription)
        self._subscription = subscription
        self.topic = subscription.pattern
        self.known = True

    async def detach(self) -> None:
        """Detach the subscription. Messages that are handed out and not acknowledged are delivered again."""
        subscription, self._subscription = self._subscription, None
        self._next_one = None
        self._rows.clear()
        if subscription is not None and not subscription.ended:
            await subscription.detach()

    def interrupt(self) -> None:
        """Let a waiting get answer now, because another request wants a turn. Its client has probably gone."""
        if self._waiting is not None:
            self._waiting.cancel()

    async def get(self, client: AsyncClient, seconds: float) -> InHand | None:
        """The message in hand, or the next one; None when there is none. It is stored as handed out before it is
        returned.
        """
        subscription = self._subscription
        assert subscription is not None
        while True:
            place = next(iter(subscription.handed_on), None)
            if place is None:
                place = await self._hand_out(subscription, client, seconds)
                if place is None:
                    return None
            row = await self._in_hand(subscription, client, place)
            if row is not None:
                return InHand(message_number(*place), row)

    async def _hand_out(self, subscription: HandoutSubscription, client: AsyncClient, seconds: float) -> Place | None:
        """Store that the next message is handed out. Returns its place; None when there is none."""
        while True:
            row, self._next_one = self._next_one, None
            if row is None or not subscription.handed_out(row[0]):
                row = await self._next(subscription, seconds or GRACE_S)
            if row is None and not seconds:
                # An empty answer would be wrong while a message is in flight; everything sent before the broker's
                # answer has arrived.
                coming = await self._coming(client)
                row = await self._next(subscription, BACKLOG_S if coming else HERE_S)
            if row is None:
                return None
            try:
                place = await subscription.hand_on(row)
            except AckMismatch:
                continue  # the connection broke since the message arrived: it is delivered again, here or elsewhere
            except BaseException:
                self._next_one = row
                raise
            self._rows = {place: row}
            return place

    async def ack(self, number: int) -> None:
        """Acknowledge a message that was handed out. Acknowledging it again, after a lost answer, has no effect."""
        subscription = self._subscription
        assert subscription is not None
        handed = {message_number(*place): place for place in subscription.handed_on}
        if number in handed:
            try:
                await subscription.acknowledge(handed[number])
            except AckMismatch:
                raise self._not_expecting(number) from None
            finally:
                self._rows.pop(handed[number], None)
            return
        if any(message_number(*place) == number for place in subscription.acknowledged.items()):
            return
        if handed:
            raise AckMismatch(f"{self.sub_id!r} has message {min(handed)} in hand, not {number}")
        raise self._not_expecting(number)

    def _not_expecting(self, number: int) -> NotExpectingAck:
        return NotExpectingAck(
            f"message {number} is not handed out to {self.sub_id!r}, or another consumer has taken it over: get first"
        )

    async def _next(self, subscription: HandoutSubscription, seconds: float) -> Row | None:
        self._waiting = asyncio.ensure_future(subscription.next_row(seconds))
        try:
            return await self._waiting
        except asyncio.CancelledError:
            if not self._waiting.cancelled() or _cancelling():
                raise
            return None
        finally:
            self._waiting = None

    async def _in_hand(self, subscription: HandoutSubscription, client: AsyncClient, place: Place) -> Row | None:
        """A message that was handed out, possibly before the subscriber was attached here; None when it is gone."""
        log, offset = place
        try:
            if not subscription.handed_on.get(place):
                await subscription.hand_on_again(place)
            if place not in self._rows:
                read = client.read(self.topic, {log: offset}, {log: offset + 1})
                (self._rows[place],) = [(batch, row) async for batch in read for row in range(len(batch))]
        except AckMismatch:
            return None  # another consumer has taken it over
        except RowsGone:
            await subscription.send_back(place)  # an operator removed it, and the broker reports that
            return None
        return self._rows[place]

    async def _coming(self, client: AsyncClient) -> bool:
        found = await client.look(self.topic)
        return any(each["name"] == self.sub_id and each["coming"] for each in found["subscriptions"])


def _cancelling() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
