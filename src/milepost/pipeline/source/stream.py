"""`readStream` from a durable topic.

For the life of a query, the driver keeps a `TopicStream` in a process of its own. It decides how far each micro-batch
goes (`latestOffset`), divides it (`partitions`), and lets the broker remove what Spark has processed (`commit`). Copies
of it read the parts in the executors (`read`), and keep nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from milepost.client import Client
from milepost.errors import BrokerError
from milepost.pipeline.source import connection
from milepost.pipeline.source.options import SourceOptions
from milepost.pipeline.source.place import resolved
from milepost.pipeline.source.position import LogExtent, Position, advanced, checked, extents
from milepost.pipeline.source.ranges import RangeReader, ReadPart, parts
from milepost.schema import Schema

NO_HOLD: Final = "none"  # value of the option `hold`: the broker may remove rows that are not read yet


class TopicStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The rows of a topic from `startingOffsets` on.

    A *hold*, a cursor that `commit` moves, keeps rows at the broker until they are processed. Its name is in the
    offsets of the checkpoint, so that a restarted query finds it.
    """

    def __init__(self, options: SourceOptions, schema: Schema, struct: StructType) -> None:
        self.options: Final = options
        self.topic: Final[str] = options.topic
        self.reader: Final = RangeReader(options.broker, options.timeout, schema, struct, fail=options.failOnDataLoss)
        self._target: Mapping[int, int] | None = None  # where AvailableNow ends
        self._held = ""  # the hold that is known to exist

    def client(self, position: Position | None = None) -> Client:
        """The client of the broker, which must have the store that the checkpoint names."""
        expected = "" if position is None else position.broker
        return connection.client(self.options.broker, self.options.timeout, expected=expected)

    # Offsets

    def initialOffset(self) -> dict[str, Any]:
        """Where a query without a checkpoint begins."""
        client = self.client()
        fail = self.options.failOnDataLoss
        begin = resolved(client, self.topic, self.options.startingOffsets, "startingOffsets", fail=fail)
        hold = self.options.hold or f"spark-{uuid.uuid4().hex}"
        return Position(begin, client.broker_id, "" if hold == NO_HOLD else hold, initial=True).offset()

    def getDefaultReadLimit(self) -> ReadLimit:
        """The size of a micro-batch. It is always bounded, so that a first start on a huge backlog is safe."""
        return ReadMaxRows(self.options.maxRowsPerTrigger)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next micro-batch; `start` itself when there is nothing new."""
        position = Position.read(start)
        looked = self.client(position).look(self.topic)
        self._require_hold(position, looked)
        there = extents(looked)
        begin = checked(self.topic, position.logs, there, fail=self.options.failOnDataLoss)
        end = {log: extent.next for log, extent in there.items()}
        if self._target is not None:
            end = {log: max(begin[log], min(end[log], self._target.get(log, 0))) for log in end}
        return position.moved(advanced(begin, end, self._most(limit, begin, end, there))).offset()

    def _most(
        self, limit: ReadLimit, begin: Mapping[int, int], end: Mapping[int, int], there: Mapping[int, LogExtent]
    ) -> int | None:
        """The number of rows that a limit allows; None: all."""
        waiting = sum(end[log] - begin[log] for log in end)
        match limit:
            case ReadAllAvailable():
                return None
            case ReadMinRows(least):
                return 0 if waiting < least and self._target is None else None
            case ReadMaxRows(rows):
                most = int(rows)
            case ReadMaxBytes(size):
                most = _rows_of(int(size), there)
            case _:
                most = self.options.maxRowsPerTrigger
        if self.options.maxBytesPerTrigger is not None:
            most = min(most, _rows_of(self.options.maxBytesPerTrigger, there))
        return most

    def prepareForTriggerAvailableNow(self) -> None:
        """Read up to the current end of the topic, and no further."""
        there = extents(self.client().look(self.topic))
        self._target = {log: extent.next for log, extent in there.items()}

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The end of the topic, for Spark's progress reports."""
        there = extents(self.client().look(self.topic))
        return {"logs": {str(log): there[log].next for log in sorted(there)}}

    # Rows

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The parts of a micro-batch."""
        begin, stop = Position.read(start), Position.read(end)
        logs = begin.logs if stop.begun is None else stop.begun
        client = self.client(stop)
        self._hold(client, stop, logs)
        if not self.options.failOnDataLoss:
            there = extents(client.look(self.topic))
            logs = checked(self.topic, logs, there, fail=False)
        return [*self.parts(logs, stop)]

    def parts(self, start: Mapping[int, int], stop: Position) -> list[ReadPart]:
        """The parts between two positions, as the options divide them."""
        options = self.options
        return parts(
            self.topic,
            start,
            stop.logs,
            where=options.where,
            broker=stop.broker,
            most=options.partitions,
            rows=1 if options.partitions else options.rowsPerPartition,
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a part. Called in an executor."""
        assert isinstance(partition, ReadPart)
        return self.reader.read(partition)

    # Hold

    def _hold(self, client: Client, position: Position, logs: Mapping[int, int]) -> None:
        """Create the hold, once, and not before the offsets are in the checkpoint: an unknown hold would keep rows
        forever.
        """
        name = self.hold_of(position)
        if name and name != self._held:
            self._require_hold(position, client.look(self.topic))
            client.hold(self.topic, name, dict(logs))
            self._held = name

    def _require_hold(self, position: Position, looked: Mapping[str, Any]) -> None:
        """A missing hold means that the topic was deleted, even when the new topic is longer."""
        name = self.hold_of(position)
        made = not position.initial and position.begun is None  # Spark writes the first end before the hold exists
        if not name or not made or not self.options.failOnDataLoss:
            return
        if all(each["name"] != name for each in looked["subscriptions"]):
            raise BrokerError(
                f"topic {self.topic!r} has no hold {name!r}: the topic was deleted and declared again, or the hold "
                "was removed; start with a new checkpoint, or set the option failOnDataLoss to false to continue at "
                "the same offsets"
            )

    def hold_of(self, position: Position) -> str:
        """The name of the hold; empty when nothing is held."""
        return "" if self.options.hold == NO_HOLD else position.hold

    def commit(self, end: dict[str, Any]) -> None:
        """Let the broker remove what was processed."""
        position = Position.read(end)
        name = self.hold_of(position)
        if name:
            self.client(position).hold(self.topic, name, dict(position.logs))
            self._held = name

    def stop(self) -> None:
        """The query has ended. Its hold stays, for a restart."""
        connection.drop(self.options.broker)


def _rows_of(size: int, there: Mapping[int, LogExtent]) -> int:
    """The number of rows with about so many bytes, by the average of the existing rows; at least one."""
    rows, total = (sum(getattr(each, what) for each in there.values()) for what in ("rows", "bytes"))
    return max(1, size * rows // total) if total else size
