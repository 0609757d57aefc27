"""Queues: transactions on them, looks into them, and their administration.

`Perform` is steps of one queue transaction; every other operation is whole in itself. `milepost.queues.execution`
carries them out.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

from milepost.operations.steps import Commit, Enqueue, Prepare, Step, TransactionOwner
from milepost.operations.work import Look, Work

OPERATOR: Final = "operator"  # the client of what is asked outside of transactions


@dataclass(frozen=True)
class Perform(Work):
    """Steps of one transaction, in order; all of them or, with an error, none: `Performed`.

    A transaction that is unknown, was undone or has ended: `TransactionAborted`, except that an end which is asked for
    again is answered again.
    """

    transaction: TransactionOwner
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


@dataclass(frozen=True)
class Renew(Work):
    """Transactions whose clients are there: the numbers of those that are still under way."""

    numbers: tuple[int, ...]
    lease_us: int

    @property
    def durable(self) -> bool:
        """A lease that a crash takes back is only shorter."""
        return False


@dataclass(frozen=True)
class Undo(Work):
    """A client is gone for good: its transaction is undone, unless it has ended or is prepared. `Done`."""

    number: int

    @property
    def durable(self) -> bool:
        """What a crash takes back is undone after it."""
        return False


@dataclass(frozen=True)
class Recover(Work):
    """A broker has started: what it left behind is undone. `Done`."""


@dataclass(frozen=True)
class Sweep(Work):
    """Now and then: leases and messages whose time is over, outcomes that nobody asks for any more. `Done`."""

    @property
    def durable(self) -> bool:
        """It is done again, if a crash takes it back."""
        return False


# Transactions over several stores


@dataclass(frozen=True)
class Decide(Work):
    """End a prepared transaction as its coordinator says: `Done`, also when it was told before."""

    gid: str
    commit: bool


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


@dataclass(frozen=True)
class Decisions(Look):
    """What this store decided as coordinator and has not forgotten: [(gid, participant)]."""


@dataclass(frozen=True)
class ForgetDecision(Work):
    """All stores have heard of a decision."""

    gid: str

    @property
    def durable(self) -> bool:
        """One that comes back is told again, and forgotten again."""
        return False


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


@dataclass(frozen=True)
class Browse(Look):
    """Committed messages in the order of their numbers, from the one behind `after` on: `Got`. Nothing is taken."""

    queue: str
    type: str | None = None
    where: str | None = None
    after: int = 0
    count: int = 100
    most_bytes: int | None = None  # of the messages, about: then there are fewer


@dataclass(frozen=True)
class Queues(Look):
    """Queues, all or one; `counted`: with their figures, for which all of their messages are looked at."""

    name: str | None = None
    counted: bool = True


@dataclass(frozen=True)
class Count(Look):
    """What waits in queues, from the one behind number `after` on, and before subscriptions: `Counted`.

    It ends after `limits.QUERY_MS`, with what is counted by then.
    """

    after: int
    listed: int  # subscriptions, those that are most behind


@dataclass(frozen=True)
class Types(Look):
    """All message types."""


# Administration


@dataclass(frozen=True)
class DeclareType(Work):
    """Make a message type, or find it as it is: `TypeRecord`."""

    text: str


@dataclass(frozen=True)
class DeleteType(Work):
    """Remove a message type that no queue takes."""

    name: str


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


@dataclass(frozen=True)
class DeleteQueue(Work):
    """Remove a queue that is empty and in no transaction."""

    name: str


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
