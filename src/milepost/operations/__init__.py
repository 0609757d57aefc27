"""What a store can be asked, and what it answers: data, without SQL. `storage` and `queues` carry it out.

::

    publishers      Enrol, Append, AppendRows
    topics          MakeTopic, ChangeTopic, DropTopic, Trim
    subscriptions   Attach, Move, Release, RetentionHold, Remove
    staging         Stage, Publish, Unstage, Epoch
    work            operations of other parts than the log; `Barrier`
    queues          transactions on queues, looks into them, administration
    steps           what a transaction on queues consists of
    transfers       queues that go on to another broker
    records         what a store holds: positions, rows of a log, topics, subscriptions, queues

Operations that are written together commit together. Each has an outcome of its own: the one that its docstring
promises, or a `MilepostError` that says why this one was refused while the others went on.
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
