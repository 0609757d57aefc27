"""Forwards in the store: which queue goes where, who does it, and what transactions over two stores leave behind.

Each is a piece of work for the writer's group commit, as those in `operations`. How messages go over: `forward`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from milepost import limits
from milepost.address import masked
from milepost.errors import InvalidValue
from milepost.queues import ending
from milepost.queues.catalogue import NEVER_US
from milepost.queues.engine import engine_of
from milepost.queues.operations import Look
from milepost.storage.database import Session
from milepost.storage.operations import Place, Work
from milepost.storage.statement import Statement

ADDRESS_CHARS: Final = 2_000  # of a target: some dozens of brokers of a cell
ERROR_CHARS: Final = 500  # of what is in the way, as it is kept for people

_FIND: Final = Statement("SELECT address, target FROM queue_forwards WHERE queue = :queue")
_SET: Final = Statement("""
    INSERT INTO queue_forwards (queue, address, target, created_us, runner, lease_us, messages, error)
    VALUES (:queue, :address, :target, :time_us, 0, 0, 0, '') ON CONFLICT (queue) DO NOTHING""")
_DROP: Final = Statement("DELETE FROM queue_forwards WHERE queue = :queue")
_TELL: Final = Statement("""
    UPDATE queue_forwards SET messages = messages + :messages, error = :error
    WHERE queue = :queue AND created_us = :created_us AND runner = :log""")
_TAKE: Final = Statement("""
    UPDATE queue_forwards SET runner = :log, lease_us = {now} + :lease_us
    WHERE runner = :log OR lease_us < {now}""")
_LEAVE: Final = Statement("UPDATE queue_forwards SET lease_us = 0 WHERE runner = :log")
_ALL: Final = Statement("""
    SELECT q.name, f.queue, f.address, f.target, f.created_us, f.runner, f.messages, f.error
    FROM queue_forwards f JOIN queues q ON q.number = f.queue ORDER BY q.name""")
_DECIDED: Final = Statement("SELECT 1 FROM queue_decisions WHERE gid = :gid")
_TAKEN: Final = Statement("SELECT DISTINCT queue FROM queue_log WHERE transaction_number = :number AND kind = 'd'")


class ForwardRecord(NamedTuple):
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
    """What a broker tells of a forward that it runs."""

    number: int  # the queue's
    created_us: int
    messages: int  # since the last report
    error: str


@dataclass(frozen=True)
class SetForward(Work):
    """Forward a queue from now on, until `DeleteForward`; the same again changes nothing."""

    queue: str
    address: str
    target: str

    def run(self, session: Session, place: Place) -> None:
        """`InvalidValue` when the queue goes elsewhere."""
        number = engine_of(session, place).known(session, None).queue(self.queue).number
        if len(self.address) > ADDRESS_CHARS:
            raise InvalidValue(f"an address of {len(self.address)} characters: takes {ADDRESS_CHARS}")
        limits.require("NAME_CHARS", len(self.target), "the characters of a queue's name")
        session.run(_SET, queue=number, address=self.address, target=self.target, time_us=place.time_us)
        found = session.row(_FIND, queue=number)
        if (found[0], found[1]) != (self.address, self.target):
            raise InvalidValue(
                f"queue {self.queue!r} is forwarded to {masked(found[0])}/{found[1]}: one queue goes to one place; "
                "stop that first"
            )


@dataclass(frozen=True)
class DeleteForward(Work):
    """Forward a queue no more."""

    queue: str

    def run(self, session: Session, place: Place) -> None:
        """`InvalidValue` when it was not forwarded."""
        number = engine_of(session, place).known(session, None).queue(self.queue).number
        if not session.run(_DROP, queue=number):
            raise InvalidValue(f"queue {self.queue!r} is not forwarded")


@dataclass(frozen=True)
class Forwards(Look):
    """All forwards: a list of `ForwardRecord`."""

    def run(self, session: Session, place: Place) -> list[ForwardRecord]:
        """By name."""
        return [ForwardRecord(*row) for row in session.rows(_ALL)]


@dataclass(frozen=True)
class KeepForwards(Work):
    """A broker tells how its forwards are, and takes or keeps those that nobody else has: the `ForwardRecord`s.

    The lease only spares two brokers of a cell each other's transactions: messages go over once also when both forward.
    """

    lease_us: int  # 0: it stops, and others may have them at once
    reports: tuple[Report, ...] = ()

    @property
    def durable(self) -> bool:
        """A crash ends the lease sooner, or takes figures back."""
        return False

    def run(self, session: Session, place: Place) -> list[ForwardRecord]:
        """Those that this broker is to run."""
        for each in self.reports:
            session.run(
                _TELL, queue=each.number, created_us=each.created_us, messages=each.messages,
                error=each.error[:ERROR_CHARS].replace("\0", " "), log=place.log,
            )  # fmt: skip
        if not self.lease_us:
            session.run(_LEAVE, log=place.log)
            return []
        found = [ForwardRecord(*row) for row in session.rows(_ALL)]
        if not found:
            return []
        session.run(_TAKE, log=place.log, lease_us=self.lease_us, time_us=place.time_us)
        return [ForwardRecord(*row) for row in session.rows(_ALL) if row[5] == place.log]


# Transactions over two stores


@dataclass(frozen=True)
class Settle(Work):
    """What did this store, as coordinator, decide about a transaction over two stores? Whether it is to commit.

    `number` is the transaction here whose commit would have been the decision. If it is still under way, it is undone
    first: whoever runs it can then no longer commit, and so the answer holds for ever. Nothing else makes it safe to
    undo the other half; leases and names only make it rare. What is given back counts no abort, since it did nothing.
    """

    gid: str
    number: int

    def run(self, session: Session, place: Place) -> tuple[bool, tuple[str, ...]]:
        """And the queues in which others may find more now."""
        # The row of the transaction first: where brokers share the store, another one may be committing it just now.
        done = ending.undo(session, place, self.number, counted=False)
        return session.row(_DECIDED, gid=self.gid) is not None, done.touched


class Held(NamedTuple):
    """What is to be known of the messages that a transaction has taken."""

    remaining: int  # messages of blocks that were begun, without which it cannot commit
    ends: list[tuple[int, int]]  # number of a message, and the microsecond at which its time is over, if it has one


@dataclass(frozen=True)
class Holding(Look):
    """Tell about the messages that a transaction under way has taken: `Held`."""

    number: int

    def run(self, session: Session, place: Place) -> Held:
        """Over all queues that it has taken from."""
        known = engine_of(session, place).known(session, None)
        remaining = 0
        ends: list[tuple[int, int]] = []
        for (number,) in session.rows(_TAKEN, number=self.number):
            queue = known.queues[number]
            found = session.rows(
                Statement(
                    f"SELECT mid, ends_us FROM {queue.table} WHERE owner = :owner AND owner <> 0 "
                    f"AND ends_us < {NEVER_US} ORDER BY mid"
                ),
                owner=self.number,
            )
            ends += [(row[0], row[1]) for row in found]
            if queue.blocks:
                remaining += session.row(
                    Statement(
                        f"SELECT count(*) FROM {queue.table} WHERE lsf = 'c' AND ends_us > :now AND t IN "
                        f"(SELECT DISTINCT t FROM {queue.table} WHERE owner = :owner AND owner <> 0 AND lsf = 'd')"
                    ),
                    owner=self.number,
                    now=place.time_us,
                )[0]
        return Held(remaining, ends)
