"""One run of a pipeline, from its start to the last event: what all experiments share."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np

from milepost.client import Client
from milepost.pipeline.control.trace import Record, Trace
from milepost.pipeline.definition import Pipeline
from milepost.pipeline.experiments import account, events
from milepost.pipeline.experiments.environment import Environment, pin
from milepost.pipeline.experiments.load import Load
from milepost.pipeline.experiments.pipelines import input_of
from milepost.pipeline.experiments.script import Director, Script, ScriptedLoop, Seen
from milepost.pipeline.runner import Runner

START_INTERVALS: Final = 60  # for the first results; ends a run that hangs
DRAIN_INTERVALS: Final = 90

Tell = Callable[[str], None]


class ExperimentRun:
    """A pipeline, a load and a scripted control loop, as a context.

    `tier2` are the cores of tier 2, `others` the cores of everything else except lanes.
    """

    def __init__(
        self,
        environment: Environment,
        pipeline: Pipeline,
        *,
        tier2: Iterable[int],
        others: Iterable[int],
        tell: Tell,
        drops: bool = False,
    ) -> None:
        self._environment = environment
        self.pipeline: Final = pipeline
        self._tier2, self._others = set(tier2), set(others)
        self._drops = drops
        self._tell = tell
        self._stack = ExitStack()
        self.load: Load
        self.client: Client
        self.loop: ScriptedLoop
        self.runner: Runner

    def __enter__(self) -> ExperimentRun:
        try:
            self._begin()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def _begin(self) -> None:
        environment, name = self._environment, self.pipeline.name
        environment.pin_broker(self._others)
        self.client = self._stack.enter_context(Client(environment.address))
        self.client.declare_topic(input_of(name), events.SCHEMA, durable=True)
        puts = environment.folder / f"{name}.puts"
        self.load = self._stack.enter_context(Load(environment.address, input_of(name), puts, self._others))
        self.runner = Runner(
            self.pipeline,
            checkpoint=environment.folder / f"{name}.checkpoint",
            loop_of=self._control_loop,
            drops=self._drops,
        )
        self._stack.enter_context(self.runner)
        # Spark's JVM is a separate process; its threads and workers stay on the cores that it is bound to. Its messages
        # about stopped workers are not shown.
        with _errors_to(environment.folder / "spark.log"):
            gateway: Any = self.runner.workers.spark.sparkContext._gateway
        pin(gateway.proc.pid, self._tier2)
        os.sched_setaffinity(0, self._others)

    def _control_loop(self, done: Sequence[int]) -> ScriptedLoop:
        self.loop = ScriptedLoop(self.pipeline.control, done, self.load.put)
        return self.loop

    def run(self, script: Script) -> None:
        """Run until the script ends."""
        self.runner.run(until=Director(self.loop, script))

    # Parts of scripts

    def started(self) -> Script:
        """Wait until tier 2 has consumed results of every lane."""
        for waited in range(START_INTERVALS):
            if all(self.runner.totals.rows) and self.runner.totals.alerts:
                return
            if waited and waited % 5 == 0:
                self._tell(f"waiting for Spark: {sum(self.runner.totals.done):,} events done")
            yield 1
        raise TimeoutError(f"no results after {START_INTERVALS} intervals: this machine is too busy")

    def drained(self) -> Script:
        """Stop the load, and wait until everything is processed."""
        self.load.end()
        ended = False
        for waited in range(DRAIN_INTERVALS):
            left = self.load.put() - sum(self.runner.totals.done)
            if waited and waited % 5 == 0:
                self._tell(f"draining: {left:,} events wait for a lane, {self._uncombined():,.0f} for tier 2")
            if left == 0 and not ended:
                assert self.runner.splitter is not None
                self.runner.splitter.end()  # the input has ended, so the combiner need not wait for events out of order
                ended = True
            elif ended and self.runner.caught_up():
                return
            yield 1
        self._tell("not everything is processed; continuing without the rest")

    def _uncombined(self) -> float:
        last = self.loop.seen[-1].measured
        return sum((each.queued or 0.0) / each.event_bytes for each in last if each.event_bytes)

    # Results

    @property
    def now(self) -> int:
        """The number of the next interval."""
        return len(self.loop.seen)

    def account(self) -> account.Account:
        """The outcome of every event. Called when everything is processed."""
        waiting = max(0, self.load.put() - sum(self.runner.totals.done))
        return account.account(self.client, self.pipeline.name, self.load.put(), waiting)

    def delays(self) -> tuple[events.Numbers, Any]:
        """The arrival time and the delay of each event."""
        came = self.load.times()
        return came, account.delays(self.client, self.pipeline.name, came)

    def trace(self, first: int = 0, stop: int | None = None, delays: bool = False) -> Trace:
        """The intervals from one to before another, with times relative to the first."""
        seen = self.loop.seen[first:stop]
        came, took = self.delays() if delays else (np.zeros(0, np.int64), np.zeros(0))
        trace = Trace()
        before = self.loop.seen[first - 1] if first else seen[0]
        for number, now in enumerate(seen):
            mean = math.nan
            if delays and number + 1 < len(seen):
                mean = account.mean_between(came, took, now.time, seen[number + 1].time)
            for lane in range(len(now.measured)):
                trace.add(_record(number, now.time - seen[0].time, lane, before, now, mean))
            before = now
        return trace


@contextmanager
def _errors_to(file: Path) -> Iterator[None]:
    """Redirect the error output of processes that are started meanwhile to a file."""
    sys.stderr.flush()
    kept = os.dup(2)
    with file.open("ab") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _record(number: int, time: float, lane: int, before: Seen, now: Seen, delay: float) -> Record:
    measured, decided = now.measured[lane], now.decided[lane]
    return Record(
        k=number,
        time=time,
        lane=lane,
        set_point=float(now.control.reference_bytes) if now.control.flow else None,
        measurement=decided.free,
        input=decided.input,
        weight=decided.weight,
        response_time=decided.response,
        delay=None if math.isnan(delay) else delay,
        queue_bytes=round(measured.queued or 0.0),
        waiting=max(0, measured.assigned - measured.done),
        offered=round((now.put - before.put) / len(now.measured)),
        dropped=measured.dropped - before.measured[lane].dropped,
    )
