"""The control loop of a pipeline: once an interval, measurements in, admissions and weights out.

It is pure: the runner measures, and carries out its decisions. Each lane has a flow controller, which holds the free
space of its result queue. One balancer for all lanes sets the weights of the load splitter. Measurements and decisions
are rows of the control topic, which the sources of the lanes obey and the report draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from milepost.pipeline.control.balance import Balancer
from milepost.pipeline.control.flow import FlowController
from milepost.pipeline.control.model import Model
from milepost.pipeline.control.pauses import LanePauses
from milepost.pipeline.control.placement import Gains
from milepost.pipeline.control.response import ResponseMeter
from milepost.pipeline.definition import Control
from milepost.pipeline.own_topics import IEP
from milepost.pipeline.pace import BatchPace

EVERYTHING: Final = 1 << 62  # admitted without control: more events than there will ever be
FIRST_EVENTS: Final = 20_000  # admitted while the bytes of an event's results are not known: some 0.1 s of work
DELAY: Final = 0  # intervals: admitted events count against the free space at once, so the next measurement shows them
UTMOST: Final = 1_000_000  # events an interval
WORK: Final = 0.75  # of an interval: longest micro-batch, so that one ends in each interval
LEAST_BATCH: Final = 1_000  # events: with fewer, the fixed cost of a micro-batch dominates
MOST_BATCH: Final = 1_000_000  # events: as many as an interval admits at most


class LaneCommit(NamedTuple):
    """A micro-batch that a lane has committed."""

    time: float  # seconds since 1970
    done: int  # events that the lane has finished since its beginning
    busy: float  # seconds of work
    turn: float | None = None  # seconds from the assignment of its last event to the commit; None: not known


class Measured(NamedTuple):
    """One lane at the end of an interval."""

    assigned: int  # events assigned to it since its beginning
    done: int  # … and finished
    queued: float | None  # bytes that are committed and that the combiner has not consumed; None: there is no combiner
    event_bytes: float  # average bytes of an event's results in the queue; 0: not known yet
    commits: tuple[LaneCommit, ...] = ()  # since the interval before
    dropped: int = 0  # events since the beginning: only where the result queue drops
    held: float = 0.0  # bytes of `queued` that cannot be combined yet, because an earlier event may still come


class Decided(NamedTuple):
    """The decision about one lane for the next interval."""

    admitted: int  # position up to which it may process events
    batch: int  # most events of one micro-batch
    weight: float
    input: float  # events admitted for this interval
    free: float
    response: float | None
    probe: bool = False  # it is paused, and gets a few events now as a probe


@dataclass
class _Lane:
    pace: BatchPace
    admitted: int  # position up to which it may process events
    base: int  # … without the events of this interval
    origin: int  # events it had finished when this loop began
    done: int  # … and with its last micro-batch
    last: float = 0.0  # when it committed its last micro-batch
    waiting: bool = False  # whether it had more to do at the end of the previous interval
    controller: FlowController | None = None
    meter: ResponseMeter = field(default_factory=ResponseMeter)


class ControlLoop:
    """Decides for all lanes of one pipeline. `done` has their positions at the start of this run."""

    def __init__(
        self,
        control: Control,
        done: Sequence[int],
        *,
        delay: int = DELAY,
        gains: Gains | None = None,
        balancer: Balancer | None = None,
    ) -> None:
        self._control = control
        self._delay = delay
        self._gains = gains
        seconds = control.interval.us / 1e6
        self._lanes = [
            _Lane(BatchPace(WORK * seconds, LEAST_BATCH, MOST_BATCH, FIRST_EVENTS), each, each, each, each)
            for each in done
        ]
        self._balancer = balancer or Balancer(len(done), interval=seconds)
        self._pauses = LanePauses(len(done))
        self.intervals = 0

    @property
    def balances(self) -> bool:
        """Whether weights follow response times."""
        return self._control.balance

    @property
    def weights(self) -> list[float]:
        """The share of each lane."""
        if not self._control.balance:
            return [1 / len(self._lanes)] * len(self._lanes)
        return self._pauses.of(self._balancer.weights)

    def step(self, time: float, measured: Sequence[Measured]) -> list[Decided]:
        """One interval that ends at `time`, in seconds since 1970."""
        self.intervals += 1
        times = []
        for lane, now in zip(self._lanes, measured, strict=True):
            for commit in now.commits:
                busy = self._worked(lane, commit)
                lane.meter.commit(commit.time, commit.done - lane.origin, busy, commit.turn)
                if busy > 0 and commit.done > lane.done:
                    lane.pace.learn(commit.done - lane.done, busy)
                    lane.done = commit.done
            let_in = min(lane.admitted, now.assigned)
            lane.waiting = let_in > now.done
            found = lane.meter.step(time, now.assigned - lane.origin, let_in - lane.origin)
            times.append(found if found is None else max(found, lane.meter.alone or 0.0))
        if self._control.balance:
            if all(now.queued is not None for now in measured):  # without a combiner no lane waits for another
                self._pauses.step(times, [lane.meter.alone for lane in self._lanes])
            self._balancer.step(times)
        weights, probes = self.weights, self._pauses.probes if self._control.balance else []
        decided = []
        for number, (lane, now, response) in enumerate(zip(self._lanes, measured, times, strict=True)):
            # Admitted events will need space: without them the measured queue would jump with each micro-batch.
            under_way = max(0, min(lane.admitted, now.assigned) - now.done) * now.event_bytes
            free = self._control.queue_bytes - (now.queued or 0.0)
            if self._control.flow:
                free += self._excused(now.held) - under_way
            if not self._control.flow or now.queued is None:
                given = float(now.assigned - lane.base)
                lane.base, lane.admitted = now.assigned, EVERYTHING
            else:
                # Events that were admitted but not there are not owed later.
                used = max(min(lane.admitted, now.assigned), now.done)
                given = self._input(lane, used - lane.base, now.event_bytes, free)
                if lane.controller is None and now.event_bytes <= 0:
                    given = max(0.0, given - (used - now.done))  # once, not in each interval until it is measured
                lane.base, lane.admitted = used, used + round(given)
            # Without a queue to hold, the longest micro-batches are the fastest. And when a lane gets nothing more, all
            # others wait for its last micro-batch.
            alone = self._control.balance and self._pauses.paused(number)
            batch = EVERYTHING if now.queued is None or alone else self._batch(lane)
            decided.append(
                Decided(lane.admitted, batch, weights[number], given, free, response, probe=number in probes)
            )
        return decided

    def _excused(self, held: float) -> float:
        """Bytes of the queue that do not count. Results that wait for the order leave only when more is admitted, so
        they may take half of the space beyond the reference, and no more.
        """
        return max(0.0, held - (self._control.queue_bytes - self._control.reference_bytes) / 2)

    def _worked(self, lane: _Lane, commit: LaneCommit) -> float:
        """The seconds that a micro-batch took. Spark's work before and after its tasks is not in `busy`, and under a
        hog it dominates. So for a lane that had more to do, this is all the time since its last commit.
        """
        before, lane.last = lane.last, commit.time
        return max(commit.busy, commit.time - before) if lane.waiting and before else commit.busy

    def _batch(self, lane: _Lane) -> int:
        """Events of a micro-batch: control cannot act on a lane during a micro-batch, so it should not exceed an
        interval.
        """
        return lane.pace.rows

    def _input(self, lane: _Lane, used: int, event_bytes: float, free: float) -> float:
        """Events to admit. `used` is how many of the previous interval's admitted events were there to take."""
        if lane.controller is None:
            if event_bytes <= 0:
                return float(FIRST_EVENTS)
            lane.controller = FlowController(
                Model(1.0, -event_bytes, 0.0, self._delay),
                self._control.reference_bytes,
                self._control.settling,
                (0.0, float(UTMOST)),
                interval=self._control.interval.us / 1e6,
                start=float(max(used, FIRST_EVENTS)),
                gains=self._gains,
                adaptive=self._gains is None,
            )
        else:
            lane.controller.applied(used)
        return lane.controller.step(free)


def rows(
    interval: int,
    at: float,
    control: Control,
    measured: Sequence[Measured],
    decided: Sequence[Decided],
) -> list[dict[str, Any]]:
    """The rows for the control topic."""
    always = _always(interval, at, control)
    return [
        {
            **always,
            "lane": lane,
            "assigned": now.assigned,
            "admitted": to_do.admitted,
            "batch": to_do.batch,
            "done": now.done,
            "free": to_do.free,
            "queued": now.queued or 0.0,
            "input": to_do.input,
            "response": to_do.response,
            "weight": to_do.weight,
            "dropped": now.dropped,
        }
        for lane, (now, to_do) in enumerate(zip(measured, decided, strict=True))
    ]


def beat(interval: int, at: float, control: Control) -> dict[str, Any]:
    """The row of a pipeline without lanes, which shows that it runs."""
    nothing = {"assigned": 0, "admitted": 0, "batch": 0, "done": 0, "dropped": 0, "response": None}
    none = {"free": 0.0, "queued": 0.0, "input": 0.0, "weight": 0.0}
    return {**_always(interval, at, control), "lane": IEP, **nothing, **none}


def _always(interval: int, at: float, control: Control) -> dict[str, Any]:
    return {
        "interval": interval,
        "at": datetime.fromtimestamp(at, UTC),
        "reference": float(control.reference_bytes),
        "every": control.interval.us / 1e6,
    }
