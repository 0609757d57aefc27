"""Figures 3, 6 and 9, and the identification of the model: one lane, whose results tier 2 consumes.

Tier 2 has one core, and everything else the other one. So the result queue fills when more is admitted than tier 2
consumes, and the hog on its core slows tier 2. All sizes follow from the *capacity* of tier 2 on this machine, in
events a second: the free space to hold is that of some seconds of capacity.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from milepost.errors import InvalidValue
from milepost.pipeline.control import FlowController, Identified, Model, excitation, identify, place_pi, settled_after
from milepost.pipeline.control.trace import Trace
from milepost.pipeline.experiments import pipelines
from milepost.pipeline.experiments.account import Account
from milepost.pipeline.experiments.environment import Environment
from milepost.pipeline.experiments.hog import Hog
from milepost.pipeline.experiments.run import ExperimentRun, Tell
from milepost.pipeline.experiments.script import DelayedController, Script, fixed
from milepost.pipeline.experiments.simulation import PAPER_POLES

PATTERNS: Final = 100  # patterns that tier 2 searches for: some thousand events a second on one core
FIRST_PIECE: Final = 4_000  # events of a lane's micro-batch, before the capacity is known
FIRST_QUEUE: Final = 6_000_000  # bytes, likewise
FIRST_RATE: Final = 2_000.0  # events a second, likewise
WAITING: Final = 4.0  # intervals of capacity that wait at the input, so that every admitted event is there

REFERENCE_S: Final = 28.0  # seconds of capacity that fit into the free space to hold
QUEUE_S: Final = 38.0  # … and into the whole queue; the difference waits for tier 2, so that it is never idle
PIECE: Final = 0.25  # of an interval's events: a micro-batch of the lane, four of which start in an interval
BAND: Final = 0.05  # of the reference
ENOUGH: Final = 1.05  # of the capacity: offered while the capacity is measured
OVERLOAD: Final = 1.2  # of the capacity: offered before and during the hog
PROCESSES: Final = 2  # of the hog

STEADY: Final = 3  # intervals within half the band: settled

STEPS: Final = (0.6, 0.8, 1.0, 1.2, 1.4, 1.6)  # of the capacity: offered without control
STEP_INTERVALS: Final = 5
DROPPING_PIECE_S: Final = 1.0  # seconds of a micro-batch without control: the lane must outrun tier 2
DROPPING_S: Final = 4.0  # seconds of capacity that fit into a queue that drops


@dataclass(frozen=True)
class FlowPlan:
    """The length of each part, in intervals."""

    # Tier 2 consumes results in micro-batches of about a second of capacity, which take longer under the hog. With an
    # interval of half this length, the end of a micro-batch would change the measurement as much as the hog does.
    interval: int = 4  # seconds
    warm: int = 8
    settle: int = 4
    excite: int = 20
    before: int = 6
    hog: int = 20
    after: int = 6
    wrong: int = 14
    right: int = 14
    patience: int = 30  # to wait until the free space has settled
    first: int = 20_000  # events put at once, so that everything starts


QUICK: Final = FlowPlan(
    interval=2, warm=1, settle=1, excite=0, before=0, hog=3, after=0, wrong=0, right=0, patience=0, first=1_000
)


@dataclass
class FlowResult:
    """The results of the run with one lane."""

    capacity: float = 0.0  # events a second
    event_bytes: float = 0.0
    identified: Identified | None = None
    unidentified: str = ""  # why the identification failed
    settle_intervals: int | None = None  # None: it did not settle while the hog ran
    furthest: float = 0.0  # largest distance from the reference, as a share of it, after the hog started
    slowed: float = 0.0  # share of the capacity that the hog left
    waiting: int = 0  # events at the input when the hog stopped
    account: Account | None = None
    flow: Trace = field(default_factory=Trace)
    hog: tuple[float, float] = (0.0, 0.0)  # in seconds of the trace
    wrong: Trace = field(default_factory=Trace)
    right: Trace = field(default_factory=Trace)


def flow(environment: Environment, plan: FlowPlan, tell: Tell) -> FlowResult:
    """Identification, Figure 6 and Figure 9, one after the other in one run."""
    first, other = environment.cores
    pipeline = pipelines.one_lane("flow", environment.address, first, PATTERNS, FIRST_QUEUE, interval=plan.interval)
    with (
        ExperimentRun(environment, pipeline, tier2=[other], others=[first], tell=tell) as run,
        Hog(other, PROCESSES) as hog,
    ):
        made = _FlowRun(run, hog, plan, tell)
        run.run(made.script())
        made.found.account = run.account()
        tell(str(made.found.account))
        return made.found


class _FlowRun:
    def __init__(self, run: ExperimentRun, hog: Hog, plan: FlowPlan, tell: Tell) -> None:
        self.run, self.hog, self.plan, self.tell = run, hog, plan, tell
        self.found = FlowResult()

    def script(self) -> Script:
        run, plan = self.run, self.plan
        yield from self._warm()
        yield from self._sized()
        if plan.excite:
            yield from self._excite()
        yield from self._hogged()
        if plan.wrong:
            self.tell("Figure 9: the controller whose model has no delay")
            yield from self._late(wrong=True)
            self.tell("Figure 9: the controller whose model has the delay")
            yield from self._late(wrong=False)
        # The rest is counted but not measured, so it runs at full speed.
        run.loop.piece = None
        second = self.found.capacity * self.found.event_bytes
        run.loop.bound(4 * QUEUE_S * second, QUEUE_S * second)
        yield from run.drained()

    def _warm(self) -> Script:
        run, loop = self.run, self.run.loop
        loop.piece = FIRST_PIECE
        run.load.add(self.plan.first)
        yield from run.started()
        self.tell("Spark runs; measuring the capacity of tier 2")
        for _ in range(self.plan.warm):
            self._enough(max(FIRST_RATE, taken(run, 2)))
            yield 1

    def _enough(self, rate: float) -> None:
        """Keep enough events waiting for every admission, but few: all of them must be processed in the end."""
        waiting = self.run.load.put() - self.run.loop.seen[-1].measured[0].done
        self.run.load.offer(2 * rate if waiting < WAITING * rate * self._interval else 0.9 * rate)

    def _sized(self) -> Script:
        run, loop, found = self.run, self.run.loop, self.found
        found.capacity = max(100.0, taken(run, max(2, self.plan.warm // 2)))
        found.event_bytes = loop.seen[-1].measured[0].event_bytes
        second = found.capacity * found.event_bytes
        loop.bound(QUEUE_S * second, REFERENCE_S * second)
        loop.piece = round(PIECE * self._each)
        self.tell(f"tier 2 takes {found.capacity:,.0f} events/s; {REFERENCE_S * second / 1e6:.1f} MB should stay free")
        self._offer(ENOUGH)
        yield self.plan.settle

    def _offer(self, times: float) -> None:
        self.run.load.offer(times * self.found.capacity)

    @property
    def _interval(self) -> float:
        """Seconds."""
        return self.run.pipeline.control.interval.us / 1e6

    @property
    def _each(self) -> float:
        """Events of capacity in an interval."""
        return self.found.capacity * self._interval

    def _settled(self) -> Script:
        """Wait until the free space has been near the reference for some intervals."""
        seen = self.run.loop.seen
        for _ in range(self.plan.patience):
            last = [one.decided[0].free / one.control.reference_bytes for one in seen[-STEADY:]]
            if all(abs(each - 1) < BAND / 2 for each in last):
                return
            yield 1
        if self.plan.patience:
            self.tell("the free space does not settle; continuing")

    def _excite(self) -> Script:
        run, loop, found = self.run, self.run.loop, self.found
        yield from self._settled()
        self.tell("identification: alternately more and fewer events than tier 2 consumes")
        start = run.now
        for level in excitation(-0.5, 0.5, self.plan.excite, hold=1):
            # Around the current rate of tier 2, with a slight pull back to the reference: a random input alone would
            # drift away.
            each = taken(run, 8) * self._interval
            off = loop.seen[-1].decided[0].free - loop.control.reference_bytes
            loop.law = fixed(each * (1 + float(level)) + 0.1 * off / found.event_bytes)
            yield 1
        seen = loop.seen[start:]
        try:
            found.identified = identify(
                [one.decided[0].input for one in seen], [one.decided[0].free for one in seen], delays=(0, 1, 2)
            )
        except InvalidValue as error:
            found.unidentified = str(error)
        loop.renew()

    def _hogged(self) -> Script:
        run, plan, found = self.run, self.plan, self.found
        self.tell("Figure 6: flow control")
        self._offer(OVERLOAD)
        yield from self._settled()
        start = run.now
        yield plan.before
        yield from self._settled()
        self.tell("the hog starts")
        begun = run.now
        self.hog.start()
        yield plan.hog
        found.slowed = taken(run, plan.hog - 2) / found.capacity
        self.hog.stop()
        ended = run.now
        found.waiting = run.load.put() - run.loop.seen[-1].measured[0].done
        self.tell(f"the hog stops; it left {found.slowed:.2f} of the capacity; {found.waiting:,} events wait")
        self._offer(0.3)
        yield plan.after
        found.flow = run.trace(start, run.now)
        times = found.flow.column("time")
        found.hog = (float(times[begun - start]), float(times[min(ended - start, len(times) - 1)]))
        reference = run.loop.control.reference_bytes
        free = np.array([one.decided[0].free for one in run.loop.seen[begun:ended]])
        found.settle_intervals = settled_after(free, reference, BAND)
        found.furthest = float(np.abs(free / reference - 1).max())

    def _late(self, *, wrong: bool) -> Script:
        """Decisions are applied one interval late, by a controller whose model has this delay or not."""
        run, found = self.run, self.found
        model = Model(1.0, -found.event_bytes, found.event_bytes * self._each, 0 if wrong else 1)
        controller = FlowController(
            model,
            run.loop.control.reference_bytes,
            run.pipeline.control.settling,
            (0.0, 4 * self._each),
            start=self._each,
            gains=place_pi(model, PAPER_POLES) if wrong else None,
        )
        start = run.now
        run.loop.law = DelayedController(controller, 1)
        for _ in range(self.plan.wrong if wrong else self.plan.right):
            self._enough(found.capacity)
            yield 1
        trace = run.trace(start, run.now)
        run.loop.renew()
        if wrong:
            found.wrong = trace
        else:
            found.right = trace


def taken(run: ExperimentRun, intervals: int) -> float:
    """Events a second whose results tier 2 consumed in the last intervals."""
    seen = run.loop.seen[-intervals - 1 :]
    if len(seen) < 2:
        return 0.0
    one, last = seen[0].measured[0], seen[-1].measured[0]
    if last.event_bytes <= 0:
        return 0.0
    events = (last.done - (last.queued or 0.0) / last.event_bytes) - (one.done - (one.queued or 0.0) / last.event_bytes)
    return max(0.0, events / max(1e-6, seen[-1].time - seen[0].time))


def swing(trace: Trace) -> float:
    """The range of the free space in the second half, as a share of the reference."""
    free = trace.column("measurement")[len(trace) // 2 :]
    if len(free) == 0:
        return float("nan")
    return float(np.ptp(free) / trace.column("set_point")[0])


@dataclass
class Dropping:
    """The results of the run without control."""

    offered: list[float] = field(default_factory=list)  # events a second, by step
    dropped: list[float] = field(default_factory=list)  # … and dropped, because the result queue was full
    account: Account | None = None
    total: int = 0  # events dropped, as counted by the lane
    trace: Trace = field(default_factory=Trace)


def drop(
    environment: Environment, capacity: float, event_bytes: float, tell: Tell, step: int = STEP_INTERVALS
) -> Dropping:
    """Figure 3: a bounded result queue, no flow control, and a growing load."""
    first, other = environment.cores
    bound = round(DROPPING_S * capacity * event_bytes)
    pipeline = pipelines.one_lane("drop", environment.address, first, PATTERNS, bound, flow=False)
    found = Dropping()
    with ExperimentRun(environment, pipeline, tier2=[other], others=[first], tell=tell, drops=True) as run:

        def script() -> Script:
            run.loop.piece = round(DROPPING_PIECE_S * capacity)
            run.load.offer(STEPS[0] * capacity / 2)
            yield from run.started()
            tell("Figure 3: a growing load, and no control")
            yield 2
            start = run.now
            for times in STEPS:
                begun = run.loop.seen[-1]
                run.load.offer(times * capacity)
                yield step
                now = run.loop.seen[-1]
                seconds = now.time - begun.time
                found.offered.append((now.put - begun.put) / seconds)
                found.dropped.append((now.measured[0].dropped - begun.measured[0].dropped) / seconds)
                tell(f"{found.offered[-1]:,.0f} events/s offered, {found.dropped[-1]:,.0f} dropped")
            found.trace = run.trace(start, run.now)
            yield from run.drained()

        run.run(script())
        found.account = run.account()
        found.total = run.runner.totals.dropped
        tell(str(found.account))
    return found
