"""The combiner: the source of tier 2, which merges the results of all lanes into one stream in the order of event time.

Spark keeps no order between micro-batches, so the order is made here: a micro-batch has all results between two
watermarks, sorted, in one partition. `watermark` computes how far that is possible, `merge` which rows a micro-batch
has. Late results come first, with `_late` set; a progress row comes last.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import BooleanType, StructField, StructType

from milepost.errors import ConfigError
from milepost.pipeline.lane import Monitors, constant, lane_type, progress_row
from milepost.pipeline.merge import BATCH_ROWS, MergePoint, merged, next_point, rows_between, wanted
from milepost.pipeline.own_topics import IEP, OwnTopics, Tail, combiner_hold, last_progress
from milepost.pipeline.pace import BatchPace
from milepost.pipeline.source import connection
from milepost.pipeline.source.options import PATIENCE_S, JsonSetting
from milepost.pipeline.source.to_spark import ToSpark
from milepost.pipeline.watermark import (
    NEVER,
    NOWHERE,
    LaneFold,
    LaneProgress,
    LaneReach,
    beginning,
    drained,
    least,
    watermark,
)
from milepost.schema import Schema

OUT_ROWS: Final = 50_000  # rows of one record batch
WORK_S: Final = 0.5  # target duration of a micro-batch
LEAST_ROWS: Final = 5_000  # fewest rows of a micro-batch: with fewer, its fixed cost dominates
EARLIEST_US: Final = -62_135_596_800_000_000  # the year 1: the representation of NEVER in Python
IDLE_S: Final = 5.0  # without new assignments; after it the order of the results is final


class Feeding(NamedTuple):
    """A pipeline whose lanes are combined."""

    pipeline: str
    lanes: int
    disorder_us: int


@dataclass(frozen=True)
class CombinedSetting(JsonSetting):
    """Identifies the lanes to combine. As JSON it is the option `combined`."""

    broker: str
    pipeline: str  # the pipeline whose tier 2 reads the stream
    feeding: tuple[Feeding, ...]
    time: str
    monitors: Mapping[str, Sequence[str]] = field(default_factory=dict)
    rows: int = BATCH_ROWS
    work_s: float = WORK_S
    idle_s: float = IDLE_S
    drain: Sequence[tuple[int, int]] = ()  # as in `drained`: open windows close once the input has ended
    timeout: float = PATIENCE_S

    def __post_init__(self) -> None:
        object.__setattr__(self, "feeding", tuple(Feeding(*each) for each in self.feeding))  # lists, where from JSON

    @property
    def lanes(self) -> list[str]:
        """The result topics of all lanes."""
        return [OwnTopics(each.pipeline).lane(lane) for each in self.feeding for lane in range(each.lanes)]


def combined_type(events: StructType, monitors: Mapping[str, Sequence[str]]) -> StructType:
    """The columns that the combined stream gives to Spark."""
    return lane_type(events, monitors, StructField("_late", BooleanType()))


def offset_of(at: MergePoint, monitor: Mapping[str, Any]) -> dict[str, Any]:
    """The offset for Spark's checkpoint, and for the progress rows of tier 2."""
    lanes = [[low.json(), end.json()] for low, end in zip(at.lows, at.ends, strict=True)]
    return {"time": at.time_us, "lanes": lanes, "monitor": dict(monitor)}


def cut_of(offset: Mapping[str, Any]) -> MergePoint:
    """Parse an offset. Raises `ConfigError` when another source made it."""
    try:
        lows, ends = (tuple(LaneReach.of(each[side]) for each in offset["lanes"]) for side in (0, 1))
        return MergePoint(int(offset["time"]), lows, ends)
    except (KeyError, TypeError, ValueError, IndexError):
        raise ConfigError(
            f"checkpointLocation: {str(offset)[:200]} is not an offset of combined lanes; "
            "the checkpoint belongs to another query"
        ) from None


class CombinedPartition(InputPartition):
    """A whole micro-batch: the order extends over all its rows."""

    def __init__(self, start: MergePoint, stop: MergePoint, monitor: Mapping[str, Any], offset: str) -> None:
        self.start: Final = start
        self.stop: Final = stop
        self.monitor: Final = monitor
        self.offset: Final = offset


class CombinedReader(DataSourceStreamReader):
    """Spark calls its planning methods in a process of their own on the driver, and `read` in one task."""

    def __init__(self, setting: CombinedSetting, schema: Schema, struct: StructType) -> None:
        self._setting: Final = setting
        self._schema: Final = schema
        self._struct: Final = struct
        self._driver: _Driver | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_driver": None}

    def initialOffset(self) -> dict[str, Any]:
        """The position of tier 2's last progress row; for a pipeline that never ran, the first results that lanes still
        have.
        """
        connection.undisturbed()
        client = connection.client(self._setting.broker, self._setting.timeout)
        last = last_progress(client, OwnTopics(self._setting.pipeline), IEP)
        if last is not None and last.offset is not None:
            return {**json.loads(last.offset), "initial": True}
        lows = tuple(reach for each in self._setting.feeding for reach in _beginnings(client, each))
        return offset_of(MergePoint(NEVER, lows, lows), {}) | {"initial": True}

    def getDefaultReadLimit(self) -> ReadLimit:
        """No limit: the offsets have their own bound."""
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next micro-batch, at most at the least watermark."""
        before = self._cut(start)
        if self._driver is None:
            connection.undisturbed()
            self._driver = _Driver(self._setting, before)
        # When Spark asks, everything before is in its commit log, but it calls `commit` only when there is more to do.
        # Releasing here keeps lanes from waiting for an empty queue.
        if not start.get("initial"):
            self._driver.release(before)
        after = self._driver.next(before)
        if after == before:
            return start
        made = offset_of(after, self._driver.monitors.refresh())
        if start.get("initial"):  # Spark asks for the first offset again when it repeats the first micro-batch
            made["begun"] = offset_of(before, {})
        return made

    def _cut(self, offset: Mapping[str, Any]) -> MergePoint:
        found = cut_of(offset)
        if len(found.lows) != len(self._setting.lanes):
            raise ConfigError(
                f"tier 2 combined {len(found.lows)} lanes before, and there are {len(self._setting.lanes)} now; "
                "keep the number of lanes, or give the pipeline another name"
            )
        return found

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """One partition, or none."""
        before, after = self._cut(end.get("begun") or start), self._cut(end)
        if before == after:
            return []
        told = {name: value for name, value in end.items() if name != "begun"}
        return [CombinedPartition(before, after, end["monitor"], json.dumps(told))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Late results, then the results up to the watermark in order, then the progress row."""
        assert isinstance(partition, CombinedPartition)
        events = len(self._struct.fields) - 2 - bool(self._setting.monitors)
        arrow = to_arrow_schema(self._struct, timezone="UTC").remove_metadata()
        convert = ToSpark(self._schema, StructType(self._struct.fields[:events]))
        constants = [constant(each, partition.monitor) for each in list(arrow)[events:-2]]
        for late, batch in combine(self._setting, convert, partition.start, partition.stop):
            rows = len(batch)
            yield pa.RecordBatch.from_arrays(
                [
                    *batch.columns,
                    *(pa.repeat(value, rows) for value in constants),
                    pa.repeat(pa.scalar(late), rows),
                    pa.nulls(rows, arrow[-1].type),
                ],
                schema=arrow,
            )
        told = {
            "position": sum(sum(low.rows.values()) for low in partition.stop.lows),
            "time": max(partition.stop.time_us, EARLIEST_US),
            "offset": partition.offset,
        }
        yield progress_row(arrow, told, partition.monitor)

    def commit(self, end: dict[str, Any]) -> None:
        """Release what is merged."""
        if self._driver is not None:
            self._driver.release(self._cut(end))


def combine(
    setting: CombinedSetting, convert: Callable[[Any], pa.RecordBatch], start: MergePoint, stop: MergePoint
) -> Iterator[tuple[bool, pa.RecordBatch]]:
    """The results of one micro-batch as (late, rows): first the late ones, then the others in order."""
    client = connection.client(setting.broker, setting.timeout)
    found: list[pa.RecordBatch] = []
    times: list[npt.NDArray[np.int64]] = []
    seen: list[npt.NDArray[np.bool_]] = []
    # Rows that the previous micro-batch read are not emitted before the watermark advances.
    firsts = start.lows if stop.time_us > start.time_us else start.ends
    for topic, begin, before, end in zip(setting.lanes, firsts, start.ends, stop.ends, strict=True):
        stops = {log: offset for log, offset in end.rows.items() if offset > begin.rows.get(log, 0)}
        if not stops:
            continue
        for batch in client.read(topic, {log: begin.rows.get(log, 0) for log in stops}, stops):
            rows = convert(batch)
            at = rows.column(setting.time).cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
            old = batch.offsets < np.uint64(before.rows.get(batch.log, 0))
            # Filter each batch as it is read: the rows that are too early for this micro-batch may be many.
            some = wanted(at, old, start.time_us, stop.time_us)
            found.append(rows if some.all() else rows.filter(pa.array(some)))
            times.append(at[some])
            seen.append(old[some])
    if not found:
        return
    table = pa.Table.from_batches(found)
    order = merged(np.concatenate(times), np.concatenate(seen), start.time_us, stop.time_us)
    for late, rows in ((True, order.rows[: order.late]), (False, order.rows[order.late :])):
        for first in range(0, len(rows), OUT_ROWS):
            chosen = table.take(pa.array(rows[first : first + OUT_ROWS])).combine_chunks()
            yield from ((late, batch) for batch in chosen.to_batches() if len(batch))


def _beginnings(client: Any, feeding: Feeding) -> list[LaneReach]:
    """The reach from which to read each lane of a pipeline."""
    topics = OwnTopics(feeding.pipeline)
    tail = Tail(client, topics.progress)
    progress: list[LaneProgress] = []
    while news := tail.news():  # until nothing is new: the progress and the ends of the lanes' topics must correspond
        progress += (LaneProgress.of(*each) for each in news)
        logs = [client.look(topics.lane(lane))["logs"] for lane in range(feeding.lanes)]
    return [
        beginning(
            [each for each in progress if each.lane == lane],
            {int(each["log"]): (int(each["start"]), int(each["next"])) for each in logs[lane]},
        )
        if progress
        else NOWHERE
        for lane in range(feeding.lanes)
    ]


class _Feed:
    """The progress and the splits of one pipeline."""

    def __init__(self, client: Any, feeding: Feeding, folds: Sequence[LaneFold]) -> None:
        topics = OwnTopics(feeding.pipeline)
        self._feeding = feeding
        self.folds: Final = folds
        lowest: dict[int, int] = {}
        for fold in folds:
            for log in {*lowest, *fold.low.progress}:
                lowest[log] = min(lowest.get(log, 1 << 62), fold.low.progress.get(log, 0))
        self._progress = Tail(client, topics.progress, lowest)
        self._splits = Tail(client, topics.splits)
        self._assigned = [0] * feeding.lanes
        self._ended = False
        self._last_us = 0

    def refresh(self) -> None:
        # Read progress first: a lane that has finished all events of the splits read afterwards is idle.
        for log, offset, row in self._progress.news():
            if 0 <= row.lane < self._feeding.lanes:
                self.folds[row.lane].take(LaneProgress.of(log, offset, row))
        for _, _, row in self._splits.news():
            self._ended = row.lane < 0
            self._last_us = max(self._last_us, round(row.at.timestamp() * 1_000_000))
            if 0 <= row.lane < self._feeding.lanes:
                self._assigned[row.lane] = max(self._assigned[row.lane], row.first + row.stop - row.start)

    def silent(self, now: float, idle_s: float) -> bool:
        finished = all(fold.end.position >= given for fold, given in zip(self.folds, self._assigned, strict=True))
        return finished and (self._ended or now - self._last_us / 1_000_000 > idle_s)

    def watermark(self, silent: bool) -> int | None:
        return watermark(self.folds, self._assigned, silent, self._feeding.disorder_us)


class _Driver:
    """State of planning between micro-batches."""

    def __init__(self, setting: CombinedSetting, at: MergePoint) -> None:
        self._setting = setting
        self._client = connection.client(setting.broker, setting.timeout)
        self._feeds: list[_Feed] = []
        self._released: tuple[LaneReach, ...] = ()
        self._pace = BatchPace(setting.work_s, min(LEAST_ROWS, setting.rows), setting.rows)
        lows = list(at.lows)
        for each in setting.feeding:
            folds = [LaneFold(low) for low in lows[: each.lanes]]
            del lows[: each.lanes]
            self._feeds.append(_Feed(self._client, each, folds))
        self.monitors: Final = Monitors(self._client, OwnTopics(setting.pipeline), setting.monitors)

    def next(self, before: MergePoint) -> MergePoint:
        """The end of the micro-batch that begins at `before`; `before` itself when there is nothing to merge."""
        now = time.time()
        self._pace.asked(now)
        told = []
        for feed in self._feeds:
            feed.refresh()
            silent = feed.silent(now, self._setting.idle_s)
            told.append((feed.watermark(silent), silent))
        folds = [fold for feed in self._feeds for fold in feed.folds]
        disorder = max(each.disorder_us for each in self._setting.feeding)
        until = least(told)
        if self._setting.drain and all(silent for _, silent in told):
            until = drained(until, self._setting.drain)
        after = next_point(folds, before, until, disorder, self._pace.rows)
        unseen = rows_between(before.ends, [fold.end for fold in folds])
        if after.time_us == before.time_us and unseen < self._pace.rows and not all(silent for _, silent in told):
            return before  # an empty micro-batch would cost as much as one with results
        if after != before:
            first = before.lows if after.time_us > before.time_us else before.ends
            self._pace.began(time.time(), rows_between(first, after.ends))
        return after

    def release(self, at: MergePoint) -> None:
        """Release the holds on results and progress before the lows."""
        if at.lows == self._released:
            return
        self._released = at.lows
        place = 0
        for feed, each in zip(self._feeds, self._setting.feeding, strict=True):
            topics = OwnTopics(each.pipeline)
            lows = at.lows[place : place + each.lanes]
            place += each.lanes
            progress: dict[int, int] = {}
            for lane, (fold, low) in enumerate(zip(feed.folds, lows, strict=True)):
                fold.settle(low)
                self._client.hold(topics.lane(lane), self._hold(topics.lane(lane)), low.rows)
                for log in {*progress, *low.progress}:
                    progress[log] = min(progress.get(log, 1 << 62), low.progress.get(log, 0))
            self._client.hold(topics.progress, self._hold(topics.progress), progress)

    def _hold(self, topic: str) -> str:
        return combiner_hold(self._setting.pipeline, topic)
