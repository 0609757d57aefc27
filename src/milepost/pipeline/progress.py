"""Marks: how far a lane is, and the sink that writes them in the transaction in which its results become visible."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from milepost.pipeline.own_topics import OwnTopics, queued_bytes
from milepost.pipeline.source import connection
from milepost.pipeline.source.options import SourceOptions
from milepost.pipeline.source.sink import StagedPart, StreamSink


@dataclass(frozen=True)
class ProgressSetting:
    """Whose marks a sink writes; as JSON it is the option `marks`."""

    pipeline: str
    lane: int
    result: str = "event"  # the column with results; empty: all columns
    reject: str = "reject"  # … and with what was refused
    time: str = ""  # the field of results that is their time; empty: it is the one that events came with
    disorder_us: int = 0  # that results may be out of order
    late: str = ""  # … and with what came too late, also when it begins with _ and goes nowhere
    elsewhere: bool = False  # results go to the output, and not to a lane's topic
    queue_bytes: int = 0  # a result queue that drops what it has no room for: only for showing what that does

    def json(self) -> str:
        """The value of the option."""
        return json.dumps(self.__dict__)

    @classmethod
    def of(cls, text: str) -> ProgressSetting:
        """Back from the option."""
        return cls(**json.loads(text))


class ProgressSink(StreamSink):
    """A sink that takes mark rows out of what it is given, and commits the farthest of them with the results."""

    chosen = False

    def __init__(self, setting: ProgressSetting, options: SourceOptions, struct: StructType) -> None:
        super().__init__(options, struct)
        self._setting: Final = setting
        self._topics: Final = OwnTopics(setting.pipeline)

    def stage(self, message: StagedPart, batches: Iterator[pa.RecordBatch]) -> None:
        """In a task: what is staged is what the task reads and calculates meanwhile, so this is how long it works."""
        message.note["begun"] = time.time()
        super().stage(message, batches)

    def look(self, message: StagedPart, batch: pa.RecordBatch) -> None:
        """In a task: find the mark, count what goes where."""
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
            # Events that are left out have no such time; what was read before and after them has.
            self._latest(note, pc.max(pc.struct_field(batch.column(self._setting.result), self._setting.time)).as_py())

    @staticmethod
    def _latest(note: dict[str, Any], time: datetime | None) -> None:
        if time is not None and (note.get("time") is None or time > note["time"]):
            note["time"] = time

    def extra(self, messages: Sequence[StagedPart]) -> Mapping[str, Any] | None:
        """In the driver: the row for the topic of marks; none when no mark came."""
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
        """Results and mark; of a result queue that drops, only the mark when it is full."""
        bound = self._setting.queue_bytes
        if bound:
            with connection.using(self.options.broker, self.options.timeout) as client:
                full = queued_bytes(client, self._topics, self._setting.lane) >= bound
            if full:
                messages = [None if each is None else _without_results(each, self._setting.result) for each in messages]
        super().publish(messages)


def _count(messages: Sequence[StagedPart], columns: Iterable[str | None]) -> int:
    return sum(each.note.get(f"rows of {column}", 0) for each in messages for column in columns)


def _without_results(message: StagedPart, result: str) -> StagedPart:
    """A task's message of which nothing is published; what it had is counted as dropped."""
    rows = f"rows of {result}"
    note = {**message.note, "dropped": message.note.get(rows, 0), rows: 0}
    return StagedPart(message.sink, message.epoch, message.part, message.attempt, 0, 0, note)
