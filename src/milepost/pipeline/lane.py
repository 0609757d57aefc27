"""The source of a lane: the runs of the input that the splitter gave to the lane, as far as the controller admits them.

An offset is the lane's position, a number of events. It also has the values of the monitors, so that a micro-batch that
Spark repeats sees the same values. Each partition ends with a *progress row*: the lane's position after the partition
and the latest event time in it. No step of tier 1 filters this row, so the sink always learns how far the lane is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType, TimestampType

from milepost.client import Client
from milepost.client.logbatch import LogBatch
from milepost.errors import ConfigError
from milepost.pipeline.own_topics import OwnTopics, Tail, last_progress, statistics
from milepost.pipeline.source import connection
from milepost.pipeline.source.options import PATIENCE_S, JsonSetting
from milepost.pipeline.source.ranges import Range, RangeReader, ReadPart
from milepost.pipeline.splits import LaneRun, LaneRuns, partitioned
from milepost.schema import Schema

MICRO_ROWS: Final = 200_000  # most events of a micro-batch: about a second of work, so that control can act in time
PARTITION_ROWS: Final = 20_000  # fewer events are not worth a second task

PROGRESS: Final = StructType(
    [
        StructField("position", LongType()),  # of the lane, after the rows that were read
        StructField("time", TimestampType()),  # of the latest event; of a combined stream, its watermark
        StructField("offset", StringType()),  # of a combined stream: its whole offset
    ]
)


@dataclass(frozen=True)
class LaneSetting(JsonSetting):
    """Identifies a lane of a pipeline. As JSON it is the option `lane`."""

    broker: str
    pipeline: str
    lane: int
    inputs: Sequence[str]
    time: str
    monitors: Mapping[str, Sequence[str]] = field(default_factory=dict)  # name -> statistics that rules may use
    rows: int = MICRO_ROWS
    partitions: int = 2
    timeout: float = PATIENCE_S


def monitor_type(monitors: Mapping[str, Sequence[str]]) -> StructType:
    """The column `monitor`: a struct for each monitor, with a number for each statistic."""
    return StructType(
        [
            StructField(
                name,
                StructType([StructField(each, LongType() if each == "count" else DoubleType()) for each in statistics]),
            )
            for name, statistics in monitors.items()
        ]
    )


def lane_type(events: StructType, monitors: Mapping[str, Sequence[str]], *more: StructField) -> StructType:
    """The columns that a lane's source gives to Spark. The combiner has `more`."""
    extra = [StructField("monitor", monitor_type(monitors))] if monitors else []
    return StructType([*events.fields, *extra, *more, StructField("_progress", PROGRESS)])


class Note:
    """Data of a part of a micro-batch beyond its ranges."""

    def __init__(self, position: int, monitor: Mapping[str, Any]) -> None:
        self.position: Final = position  # of the lane, after the part
        self.monitor: Final = monitor  # the monitors' values for this micro-batch
        self.latest: Any = None  # time of the events read so far, as an Arrow scalar


class LaneRanges(RangeReader):
    """Reads parts: each event with the values of the monitors, and a progress row after the last one."""

    def __init__(self, setting: LaneSetting, schema: Schema, struct: StructType) -> None:
        self._events = len(struct.fields) - 1 - bool(setting.monitors)
        super().__init__(setting.broker, setting.timeout, schema, StructType(struct.fields[: self._events]))
        self._time: Final = setting.time
        self._arrow: Final = to_arrow_schema(struct, timezone="UTC").remove_metadata()

    def columns(self, part: ReadPart, batch: LogBatch, table: pa.RecordBatch) -> pa.RecordBatch:
        """Add the values of the monitors, and an empty progress column."""
        note: Note = part.note
        latest = pc.max(table.column(self._time))
        if latest.is_valid and (note.latest is None or latest.value > note.latest.value):
            note.latest = latest
        extra = list(self._arrow)[self._events :]
        return pa.RecordBatch.from_arrays(
            [*table.columns, *(pa.repeat(constant(each, note.monitor), len(table)) for each in extra)],
            schema=self._arrow,
        )

    def tail(self, part: ReadPart) -> pa.RecordBatch:
        """The progress row."""
        note: Note = part.note
        time = None if note.latest is None else note.latest.value
        return progress_row(self._arrow, {"position": note.position, "time": time, "offset": None}, note.monitor)


def constant(column: pa.Field, monitor: Mapping[str, Any]) -> pa.Scalar:
    """The value of an added column, the same in each row."""
    told = {each.name: monitor.get(each.name) for each in column.type} if column.name == "monitor" else None
    return pa.scalar(told, column.type)


def progress_row(arrow: pa.Schema, progress: Mapping[str, Any], monitor: Mapping[str, Any]) -> pa.RecordBatch:
    """One row that is empty but for the values of the monitors and, in the last column, the progress."""
    others = [pa.repeat(constant(each, monitor), 1) for each in list(arrow)[:-1]]
    return pa.RecordBatch.from_arrays([*others, pa.array([dict(progress)], arrow[-1].type)], schema=arrow)


class Monitors:
    """The newest values of the monitors, read from their topic."""

    def __init__(self, client: Client, topics: OwnTopics, monitors: Mapping[str, Sequence[str]]) -> None:
        self._tail = Tail(client, topics.monitor)
        self._wanted = monitors
        self.values: dict[str, dict[str, Any]] = {}

    def refresh(self) -> dict[str, dict[str, Any]]:
        """Read what is new."""
        if self._wanted:
            for _, _, row in self._tail.news():
                wanted = self._wanted.get(row.monitor)
                if wanted is not None:
                    told = statistics(row)
                    self.values[row.monitor] = {name: told.get(name) for name in wanted}
        return self.values


class LaneReader(DataSourceStreamReader):
    """Spark calls its planning methods in a process of their own on the driver, and `read` in its workers."""

    def __init__(self, setting: LaneSetting, schema: Schema, struct: StructType) -> None:
        self._setting: Final = setting
        self._reader: Final = LaneRanges(setting, schema, struct)
        self._topics: Final = OwnTopics(setting.pipeline)
        self._driver: _Driver | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_driver": None}

    def _planning(self, splits: Mapping[str, int] | None = None) -> _Driver:
        if self._driver is None:
            connection.undisturbed()
            start = {int(log): int(offset) for log, offset in (splits or {}).items()}
            self._driver = _Driver(self._setting, self._topics, start)
        return self._driver

    def initialOffset(self) -> dict[str, Any]:
        """The position of the lane's last progress row, so that a pipeline that lost its checkpoint repeats nothing."""
        connection.undisturbed()
        client = connection.client(self._setting.broker, self._setting.timeout)
        last = last_progress(client, self._topics, self._setting.lane)
        return {"position": 0 if last is None else last.position, "splits": {}, "monitor": {}}

    def getDefaultReadLimit(self) -> ReadLimit:
        """A placeholder: the real limit changes, and Spark asks for this one only once."""
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The last position that is both assigned to the lane and admitted."""
        driver = self._planning(start["splits"])
        driver.refresh()
        position = int(start["position"])
        end = min(driver.runs.assigned, driver.admitted, position + min(self._setting.rows, driver.batch))
        if end <= position:
            return start
        return {
            "position": end,
            "splits": {str(log): offset for log, offset in driver.place(end).items()},
            "monitor": driver.monitors.refresh(),
        }

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The last assigned position, for Spark's progress reports."""
        if self._driver is None:
            return None
        return {"position": self._driver.runs.assigned}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Ranges of offsets for as many tasks as the number of events justifies."""
        first, last = int(start["position"]), int(end["position"])
        if last <= first:
            return []
        driver = self._planning(start["splits"])
        try:
            pieces = driver.runs.pieces(first, last)
        except LookupError:
            driver.refresh()
            try:
                pieces = driver.runs.pieces(first, last)
            except LookupError as error:
                raise ConfigError(
                    f"checkpointLocation: {error} of pipeline {self._setting.pipeline!r}; "
                    "the checkpoint belongs to another pipeline, or the topic of splits was deleted"
                ) from None
        count = min(self._setting.partitions, -(-(last - first) // PARTITION_ROWS))
        made: list[InputPartition] = []
        position = first
        for pieces_of_one in partitioned(pieces, count):
            for source, group in groupby(pieces_of_one, key=lambda piece: piece.source):
                ranges = tuple(Range(piece.log, piece.start, piece.stop) for piece in group)
                position += sum(each.rows for each in ranges)
                made.append(ReadPart(self._setting.inputs[source], ranges, note=Note(position, end["monitor"])))
        return made

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The events of a part, then the progress row."""
        assert isinstance(partition, ReadPart)
        return self._reader.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Release what is done. Spark calls this when it begins the next micro-batch."""
        self._planning(end["splits"]).release(int(end["position"]), end["splits"])


class _Driver:
    """State of planning between micro-batches, in the one process that plans."""

    def __init__(self, setting: LaneSetting, topics: OwnTopics, splits: dict[int, int]) -> None:
        self._setting = setting
        self._topics = topics
        self._client = connection.client(setting.broker, setting.timeout)
        self._splits = Tail(self._client, topics.splits, splits)
        self._control = Tail(self._client, topics.control)
        self.runs: Final = LaneRuns(setting.lane)
        self.monitors: Final = Monitors(self._client, topics, setting.monitors)
        self.admitted = self.batch = 0
        self.refresh()

    def refresh(self) -> None:
        """Read the newest decisions of the splitter and the controllers."""
        self.runs.extend(LaneRun.of(log, offset, row) for log, offset, row in self._splits.news())
        for _, _, row in self._control.news():
            if row.lane == self._setting.lane:
                self.admitted, self.batch = row.admitted, row.batch

    def place(self, position: int) -> dict[int, int]:
        """The position in the topic of splits from which to read to continue at a lane's position."""
        run = self.runs.at(position)
        if run is None:
            return dict(self._splits.position)
        return {**self._splits.position, run.place[0]: run.place[1]}

    def release(self, position: int, splits: Mapping[str, int]) -> None:
        """Release the holds on events before a position, and on the runs that have only such events."""
        holder = self._topics.hold(f"lane {self._setting.lane}")
        self._client.hold(self._topics.splits, holder, {int(log): int(offset) for log, offset in splits.items()})
        for source, name in enumerate(self._setting.inputs):
            held = self.runs.needed(source, position)
            if held:
                self._client.hold(name, f"{holder} of {name}", held)
        self.runs.forget(position)
