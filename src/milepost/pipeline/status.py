"""The status of a pipeline, read from its own topics. Any client that may read them can ask."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from milepost.errors import UnknownTopic, did_you_mean
from milepost.pipeline.control.trace import Record, Trace
from milepost.pipeline.own_topics import IEP, STOPPED, OwnTopics, Tail

if TYPE_CHECKING:
    from milepost.client import Client

STALE_INTERVALS: Final = 5  # without a control row, after which no runner is running it
GAPS: Final = 5  # between control rows that are remembered: robust against two close rows, and against a long pause


@dataclass
class LaneStatus:
    """One lane, by its last progress rows and the last decision about it."""

    number: int
    assigned: int = 0
    admitted: int = 0
    done: int = 0
    results: int = 0
    epoch: int = -1
    free: float = 0.0
    reference: float = 0.0
    queued: float = 0.0
    input: float = 0.0
    weight: float = 0.0
    response: float | None = None

    @property
    def waiting(self) -> int:
        """Events that are assigned to it and not finished."""
        return max(0, self.assigned - self.done)


class PipelineStatus:
    """The status of a pipeline. `refresh` reads what is new, and costs little when nothing is."""

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self.name: Final = name
        self._topics = OwnTopics(name)
        names = [each.name for each in client.topics()]
        if self._topics.progress not in names:
            known = sorted({each.removesuffix(".marks") for each in names if each.endswith(".marks")})
            raise UnknownTopic(
                f"no pipeline {name!r} has run at this broker{did_you_mean(name, known)}"
                + (f"; there is {', '.join(known)}" if known else "")
            )
        self._control = Tail(client, self._topics.control)
        self._progress = Tail(client, self._topics.progress)
        self._monitor = Tail(client, self._topics.monitor)
        self._orders = Tail(client, self._topics.orders)
        self.lanes: dict[int, LaneStatus] = {}
        self.trace: Final = Trace()
        self.monitors: dict[str, Any] = {}
        self.rejected = self.dropped = self.late = self.sent = 0
        self.watermark: Any = None  # time up to which tier 2 has seen everything
        self.last: Any = None  # time of the last control row
        self._stopped: Any = None  # when a runner last announced its end
        self._first: float | None = None
        self._every = 0.0  # seconds between two decisions, as the rows state
        self._gaps: deque[float] = deque([2.0], GAPS)  # seconds

    def refresh(self) -> None:
        """Read what is new in the topics."""
        for _, _, row in self._progress.news():
            self._note_progress(row)
        for _, _, row in self._control.news():
            self._decision(row)
        for _, _, row in self._monitor.news():
            self.monitors[row.monitor] = row
        for _, _, row in self._orders.news():
            if row.order == STOPPED:
                self._stopped = row.at

    def _note_progress(self, row: Any) -> None:
        if row.lane == IEP:
            self.late += row.late
            self.sent += row.rows
            # Year 1 stands for "before all events".
            self.watermark = row.time if row.time is None or row.time.year > 1 else None
            return
        lane = self.lanes.setdefault(row.lane, LaneStatus(row.lane))
        lane.done = max(lane.done, row.position)
        lane.results += row.rows
        lane.epoch = row.epoch if row.epoch >= 0 else lane.epoch  # negative: the row only announces a new sink
        self.rejected += row.rejected
        self.dropped += row.dropped

    def _decision(self, row: Any) -> None:
        self._seen(row)
        if row.lane == IEP:
            return
        lane = self.lanes.setdefault(row.lane, LaneStatus(row.lane))
        lane.assigned, lane.admitted = row.assigned, row.admitted
        lane.free, lane.reference, lane.queued = row.free, row.reference, row.queued
        lane.input, lane.weight, lane.response = row.input, row.weight, row.response
        at = row.at.timestamp()
        self._first = at if self._first is None else self._first
        self.trace.add(
            Record(
                k=row.interval,
                time=at - self._first,
                lane=row.lane,
                set_point=row.reference,
                measurement=row.free,
                input=row.input,
                weight=row.weight,
                response_time=row.response,
                queue_bytes=round(row.queued),
                waiting=max(0, row.assigned - row.done),
                dropped=row.dropped,
            )
        )

    def _seen(self, row: Any) -> None:
        if self.last is not None and row.at > self.last:
            self._gaps.append((row.at - self.last).total_seconds())
        self.last = row.at
        self._every = getattr(row, "every", None) or 0.0  # missing in rows of older versions

    def running(self, now: float) -> bool:
        """Whether a runner controls it: there was a control row lately, and no announcement of an end since."""
        if self.last is None or (self._stopped is not None and self._stopped >= self.last):
            return False
        usual = max(median(self._gaps), self._every, 1.0)
        return bool(now - self.last.timestamp() < STALE_INTERVALS * usual)

    def unfinished(self, now: float) -> str:
        """Why it has not reached the end of its input; empty when nothing is known to be left."""
        if self.running(now):
            return "still runs"
        waiting = sum(each.waiting for each in self.lanes.values())
        return f"was stopped with {waiting:,} unfinished events" if waiting else ""
