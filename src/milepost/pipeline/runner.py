"""Runs a pipeline: starts its queries, splits its input, controls its lanes, and restarts what fails.

It is one thread in one process. Several times a second it assigns new events to lanes and reads progress rows. Once an
interval it measures, decides and publishes the decisions. It stops when an operator orders it to. A lane is a query of
this process's Spark, or a process with a Spark of its own.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from milepost.client import Client
from milepost.errors import BrokerError, ConfigError
from milepost.pipeline import control_loop
from milepost.pipeline.checkpoint import Checkpoint
from milepost.pipeline.combined import Feeding, cut_of
from milepost.pipeline.control.pauses import late
from milepost.pipeline.control_loop import ControlLoop, LaneCommit, Measured
from milepost.pipeline.definition import Pipeline
from milepost.pipeline.definition.checked import CheckedPipeline
from milepost.pipeline.definition.checker import check
from milepost.pipeline.own_topics import (
    IEP,
    RESULTS_S,
    STOP,
    STOPPED,
    OwnTopics,
    Tail,
    combiner_hold,
    ends,
    last_progress,
    newest,
    queue,
    tidy,
)
from milepost.pipeline.queries import open_times
from milepost.pipeline.session import shards_of
from milepost.pipeline.source.options import PATIENCE_S
from milepost.pipeline.source.place import resolved
from milepost.pipeline.splits import LaneRuns
from milepost.pipeline.splitter import Splitter
from milepost.pipeline.status import PipelineStatus
from milepost.pipeline.watermark import HeldResults, LaneProgress, drained
from milepost.pipeline.workers import PipelineWorkers

TIDY_S: Final = 600.0  # between two removals of old splits and progress rows
KEPT_S: Final = 86_400.0  # age up to which they stay, for people to look at
TICK_S: Final = 0.1  # between two looks at the input: the latency that splitting adds
log = logging.getLogger("milepost.pipeline")


@dataclass
class Totals:
    """The sums over a pipeline's progress rows."""

    done: list[int]
    rows: list[int]
    bytes: list[int]
    commits: list[list[LaneCommit]]  # by lane: commits since they were last taken
    order: list[HeldResults]  # by lane
    last: dict[int, tuple[int, int]] = field(default_factory=dict)  # by lane: log and offset of its last progress row
    others: dict[int, int] = field(default_factory=dict)  # by former lane: events it had finished
    rejected: int = 0
    dropped: int = 0
    late: int = 0
    alerts: int = 0

    @classmethod
    def of(cls, lanes: int, disorder_us: int) -> Totals:
        """The totals of a pipeline that has done nothing."""
        none = [0] * lanes
        commits: list[list[LaneCommit]] = [[] for _ in none]
        return cls(none.copy(), none.copy(), none.copy(), commits, [HeldResults(disorder_us) for _ in none])

    def results(self, lane: int) -> float:
        """The average number of results of an event; 0 while it is not known."""
        return self.rows[lane] / self.done[lane] if self.done[lane] else 0.0

    def add(self, log: int, offset: int, row: Any) -> None:
        """Add one progress row."""
        self.last[row.lane] = (log, offset)
        if 0 <= row.lane < len(self.done):
            self.commits[row.lane].append(LaneCommit(row.at.timestamp(), row.position, row.busy))
            self.order[row.lane].take(LaneProgress.of(log, offset, row))
            self.done[row.lane] = max(self.done[row.lane], row.position)
            self.rows[row.lane] += row.rows
            self.bytes[row.lane] += row.bytes
            self.rejected += row.rejected
            self.dropped += row.dropped
        elif row.lane > 0:
            self.others[row.lane] = max(self.others.get(row.lane, 0), row.position)
        elif row.lane == IEP:
            self.late += row.late
            self.alerts += row.rows


class Runner:
    """One run of a pipeline, as a context: `with Runner(pipeline) as runner: runner.run()`.

    `once` processes what the input has now, and ends. `drain`, with `once`, also closes the windows that are then open.
    `loop_of` and `drops` (result queues that drop what does not fit) are for experiments. `keep_session` leaves the
    process's Spark session running at the end.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        master: str | None = None,
        checkpoint: Path | None = None,
        once: bool = False,
        drain: bool = False,
        now: Callable[[], float] = time.time,
        loop_of: Callable[[Sequence[int]], ControlLoop] | None = None,
        drops: bool = False,
        keep_session: bool = False,
    ) -> None:
        self.pipeline = pipeline
        self.topics = OwnTopics(pipeline.name)
        if drain and not once:
            raise ConfigError("drain closes windows at the end of the input, so it needs once as well")
        self._once = once
        self._drain = drain
        self._now = now
        self._stack = ExitStack()
        self._master = master or pipeline.spark.master
        self._checkpoint = Checkpoint(checkpoint or Path(pipeline.checkpoint or default_folder() / pipeline.name))
        self._loop_of = loop_of
        self._keep_session = keep_session
        self._drops = pipeline.control.queue_bytes if drops else 0
        self._tidied = now()
        self._beats = 0
        self.checked: CheckedPipeline
        self.client: Client
        self.control_loop: ControlLoop
        self.splitter: Splitter | None

    # Beginning

    def __enter__(self) -> Runner:
        try:
            self._begin()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        with self._stack:
            if kind is None:
                self.workers.stop()
                self._say_stopped()

    def _say_stopped(self) -> None:
        """Announce the end, for `pipeline stop`, which waits for it, and for `pipeline status`."""
        try:
            self.client.put(self.topics.orders, {"order": STOPPED, "at": datetime.fromtimestamp(self._now(), UTC)})
        except BrokerError as error:  # everything is done, and the status shows a little later that no runner is there
            log.warning("pipeline %s has ended, but could not announce it: %s", self.pipeline.name, error)

    def _begin(self) -> None:
        pipeline = self.pipeline
        # The name fences an earlier runner of the same pipeline.
        self.client = self._stack.enter_context(
            Client(pipeline.broker, name=self.topics.hold("runner"), timeout=PATIENCE_S)
        )
        self.checked = check(pipeline, self._input_schema())
        for warning in self.checked.warnings:
            log.warning("%s", warning)
        if self._drain:
            self._require_sources_ended()
        self._checkpoint.claim(pipeline, self.client.broker_id, shards_of(pipeline.spark.conf))
        self.feeding = self._prepare()
        self._checkpoint.keep()
        self.workers = self._stack.enter_context(
            PipelineWorkers(
                self.checked,
                self.feeding,
                self._master,
                self._checkpoint.folder,
                shards=self._checkpoint.shards,
                drops=self._drops,
                keep_session=self._keep_session,
            )
        )

    def _input_schema(self) -> Any:
        names = self.pipeline.input or [OwnTopics(each).lane(0) for each in self.pipeline.sources]
        found = {each.name: each for each in self.client.topics()}
        for name in names:
            if name not in found:
                raise BrokerError(
                    f"pipeline {self.pipeline.name!r} reads topic {name!r}, which the broker does not have; "
                    + ("declare it first, as a durable topic" if self.pipeline.input else "run that pipeline first")
                )
            if not found[name].durable:
                raise BrokerError(
                    f"topic {name!r} is live, and a pipeline reads durable topics; declare it as a durable topic"
                )
        schemas = {found[name].schema.type for name in names}
        if len(schemas) > 1:
            raise ConfigError(
                f"the inputs of pipeline {self.pipeline.name!r} have different schemas: {', '.join(names)}"
            )
        return found[names[0]].schema

    def _require_sources_ended(self) -> None:
        """Refuse to drain while a feeding pipeline may still add results: tier 2 closes windows when all of them are
        silent.
        """
        for name in self.pipeline.sources:
            told = PipelineStatus(self.client, name)
            told.refresh()
            if why := told.unfinished(self._now()):
                raise ConfigError(
                    f"pipeline {self.pipeline.name!r} cannot be drained: pipeline {name!r}, which feeds it, {why}; "
                    "run that pipeline with --once first"
                )

    def _prepare(self) -> tuple[Feeding, ...]:
        """Declare topics and take holds on everything that will be read, before anything is written or trimmed."""
        pipeline, client, topics = self.pipeline, self.client, self.topics
        topics.declare(client)
        for topic, schema in self.checked.outputs.items():
            client.declare_topic(topic, schema, durable=True)
        if pipeline.sources:
            feeding = tuple(Feeding(each, self._lanes_of(each), self._disorder_of(each)) for each in pipeline.sources)
        else:
            topics.declare_lanes(client, pipeline.lanes, self.checked.result, combined=self.combines)
            feeding = (Feeding(pipeline.name, pipeline.lanes, pipeline.disorder.us),)
        self._combined = [OwnTopics(each.pipeline).lane(lane) for each in feeding for lane in range(each.lanes)]
        if self.combines:
            for topic in (*(OwnTopics(each.pipeline).progress for each in feeding), *self._combined):
                client.hold(topic, combiner_hold(pipeline.name, topic))
        lanes = pipeline.lanes if pipeline.input else 0
        starting: dict[str, dict[int, int]] = {}
        for name in pipeline.input:
            starting[name] = resolved(client, name, _place(pipeline.starting), "starting")
            held = {each["name"]: each["cursor"] for each in client.look(name)["subscriptions"] if each.get("hold")}
            holds = [f"{topics.hold(f'lane {lane}')} of {name}" for lane in range(lanes)]
            known = [{int(log): int(offset) for log, offset in held[who].items()} for who in holds if who in held]
            if known:  # the holds know where lanes are, and "latest" has moved since; a log that is not in them is new
                starting[name] = {log: min(each.get(log, 0) for each in known) for log in set().union(*known)}
            for who in holds:
                if who not in held:
                    client.hold(name, who, starting[name])
        for lane in range(lanes):
            client.hold(topics.splits, topics.hold(f"lane {lane}"))
        self.splitter = None
        if lanes:
            self.splitter = Splitter(
                client, topics, pipeline.input, lanes, starting, self._now, within_us=pipeline.disorder.us
            )
        self.totals = Totals.of(lanes, pipeline.disorder.us)
        self._row_bytes = [0.0] * lanes  # bytes of a result, by lane
        self._progress = Tail(client, topics.progress)
        self._read_progress()
        if self.splitter is not None:
            self._require_lanes(self.splitter.given)
        done = list(self.totals.done)
        self.totals.commits = [[] for _ in done]  # commits of earlier runs say nothing about the current speed
        if done:
            self.control_loop = self._loop_of(done) if self._loop_of else ControlLoop(pipeline.control, done)
        self._orders = Tail(client, topics.orders)
        self._orders.news()
        return feeding

    def _require_lanes(self, given: Mapping[int, int]) -> None:
        """Refuse to continue with fewer lanes while a former lane has unfinished events."""
        lanes = self.pipeline.lanes
        for lane in sorted(each for each in given if each >= lanes):
            left = given[lane] - self.totals.others.get(lane, 0)
            if left:
                raise ConfigError(
                    f"lane {lane} of pipeline {self.pipeline.name!r} has {left:,} unfinished events, and there "
                    f"{'is 1 lane' if lanes == 1 else f'are {lanes} lanes'} now; "
                    f"run it with lanes = {max(given) + 1} and --once first"
                )

    @property
    def combines(self) -> bool:
        """Whether the pipeline has a tier 2."""
        return self.checked.combines

    @property
    def _queues(self) -> bool:
        """Whether the lanes' results wait for a combiner, of this pipeline or of another one."""
        return self.combines or self.pipeline.output is None

    def _lanes_of(self, pipeline: str) -> int:
        """The number of lanes of another pipeline: the number of its consecutive lane topics."""
        names = {each.name for each in self.client.topics(f"{pipeline}.>")}
        lanes = 0
        while OwnTopics(pipeline).lane(lanes) in names:
            lanes += 1
        return lanes

    def _disorder_of(self, pipeline: str) -> int:
        """By how much the results of another pipeline may be out of order, in microseconds, as of its last run. This
        pipeline's own value when that is not known.
        """
        told = [getattr(row, "disorder", None) for row in newest(self.client, OwnTopics(pipeline).progress)]
        return max((round(each * 1e6) for each in told if each is not None), default=self.pipeline.disorder.us)

    # Running

    def run(self, until: Callable[[], bool] = lambda: False) -> None:
        """Run until an operator orders to stop, `until` returns True or, with `once`, everything is done."""
        self.steer()
        self.workers.start()
        self.run_on(until)

    def run_on(self, until: Callable[[], bool] = lambda: False) -> None:
        """Run, with everything started."""
        interval = self.pipeline.control.interval.us / 1e6
        targets = {name: ends(self.client, name) for name in self.pipeline.input} if self._once else None
        due = self._now()
        ended = draining = False
        while not until():
            if self.splitter is not None:
                ages = [self.splitter.age(lane) for lane in range(self.pipeline.lanes)]
                self.splitter.late = late(ages, interval) if self.control_loop.balances and self._queues else []
                self.splitter.assign(targets)
            self._read_progress()
            if self._now() >= due + interval:
                due = max(due + interval, self._now() - interval)
                self.steer()
            if any(row.order == STOP for _, _, row in self._orders.news()):
                log.info("pipeline %s stops by order of an operator", self.pipeline.name)
                return
            self.workers.tend()
            self._tidy()
            if targets is not None and self._finished(targets):
                if not ended:
                    if self.splitter is not None:  # so that the combiner does not wait for events out of order
                        self.splitter.end()
                    ended = True
                elif self.caught_up():
                    if not self._drain or self._drained():
                        return
                    if not draining:
                        log.info("pipeline %s closes the windows that are open", self.pipeline.name)
                        self.workers.drain()
                        draining = True
            time.sleep(TICK_S)

    def _read_progress(self) -> None:
        for log, offset, row in self._progress.news():
            self.totals.add(log, offset, row)
        if self.splitter is not None:
            self.splitter.done = list(self.totals.done)

    def _tidy(self) -> None:
        """Remove old splits and progress rows every `TIDY_S`."""
        now = self._now()
        if now < self._tidied + TIDY_S:
            return
        self._tidied = now
        progress: dict[int, int] = {}
        for log, offset in self.totals.last.values():
            progress[log] = min(progress.get(log, offset), offset)
        before = datetime.fromtimestamp(now - KEPT_S, UTC)
        # A pipeline that will combine the results later needs the progress rows of all results that exist.
        longer = datetime.fromtimestamp(now - RESULTS_S, UTC) if self._queues and not self.combines else before
        tidy(self.client, self.topics.progress, longer, progress)
        if self.splitter is not None:
            tidy(self.client, self.topics.splits, before, self.splitter.needed())

    def steer(self) -> list[dict[str, Any]]:
        """One interval of control."""
        control = self.pipeline.control
        if self.splitter is None:
            self._beats += 1
            self.client.put(self.topics.control, control_loop.beat(self._beats, self._now(), control))
            return []
        measured = []
        for lane, runs in enumerate(self.splitter.runs):
            done = self.totals.done[lane]
            queued, held = None, 0.0
            if self._queues:
                rows, each = queue(self.client, self.topics, lane)
                # Results that wait and results to come are measured alike: an event must not change its size when it is
                # committed.
                self._row_bytes[lane] = each or self._row_bytes[lane]
                queued = rows * self._row_bytes[lane]
                held = min(rows, self.totals.order[lane].held) * self._row_bytes[lane]
            event_bytes = self.totals.results(lane) * self._row_bytes[lane]
            commits = tuple(each._replace(turn=_turn(runs, each)) for each in self.totals.commits[lane])
            self.totals.commits[lane] = []
            measured.append(Measured(runs.assigned, done, queued, event_bytes, commits, self.totals.dropped, held))
        decided = self.control_loop.step(self._now(), measured)
        self.splitter.weights = [each.weight for each in decided]
        self.splitter.probes |= {lane for lane, each in enumerate(decided) if each.probe}
        told = control_loop.rows(self.control_loop.intervals, self._now(), control, measured, decided)
        self.client.put_many(self.topics.control, told)
        return told

    # Ending by itself

    def _finished(self, targets: dict[str, dict[int, int]]) -> bool:
        """Whether lanes have finished everything up to `targets`."""
        splitter = self.splitter
        if splitter is None:
            return True
        return splitter.reached(targets) and all(
            runs.assigned <= done for runs, done in zip(splitter.runs, self.totals.done, strict=True)
        )

    def caught_up(self) -> bool:
        """Whether tier 2 has consumed all results of the lanes."""
        if not self.combines:
            return True
        return all(
            each["behind"] == 0
            for topic in self._combined
            for each in self.client.look(topic)["subscriptions"]
            if each["name"] == combiner_hold(self.pipeline.name, topic)
        )

    def _drained(self) -> bool:
        """Whether tier 2 has nothing open, by its last progress row."""
        last = last_progress(self.client, self.topics, IEP) if self.combines else None
        if last is None or last.offset is None:
            return True
        at = cut_of(json.loads(last.offset))
        return at.time_us >= drained(max(end.time_us for end in at.ends), open_times(self.checked))


def _turn(runs: LaneRuns, commit: LaneCommit) -> float | None:
    """Seconds from the assignment of a micro-batch's last event to its commit."""
    run = runs.at(commit.done - 1)
    return None if run is None else max(0.0, commit.time - run.at_us / 1e6)


def _place(text: str) -> Any:
    """Where a pipeline begins that has not run before: earliest, latest, or a time."""
    return text if text in ("earliest", "latest") else datetime.fromisoformat(text)


def default_folder() -> Path:
    """The default folder for Spark's checkpoints."""
    home = os.environ.get("XDG_DATA_HOME") or ""
    return (Path(home) if Path(home).is_absolute() else Path.home() / ".local" / "share") / "milepost" / "pipelines"
