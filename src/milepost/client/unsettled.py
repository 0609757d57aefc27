"""Durable puts between the frame that took them away and the broker's word that they are stored."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

from milepost.batch import Batch, Ids

if TYPE_CHECKING:
    from milepost.client.outbox import Outbox

UNSENT: Final = 1 << 62  # a put number that no connection reaches


class Ticket:
    """What is stored all or none: the batch of one PUT frame, or those of linked ones.

    `waiters` may be shared with the tickets before it when one call took several frames: `final` is the one whose
    storing means that all are stored, and the failing of any fails them.
    """

    __slots__ = ("bytes", "doubtful", "final", "first", "key", "last", "parts", "stamp", "unwatched", "waiters")

    def __init__(
        self,
        parts: list[tuple[Outbox, Batch]],
        stamp: int,
        waiters: list[asyncio.Future[None]],
        *,
        unwatched: bool = False,
        key: bytes = b"",
        final: bool = True,
    ) -> None:
        self.parts = parts
        self.stamp: Final = stamp  # of the last row
        self.waiters: Final = waiters
        self.unwatched: Final = unwatched  # some of the rows have nobody waiting: a flush tells if they fail
        self.key: Final = key
        self.final: Final = final
        self.bytes: Final = sum(len(batch.data) for _, batch in parts)
        self.first = self.last = UNSENT  # numbers of its PUT frames on this connection
        self.doubtful = False  # it is sent again, though it may be stored: then a duplicate is this one itself

    def stored(self) -> None:
        if self.final:
            for waiter in self.waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def failed(self, error: Exception) -> None:
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_exception(error)
                waiter.exception()  # seen: whoever waits gets it all the same, and may have been cancelled


class Unsettled:
    """Tickets in the order of their stamps, which is also that of their put numbers."""

    def __init__(self) -> None:
        self.tickets: Final[deque[Ticket]] = deque()
        self.bytes = 0  # of their batches: kept for sending them again

    def __len__(self) -> int:
        return len(self.tickets)

    def add(self, ticket: Ticket) -> None:
        self.tickets.append(ticket)
        self.bytes += ticket.bytes

    def stored(self, put: int) -> None:
        """Everything up to a put's number is stored."""
        while self.tickets and self.tickets[0].last <= put:
            self._pop().stored()

    def reached(self, mark: int) -> None:
        """What a publisher's mark says on a new connection: everything up to the ticket with that stamp is stored.

        A mark that lies between the stamps of tickets is no mark of a commit, as each of them is stored all or none:
        the broker may have seen a live put with that stamp. Then all are sent again, and the store, which compares
        with what it has committed, takes those that it does not have.
        """
        if any(ticket.stamp == mark for ticket in self.tickets):
            while self.tickets and self.tickets[0].stamp <= mark:
                self._pop().stored()
        for ticket in self.tickets:
            ticket.doubtful = ticket.doubtful or ticket.stamp <= mark

    def _pop(self) -> Ticket:
        ticket = self.tickets.popleft()
        self.bytes -= ticket.bytes
        return ticket

    def numbered(self, put: int) -> Ticket | None:
        """The ticket that a put belongs to."""
        for ticket in self.tickets:
            if put <= ticket.last:
                return ticket if ticket.first <= put else None
        return None

    def fail(self, ticket: Ticket, error: Exception) -> None:
        """One is refused; the others go on."""
        self.tickets.remove(ticket)
        self.bytes -= ticket.bytes
        ticket.failed(error)

    def repeated(self, ticket: Ticket) -> None:
        """One turned out to have been stored before."""
        self.tickets.remove(ticket)
        self.bytes -= ticket.bytes
        ticket.stored()

    def sent_from(self, put: int) -> list[Ticket]:
        """Those that were sent with or behind a put."""
        return [ticket for ticket in self.tickets if put <= ticket.last < UNSENT]

    def fail_all(self, error: Exception) -> None:
        while self.tickets:
            self._pop().failed(error)

    def unsent(self) -> None:
        """The connection is gone: its numbers mean nothing any more."""
        for ticket in self.tickets:
            ticket.first = ticket.last = UNSENT

    def readdress(self, publisher: int, broker: int) -> None:
        """Rows that go to another broker than the one they were stamped for carry its number; stamps stay."""
        for ticket in self.tickets:
            ticket.parts = [
                (box, batch.stamped(Ids.single(publisher, broker, batch.ids.stamps)))
                for box, batch in ticket.parts
                if batch.ids is not None
            ]
