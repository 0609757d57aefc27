"""A pipeline to practise on: lanes, result queues and a combiner as arithmetic, with whole events.

Two plants. `FirstOrder` is the model itself, to see a design as the mathematics has it. `Plant` is a pipeline: events
come, are split over lanes, wait, are admitted, processed, committed a micro-batch at a time, and merged in the order of
their times by a combiner that waits for the slowest lane. It counts every event: at any time those that came are
waiting, in a lane, in a result queue, out, or dropped. The controllers that run on it are those that run on Spark.
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
"""Seconds in which rates count as even. An eighth of an interval: finer ones change no figure, and take longer."""


class FirstOrder:
    """y(k+1) = a·y(k) + b·u(k-delay) + c + disturbance, with noise on what is measured."""

    def __init__(self, model: Model, start: float = 0.0, noise: float = 0.0, seed: int = 0) -> None:
        self.model = model
        self.y = start
        self.disturbance = 0.0
        self._noise = noise
        self._random = np.random.default_rng(seed)
        self._under_way: deque[float] | None = None

    def measure(self) -> float:
        """Y as an instrument shows it."""
        return self.y + self._noise * float(self._random.standard_normal())

    def step(self, u: float) -> float:
        """One interval with input `u`; returns y after it. Before the first input, the first one counts as applied."""
        if self._under_way is None:
            self._under_way = deque([u] * self.model.delay)
        self._under_way.append(u)
        self.y = self.model.next(self.y, self._under_way.popleft()) + self.disturbance
        return self.y


@dataclass(frozen=True, slots=True)
class Hog:
    """Something that takes the CPU from `start` to `end` (seconds) and leaves `factor` of it.

    It hits one lane, or the combiner, or with neither named everything.
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
class Reading:
    """What a runner would know of a lane at the start of an interval. Counts of events since the beginning, and
    bytes.
    """

    free: float
    reserved: float
    """Bytes that events admitted and not committed yet will take of the free space."""
    assigned: int
    admitted: int
    visible: int
    waiting: int
    queue_bytes: int
    dropped: int
    delay: float | None
    """Seconds that events of this lane took to come out of the combiner: the mean of the last interval."""
    commits: tuple[tuple[float, int, float], ...]
    """The commits of the last interval: when, the count of visible events after it, and the seconds of work before it."""


Chunk = list[float]  # [time of the events, how many]; a list because the count shrinks


@dataclass
class Lane:
    """One IAP: what waits for it, what it was given, what it has done and not committed, and its result queue."""

    rate: float
    waiting: deque[Chunk] = field(default_factory=deque)
    given: deque[Chunk] = field(default_factory=deque)
    done: deque[Chunk] = field(default_factory=deque)
    results: deque[Chunk] = field(default_factory=deque)
    assigned: int = 0
    admitted: int = 0
    visible: int = 0
    dropped: int = 0
    out: int = 0
    carry: float = 0.0
    batch: int = 0  # events of the micro-batch under way that are still to do
    setup: float = 0.0  # seconds of its fixed cost that are still to spend
    credit: int = 0
    released: int = 0
    delays: float = 0.0  # seconds times events, in this interval
    came_out: int = 0  # events, in this interval
    began: float = 0.0  # when the micro-batch under way did
    commits: list[tuple[float, int, float]] = field(default_factory=list)  # in this interval

    def horizon(self) -> float:
        """The time before which this lane has committed everything it was ever assigned."""
        return min((chunks[0][0] for chunks in (self.done, self.given, self.waiting) if chunks), default=math.inf)


class Plant:
    """`rates` are what each lane processes, `combiner` what is merged, in events a second.

    `load` gives events a second at a time in seconds. `bound` is the size of a result queue and `event_bytes` what an
    event leaves in it. `on_overflow` says what a lane does at a full queue: "drop" what it has just processed, as the
    paper's did, or "wait", as ours does. Decisions about admission take effect `delay` intervals late. `overhead` is
    the fixed cost of a micro-batch in seconds, which a hog does not change because most of it is waiting for the driver
    and the disk; without it lanes commit at every tick. `largest_batch` bounds a micro-batch to what the lane
    does in that many seconds when nothing is in its way. `noise` is the deviation of
    measured free space, as a share of the bound.
    """

    def __init__(
        self,
        rates: Sequence[float],
        load: Callable[[float], float],
        *,
        combiner: float = math.inf,
        bound: int = 800_000_000,
        event_bytes: int = 134,
        hogs: Sequence[Hog] = (),
        on_overflow: str = "wait",
        delay: int = 0,
        overhead: float = 0.0,
        largest_batch: float = 1.0,
        interval: float = INTERVAL,
        noise: float = 0.0,
        seed: int = 0,
    ) -> None:
        if on_overflow not in ("wait", "drop"):
            raise ConfigError(f"a lane at a full queue can 'wait' or 'drop', not {on_overflow!r}")
        self.lanes = [Lane(rate) for rate in rates]
        self.time = 0.0
        self.interval = interval
        self._load, self._combiner, self._bound, self._event_bytes = load, combiner, bound, event_bytes
        self._hogs, self._drops, self._overhead = hogs, on_overflow == "drop", overhead
        self._noise, self._random = noise * bound, np.random.default_rng(seed)
        self._decisions: list[deque[int | None]] = [deque() for _ in rates]
        self.delay = delay
        self._largest_batch = largest_batch
        self._ticks = 0
        self._carry: list[float] | None = None
        self._load_carry = 0.0
        self._combiner_carry = 0.0

    def read(self) -> list[Reading]:
        """The measurements at the start of an interval."""
        readings = []
        for lane in self.lanes:
            used = _count(lane.results) * self._event_bytes
            shown = self._bound - used + self._noise * float(self._random.standard_normal())
            delay = lane.delays / lane.came_out if lane.came_out else None
            reserved = float((_count(lane.given) + _count(lane.done)) * self._event_bytes)
            readings.append(
                Reading(
                    shown,
                    reserved,
                    lane.assigned,
                    lane.admitted,
                    lane.visible,
                    _count(lane.waiting),
                    used,
                    lane.dropped,
                    delay,
                    tuple(lane.commits),
                )
            )
        return readings

    def run(self, admissions: Sequence[int | None], weights: Sequence[float]) -> None:
        """One interval: what each lane may admit (None: whatever comes), and the shares of what comes."""
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
        return _count(at.given) + _count(at.done) + _count(at.results)

    def accounts(self) -> dict[str, int]:
        """Where all events are; `came` is the sum of the others, or an event was lost."""
        return {
            "came": sum(lane.assigned for lane in self.lanes),
            "waiting": sum(_count(lane.waiting) for lane in self.lanes),
            "in_flight": sum(self.in_flight(number) for number in range(len(self.lanes))),
            "out": sum(lane.out for lane in self.lanes),
            "dropped": sum(lane.dropped for lane in self.lanes),
        }

    def _arrive(self, weights: Sequence[float]) -> None:
        came, self._load_carry = _whole(self._load(self.time) * TICK + self._load_carry)
        counts, self._carry = split(came, weights, self._carry)
        for lane, count in zip(self.lanes, counts, strict=True):
            if count:
                lane.waiting.append([self.time, count])
                lane.assigned += count

    def _admit(self, lane: Lane, share: float) -> None:
        # Admission is spread over the interval: a lane that got it all at once would be idle for the rest.
        allowed = _count(lane.waiting) if lane.credit < 0 else math.ceil(lane.credit * share) - lane.released
        for chunk in _taken(lane.waiting, allowed):
            lane.given.append(chunk)
            lane.admitted += int(chunk[1])
            lane.released += int(chunk[1])

    def _process(self, lane: Lane, number: int) -> None:
        """A tick of work: micro-batch after micro-batch, each of what was there when it began, committed when it
        ends.
        """
        speed = math.prod(hog.slows(number, self.time) for hog in self._hogs)
        seconds = TICK
        while True:
            if not lane.batch:
                if not lane.given:
                    lane.carry = 0.0  # a lane without work does not save up
                    return
                lane.batch = min(_count(lane.given), max(1, round(lane.rate * self._largest_batch)))
                lane.setup = self._overhead
                lane.began = self.time + TICK - seconds
            spent = min(lane.setup, seconds)
            lane.setup -= spent
            seconds -= spent
            able, lane.carry = _whole(lane.rate * speed * seconds + lane.carry)
            room = able if self._drops else self._room(lane) - _count(lane.done)
            count = min(able, room, lane.batch)
            lane.done.extend(_taken(lane.given, count))
            lane.batch -= count
            if lane.batch:
                if not self._overhead:
                    self._commit(lane, 0.0)
                return
            seconds = max(0.0, seconds - count / (lane.rate * speed))
            self._commit(lane, seconds)

    def _room(self, lane: Lane) -> int:
        return self._bound // self._event_bytes - _count(lane.results)

    def _commit(self, lane: Lane, left: float) -> None:
        """What is done becomes visible, `left` seconds before the end of the tick."""
        fits = _taken(lane.done, self._room(lane))
        lane.results.extend(fits)
        lost = _count(lane.done)
        lane.visible += lost + sum(int(chunk[1]) for chunk in fits)
        lane.dropped += lost
        lane.done.clear()
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
            ready = [lane for lane in self.lanes if lane.results and lane.results[0][0] <= until]
            if not ready:
                break
            lane = min(ready, key=lambda lane: lane.results[0][0])
            for time, count in _taken(lane.results, min(able, lane.results[0][1])):
                able -= count
                lane.out += int(count)
                lane.delays += (self.time + TICK - time) * count
                lane.came_out += int(count)


def _count(chunks: deque[Chunk]) -> int:
    return int(sum(chunk[1] for chunk in chunks))


def _whole(amount: float) -> tuple[int, float]:
    count = math.floor(amount + 1e-9)
    return count, amount - count


def _taken(chunks: deque[Chunk], count: float) -> list[Chunk]:
    """The first `count` events, at most; they leave `chunks`."""
    taken: list[Chunk] = []
    while chunks and count > 0:
        head = chunks[0]
        if head[1] <= count:
            taken.append(chunks.popleft())
            count -= head[1]
        else:
            taken.append([head[0], count])
            head[1] -= count
            count = 0
    return taken
