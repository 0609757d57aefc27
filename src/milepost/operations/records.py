"""The contents of a store as its users see them: positions, rows of a log, topics, subscriptions, queues."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypeAlias

from milepost.batch import Batch
from milepost.schema import Schema

Position: TypeAlias = dict[int, int]  # log -> offset
Start: TypeAlias = Literal["new", "earliest"] | tuple[Literal["time"], int] | tuple[Literal["position"], Position]


class Retention(NamedTuple):
    """How long a topic keeps rows. A row beyond one of the limits may be removed; with `hold`, only after all named
    subscriptions have consumed it.
    """

    age_s: float | None = 7 * 86_400.0  # None: no limit; 0: a row may go as soon as it is consumed
    bytes: int | None = None  # of the whole topic, all logs; the oldest rows go first
    hold: bool = True


class Cursor(NamedTuple):
    """All rows before `offset` are consumed; `state` tells which others are, in the broker's encoding."""

    offset: int
    state: bytes = b""


class Part(NamedTuple):
    """Rows for one topic. The store sets the last two fields."""

    topic: int  # the store's number
    batch: Batch
    after: tuple[int, int] | None = None  # as in `StoredEntry`
    piece: int = 0  # of staged rows: the number of the piece that holds their bytes


class Entry(NamedTuple):
    """Rows in a log, from offset `first` on."""

    topic: int
    log: int
    first: int
    batch: Batch
    after: tuple[int, int] | None = None  # as in `StoredEntry`
    staged: bool = False  # the rows were staged, and are published now


class StoredEntry(NamedTuple):
    """A row of the log's table: a batch as bytes, not yet checked against its schema."""

    first: int
    rows: int
    time_us: int  # when its first row was stored; if a read begins within the entry, the first row of the read
    data: bytes
    # (log, offset), for rows of a publisher that wrote to another log before. A reader of both logs must first read the
    # rows of that log before that offset. They are all stored.
    after: tuple[int, int] | None = None
    last_us: int = 0  # when its last row was stored; like `times`, for compaction only
    times: bytes | None = None  # of a joined entry: see `storage.lookups.TIME`


class Extent(NamedTuple):
    """A topic in one log: offsets from `start` up to, but not including, `next` are retained."""

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
    """A named subscription or a hold, as administrators see it."""

    name: str
    topic: int
    where: str | None
    options: dict[str, Any]
    cursors: dict[int, Cursor]
    created_us: int


class Lag(NamedTuple):
    """Rows that a named subscription has not consumed yet, in all logs, including rows that its filter excludes."""

    topic: str
    subscription: str
    rows: int


class Lags(NamedTuple):
    """The lags of named subscriptions."""

    largest: list[Lag]  # the largest first
    subscriptions: int  # number of all subscriptions
    rows: int  # sum of the lags of all


class QueueRecord(NamedTuple):
    """A queue, as its users see it."""

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
    """A message type, as its users see it."""

    number: int
    name: str
    text: str
    schema: Schema


class Counted(NamedTuple):
    """Counts of waiting messages and lags, as far as there was time to count them."""

    queues: dict[str, dict[str, int]] = {}  # noqa: RUF012 - by name: the `statistics` of counted queues
    dead: dict[str, str | None] = {}  # noqa: RUF012 - of all queues: name -> dead-letter queue
    after: int = 0  # where the next count continues
    lags: Lags | None = None  # None: there was no time for them
    time_us: int = 0  # the time of the count; 0: never
    took_s: float = 0.0
