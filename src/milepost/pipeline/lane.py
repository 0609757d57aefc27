"""A lane's source: the runs of the input that the splitter gave to one lane, as far as its controller admits them.

An offset is the lane's position, a number of events. In it are also the monitors' values, so that a micro-batch that
Spark runs again sees the same ones. Each partition ends with a *mark row*: the lane's position behind it and the
latest event time in it, and nothing else; it travels with the events through tier 1, whatever they are filtered by, and
so the sink knows how far the lane is.
"""

from __future__ import annotations

import json
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
from milepost.pipeline.source.options import PATIENCE_S
from milepost.pipeline.source.ranges import Range, RangeReader, ReadPart
from milepost.pipeline.splits import LaneRun, LaneRuns, partitioned
from milepost.schema import Schema

MICRO_ROWS: Final = 200_000  # most events of a micro-batch: about a second of a lane, so that control can act on it
PARTITION_ROWS: Final = 20_000  # fewer are not worth a second task

PROGRESS: Final = StructType(
    [
        StructField("position", LongType()),  # of the lane, behind what was read
        StructField("time", TimestampType()),  # of the latest event; of a combined stream, its watermark
        StructField("offset", StringType()),  # of a combined stream: its whole offset
    ]
)


@dataclass(frozen=True)
class LaneSetting:
    """Which lane of which pipeline; as JSON it is the option `lane`."""

    broker: str
    pipeline: str
    lane: int
    inputs: tuple[str, ...]
    time: str
    monitors: Mapping[str, Sequence[str]] = field(default_factory=dict)  # name -> statistics that rules may ask for
    rows: int = MICRO_ROWS
    partitions: int = 2
    timeout: float = PATIENCE_S

    def json(self) -> str:
        """The value of the option."""
        return json.dumps(self.__dict__ | {"inputs": list(self.inputs)}, default=list)

    @classmethod
    def of(cls, text: str) -> LaneSetting:
        """Back from the option."""
        found = json.loads(text)
        return cls(**found | {"inputs": tuple(found["inputs"])})


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


def lane_type(events: StructType, monitors: Mapping[str, Sequence[str]]) -> StructType:
    """What a lane's source gives to Spark."""
    extra = [StructField("monitor", monitor_type(monitors))] if monitors else []
    return StructType([*events.fields, *extra, StructField("_progress", PROGRESS)])


class Note:
    """What a part of a lane's micro-batch knows beside its ranges."""

    def __init__(self, position: int, monitor: Mapping[str, Any]) -> None:
        self.position: Final = position  # of the lane, behind the part
        self.monitor: Final = monitor  # the monitors' values for this micro-batch
        self.latest: Any = None  # of the events read so far, as an Arrow scalar


class LaneRanges(RangeReader):
    """Reads parts, with the monitors' values beside each event and a mark row behind the last."""

    def __init__(self, setting: LaneSetting, schema: Schema, struct: StructType) -> None:
        self._events = len(struct.fields) - 1 - bool(setting.monitors)
        super().__init__(setting.broker, setting.timeout, schema, StructType(struct.fields[: self._events]))
        self._time: Final = setting.time
        self._arrow: Final = to_arrow_schema(struct, timezone="UTC").remove_metadata()

    def columns(self, part: ReadPart, batch: LogBatch, table: pa.RecordBatch) -> pa.RecordBatch:
        """With the monitors' values, and no mark."""
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
        """The mark row."""
        note: Note = part.note
        time = None if note.latest is None else note.latest.value
        return progress_row(self._arrow, {"position": note.position, "time": time, "offset": None}, note.monitor)


def constant(column: pa.Field, monitor: Mapping[str, Any]) -> pa.Scalar:
    """What a column beside the events' has in each row."""
    told = {each.name: monitor.get(each.name) for each in column.type} if column.name == "monitor" else None
    return pa.scalar(told, column.type)


def progress_row(arrow: pa.Schema, progress: Mapping[str, Any], monitor: Mapping[str, Any]) -> pa.RecordBatch:
    """One row with nothing in it but the monitors' values and, in the last column, the mark."""
    others = [pa.repeat(constant(each, monitor), 1) for each in list(arrow)[:-1]]
    return pa.RecordBatch.from_arrays([*others, pa.array([dict(progress)], arrow[-1].type)], schema=arrow)


class Monitors:
    """The newest values of monitors, out of their topic."""

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
    """Spark asks it for offsets and partitions in a process of its own on the driver, and for rows in its workers."""

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
        """Where this lane's last mark is: a pipeline whose checkpoint is gone does nothing twice."""
        connection.undisturbed()
        client = connection.client(self._setting.broker, self._setting.timeout)
        last = last_progress(client, self._topics, self._setting.lane)
        return {"position": 0 if last is None else last.position, "splits": {}, "monitor": {}}

    def getDefaultReadLimit(self) -> ReadLimit:
        """How much is asked of `latestOffset`, every time: it changes, and Spark asks this only once."""
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """As far as the lane was given events, and as they are admitted."""
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
        """For the progress: what was assigned."""
        if self._driver is None:
            return None
        return {"position": self._driver.runs.assigned}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Ranges of offsets, as many tasks as are worth it."""
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
                    "the checkpoint is that of another pipeline, or the topic of splits was deleted"
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
        """The events of a part, and the mark row behind them."""
        assert isinstance(partition, ReadPart)
        return self._reader.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Let go what is done. Spark calls this when it begins the next micro-batch."""
        self._planning(end["splits"]).release(int(end["position"]), end["splits"])


class _Driver:
    """What planning needs to remember between micro-batches, in the one process that plans."""

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
        """Read what the splitter and the controllers have decided since."""
        self.runs.extend(LaneRun.of(log, offset, row) for log, offset, row in self._splits.news())
        for _, _, row in self._control.news():
            if row.lane == self._setting.lane:
                self.admitted, self.batch = row.admitted, row.batch

    def place(self, position: int) -> dict[int, int]:
        """From where on to read the splits, to go on at a position."""
        run = self.runs.at(position)
        if run is None:
            return dict(self._splits.position)
        return {**self._splits.position, run.place[0]: run.place[1]}

    def release(self, position: int, splits: Mapping[str, int]) -> None:
        """Events before a position, and runs that hold only such, are not asked for again."""
        who = self._topics.hold(f"lane {self._setting.lane}")
        self._client.hold(self._topics.splits, who, {int(log): int(offset) for log, offset in splits.items()})
        for source, name in enumerate(self._setting.inputs):
            held = self.runs.needed(source, position)
            if held:
                self._client.hold(name, f"{who} of {name}", held)
        self.runs.forget(position)
