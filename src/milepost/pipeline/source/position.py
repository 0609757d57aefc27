"""How far a query has read a topic: offsets in Spark's checkpoints, and the share of a micro-batch.

An offset is JSON: the next offset in each log of the topic, and what a restarted query needs::

    {"logs": {"1": 4200}, "broker": "0f…", "hold": "spark-2b…", "begun": {"1": 0}}

Only the end of the first micro-batch has `begun`. When Spark repeats this micro-batch after a crash, it asks for the
initial offset again, and "latest" has moved by then; `begun` says where the micro-batch really began.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from milepost.errors import BrokerError, ConfigError

Logs = Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Position:
    """An offset of Spark. `hold` is empty when nothing is held."""

    logs: Logs
    broker: str
    hold: str = ""
    begun: Logs | None = None
    initial: bool = False  # nothing is read yet: the query begins

    def offset(self) -> dict[str, Any]:
        """The JSON for Spark. Equal positions give equal JSON, since Spark compares the texts to find out whether there
        is news.
        """
        made: dict[str, Any] = {"logs": _texts(self.logs), "broker": self.broker, "hold": self.hold}
        if self.begun is not None:
            made["begun"] = _texts(self.begun)
        if self.initial:
            made["initial"] = True
        return made

    @classmethod
    def read(cls, offset: Mapping[str, Any]) -> Position:
        """Parse the offset in a checkpoint. Raises `ConfigError` when another kind of source wrote it."""
        try:
            begun = offset.get("begun")
            return cls(
                _numbers(offset["logs"]),
                str(offset["broker"]),
                str(offset["hold"]),
                None if begun is None else _numbers(begun),
                bool(offset.get("initial", False)),
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            raise ConfigError(
                f"checkpointLocation: {str(offset)[:200]} is not an offset of a topic; "
                "the checkpoint belongs to another query"
            ) from None

    def moved(self, logs: Logs) -> Position:
        """The position at `logs`; the same object when nothing changed, unless nothing was read yet. Logs at 0 may be
        left out.
        """
        logs = {log: offset for log, offset in logs.items() if offset}
        if not self.initial and logs == {log: offset for log, offset in self.logs.items() if offset}:
            return self
        return replace(self, logs=logs, begun=self.logs if self.initial else None, initial=False)


def _texts(logs: Logs) -> dict[str, int]:
    return {str(log): logs[log] for log in sorted(logs)}


def _numbers(logs: Mapping[str, Any]) -> dict[int, int]:
    return {int(log): int(offset) for log, offset in logs.items()}


@dataclass(frozen=True, slots=True)
class LogExtent:
    """The rows of a topic in one log: offsets from `start` to before `next`, and their bytes."""

    start: int
    next: int
    rows: int
    bytes: int


def extents(looked: Mapping[str, Any]) -> dict[int, LogExtent]:
    """The logs in a result of `Client.look`."""
    return {
        int(each["log"]): LogExtent(int(each["start"]), int(each["next"]), int(each["rows"]), int(each["bytes"]))
        for each in looked["logs"]
    }


def checked(topic: str, start: Logs, there: Mapping[int, LogExtent], *, fail: bool = True) -> dict[int, int]:
    """Where reading continues in each existing log. Raises `BrokerError` when that is not possible.

    Removed rows raise or, without `fail`, are skipped. A position after the end of its log belongs to another topic,
    and always raises.
    """
    for log, offset in start.items():
        extent = there.get(log)
        end = 0 if extent is None else extent.next
        if offset > end:
            raise BrokerError(
                f"topic {topic!r} ends at offset {end} in log {log}, but the checkpoint is at {offset}: the topic was "
                "deleted and declared again, or the checkpoint belongs to another query; start with a new checkpoint"
            )
        if extent is not None and offset < extent.start and fail:
            raise BrokerError(
                f"topic {topic!r} begins at offset {extent.start} in log {log}, but the query has read only up to "
                f"{offset}: {extent.start - offset} rows were removed before they were read; "
                "set the option failOnDataLoss to false to continue without them"
            )
    return {log: max(start.get(log, 0), extent.start) for log, extent in there.items()}


def advanced(start: Logs, end: Logs, rows: int | None) -> dict[int, int]:
    """At most `rows` further than `start`, and not beyond `end`; None: up to `end`.

    Each log gets an equal share, and what one does not need goes to the others, so that no log waits for a longer one.
    """
    waiting = {log: end[log] - start.get(log, 0) for log in end if end[log] > start.get(log, 0)}
    made = dict(start) | {log: start.get(log, 0) for log in end if log not in start}
    if rows is None or sum(waiting.values()) <= rows:
        return made | {log: end[log] for log in waiting}
    left = rows
    for place, log in enumerate(sorted(waiting, key=lambda each: (waiting[each], each))):
        share = min(waiting[log], -(-left // (len(waiting) - place)))
        made[log] += share
        left -= share
    return made


def pieces(start: Logs, end: Logs, most: int, least: int) -> Iterator[tuple[int, int, int]]:
    """(log, from, before) of about equal size: at most `most` of them, or one for each log when there are more logs.

    None has fewer than `least` rows, except where a log has fewer.
    """
    spans = {log: (start.get(log, 0), end[log]) for log in sorted(end) if end[log] > start.get(log, 0)}
    total = sum(stop - begin for begin, stop in spans.values())
    wanted = max(1, min(most, -(-total // least)))
    for log, (begin, stop) in spans.items():
        count = max(1, min(round(wanted * (stop - begin) / total), stop - begin))
        edges = [begin + (stop - begin) * number // count for number in range(count + 1)]
        for low, high in pairwise(edges):
            yield log, low, high
