"""Durable state, in SQL: the log, cursors, publishers and topics; SQLite and PostgreSQL.

`open_store` gives a `Store`; `operations` are what it writes; `Writer` is the thread that does. Beneath: `transaction`
(one attempt at a group), `joining` (rows to entries), `holds` (cursors that nobody is served from), `reading`, `upkeep`
and `compaction`; `database` with its two kinds, `statements`, `faults` (what a driver's errors mean) and `migrations`.
"""

from milepost.storage.operations import (
    Append,
    Appended,
    Attach,
    Attached,
    ChangeTopic,
    Committed,
    Cursor,
    DropTopic,
    Enrol,
    Enrolled,
    Entry,
    Extent,
    Hold,
    Made,
    MakeTopic,
    Move,
    Operation,
    Part,
    Position,
    Release,
    Remove,
    Retention,
    Start,
    Stored,
    SubscriptionRecord,
    TopicRecord,
    Trim,
)
from milepost.storage.store import Store, open_store
from milepost.storage.url import default_url, url_of
from milepost.storage.writer import Writer

__all__ = [
    "open_store",
    "Store",
    "Writer",
    "default_url",
    "url_of",
    "Operation",
    "Committed",
    "Entry",
    "Part",
    "Enrol",
    "Enrolled",
    "Append",
    "Appended",
    "MakeTopic",
    "Made",
    "ChangeTopic",
    "DropTopic",
    "Trim",
    "Retention",
    "Attach",
    "Attached",
    "Cursor",
    "Move",
    "Release",
    "Remove",
    "Hold",
    "Extent",
    "Position",
    "Start",
    "Stored",
    "SubscriptionRecord",
    "TopicRecord",
]
