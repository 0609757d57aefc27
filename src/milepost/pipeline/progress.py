"""The progress of a lane or of tier 2, and the sink that commits it in the transaction that makes results visible."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from milepost.pipeline.own_topics import OwnTopics, queue
from milepost.pipeline.source import connection
from milepost.pipeline.source.options import JsonSetting, SourceOptions
from milepost.pipeline.source.sink import StagedPart, StreamSink


@dataclass(frozen=True)
class ProgressSetting(JsonSetting):
    """Identifies the lane whose progress a sink commits, and names the columns. As JSON it is the option `progress`."""

    pipeline: str
    lane: int
    result: str = "event"  # the column with results; empty: all columns
    reject: str = "reject"  # the column with rejected events
    time: str = ""  # the field of results that holds their time; empty: the time of the events
    disorder_us: int = 0  # by how much results may be out of order
    late: str = ""  # the column with late events, also under the name `_late` where they go to no topic
    elsewhere: bool = False  # results go to the output topic, not to a lane's topic
    queue_bytes: int = 0  # bound of a result queue that drops what does not fit; only for experiments


class ProgressSink(StreamSink):
    """A sink that removes progress rows from its input, and commits the farthest of them with the results."""

    chosen = False

    def __init__(self, setting: ProgressSetting, options: SourceOptions, struct: StructType) -> None:
        super().__init__(options, struct)
        self._setting: Final = setting
        self._topics: Final = OwnTopics(setting.pipeline)

    def stage(self, message: StagedPart, batches: Iterator[pa.RecordBatch]) -> None:
        """Stage rows in a task. Staging pulls the rows through the task's work, so its duration is the task's work
        time.
        """
        message.note["begun"] = time.time()
        super().stage(message, batches)

    def look(self, message: StagedPart, batch: pa.RecordBatch) -> None:
        """Find the progress row and count the rows of each column. Called in a task for each record batch."""
        note = message.note
        for column in (*(name for name in self.routes if name is not None), f"_{self._setting.late}"):
            if column in batch.schema.names:
                array = batch.column(column)
                note[f"rows of {column}"] = note.get(f"rows of {column}", 0) + len(array) - array.null_count
        progress = batch.column("_progress")
        if progress.null_count < len(progress):
            for told in progress.drop_null().to_pylist():  # one or a few in each task
                if told["position"] >= note.get("position", -1):
                    note["position"], note["offset"] = told["position"], told["offset"]
                self._latest(note, None if self._setting.time else told["time"])
        if self._setting.time and self._setting.result in batch.schema.names:
            # Events that tier 1 leaves out have no such time, but the events before and after them do.
            self._latest(note, pc.max(pc.struct_field(batch.column(self._setting.result), self._setting.time)).as_py())

    @staticmethod
    def _latest(note: dict[str, Any], time: datetime | None) -> None:
        if time is not None and (note.get("time") is None or time > note["time"]):
            note["time"] = time

    def extra(self, messages: Sequence[StagedPart]) -> Mapping[str, Any] | None:
        """The row for the progress topic; None when no progress row came. Called in the driver."""
        told = [each.note for each in messages if "position" in each.note]
        if not told:
            return None
        last = max(told, key=lambda note: int(note["position"]))
        times = [note["time"] for note in told if note.get("time") is not None]
        setting, now = self._setting, time.time()
        counts = {
            "rows": _count(messages, [setting.result]) if setting.result else _count(messages, self.routes),
            "rejected": _count(messages, [setting.reject]),
            "late": _count(messages, [setting.late, f"_{setting.late}"]) if setting.late else 0,
        }
        row = {
            "lane": self._setting.lane,
            "epoch": messages[0].epoch,
            "position": last["position"],
            "time": max(times) if times else None,
            "bytes": sum(each.bytes for each in messages),
            "dropped": sum(each.note.get("dropped", 0) for each in messages),
            "busy": max(0.0, now - min(each.note.get("begun", now) for each in messages)),
            "at": datetime.fromtimestamp(now, UTC),
            "offset": last["offset"],
            "elsewhere": self._setting.elsewhere or None,
            "sink": messages[0].sink,
            "disorder": self._setting.disorder_us / 1e6,
        }
        return {self._topics.progress: [row | counts]}

    def publish(self, messages: Sequence[StagedPart | None]) -> None:
        """Publish results and progress. A full result queue that drops publishes the progress alone."""
        bound = self._setting.queue_bytes
        if bound:
            with connection.using(self.options.broker, self.options.timeout) as client:
                rows, each_bytes = queue(client, self._topics, self._setting.lane)
            if rows * each_bytes >= bound:
                messages = [None if each is None else _without_results(each, self._setting.result) for each in messages]
        super().publish(messages)


def _count(messages: Sequence[StagedPart], columns: Iterable[str | None]) -> int:
    return sum(each.note.get(f"rows of {column}", 0) for each in messages for column in columns)


def _without_results(message: StagedPart, result: str) -> StagedPart:
    """The message of a task without its results, which count as dropped."""
    rows = f"rows of {result}"
    note = {**message.note, "dropped": message.note.get(rows, 0), rows: 0}
    return StagedPart(message.sink, message.epoch, message.part, message.attempt, 0, 0, note)
