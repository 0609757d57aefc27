"""Puts: the rows of one frame, from its arrival until they are stored or delivered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

if TYPE_CHECKING:
    from milepost.batch import Batch
    from milepost.broker.core.sessions.connection import Connection
    from milepost.broker.core.topics.topic import Topic, Version
    from milepost.errors import MilepostError
    from milepost.match import MaskSnapshot, Snapshot
    from milepost.schema import Schema
    from milepost.wire import Stage


class Put:
    """The rows of one PUT or STAGE frame.

    `Core.put` makes it, `examination` decodes and matches it, and `Core.arrived` admits it, then stores or delivers it.
    """

    __slots__ = (
        "batch", "connection", "data", "error", "key", "more", "number", "size", "snapshot", "stage", "topic",
        "version",
    )  # fmt: skip

    def __init__(
        self, connection: Connection, data: Any, size: int, key: bytes = b"", more: bool = False,
        stage: Stage | None = None,
    ) -> None:  # fmt: skip
        self.connection = connection
        self.data = data  # the batch as received, unchecked
        self.size = size  # bytes of the frame, which the publisher gets back as credit
        self.key = key  # of a durable put
        self.more = more  # another part of the same atomic put follows
        self.stage = stage  # of a STAGE frame: which epoch of which sink
        self.number = connection.puts  # 1-based number of the PUT on its connection
        self.topic = cast("Topic", None)  # None: no topic has the frame's number, and `error` is set
        self.version: Version | None = None  # of the topic's schema; None: the topic has no such version
        self.snapshot: Snapshot | MaskSnapshot | None = None  # of a live topic's predicates; None: there are none
        self.batch = cast("Batch", None)  # once it is decoded
        self.error: MilepostError | None = None  # why it is refused


class RowPut(NamedTuple):
    """A put of one row for a durable topic, without a key, which `fast_path` has checked. It is cheaper than `Put`."""

    connection: Connection
    size: int  # bytes of the frame
    topic: Topic
    schema: Schema
    stamp: int
    data: bytes
    number: int  # 1-based number of the PUT on its connection
