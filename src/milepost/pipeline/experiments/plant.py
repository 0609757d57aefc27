"""A simulated pipeline: lanes, result queues and a combiner as arithmetic on whole events.

There are two plants. `FirstOrder` is the model itself, to test a design against its mathematics. `Plant` is a pipeline:
events arrive, are split over lanes, wait, are admitted, processed, committed one micro-batch at a time, and merged in
the order of their times by a combiner that waits for the slowest lane. It counts every event: at any time each one is
waiting, in a lane, in a result queue, out, or dropped. The controllers are the same as on Spark.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from milepost.errors import ConfigError
from milepost.pipeline.control.flow import INTERVAL
from milepost.pipeline.control.model import Model
from milepost.pipeline.control.split import split

TICK = 0.25
"""Seconds in which rates count as constant. An eighth of an interval: shorter ones change no figure and take longer."""


class FirstOrder:
    """y(k+1) = a·y(k) + b·u(k-delay) + c + disturbance, with noise on the measurement."""

    def __init__(self, model: Model, start: float = 0.0, noise: float = 0.0, seed: int = 0) -> None:
        self.model = model
        self.y = start
        self.disturbance = 0.0
        self._noise = noise
        self._random = np.random.default_rng(seed)
        self._under_way: deque[float] | None = None

    def measure(self) -> float:
        """The measurement of y, with noise."""
        return self.y + self._noise * float(self._random.standard_normal())

    def step(self, u: float) -> float:
        """One interval with input `u`. Returns y after it. Before the first input, the first one counts as applied."""
        if self._under_way is None:
            self._under_way = deque([u] * self.model.delay)
        self._under_way.append(u)
        self.y = self.model.next(self.y, self._under_way.popleft()) + self.disturbance
        return self.y


@dataclass(frozen=True, slots=True)
class SimulatedHog:
    """A load that takes the CPU from `start` to `end` (seconds) and leaves `factor` of it.

    It affects one lane, or the combiner, or everything when neither is named.
    """

    start: float
    end: float
    factor: float
    lane: int | None = None
    combiner: bool = False

    def slows(self, lane: int | None, time: float) -> float:
        """The factor for a lane, or (None) for the combiner."""
        hit = (self.lane is None and not self.combiner) or (self.combiner if lane is None else self.lane == lane)
        return self.factor if hit and self.start <= time < self.end else 1.0


@dataclass(frozen=True, slots=True)
class LaneReading:
    """What a runner knows of a lane at the start of an interval: counts of events since the beginning, and bytes."""

    free: float
    reserved: float
    """Bytes of the free space that admitted events will take when they are committed."""
    assigned: int
    admitted: int
    visible: int
    waiting: int
    queue_bytes: int
    dropped: int
    delay: float | None
    """Seconds that events of this lane took until the combiner emitted them: the mean of the last interval."""
    commits: tuple[tuple[float, int, float], ...]
    """The commits of the last interval: time, number of visible events after it, and seconds of work before it."""


class Events:
    """Events in the order of their times, as runs of equal times, and their number."""

    def __init__(self) -> None:
        self._runs: deque[tuple[float, int]] = deque()
        self.count = 0

    @property
    def first(self) -> float:
        """The time of the first event; infinite when there is none."""
        return self._runs[0][0] if self._runs else math.inf

    @property
    def together(self) -> int:
        """The number of events with the time of the first event."""
        return self._runs[0][1] if self._runs else 0

    def add(self, time: float, count: int) -> None:
        """Append a run."""
        if count:
            self._runs.append((time, count))
            self.count += count

    def give(self, to: Events | None, count: float) -> list[tuple[float, int]]:
        """Move the first `count` events, at most, to another place, or out (None). Returns their runs."""
        left = int(min(max(count, 0), self.count))
        self.count -= left
        taken = []
        while left:
            time, size = self._runs.popleft()
            if size > left:
                self._runs.appendleft((time, size - left))
                size = left
            taken.append((time, size))
            left -= size
            if to is not None:
                to.add(time, size)
        return taken

    def clear(self) -> int:
        """Remove all events. Returns their number."""
        gone, self.count = self.count, 0
        self._runs.clear()
        return gone


@dataclass
class SimulatedLane:
    """One IAP: waiting events, admitted events, processed but uncommitted events, and its result queue."""

    rate: float
    waiting: Events = field(default_factory=Events)
    given: Events = field(default_factory=Events)
    done: Events = field(default_factory=Events)
    results: Events = field(default_factory=Events)
    assigned: int = 0
    admitted: int = 0
    visible: int = 0
    dropped: int = 0
    out: int = 0
    carry: float = 0.0
    batch: int = 0  # events of the current micro-batch that are not processed yet
    setup: float = 0.0  # seconds of its fixed cost that are left
    credit: int = 0  # events that may be admitted in this interval; -1: all
    released: int = 0
    delays: float = 0.0  # seconds times events, in this interval
    came_out: int = 0  # events, in this interval
    began: float = 0.0  # when the current micro-batch began
    commits: list[tuple[float, int, float]] = field(default_factory=list)  # in this interval

    def horizon(self) -> float:
        """The time before which this lane has committed all events ever assigned to it."""
        return min(self.done.first, self.given.first, self.waiting.first)


class Plant:
    """`rates` are the capacities of the lanes, `combiner` of the combiner, in events a second.

    `load` gives events a second at a time in seconds. `bound` is the size of a result queue and `event_bytes` the bytes
    of an event in it. `on_overflow` says what a lane does at a full queue: "drop" what it has just processed, as in the
    paper, or "wait", as in Milepost. Admissions take effect `delay` intervals late. `overhead` is the fixed cost of a
    micro-batch in seconds: waiting for the driver and the disk, which a hog does not change, or (`overhead_slows`) work
    that it slows; without overhead lanes commit at every tick. `largest_batch` bounds a micro-batch to the lane's
    undisturbed work of that many seconds. `noise` is the standard deviation of the measured free space, as a share of
    the bound.
    """

    def __init__(
        self,
        rates: Sequence[float],
        load: Callable[[float], float],
        *,
        combiner: float = math.inf,
        bound: int = 800_000_000,
        event_bytes: int = 134,
        hogs: Sequence[SimulatedHog] = (),
        on_overflow: str = "wait",
        delay: int = 0,
        overhead: float = 0.0,
        overhead_slows: bool = False,
        largest_batch: float = 1.0,
        interval: float = INTERVAL,
        noise: float = 0.0,
        seed: int = 0,
    ) -> None:
        if on_overflow not in ("wait", "drop"):
            raise ConfigError(f"a lane at a full queue can 'wait' or 'drop', not {on_overflow!r}")
        self.lanes = [SimulatedLane(rate) for rate in rates]
        self.time = 0.0
        self.interval = interval
        self._load, self._combiner, self._bound, self._event_bytes = load, combiner, bound, event_bytes
        self._hogs, self._drops, self._overhead = hogs, on_overflow == "drop", overhead
        self._overhead_slows = overhead_slows
        self._noise, self._random = noise * bound, np.random.default_rng(seed)
        self._decisions: list[deque[int | None]] = [deque() for _ in rates]
        self.delay = delay
        self._largest_batch = largest_batch
        self._ticks = 0
        self._carry: list[float] | None = None
        self._load_carry = 0.0
        self._combiner_carry = 0.0
        self.probes: dict[int, int] = {}  # by lane: events that it gets at once, whatever its share

    def read(self) -> list[LaneReading]:
        """The measurements at the start of an interval."""
        readings = []
        for lane in self.lanes:
            used = lane.results.count * self._event_bytes
            shown = self._bound - used + self._noise * float(self._random.standard_normal())
            delay = lane.delays / lane.came_out if lane.came_out else None
            reserved = float((lane.given.count + lane.done.count) * self._event_bytes)
            readings.append(
                LaneReading(
                    shown,
                    reserved,
                    lane.assigned,
                    lane.admitted,
                    lane.visible,
                    lane.waiting.count,
                    used,
                    lane.dropped,
                    delay,
                    tuple(lane.commits),
                )
            )
        return readings

    def run(self, admissions: Sequence[int | None], weights: Sequence[float]) -> None:
        """One interval: the admissions of each lane (None: unlimited), and the shares of the arriving events."""
        ticks = max(1, round(self.interval / TICK))
        for lane, decisions, admission in zip(self.lanes, self._decisions, admissions, strict=True):
            if not decisions:
                decisions.extend([admission] * self.delay)
            decisions.append(admission)
            now = decisions.popleft()
            lane.credit = -1 if now is None else now
            lane.released = 0
            lane.delays, lane.came_out = 0.0, 0
            lane.commits.clear()
        for tick in range(ticks):
            self._arrive(weights)
            for number, lane in enumerate(self.lanes):
                self._admit(lane, (tick + 1) / ticks)
                self._process(lane, number)
            self._combine()
            self._ticks += 1
            self.time = self._ticks * TICK

    def in_flight(self, lane: int) -> int:
        """Events of a lane that are admitted and neither out nor dropped."""
        at = self.lanes[lane]
        return at.given.count + at.done.count + at.results.count

    def accounts(self) -> dict[str, int]:
        """Where all events are. `came` is the sum of the others, unless an event was lost."""
        return {
            "came": sum(lane.assigned for lane in self.lanes),
            "waiting": sum(lane.waiting.count for lane in self.lanes),
            "in_flight": sum(self.in_flight(number) for number in range(len(self.lanes))),
            "out": sum(lane.out for lane in self.lanes),
            "dropped": sum(lane.dropped for lane in self.lanes),
        }

    def _arrive(self, weights: Sequence[float]) -> None:
        came, self._load_carry = _whole(self._load(self.time) * TICK + self._load_carry)
        probed = [0] * len(self.lanes)
        for number in list(self.probes):
            probed[number] = min(came, self.probes.pop(number))
            came -= probed[number]
        counts, self._carry = split(came, weights, self._carry)
        for lane, count, more in zip(self.lanes, counts, probed, strict=True):
            lane.waiting.add(self.time, count + more)
            lane.assigned += count + more

    def _admit(self, lane: SimulatedLane, share: float) -> None:
        # Admission is spread over the interval: otherwise a lane would be idle for the rest of it.
        allowed = lane.waiting.count if lane.credit < 0 else math.ceil(lane.credit * share) - lane.released
        before = lane.given.count
        lane.waiting.give(lane.given, allowed)
        lane.admitted += lane.given.count - before
        lane.released += lane.given.count - before

    def _process(self, lane: SimulatedLane, number: int) -> None:
        """A tick of work, micro-batch after micro-batch: each has the events that were there at its start, and commits
        at its end.
        """
        speed = math.prod(hog.slows(number, self.time) for hog in self._hogs)
        seconds = TICK
        while True:
            if not lane.batch:
                if not lane.given.count:
                    lane.carry = 0.0  # a lane without work saves up no capacity
                    return
                lane.batch = min(lane.given.count, max(1, round(lane.rate * self._largest_batch)))
                lane.setup = self._overhead
                lane.began = self.time + TICK - seconds
            hampered = speed if self._overhead_slows else 1.0
            spent = min(lane.setup / hampered, seconds)
            lane.setup -= spent * hampered
            seconds -= spent
            able, lane.carry = _whole(lane.rate * speed * seconds + lane.carry)
            room = able if self._drops else self._room(lane) - lane.done.count
            count = min(able, room, lane.batch)
            lane.given.give(lane.done, count)
            lane.batch -= count
            if lane.batch:
                if not self._overhead:
                    self._commit(lane, 0.0)
                return
            seconds = max(0.0, seconds - count / (lane.rate * speed))
            self._commit(lane, seconds)

    def _room(self, lane: SimulatedLane) -> int:
        return self._bound // self._event_bytes - lane.results.count

    def _commit(self, lane: SimulatedLane, left: float) -> None:
        """Make the processed events visible, `left` seconds before the end of the tick."""
        before = lane.done.count
        lane.done.give(lane.results, self._room(lane))
        lane.visible += before
        lane.dropped += lane.done.clear()
        now = self.time + TICK - left
        lane.commits.append((now, lane.visible, now - lane.began))
        lane.began = now

    def _combine(self) -> None:
        rate = self._combiner * math.prod(hog.slows(None, self.time) for hog in self._hogs)
        able: float = math.inf
        if math.isfinite(rate):
            able, self._combiner_carry = _whole(rate * TICK + self._combiner_carry)
        until = min(lane.horizon() for lane in self.lanes)
        while able > 0:
            lane = min(self.lanes, key=lambda lane: lane.results.first)
            if not lane.results.count or lane.results.first > until:
                break
            for time, count in lane.results.give(None, min(able, lane.results.together)):
                able -= count
                lane.out += count
                lane.delays += (self.time + TICK - time) * count
                lane.came_out += count


def _whole(amount: float) -> tuple[int, float]:
    count = math.floor(amount + 1e-9)
    return count, amount - count
