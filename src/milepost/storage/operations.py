"""What a store is asked to write, and what comes of it.

Operations that are written together commit together. Each has an outcome of its own: what its docstring promises, or
a `MilepostError` that says why this one was refused while the others went on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from milepost.batch import Batch
from milepost.errors import MilepostError
from milepost.schema import Schema

if TYPE_CHECKING:
    from milepost.storage.database import Session

Position: TypeAlias = dict[int, int]  # log -> offset
Start: TypeAlias = Literal["new", "earliest"] | tuple[Literal["time"], int] | tuple[Literal["position"], Position]


class Retention(NamedTuple):
    """What a topic keeps. A row may go when it is over one of the bounds; while `hold`, only when all named
    subscriptions have consumed it as well.
    """

    age_s: float | None = 7 * 86_400.0  # None: however old; 0: as soon as it is consumed
    bytes: int | None = None  # of the whole topic, all logs; the oldest go first
    hold: bool = True


class Part(NamedTuple):
    """Rows for one topic. The store sets the last two fields on the way to the log."""

    topic: int  # the store's number
    batch: Batch
    after: tuple[int, int] | None = None  # as in `StoredEntry`
    piece: int = 0  # of staged rows: the number under which the store has their bytes already


class Entry(NamedTuple):
    """Rows as the log holds them, from offset `first` on."""

    topic: int
    log: int
    first: int
    batch: Batch
    after: tuple[int, int] | None = None  # as in `StoredEntry`
    staged: bool = False  # its rows were staged, and are published now


# Publishers


class Enrol(NamedTuple):
    """A publisher says hello: `Enrolled`, or None when it is not known and `create` is False.

    From here on appends of another process under the same key are refused: its epoch is over.
    """

    key: str  # its name; of one without a name, "~" and its instance in hexadecimal digits
    number: int  # drawn at random; a publisher that is known keeps its own, and one in use is replaced by another
    create: bool = True


class Enrolled(NamedTuple):
    """A publisher as the store knows it."""

    number: int
    high_water: int  # the highest stamp that is committed


class Append(NamedTuple):
    """Rows of one publisher, stored all or none: `Appended`. Their stamps increase over all parts.

    Rows whose stamps are not above the publisher's high water are stored already, and not stored again. `Fenced` when
    another process has enrolled the publisher; `DuplicateMessage` when `token` was seen before in one of the topics.
    """

    publisher: int  # the number of an enrolled publisher
    parts: tuple[Part, ...]
    token: bytes = b""  # 16 bytes, remembered for each topic and the configured time; empty: none


class AppendRows(NamedTuple):
    """A row each of many publishers for one topic, every one of them stored or not by itself: `AppendedRows`.

    The same as an `Append` for each, in this order, for a fraction of the steps. The bytes were checked to be batches
    of one row of the schema, with the ID that is given here. Its session is a tuple of those of its rows.
    """

    topic: int
    schema: Schema
    publishers: Sequence[int]
    stamps: Sequence[int]
    datas: Sequence[bytes]
    refused: Mapping[int, MilepostError] = MappingProxyType({})  # rows, by their places, that are not to be stored


class AppendedRows(NamedTuple):
    """What became of the rows of an `AppendRows`: those that are not refused are stored."""

    refused: Mapping[int, MilepostError]  # by their places
    repeated: int  # rows that were stored already


class Appended(NamedTuple):
    """What became of the rows of an `Append`."""

    stored: int  # rows
    repeated: int  # rows that were stored already


# Topics


class MakeTopic(NamedTuple):
    """Make a durable topic: `Made`. One of this name that is there stays as it is."""

    name: str
    schemas: tuple[str, ...]
    slow: str
    retention: Retention


class Made(NamedTuple):
    """A topic that is there now."""

    topic: TopicRecord
    created: bool


class ChangeTopic(NamedTuple):
    """Add a version of its schema (`schema`), change its policy or its retention. Returns None. Fields that are None
    stay unchanged.

    When the topic does not have as many `versions` as the caller has seen, nothing changes: `Made` says what it has.
    """

    topic: int
    schema: str | None = None
    slow: str | None = None
    retention: Retention | None = None
    versions: int | None = None  # of its schema, that it must have


class DropTopic(NamedTuple):
    """Remove a topic, its log and its subscriptions."""

    topic: int


class Trim(NamedTuple):
    """Remove rows before a position, consumed or not. Returns the number of rows removed.

    Only what is in whole entries is removed at once; offsets before the position count as gone in any case.
    """

    topic: int
    before: Position


# Durable subscriptions


class Attach(NamedTuple):
    """Find or make a named subscription, and take it over from the broker that served it: `Attached`.

    `UnknownSubscription` when it is not there and `create` is False; `TopicMismatch` or `SubscriptionExists` when the
    name belongs to another one; `ServedElsewhere` while another broker that is alive serves it. When `token` is that of
    the request that made it, `created` is True again.

    The epoch rises, unless this process serves the subscription already. `given_up` is a number and an epoch that it
    serves no longer, although the store may not know (`Release`): that epoch is over too.
    """

    name: str
    topic: int  # 0: whatever topic it has; not with `create`
    where: str | None
    start: Start
    create: bool
    token: bytes
    options: dict[str, Any]  # "most", "dead": kept as they are
    member: bytes  # whose acknowledgements are asked about
    given_up: tuple[int, int] | None = None


class Attached(NamedTuple):
    """A named subscription, and how far it is."""

    subscription: int
    epoch: int
    created: bool
    topic: int
    where: str | None
    options: dict[str, Any]
    cursors: dict[int, Cursor]  # by log; a log that is not there begins at 0, the offset of its first row
    sequence: int  # of the member's last acknowledgement; 0: none
    unreleased: bool = False  # the broker that served it ended without a `Release`: its cursors may not tell everything
    record: TopicRecord | None = None  # its topic, when it was asked for without one


class Cursor(NamedTuple):
    """Everything before `offset` is consumed; `state` says what else, in the broker's words."""

    offset: int
    state: bytes = b""


class Move(NamedTuple):
    """Move cursors, remember an acknowledgement, and store dead rows, in one: None.

    `ServedElsewhere` when the subscription has a newer epoch; `UnknownSubscription` when it was removed. `dead` is
    appended as it is, under the IDs it has. `promised` is False when no caller waits for it to be on disk.
    """

    subscription: int
    epoch: int
    cursors: dict[int, Cursor]
    member: bytes = b""
    sequence: int = 0
    dead: tuple[Part, ...] = ()
    promised: bool = True


class Release(NamedTuple):
    """Serve a subscription no longer; other brokers may: None."""

    subscription: int
    epoch: int


class RetentionHold(NamedTuple):
    """Make or move a hold, a named cursor without a consumer: where it is, a `Position` of all of its logs.

    It moves forward only, log by log, by any broker that is asked. No broker owns it; a repetition changes nothing.
    A new one is made at `position`, or at what is there of the topic. `SubscriptionExists` or `TopicMismatch` when a
    subscription has this name, or a hold of another topic; `BrokerError` for a position behind the end of a log.
    """

    name: str
    topic: int
    position: Position | None = None


class Remove(NamedTuple):
    """Remove a named subscription or a hold: True; also when `token` is that of the request that removed it before,
    under this name.

    `UnknownSubscription` when there is none.
    """

    name: str
    token: bytes = b""


# Staging


class Stage(NamedTuple):
    """Store rows that are not to be seen before their epoch is published: `Staged`.

    `sequence` counts the pieces of an attempt from 0 on. One that is there already is not stored again; `StagingLost`
    when one before it is missing, or when another `writer` has begun the attempt since. A writer that begins an attempt
    of another one takes its place. `LimitExceeded` when the sink has too much staged.
    """

    sink: str
    epoch: int
    part: int
    attempt: int
    sequence: int
    writer: bytes
    topic: int
    batch: Batch


class Staged(NamedTuple):
    """What became of a `Stage`."""

    rows: int
    how: Literal["staged", "repeated", "late"]  # late: its epoch is published, and the rows were thrown away


class Publish(NamedTuple):
    """Append what some parts of an epoch have staged to their topics' logs, in this order: `Published`.

    In the same transaction the sink's epoch moves, and everything else that is staged for it up to this epoch is thrown
    away. Nothing of all that when the epoch is not above the sink's last one. `StagingLost` when nothing is staged for
    one of the parts.
    """

    sink: str
    epoch: int
    parts: tuple[tuple[int, int], ...]  # part, attempt


class Published(NamedTuple):
    """What became of a `Publish`."""

    repeated: bool  # the epoch was published before
    rows: int


class Unstage(NamedTuple):
    """Throw away what is staged for an epoch of a sink: None."""

    sink: str
    epoch: int


class Epoch(NamedTuple):
    """The last epoch that a sink has published, or None. Among the writes, so that it is seen in their order."""

    sink: str


# What other parts have written


class Place(NamedTuple):
    """Where a piece of work is done."""

    time_us: int  # of this transaction; does not go back within a log
    log: int  # of the broker that writes
    shared: bool  # other brokers write to the same store
    memory: dict[str, Any]  # of the part, for as long as this process has the store
    move: Callable[[Move], None]  # move a cursor in the same transaction; raises what is wrong with it
    later: Callable[[Callable[[], None]], None]  # call something once the transaction is committed


class Lag(NamedTuple):
    """How many rows of its topic a named subscription has before it, in all logs; those that it does not want too."""

    topic: str
    subscription: str
    rows: int


class Lags(NamedTuple):
    """The lags of named subscriptions."""

    largest: list[Lag]  # the largest first
    subscriptions: int  # of all
    rows: int  # the lags of all


class Work(ABC):
    """An operation of another part: it works with the session, and what it returns is its outcome.

    A `MilepostError` that it raises is its outcome too, and must come before it has changed anything; after that it
    raises `Spoiled`, and the group is written again without it. It may be run several times before it is committed.
    """

    @property
    def durable(self) -> bool:
        """Whether its answer promises that it is on disk; a group without such a promise is not synced."""
        return True

    @property
    def size(self) -> int:
        """Bytes that it writes, more or less."""
        return 0

    @property
    def client(self) -> Hashable | None:
        """Whose expressions it evaluates, if any: a client that holds up the others for long is held back itself."""
        return None

    @abstractmethod
    def run(self, session: Session, place: Place) -> Any:
        """Do it, in a transaction that has begun and that the caller commits."""


class Promise(ABC):
    """An outcome that is not there before its group is committed: the statements that bring it travel with the COMMIT.

    By itself such a statement raises in the database when it cannot be carried out: then nothing is committed.
    """

    @abstractmethod
    def kept(self, session: Session) -> Any:
        """The outcome, once the commit is known to have happened. The answers may be lost: then it is looked up."""


class Spoiled(Exception):
    """A piece of work failed after it had changed something: none of that may stay."""

    def __init__(self, error: MilepostError, place: int = -1) -> None:
        self.error = error
        self.place = place  # among the operations of its group
        super().__init__(str(error))


Operation: TypeAlias = (
    Enrol | Append | AppendRows | MakeTopic | ChangeTopic | DropTopic | Trim | Attach | Move | Release | Remove
    | RetentionHold | Stage | Publish | Unstage | Epoch | Work
)  # fmt: skip


class Postponed(Enum):
    """The outcome of a piece of work that its group had no time for: nothing was done. It goes into the next group."""

    POSTPONED = 1


POSTPONED: Final = Postponed.POSTPONED


class Committed(NamedTuple):
    """What a call to `Store.write` did."""

    outcomes: list[Any]  # one for each operation: what it promises, a MilepostError, or `POSTPONED`
    entries: list[Entry]  # what the log has now, in its order
    asked_s: Mapping[int, float] = MappingProxyType({})  # place of an operation: seconds of its clients' expressions


# What can be read


class Extent(NamedTuple):
    """A topic in one log: offsets from `start` to before `next` are there."""

    start: int
    next: int
    rows: int  # retained
    bytes: int
    entries: int


class TopicRecord(NamedTuple):
    """A durable topic."""

    topic: int
    name: str
    schemas: tuple[str, ...]  # the oldest first
    slow: str
    retention: Retention
    extents: dict[int, Extent]  # by log


class SubscriptionRecord(NamedTuple):
    """A named subscription or a hold, for people to look at."""

    name: str
    topic: int
    where: str | None
    options: dict[str, Any]
    cursors: dict[int, Cursor]
    created_us: int


class StoredEntry(NamedTuple):
    """A row of the log's table: a batch as bytes, not yet checked against its schema."""

    first: int
    rows: int
    time_us: int  # when its first row was stored; of a read in the middle, the first row that was asked for
    data: bytes
    # Rows of a publisher that wrote to another log before. A reader of both logs must first read the rows of that log
    # (the first number) before that offset (the second). They are all stored.
    after: tuple[int, int] | None = None
    last_us: int = 0  # when its last row was stored; as `times` for compaction only
    times: bytes | None = None  # of an entry that was joined: see `TIME`
