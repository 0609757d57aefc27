"""The operations of a store and their outcomes: data, without SQL. `storage` and `queues` carry them out.

::

    publishers      Enrol, Append, AppendRows
    topics          MakeTopic, ChangeTopic, DropTopic, Trim
    subscriptions   Attach, Move, Release, RetentionHold, Remove
    staging         Stage, Publish, Unstage, Epoch
    work            base of the operations of parts other than the log; `Barrier`
    queues          queue transactions, queries of queues, administration
    steps           the steps of a queue transaction
    transfers       queues whose messages are transferred to another broker
    records         the contents of a store: positions, rows of a log, topics, subscriptions, queues

Operations that are written together commit together. Each has an outcome of its own: the one that its docstring
names, or a `MilepostError` when it was refused; the others are carried out all the same.
"""

from typing import TypeAlias

from milepost.operations.publishers import Append, Appended, AppendedRows, AppendRows, Enrol, Enrolled
from milepost.operations.records import (
    Cursor,
    Entry,
    Extent,
    Lag,
    Lags,
    Part,
    Position,
    Retention,
    Start,
    StoredEntry,
    SubscriptionRecord,
    TopicRecord,
)
from milepost.operations.staging import Epoch, Publish, Published, Stage, Staged, Unstage
from milepost.operations.subscriptions import Attach, Attached, Move, Release, Remove, RetentionHold
from milepost.operations.topics import ChangeTopic, DropTopic, Made, MakeTopic, Trim
from milepost.operations.work import Barrier, Look, Work

Operation: TypeAlias = (
    Enrol | Append | AppendRows | MakeTopic | ChangeTopic | DropTopic | Trim | Attach | Move | Release | Remove
    | RetentionHold
    | Stage | Publish | Unstage | Epoch | Work
)  # fmt: skip

__all__ = [
    "Operation",
    "Enrol",
    "Enrolled",
    "Append",
    "Appended",
    "AppendRows",
    "AppendedRows",
    "MakeTopic",
    "Made",
    "ChangeTopic",
    "DropTopic",
    "Trim",
    "Attach",
    "Attached",
    "Move",
    "Release",
    "Remove",
    "RetentionHold",
    "Stage",
    "Staged",
    "Publish",
    "Published",
    "Unstage",
    "Epoch",
    "Work",
    "Look",
    "Barrier",
    "Position",
    "Start",
    "Retention",
    "Cursor",
    "Part",
    "Entry",
    "StoredEntry",
    "Extent",
    "TopicRecord",
    "SubscriptionRecord",
    "Lag",
    "Lags",
]
