"""How a pipeline is doing, out of the topics beside it: whoever can reach the broker can ask."""

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

STALE_INTERVALS: Final = 5  # without a row of control: nobody runs it
GAPS: Final = 5  # between such rows: what is usual, whether two came close together once, or nobody ran it for long


@dataclass
class LaneStatus:
    """One lane, as its last marks and the last decision about it tell."""

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
        """Events that it was given and has not finished."""
        return max(0, self.assigned - self.done)


class PipelineStatus:
    """A pipeline, watched. `refresh` reads what is new, and costs little when nothing is."""

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
        self.watermark: Any = None  # up to which tier 2 has seen everything
        self.last: Any = None  # when it was last steered
        self._stopped: Any = None  # when a runner last said that it ends
        self._first: float | None = None
        self._every = 0.0  # seconds between two decisions, as they say
        self._gaps: deque[float] = deque([2.0], GAPS)  # seconds

    def refresh(self) -> None:
        """Read on."""
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
            self.watermark = row.time if row.time is None or row.time.year > 1 else None  # which is before all events
            return
        lane = self.lanes.setdefault(row.lane, LaneStatus(row.lane))
        lane.done = max(lane.done, row.position)
        lane.results += row.rows
        lane.epoch = row.epoch if row.epoch >= 0 else lane.epoch  # below: who takes over says so
        self.rejected += row.rejected
        self.dropped += row.dropped

    def _decision(self, row: Any) -> None:
        if row.lane == IEP:
            self._seen(row)
            return
        lane = self.lanes.setdefault(row.lane, LaneStatus(row.lane))
        lane.assigned, lane.admitted = row.assigned, row.admitted
        lane.free, lane.reference, lane.queued = row.free, row.reference, row.queued
        lane.input, lane.weight, lane.response = row.input, row.weight, row.response
        self._seen(row)
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
        self._every = getattr(row, "every", None) or 0.0  # which rows of older versions do not say

    def running(self, now: float) -> bool:
        """Whether somebody steers it: it was steered lately, and has not said since that it stops."""
        if self.last is None or (self._stopped is not None and self._stopped >= self.last):
            return False
        usual = max(median(self._gaps), self._every, 1.0)
        return bool(now - self.last.timestamp() < STALE_INTERVALS * usual)

    def unfinished(self, now: float) -> str:
        """Why it is not at the end of its input; empty when nothing says so."""
        if self.running(now):
            return "still runs"
        waiting = sum(each.waiting for each in self.lanes.values())
        return f"was stopped with {waiting:,} events to do" if waiting else ""
