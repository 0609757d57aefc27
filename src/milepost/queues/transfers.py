"""Transfers in the store: which queue goes where, which broker runs it, and what is in doubt.

Each is a piece of work for the writer's group commit, as those in `operations`. How messages go over: `transfer`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from milepost import limits
from milepost.errors import InvalidValue
from milepost.queues import outcomes, statements
from milepost.queues.engine import engine_of
from milepost.queues.operations import Look
from milepost.storage.database import Session
from milepost.storage.operations import Place, Work
from milepost.transport.address import masked

ADDRESS_CHARS: Final = 2_000  # of a target: some dozens of brokers of a cell
ERROR_CHARS: Final = 500  # of what is in the way, as it is kept for people


class TransferRecord(NamedTuple):
    """A queue that goes on to another broker."""

    queue: str
    number: int  # the queue's
    address: str
    target: str  # the queue there
    created_us: int
    runner: int  # the log of the broker that does it
    messages: int
    error: str


class Report(NamedTuple):
    """What a broker tells of a transfer that it runs."""

    number: int  # the queue's
    created_us: int
    messages: int  # since the last report
    error: str


@dataclass(frozen=True)
class SetTransfer(Work):
    """Transfer a queue from now on, until `DeleteTransfer`; the same again changes nothing."""

    queue: str
    address: str
    target: str

    def run(self, session: Session, place: Place) -> None:
        """`InvalidValue` when the queue goes elsewhere."""
        number = engine_of(session, place).known(session, None).queue(self.queue).number
        if len(self.address) > ADDRESS_CHARS:
            raise InvalidValue(f"an address of {len(self.address)} characters: takes {ADDRESS_CHARS}")
        limits.require("NAME_CHARS", len(self.target), "the characters of a queue's name")
        session.run(
            statements.SET_TRANSFER, queue=number, address=self.address, target=self.target, time_us=place.time_us
        )
        found = session.row(statements.FIND_TRANSFER, queue=number)
        if (found[0], found[1]) != (self.address, self.target):
            raise InvalidValue(
                f"queue {self.queue!r} is transferred to {masked(found[0])}/{found[1]}: one queue goes to one place; "
                "stop that first"
            )


@dataclass(frozen=True)
class DeleteTransfer(Work):
    """Transfer a queue no more."""

    queue: str

    def run(self, session: Session, place: Place) -> None:
        """`InvalidValue` when it was not transferred."""
        number = engine_of(session, place).known(session, None).queue(self.queue).number
        if not session.run(statements.DELETE_TRANSFER, queue=number):
            raise InvalidValue(f"queue {self.queue!r} is not transferred")


@dataclass(frozen=True)
class Transfers(Look):
    """All transfers: a list of `TransferRecord`."""

    def run(self, session: Session, place: Place) -> list[TransferRecord]:
        """By name."""
        return [TransferRecord(*row) for row in session.rows(statements.TRANSFERS)]


@dataclass(frozen=True)
class KeepTransfers(Work):
    """A broker tells how its transfers are, and takes or keeps those that nobody else has: the `TransferRecord`s.

    The lease only spares two brokers of a cell each other's transactions: messages go over once even when both run it.
    """

    lease_us: int  # 0: it stops, and others may have them at once
    reports: tuple[Report, ...] = ()

    @property
    def durable(self) -> bool:
        """A crash ends the lease sooner, or takes figures back."""
        return False

    def run(self, session: Session, place: Place) -> list[TransferRecord]:
        """Those that this broker is to run."""
        for each in self.reports:
            session.run(
                statements.REPORT_TRANSFER, queue=each.number, created_us=each.created_us, messages=each.messages,
                error=each.error[:ERROR_CHARS].replace("\0", " "), log=place.log,
            )  # fmt: skip
        if not self.lease_us:
            session.run(statements.LEAVE_TRANSFERS, log=place.log)
            return []
        found = [TransferRecord(*row) for row in session.rows(statements.TRANSFERS)]
        if not found:
            return []
        session.run(statements.TAKE_TRANSFERS, log=place.log, lease_us=self.lease_us, time_us=place.time_us)
        return [TransferRecord(*row) for row in session.rows(statements.TRANSFERS) if row[5] == place.log]


# Transactions over two stores


@dataclass(frozen=True)
class Settle(Work):
    """What did this store, as coordinator, decide about a transaction over two stores? Whether it is to commit.

    `number` is the transaction here whose commit would have been the decision. If it is still under way, it is undone
    first: its transfer can then no longer commit it, and so the answer holds for ever. Nothing else makes it safe to
    undo the other half; leases and names only make it rare. What is given back counts no abort, since it did nothing.
    """

    gid: str
    number: int

    def run(self, session: Session, place: Place) -> tuple[bool, tuple[str, ...]]:
        """And the queues in which others may find more now."""
        # The row of the transaction first: where brokers share the store, another one may be committing it just now.
        done = outcomes.undo(session, place, self.number, counted=False)
        return session.row(statements.DECIDED, gid=self.gid) is not None, done.touched


class HeldMessages(NamedTuple):
    """What is to be known of the messages that a transaction has taken."""

    remaining: int  # messages of blocks that were begun, without which it cannot commit
    ends: list[tuple[int, int]]  # number of a message, and the microsecond at which its time is over, if it has one


@dataclass(frozen=True)
class Holding(Look):
    """Tell about the messages that a transaction under way has taken: `HeldMessages`."""

    number: int

    def run(self, session: Session, place: Place) -> HeldMessages:
        """Over all queues that it has taken from."""
        known = engine_of(session, place).known(session, None)
        remaining = 0
        ends: list[tuple[int, int]] = []
        for (number,) in session.rows(statements.QUEUES_TAKEN_FROM, number=self.number):
            queue = known.queues[number]
            found = session.rows(statements.taken_ends(queue.table), owner=self.number)
            ends += [(row[0], row[1]) for row in found]
            if queue.blocks:
                rest = statements.count_rest_of_blocks(queue.table)
                remaining += session.row(rest, owner=self.number, now=place.time_us)[0]
        return HeldMessages(remaining, ends)
