"""Figure 8: two lanes on two cores and a hog on one of them, with round robin and with the balancer.

One run has both, one after the other, so that both use the same warm Spark.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from milepost.pipeline.control.trace import Trace
from milepost.pipeline.experiments import pipelines
from milepost.pipeline.experiments.account import Account, mean_between
from milepost.pipeline.experiments.environment import Environment
from milepost.pipeline.experiments.hog import Hog
from milepost.pipeline.experiments.run import ExperimentRun, Tell
from milepost.pipeline.experiments.script import Script

PATTERNS: Final = 150  # patterns that each lane searches for
FIRST_RATE: Final = 1_000.0  # events a second, until the capacity of the lanes is known
FIRST_EVENTS: Final = 20_000
OVERLOAD: Final = 1.3  # of the lanes' current rate, while their capacity is measured
LOAD: Final = 0.27  # of the capacity is offered: one lane can process it, a lane under the hog not even half of it
PROCESSES: Final = 6  # of the hog, which leaves about a seventh of the core
LEAVING: Final = 3  # intervals before the hog whose events are emitted during it: they count for neither time
CALM_S: Final = 4.0  # response time below which a backlog counts as processed
PATIENCE: Final = 30  # intervals to wait for that


@dataclass(frozen=True)
class BalancePlan:
    """The length of each part, in intervals."""

    warm: int = 8
    before: int = 12
    round_robin: int = 40
    balanced: int = 40


@dataclass
class Phase:
    """The run with one way to split."""

    before_s: float  # mean delay
    during_s: float
    trace: Trace
    hog: tuple[float, float]  # in seconds of the trace

    @property
    def ratio(self) -> float:
        return self.during_s / self.before_s


@dataclass
class BalanceResult:
    """The results of the run with two lanes."""

    rate: float = 0.0  # events a second
    speeds: tuple[float, ...] = ()  # of the lanes, events a second
    parts: dict[str, Phase] = field(default_factory=dict)
    account: Account | None = None


ROUND_ROBIN: Final = "round robin"
BALANCED: Final = "balanced"


def balance(environment: Environment, plan: BalancePlan, tell: Tell) -> BalanceResult:
    """Run both phases."""
    first, other = environment.cores
    pipeline = pipelines.two_lanes("split", environment.address, (first, other), PATTERNS, balance=False)
    # Everything but the lane is off its core before the hog starts, so that the hog slows only the lane.
    spared = environment.all_cores - {first}
    with (
        ExperimentRun(environment, pipeline, tier2=spared, others=spared, tell=tell) as run,
        Hog(first, PROCESSES) as hog,
    ):
        made = _BalanceRun(run, hog, plan, tell)
        run.run(made.script())
        found = made.found
        came, took = run.delays()
        for name, (start, begun, ended, stop) in made.spans.items():
            seen = run.loop.seen
            trace = run.trace(start, stop, delays=True)
            found.parts[name] = Phase(
                mean_between(came, took, seen[start].time, seen[begun - LEAVING].time),
                mean_between(came, took, seen[begun].time, seen[ended].time),
                trace,
                (seen[begun].time - seen[start].time, seen[ended].time - seen[start].time),
            )
        found.account = run.account()
        tell(str(found.account))
        return found


class _BalanceRun:
    def __init__(self, run: ExperimentRun, hog: Hog, plan: BalancePlan, tell: Tell) -> None:
        self.run, self.hog, self.plan, self.tell = run, hog, plan, tell
        self.found = BalanceResult()
        self.spans: dict[str, tuple[int, int, int, int]] = {}

    def script(self) -> Script:
        run, plan, found = self.run, self.plan, self.found
        run.load.add(FIRST_EVENTS)
        yield from run.started()
        self.tell("Spark runs; measuring the capacity of the lanes")
        for _ in range(plan.warm):
            run.load.offer(max(FIRST_RATE, OVERLOAD * sum(self._rates(4))))
            yield 1
        found.speeds = self._rates(plan.warm // 2)
        found.rate = LOAD * sum(found.speeds)
        self.tell(f"the lanes process {' and '.join(f'{each:,.0f}' for each in found.speeds)} events/s")
        self.tell(f"{found.rate:,.0f} events/s are offered")
        yield from self._calm()
        yield from self._part(ROUND_ROBIN, False, plan.round_robin)
        yield from self._calm()
        yield from self._part(BALANCED, True, plan.balanced)
        yield from run.drained()

    def _part(self, name: str, balanced: bool, hogged: int) -> Script:
        run = self.run
        run.loop.balance(balanced)
        run.load.offer(self.found.rate)
        yield 4
        self.tell(f"Figure 8: {name}")
        start = run.now
        yield self.plan.before
        self.tell("the hog starts")
        begun = run.now
        self.hog.start()
        yield hogged
        self.hog.stop()
        ended = run.now - 1
        self.tell("the hog stops")
        yield 2
        self.spans[name] = start, begun, ended, run.now

    def _rates(self, intervals: int) -> tuple[float, ...]:
        """Events a second of each lane in the last intervals."""
        seen = self.run.loop.seen[-intervals - 1 :]
        seconds = max(1e-6, seen[-1].time - seen[0].time)
        pairs = zip(seen[0].measured, seen[-1].measured, strict=True)
        return tuple((last.done - one.done) / seconds for one, last in pairs)

    def _calm(self) -> Script:
        """Wait until the backlog is processed."""
        run = self.run
        run.load.offer(self.found.rate / 10)
        for _ in range(PATIENCE):
            times = [one.response for one in run.loop.seen[-1].decided]
            if all(each is not None and each < CALM_S for each in times):
                break
            yield 1
        run.load.offer(self.found.rate)
        yield 2
