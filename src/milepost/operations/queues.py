"""Operations on queues: transactions, queries and administration.

`Perform` carries steps of a queue transaction; every other operation is a transaction of its own.
`milepost.queues.execution` carries them out.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

from milepost.operations.steps import Commit, Enqueue, Prepare, Step, TransactionOwner
from milepost.operations.work import Look, Work

OPERATOR: Final = "operator"  # all operators count as one client


@dataclass(frozen=True)
class Perform(Work):
    """Steps of one transaction, in order; after an error, none of them is done. Outcome: `Performed`.

    `TransactionAborted` when the transaction is unknown, was undone or has ended; but a repeated request for the same
    end gets the same answer.
    """

    transaction: TransactionOwner
    steps: tuple[Step, ...]

    @property
    def durable(self) -> bool:
        """Only a commit or a preparation is a promise; it is the last step."""
        return isinstance(self.steps[-1], Commit | Prepare) if self.steps else False

    @property
    def size(self) -> int:
        """Bytes of the messages."""
        return sum([step.size for step in self.steps if isinstance(step, Enqueue)])

    @property
    def client(self) -> Hashable:
        """The client object, whose predicates, orders and priority functions the steps may evaluate."""
        return self.transaction.instance


@dataclass(frozen=True)
class Renew(Work):
    """Renew the leases of transactions with a live client. Outcome: the numbers of those that are still open."""

    numbers: tuple[int, ...]
    lease_us: int

    durable = False  # after a crash, a lost renewal only makes a lease shorter


@dataclass(frozen=True)
class Undo(Work):
    """Undo the transaction of a client that is gone, unless it has ended or is prepared. Outcome: `Done`."""

    number: int

    durable = False  # if a crash loses it, recovery undoes the transaction again


@dataclass(frozen=True)
class Recover(Work):
    """After a broker has started: undo the open transactions that it left behind. Outcome: `Done`."""


@dataclass(frozen=True)
class Sweep(Work):
    """Handle expired leases and messages, and remove old outcomes of transactions. Outcome: `Done`."""

    durable = False  # if a crash loses it, the next sweep does it again


# Transactions over several stores


@dataclass(frozen=True)
class Decide(Work):
    """End a prepared transaction as its coordinator decided. Outcome: `Done`, also for a repetition."""

    gid: str
    commit: bool


@dataclass(frozen=True)
class Prepared(Work):
    """The prepared transactions of one coordinator, or of all: [(gid, coordinator)].

    It is ordered among the writes, so it includes transactions whose preparation was requested before it.
    """

    coordinator: str | None = None

    durable = False  # it writes nothing


@dataclass(frozen=True)
class Decisions(Look):
    """The decisions of this store as coordinator that are not forgotten yet: [(gid, participant)]."""


@dataclass(frozen=True)
class ForgetDecision(Work):
    """Forget a decision that all stores know."""

    gid: str

    durable = False  # a decision that reappears after a crash is sent and forgotten again


# Queries


@dataclass(frozen=True)
class Peek(Look):
    """The messages that a dequeue would take now. Outcome: `Got`. Nothing is taken."""

    queue: str
    type: str | None = None
    count: int = 1
    where: str | None = None
    order: str | None = None
    most_bytes: int | None = None  # approximate limit of the messages' bytes
    owner: int = 0  # the transaction that would take them; 0: a new one


@dataclass(frozen=True)
class Browse(Look):
    """Committed messages with numbers above `after`, in their order. Outcome: `Got`. Nothing is taken."""

    queue: str
    type: str | None = None
    where: str | None = None
    after: int = 0
    count: int = 100
    most_bytes: int | None = None  # approximate limit of the messages' bytes


@dataclass(frozen=True)
class Queues(Look):
    """All queues, or one; `counted`: with their statistics, which takes a scan of all their messages."""

    name: str | None = None
    counted: bool = True


@dataclass(frozen=True)
class Count(Look):
    """Count the messages in queues with numbers above `after`, and the lags of subscriptions. Outcome: `Counted`.

    It ends after `limits.QUERY_MS`, with the counts so far.
    """

    after: int
    listed: int  # number of subscriptions to list, those with the largest lags


@dataclass(frozen=True)
class Types(Look):
    """All message types."""


# Administration


@dataclass(frozen=True)
class DeclareType(Work):
    """Make a message type, or find an equal one. Outcome: `TypeRecord`."""

    text: str


@dataclass(frozen=True)
class DeleteType(Work):
    """Remove a message type that no queue accepts."""

    name: str


@dataclass(frozen=True)
class DeclareQueue(Work):
    """Make a queue, or find an equal one. Outcome: `QueueRecord`."""

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
    """Remove a queue that is empty and in use by no transaction."""

    name: str


@dataclass(frozen=True)
class MoveMessages(Work):
    """Move committed messages that are not taken to another queue; resets their abort counts. Outcome: how many."""

    source: str
    target: str
    type: str | None = None
    where: str | None = None
    count: int | None = None

    client = OPERATOR


@dataclass(frozen=True)
class Purge(Work):
    """Delete committed messages that are not taken. Outcome: how many."""

    queue: str
    type: str | None = None
    where: str | None = None
    count: int | None = None

    client = OPERATOR
