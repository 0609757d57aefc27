"""Durable puts between their frame and the broker's answer that they are stored."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

from milepost.batch import Batch, Ids
from milepost.client.waiters import fail

if TYPE_CHECKING:
    from milepost.client.outbox import Outbox

UNSENT: Final = 1 << 62  # a put number that no connection reaches


class PendingPut:
    """Rows of one put, from the outbox until they are stored: all or none.

    A part is the batch of one PUT frame. An atomic put has several parts, any other put one. Rows get their IDs when
    the frames are sent. When one call took several frames, its puts share `waiters`: storing the `final` put means that
    all are stored, and the failure of any put fails them.
    """

    __slots__ = ("doubtful", "final", "first", "key", "last", "parts", "stamp", "unwatched", "waiters")

    def __init__(
        self, parts: list[tuple[Outbox, Batch]], waiters: list[asyncio.Future[None]], key: bytes = b"", stamp: int = 0
    ) -> None:
        self.parts = parts
        self.waiters: Final = waiters  # of durable puts: wait until its rows are stored
        self.key: Final = key  # of its single row, which has its own frame; empty for rows without one
        self.stamp = stamp  # of the last row; 0: not sent yet
        self.unwatched = False  # some rows have no waiter: the next flush raises if they fail
        self.final = True
        self.first = self.last = UNSENT  # numbers of its PUT frames on this connection
        self.doubtful = False  # sent again though it may be stored: then a duplicate is this put itself

    @property
    def batch(self) -> Batch:
        """The rows of a put that is not atomic."""
        return self.parts[0][1]

    @property
    def bytes(self) -> int:
        return sum(len(batch.data) for _, batch in self.parts)

    def stored(self) -> None:
        if self.final:
            for waiter in self.waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def failed(self, error: Exception) -> None:
        for waiter in self.waiters:
            fail(waiter, error)


class Unsettled:
    """Puts that were sent, in the order of their stamps, which is also that of their put numbers."""

    def __init__(self) -> None:
        self.puts: Final[deque[PendingPut]] = deque()
        self.bytes = 0  # of their batches: kept to be sent again

    def __len__(self) -> int:
        return len(self.puts)

    def add(self, put: PendingPut) -> None:
        self.puts.append(put)
        self.bytes += put.bytes

    def stored(self, number: int) -> None:
        """All puts up to this number are stored."""
        while self.puts and self.puts[0].last <= number:
            self._pop().stored()

    def reached(self, high_water: int) -> None:
        """Settle puts up to the one whose stamp is the high water on a new connection: they are stored.

        A high water between the stamps of puts is not that of a commit, because each put is stored all or none: the
        broker may have seen a live put with that stamp. Then all puts are sent again, and the store takes those that it
        does not have.
        """
        if any(put.stamp == high_water for put in self.puts):
            while self.puts and self.puts[0].stamp <= high_water:
                self._pop().stored()
        for put in self.puts:
            put.doubtful = put.doubtful or put.stamp <= high_water

    def _pop(self) -> PendingPut:
        put = self.puts.popleft()
        self.bytes -= put.bytes
        return put

    def numbered(self, number: int) -> PendingPut | None:
        """The put that the frame with this number belongs to."""
        for put in self.puts:
            if number <= put.last:
                return put if put.first <= number else None
        return None

    def remove(self, put: PendingPut) -> PendingPut:
        """Take a put out that was refused, or that turned out to be stored already; the others stay."""
        self.puts.remove(put)
        self.bytes -= put.bytes
        return put

    def sent_from(self, number: int) -> list[PendingPut]:
        """The put with this number, and all that were sent after it."""
        return [put for put in self.puts if number <= put.last < UNSENT]

    def fail_all(self, error: Exception) -> None:
        while self.puts:
            self._pop().failed(error)

    def unsent(self) -> None:
        """The connection is gone, and its put numbers with it."""
        for put in self.puts:
            put.first = put.last = UNSENT

    def readdress(self, publisher: int, broker: int) -> None:
        """Give rows the numbers of another broker than the one they were stamped for; stamps stay."""
        for put in self.puts:
            put.parts = [
                (box, batch.stamped(Ids.single(publisher, broker, batch.ids.stamps)))
                for box, batch in put.parts
                if batch.ids is not None
            ]
        self.bytes = sum(put.bytes for put in self.puts)
