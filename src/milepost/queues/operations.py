"""What the broker has the store do with queues: each a piece of work for the writer's group commit.

`Perform` carries out steps of one queue transaction; all others are whole in themselves.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

from milepost.errors import MilepostError
from milepost.queues import admin, decisions, inspection, outcomes, transactions, upkeep
from milepost.queues.catalogue import QueueRecord, TypeRecord, Wanted
from milepost.queues.selection import Criteria
from milepost.queues.steps import Commit, Done, Enqueue, Got, Performed, Prepare, Step, Transaction
from milepost.storage.database import Session
from milepost.storage.operations import Place, Promise, Work

OPERATOR: Final = "operator"  # the client of what is asked outside of transactions


class Look(Work):
    """Work that changes nothing."""

    @property
    def durable(self) -> bool:
        """There is nothing to promise."""
        return False


@dataclass(frozen=True)
class Perform(Work):
    """Steps of one transaction, in order; all of them or, with an error, none: `Performed`.

    A transaction that is unknown, was undone or has ended: `TransactionAborted`, except that an end which is asked for
    again is answered again.
    """

    transaction: Transaction
    steps: tuple[Step, ...]

    @property
    def durable(self) -> bool:
        """Only the end of a transaction is a promise, and its preparation."""
        return any(isinstance(step, Commit | Prepare) for step in self.steps)

    @property
    def size(self) -> int:
        """Of the batches."""
        return sum(step.size for step in self.steps if isinstance(step, Enqueue))

    @property
    def client(self) -> Hashable:
        """Predicates, orders and priority functions may be in it."""
        return self.transaction.instance

    def run(self, session: Session, place: Place) -> Performed | Promise | MilepostError:
        """See `transactions`."""
        return transactions.perform(session, place, self.transaction, self.steps)


@dataclass(frozen=True)
class Renew(Work):
    """Transactions whose clients are there: the numbers of those that are still under way."""

    numbers: tuple[int, ...]
    lease_us: int

    @property
    def durable(self) -> bool:
        """A lease that a crash takes back is only shorter."""
        return False

    def run(self, session: Session, place: Place) -> list[int]:
        """See `transactions`."""
        return outcomes.renew(session, place, self.numbers, self.lease_us)


@dataclass(frozen=True)
class Undo(Work):
    """A client is gone for good: its transaction is undone, unless it has ended or is prepared. `Done`."""

    number: int

    @property
    def durable(self) -> bool:
        """What a crash takes back is undone after it."""
        return False

    def run(self, session: Session, place: Place) -> Done:
        """See `transactions`."""
        return outcomes.undo(session, place, self.number)


@dataclass(frozen=True)
class Recover(Work):
    """A broker has started: what it left behind is undone. `Done`."""

    def run(self, session: Session, place: Place) -> Done:
        """See `upkeep`."""
        return upkeep.recover(session, place)


@dataclass(frozen=True)
class Sweep(Work):
    """Now and then: leases and messages whose time is over, outcomes that nobody asks for any more. `Done`."""

    @property
    def durable(self) -> bool:
        """It is done again, if a crash takes it back."""
        return False

    def run(self, session: Session, place: Place) -> Done:
        """See `upkeep`."""
        return upkeep.sweep(session, place)


# Transactions over several stores


@dataclass(frozen=True)
class Decide(Work):
    """End a prepared transaction as its coordinator says: `Done`, also when it was told before."""

    gid: str
    commit: bool

    def run(self, session: Session, place: Place) -> Done:
        """See `transactions`."""
        return decisions.decide(session, place, self.gid, self.commit)


@dataclass(frozen=True)
class Prepared(Work):
    """The prepared transactions of a coordinator, or of all: [(gid, coordinator)].

    It waits its turn among what is written, and so tells also of those whose preparation was asked for before.
    """

    coordinator: str | None = None

    @property
    def durable(self) -> bool:
        """There is nothing to promise."""
        return False

    def run(self, session: Session, place: Place) -> list[tuple[str, str]]:
        """See `transactions`."""
        return decisions.prepared(session, self.coordinator)


@dataclass(frozen=True)
class Decisions(Look):
    """What this store decided as coordinator and has not forgotten: [(gid, participant)]."""

    def run(self, session: Session, place: Place) -> list[tuple[str, str]]:
        """See `transactions`."""
        return decisions.decisions(session)


@dataclass(frozen=True)
class ForgetDecision(Work):
    """All stores have heard of a decision."""

    gid: str

    @property
    def durable(self) -> bool:
        """One that comes back is told again, and forgotten again."""
        return False

    def run(self, session: Session, place: Place) -> None:
        """See `transactions`."""
        decisions.forget(session, self.gid)


# Looking


@dataclass(frozen=True)
class Peek(Look):
    """What a dequeue would take now: `Got`. Nothing is taken."""

    queue: str
    type: str | None = None
    count: int = 1
    where: str | None = None
    order: str | None = None
    most_bytes: int | None = None  # of the messages, about: then there are fewer
    owner: int = 0  # the transaction that would take them; 0: one that has done nothing yet

    def run(self, session: Session, place: Place) -> Got:
        """See `inspection`."""
        criteria = Criteria(self.type, self.where, self.order)
        return inspection.peek(session, place, self.queue, criteria, self.count, self.most_bytes, self.owner)


@dataclass(frozen=True)
class Browse(Look):
    """Committed messages in the order of their numbers, from the one behind `after` on: `Got`. Nothing is taken."""

    queue: str
    type: str | None = None
    where: str | None = None
    after: int = 0
    count: int = 100
    most_bytes: int | None = None  # of the messages, about: then there are fewer

    def run(self, session: Session, place: Place) -> Got:
        """See `inspection`."""
        return inspection.browse(
            session, place, self.queue, self.type, self.where, self.after, self.count, self.most_bytes
        )


@dataclass(frozen=True)
class Queues(Look):
    """Queues, all or one; `counted`: with their figures, for which all of their messages are looked at."""

    name: str | None = None
    counted: bool = True

    def run(self, session: Session, place: Place) -> list[QueueRecord]:
        """See `inspection`."""
        return inspection.queues(session, place, self.name, self.counted)


@dataclass(frozen=True)
class Count(Look):
    """What waits in queues, from the one behind number `after` on, and before subscriptions: `inspection.Counted`.

    It ends after `limits.QUERY_MS`, with what is counted by then.
    """

    after: int
    listed: int  # subscriptions, those that are most behind

    def run(self, session: Session, place: Place) -> inspection.Counted:
        """See `inspection`."""
        return inspection.count(session, place, self.after, self.listed)


@dataclass(frozen=True)
class Types(Look):
    """All message types."""

    def run(self, session: Session, place: Place) -> list[TypeRecord]:
        """See `inspection`."""
        return inspection.types(session, place)


# Administration


@dataclass(frozen=True)
class DeclareType(Work):
    """Make a message type, or find it as it is: `TypeRecord`."""

    text: str

    def run(self, session: Session, place: Place) -> TypeRecord:
        """See `catalogue`."""
        return admin.declare_type(session, place, self.text)


@dataclass(frozen=True)
class DeleteType(Work):
    """Remove a message type that no queue takes."""

    name: str

    def run(self, session: Session, place: Place) -> None:
        """See `catalogue`."""
        admin.delete_type(session, place, self.name)


@dataclass(frozen=True)
class DeclareQueue(Work):
    """Make a queue, or find it as it is: `QueueRecord`."""

    name: str
    types: tuple[str, ...]
    level: str = "none"
    direction: str = "desc"
    priority: float = 0.0
    functions: tuple[tuple[str, str], ...] = ()
    dead_letter: str | None = None
    max_deliveries: int = 0

    def run(self, session: Session, place: Place) -> QueueRecord:
        """See `catalogue`."""
        wanted = Wanted(
            self.name, self.types, self.level, self.direction, self.priority, dict(self.functions), self.dead_letter,
            self.max_deliveries,
        )  # fmt: skip
        return admin.declare_queue(session, place, wanted)


@dataclass(frozen=True)
class DeleteQueue(Work):
    """Remove a queue that is empty and in no transaction."""

    name: str

    def run(self, session: Session, place: Place) -> None:
        """See `catalogue`."""
        admin.delete_queue(session, place, self.name)


@dataclass(frozen=True)
class MoveMessages(Work):
    """Committed messages that nobody has taken go to another queue: how many. Their abort counts begin anew."""

    source: str
    target: str
    type: str | None = None
    where: str | None = None
    count: int | None = None

    @property
    def client(self) -> Hashable:
        """All operators are one."""
        return OPERATOR

    def run(self, session: Session, place: Place) -> int:
        """See `admin`."""
        return admin.move(session, place, self.source, self.target, self.type, self.where, self.count)


@dataclass(frozen=True)
class Purge(Work):
    """Committed messages that nobody has taken go for good: how many."""

    queue: str
    type: str | None = None
    where: str | None = None
    count: int | None = None

    @property
    def client(self) -> Hashable:
        """All operators are one."""
        return OPERATOR

    def run(self, session: Session, place: Place) -> int:
        """See `admin`."""
        return admin.purge(session, place, self.queue, self.type, self.where, self.count)
