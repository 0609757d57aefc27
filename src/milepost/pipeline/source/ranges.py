"""Ranges of a topic's logs: the parts that a read is divided into, and reading one of them in a task.

The driver plans, and a Python worker of an executor reads. A `ReadPart` travels between them; a `RangeReader` is
pickled once for each query. Sources that add columns, or rows at the end of a part, subclass `RangeReader`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from milepost.client import Client
from milepost.client.logbatch import LogBatch
from milepost.errors import IncompatibleSchema, RowsGone
from milepost.pipeline.source import connection
from milepost.pipeline.source.position import Logs, extents, pieces
from milepost.pipeline.source.to_spark import ToSpark
from milepost.schema import Schema

BATCH_ROWS: Final = 65_536  # of a record batch for Spark: each has a fixed cost, which this makes negligible
BATCH_BYTES: Final = 16 << 20  # the same bound for long rows
PARTS: Final = 64  # of one micro-batch by default: more tasks than cores only cost their start
CONVERTERS_KEPT: Final = 16  # in a worker: one or two for each query that it serves


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets of one log, from `start` to before `stop`."""

    log: int
    start: int
    stop: int

    @property
    def rows(self) -> int:
        """The number of offsets. A predicate may leave fewer rows."""
        return self.stop - self.start


@dataclass
class ReadPart(InputPartition):
    """The work of one task: ranges of a topic, one after the other. `note` is for subclasses of the reader."""

    topic: str
    ranges: tuple[Range, ...]
    where: str | None = None
    broker: str = ""  # the store ID of the broker at the time of planning
    note: Any = None

    @property
    def rows(self) -> int:
        """The number of offsets."""
        return sum(each.rows for each in self.ranges)


def parts(
    topic: str,
    start: Logs,
    stop: Logs,
    *,
    where: str | None = None,
    broker: str = "",
    most: int | None = None,
    rows: int,
) -> list[ReadPart]:
    """The parts between two positions: about `rows` each, and at most `most`, or one for each log."""
    return [
        ReadPart(topic, (Range(log, low, high),), where, broker)
        for log, low, high in pieces(start, stop, most or PARTS, rows)
    ]


class RangeReader:
    """Reads parts as record batches of `struct`. Picklable: the converter is made and cached where it is used."""

    def __init__(self, broker: str, timeout: float, schema: Schema, struct: StructType, *, fail: bool = True) -> None:
        self.broker: Final = broker
        self.fail: Final = fail  # whether removed rows end the query, or are skipped
        self.timeout: Final = timeout
        self.schema: Final = schema
        self._struct: Final = struct.json()
        self._converter()  # reports an unsuitable schema when the query is planned

    def _converter(self) -> ToSpark:
        return _converter(self.schema, self._struct)

    def read(self, part: ReadPart) -> Iterator[pa.RecordBatch]:
        """The rows of a part in record batches of suitable size, then the rows of `tail`."""
        convert = self._converter()
        waiting: list[pa.RecordBatch] = []
        rows = size = 0
        with connection.using(self.broker, self.timeout, expected=part.broker) as client:
            for each in part.ranges:
                for batch in self._batches(client, part, each):
                    waiting.append(self.columns(part, batch, self._converted(convert, part, batch)))
                    rows += len(batch)
                    size += len(batch.data)
                    if rows >= BATCH_ROWS or size >= BATCH_BYTES:
                        yield joined(waiting)
                        waiting, rows, size = [], 0, 0
        if waiting:
            yield joined(waiting)
        last = self.tail(part)
        if last is not None:
            yield last

    def _batches(self, client: Client, part: ReadPart, wanted: Range) -> Iterator[LogBatch]:
        """The rows of a range. Without `fail`, rows that were removed since planning are skipped."""
        start = wanted.start
        while True:
            try:
                for batch in client.read(part.topic, {wanted.log: start}, {wanted.log: wanted.stop}, part.where):
                    start = int(batch.offsets[-1]) + 1
                    yield batch
                return
            except RowsGone:
                there = extents(client.look(part.topic)).get(wanted.log)
                if self.fail or there is None or there.start <= start:
                    raise
                start = there.start
                if start >= wanted.stop:
                    return

    def _converted(self, convert: ToSpark, part: ReadPart, batch: LogBatch) -> pa.RecordBatch:
        try:
            return convert(batch)
        except IncompatibleSchema as error:
            raise IncompatibleSchema(
                f"offset {batch.offsets[0]} of topic {part.topic!r} has a version that this query cannot read; "
                f"restart the query to use the newest version: {error}",
                error.paths,
            ) from None

    def columns(self, part: ReadPart, batch: LogBatch, table: pa.RecordBatch) -> pa.RecordBatch:
        """A hook for sources that add columns to the rows of a batch."""
        return table

    def tail(self, part: ReadPart) -> pa.RecordBatch | None:
        """A hook for sources that add rows after a part."""
        return None


@lru_cache(maxsize=CONVERTERS_KEPT)
def _converter(schema: Schema, struct: str) -> ToSpark:
    return ToSpark(schema, StructType.fromJson(json.loads(struct)))


def joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """The rows of all record batches; a single one without a copy."""
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
