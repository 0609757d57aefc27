"""What a store holds, as its users see it: positions, rows of a log, topics, subscriptions, queues."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypeAlias

from milepost.batch import Batch
from milepost.schema import Schema

Position: TypeAlias = dict[int, int]  # log -> offset
Start: TypeAlias = Literal["new", "earliest"] | tuple[Literal["time"], int] | tuple[Literal["position"], Position]


class Retention(NamedTuple):
    """What a topic keeps. A row may go when it is over one of the bounds; while `hold`, only when all named
    subscriptions have consumed it as well.
    """

    age_s: float | None = 7 * 86_400.0  # None: however old; 0: as soon as it is consumed
    bytes: int | None = None  # of the whole topic, all logs; the oldest go first
    hold: bool = True


class Cursor(NamedTuple):
    """Everything before `offset` is consumed; `state` says what else, in the broker's words."""

    offset: int
    state: bytes = b""


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


class QueueRecord(NamedTuple):
    """A queue, as its users know it."""

    name: str
    level: str
    direction: str
    priority: float
    types: tuple[str, ...]
    functions: dict[str, str]
    dead_letter: str | None
    max_deliveries: int
    created_us: int
    statistics: dict[str, int]


class TypeRecord(NamedTuple):
    """A type, as its users know it."""

    number: int
    name: str
    text: str
    schema: Schema


class Counted(NamedTuple):
    """What waits, as far as there was time to count it."""

    queues: dict[str, dict[str, int]] = {}  # noqa: RUF012 - by name: the `statistics` of those that were counted
    dead: dict[str, str | None] = {}  # noqa: RUF012 - all queues, each with the one for its dead messages
    after: int = 0  # where the next count goes on
    lags: Lags | None = None  # None: there was no time for them
    time_us: int = 0  # when it was counted; 0: never
    took_s: float = 0.0
