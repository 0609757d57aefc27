"""The steps of a queue transaction and their outcomes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from milepost.batch import Batch
from milepost.batch.plain_rows import PlainRows
from milepost.operations.subscriptions import Move
from milepost.schema import Schema


class TransactionOwner(NamedTuple):
    """The transaction that steps belong to. It begins with its first step."""

    number: int  # T, from the first `Performed`; 0: not known yet
    s: int  # the client's number
    instance: bytes  # identifies the client object;
    client: int  # the client's number for this transaction: with `instance`, it identifies a repetition
    lease_us: int  # microseconds from now that the transaction lives without a `Renew`
    came: bool = False  # its client has just connected to this broker, and may have written at another before


# Steps


class Enqueue(NamedTuple):
    """Put messages into a queue. Outcome: `Enqueued`."""

    queue: str
    batch: Batch | PlainRows
    priority: float | None = None  # None: from the queue's priority function, or else its default
    due_us: int | None = None  # cannot be dequeued before this time
    ends_us: int | None = None  # cannot be dequeued from this time on

    @property
    def size(self) -> int:
        """Bytes of the messages."""
        return self.batch.size if isinstance(self.batch, PlainRows) else len(self.batch.data)


class Enqueued(NamedTuple):
    """The numbers m of the new messages: their IDs are `s`/`t`/m."""

    mids: list[int]
    s: int
    t: int


@dataclass(frozen=True, slots=True)
class Dequeue:
    """Take messages out of a queue. Outcome: `Got`. Other transactions no longer see them; an abort returns them."""

    queue: str
    type: str | None = None
    count: int = 1
    where: str | None = None
    order: str | None = None
    plain: bool = False  # for a consumer in this process, which reads messages as they are in the tables


@dataclass(slots=True)
class Group:
    """Consecutive messages of one type."""

    type: str
    schema: Schema
    content: Batch | Callable[[], Batch]  # a function: the batch is made on first use
    mids: list[int]
    s: list[int]
    t: list[int]
    priorities: list[float]
    aborts: list[int]
    plain: list[Any] | None = None  # the messages as plain values, if they were read as such

    @property
    def batch(self) -> Batch:
        """The messages."""
        if not isinstance(self.content, Batch):
            self.content = self.content()
        return self.content


@dataclass(frozen=True, slots=True)
class Got:
    """The dequeued messages, in order."""

    groups: list[Group]
    waits_us: int | None = None  # if there are none: the time when the next message is due, if any

    @property
    def count(self) -> int:
        """The number of messages."""
        return sum([len(group.mids) for group in self.groups])


class Decision(NamedTuple):
    """Stored by a coordinator with its commit: the other store must commit as well."""

    gid: str
    participant: str  # its address, for administrators


class Commit(NamedTuple):
    """Commit the transaction. Outcome: `Done`; `BlockIncomplete` when a block was not read completely."""

    decision: Decision | None = None
    moves: tuple[Move, ...] = ()  # of cursors, in the same database transaction


class Abort(NamedTuple):
    """Undo and end the transaction. Outcome: `Done`."""


class Prepare(NamedTuple):
    """Prepare the transaction: it can commit or abort, even after a crash, until `Decide` ends it. Outcome: `Done`."""

    gid: str
    coordinator: str


class Done(NamedTuple):
    """A transaction has ended, or is prepared."""

    repeated: bool = False  # this is a repetition: it happened before
    touched: tuple[str, ...] = ()  # queues in which other consumers may find more messages now
    more: bool = False  # of a sweep: there is more to do than one sweep may


Step: TypeAlias = Enqueue | Dequeue | Commit | Abort | Prepare


class Performed(NamedTuple):
    """The outcomes of steps."""

    number: int  # of the transaction; 0: no message was found, and no transaction has begun
    outcomes: tuple[Any, ...]  # one for each step
