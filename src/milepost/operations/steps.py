"""The steps of a queue transaction, and what comes of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from milepost.batch import Batch
from milepost.batch.plain_rows import PlainRows
from milepost.operations.subscriptions import Move
from milepost.schema import Schema


class TransactionOwner(NamedTuple):
    """Whose steps they are. A transaction begins with its first step."""

    number: int  # T, as the first `Performed` said; 0: not known yet
    s: int  # the client's number
    instance: bytes  # the client object,
    client: int  # and its own number for this transaction: by these two a repetition is recognised
    lease_us: int  # microseconds from now on that it may stay without a `Renew`
    came: bool = False  # its client has just come to this broker: it may have written at another one before


# Steps


class Enqueue(NamedTuple):
    """Put messages into a queue: `Enqueued`."""

    queue: str
    batch: Batch | PlainRows
    priority: float | None = None  # None: what the queue's function says, or else its default
    due_us: int | None = None  # not to be taken before
    ends_us: int | None = None  # not to be taken from then on

    @property
    def size(self) -> int:
        """Bytes of the messages."""
        return self.batch.size if isinstance(self.batch, PlainRows) else len(self.batch.data)


class Enqueued(NamedTuple):
    """The numbers that messages got: their IDs are `s`/`t`/m."""

    mids: list[int]
    s: int
    t: int


@dataclass(frozen=True, slots=True)
class Dequeue:
    """Take messages out of a queue: `Got`. Nothing is there for the others, and all comes back with an abort."""

    queue: str
    type: str | None = None
    count: int = 1
    where: str | None = None
    order: str | None = None
    plain: bool = False  # for somebody in this process, who reads messages as they are in the tables


@dataclass(slots=True)
class Group:
    """Messages of one type that follow each other."""

    type: str
    schema: Schema
    content: Batch | Callable[[], Batch]  # a function: it is made when it is asked for
    mids: list[int]
    s: list[int]
    t: list[int]
    priorities: list[float]
    aborts: list[int]
    plain: list[Any] | None = None  # the messages as plain values, where they came out of the tables as such

    @property
    def batch(self) -> Batch:
        """The messages."""
        if not isinstance(self.content, Batch):
            self.content = self.content()
        return self.content


@dataclass(frozen=True, slots=True)
class Got:
    """What was taken, in order."""

    groups: list[Group]
    waits_us: int | None = None  # when nothing was: the time at which the next message is due, if one has one

    @property
    def count(self) -> int:
        """How many messages."""
        return sum(len(group.mids) for group in self.groups)


class Decision(NamedTuple):
    """What a coordinator remembers with its commit: that the other store is to commit as well."""

    gid: str
    participant: str  # its address, for people


class Commit(NamedTuple):
    """End the transaction: everything that it did is so. `Done`; `BlockIncomplete` when a block was not read whole."""

    decision: Decision | None = None
    moves: tuple[Move, ...] = ()  # of cursors, in the same transaction of the database


class Abort(NamedTuple):
    """End the transaction: nothing that it did is so. `Done`."""


class Prepare(NamedTuple):
    """Be ready for either end, whatever happens, until `Decide` says which: `Done`."""

    gid: str
    coordinator: str


class Done(NamedTuple):
    """A transaction has ended, or is prepared."""

    repeated: bool = False  # it had before
    touched: tuple[str, ...] = ()  # queues in which others may find more now
    more: bool = False  # of a sweep: there was more to do than one may take


Step: TypeAlias = Enqueue | Dequeue | Commit | Abort | Prepare


class Performed(NamedTuple):
    """What came of steps."""

    number: int  # of the transaction; 0: nothing was found and nothing begun
    outcomes: tuple[Any, ...]  # one for each step
