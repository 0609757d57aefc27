"""Runs a pipeline: starts its queries, splits its input, steers its lanes, and keeps all of that going.

One thread in one process. Several times a second it assigns new events to lanes and reads marks; once an interval it
measures, decides and publishes what was decided; it restarts what has failed, and stops when an operator orders it.
Lanes may be queries of this process's Spark, or processes with a Spark of their own.
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

TIDY_S: Final = 600.0  # between two times that old splits and marks are removed
KEPT_S: Final = 86_400.0  # for which they stay, for people to look at
TICK_S: Final = 0.1  # between two looks at the input: what splitting adds to a delay
log = logging.getLogger("milepost.pipeline")


@dataclass
class Totals:
    """What the marks of a pipeline add up to."""

    done: list[int]
    rows: list[int]
    bytes: list[int]
    commits: list[list[LaneCommit]]  # by lane: since they were last taken
    order: list[HeldResults]  # by lane
    last: dict[int, tuple[int, int]] = field(default_factory=dict)  # by lane: where its last mark is
    others: dict[int, int] = field(default_factory=dict)  # what lanes had done that are no more
    rejected: int = 0
    dropped: int = 0
    late: int = 0
    alerts: int = 0

    @classmethod
    def of(cls, lanes: int, disorder_us: int) -> Totals:
        """Of a pipeline that has done nothing."""
        none = [0] * lanes
        commits: list[list[LaneCommit]] = [[] for _ in none]
        return cls(none.copy(), none.copy(), none.copy(), commits, [HeldResults(disorder_us) for _ in none])

    def results(self, lane: int) -> float:
        """Results of an event, on average; 0 while that is not known."""
        return self.rows[lane] / self.done[lane] if self.done[lane] else 0.0

    def add(self, log: int, offset: int, row: Any) -> None:
        """One mark."""
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

    `once`: process what the input has now, and end. `drain`: with `once`, close the windows that are open then.
    `loop_of` and `drops` (result queues that drop what they have no room for) are for experiments. `keep_session`
    leaves the process's Spark session running at the end.
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
            raise ConfigError("windows are drained when the input has come to its end: drain needs once as well")
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
        """For `pipeline stop`, which waits for it, and for `pipeline status`."""
        try:
            self.client.put(self.topics.orders, {"order": STOPPED, "at": datetime.fromtimestamp(self._now(), UTC)})
        except BrokerError as error:  # everything is done, and that nobody runs it is seen a little later
            log.warning("pipeline %s has ended, and could not say so: %s", self.pipeline.name, error)

    def _begin(self) -> None:
        pipeline = self.pipeline
        # Its name fences a second runner of the same pipeline: whoever began later is the one.
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
                    f"pipeline {self.pipeline.name!r} reads topic {name!r}, and the broker has none; "
                    + ("declare it first, as a durable topic" if self.pipeline.input else "run that pipeline first")
                )
            if not found[name].durable:
                raise BrokerError(
                    f"topic {name!r} is live: a pipeline reads durable topics, which keep what is not read"
                )
        schemas = {found[name].schema.type for name in names}
        if len(schemas) > 1:
            raise ConfigError(
                f"the inputs of pipeline {self.pipeline.name!r} are of different schemas: {', '.join(names)}"
            )
        return found[names[0]].schema

    def _require_sources_ended(self) -> None:
        """Refuse to drain what other pipelines still add to: tier 2 closes windows when all of them are silent."""
        for name in self.pipeline.sources:
            told = PipelineStatus(self.client, name)
            told.refresh()
            if why := told.unfinished(self._now()):
                raise ConfigError(
                    f"pipeline {self.pipeline.name!r} cannot be drained: pipeline {name!r}, which feeds it, {why}; "
                    "run that one with --once to its end before"
                )

    def _prepare(self) -> tuple[Feeding, ...]:
        """Topics, and holds on everything that will be read, before anything is written or trimmed."""
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
            if known:  # they know better: "latest" is somewhere else by now. A log that is not in them came later
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
        self._row_bytes = [0.0] * lanes  # of a result, by lane
        self._progress = Tail(client, topics.progress)
        self._read_progress()
        if self.splitter is not None:
            self._require_lanes(self.splitter.given)
        done = list(self.totals.done)
        self.totals.commits = [[] for _ in done]  # of runs before this one: they say nothing about now
        if done:
            self.control_loop = self._loop_of(done) if self._loop_of else ControlLoop(pipeline.control, done)
        self._orders = Tail(client, topics.orders)
        self._orders.news()
        return feeding

    def _require_lanes(self, given: Mapping[int, int]) -> None:
        """Refuse to go on with fewer lanes than there were, while one of them has something to do."""
        lanes = self.pipeline.lanes
        for lane in sorted(each for each in given if each >= lanes):
            left = given[lane] - self.totals.others.get(lane, 0)
            if left:
                raise ConfigError(
                    f"lane {lane} of pipeline {self.pipeline.name!r} has {left:,} events to do, and there "
                    f"{'is 1 lane' if lanes == 1 else f'are {lanes} lanes'} now; "
                    f"run it with lanes = {max(given) + 1} and --once before"
                )

    @property
    def combines(self) -> bool:
        """Whether there is a tier 2."""
        return bool(self.checked.rules or self.checked.monitors)

    @property
    def _queues(self) -> bool:
        """Whether lanes' results wait for a combiner, this pipeline's or another's."""
        return self.combines or self.pipeline.output is None

    def _lanes_of(self, pipeline: str) -> int:
        """How many lanes another pipeline has: as many topics as there are in a row."""
        names = {each.name for each in self.client.topics(f"{pipeline}.>")}
        lanes = 0
        while OwnTopics(pipeline).lane(lanes) in names:
            lanes += 1
        return lanes

    def _disorder_of(self, pipeline: str) -> int:
        """How much out of order the results of another pipeline may be, in microseconds: as it has last run with. While
        nobody knows, this one's.
        """
        told = [getattr(row, "disorder", None) for row in newest(self.client, OwnTopics(pipeline).progress)]
        return max((round(each * 1e6) for each in told if each is not None), default=self.pipeline.disorder.us)

    # Running

    def run(self, until: Callable[[], bool] = lambda: False) -> None:
        """Go on until an operator orders to stop, `until` says so or, with `once`, until everything is done."""
        self.steer()
        self.workers.start()
        self.run_on(until)

    def run_on(self, until: Callable[[], bool] = lambda: False) -> None:
        """The same, with everything started."""
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
                log.info("pipeline %s was ordered to stop", self.pipeline.name)
                return
            self.workers.tend()
            self._tidy()
            if targets is not None and self._finished(targets):
                if not ended:
                    self._end()
                    ended = True
                elif self._caught_up():
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
        """Now and then remove what was decided and done long ago."""
        now = self._now()
        if now < self._tidied + TIDY_S:
            return
        self._tidied = now
        progress: dict[int, int] = {}
        for log, offset in self.totals.last.values():
            progress[log] = min(progress.get(log, offset), offset)
        before = datetime.fromtimestamp(now - KEPT_S, UTC)
        # Who is to combine the results, and has not begun, needs the marks of all that are there.
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
                # The same measure for what waits and for what will: an event must not grow when it is committed.
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
        """Whether lanes are done with everything up to `targets`."""
        splitter = self.splitter
        if splitter is None:
            return True
        return splitter.reached(targets) and all(
            runs.assigned <= done for runs, done in zip(splitter.runs, self.totals.done, strict=True)
        )

    def _end(self) -> None:
        """Say that nothing more comes: the combiner need not wait for what might be out of order."""
        if self.splitter is not None:
            self.splitter.end()

    def _caught_up(self) -> bool:
        """Whether tier 2 has taken everything that lanes made."""
        if not self.combines:
            return True
        return all(
            each["behind"] == 0
            for topic in self._combined
            for each in self.client.look(topic)["subscriptions"]
            if each["name"] == combiner_hold(self.pipeline.name, topic)
        )

    def _drained(self) -> bool:
        """Whether tier 2 has nothing open, by its last mark."""
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
    """Where a pipeline begins that has not run: earliest, latest, or a time."""
    return text if text in ("earliest", "latest") else datetime.fromisoformat(text)


def default_folder() -> Path:
    """Where Spark keeps the progress of pipelines, unless told otherwise."""
    home = os.environ.get("XDG_DATA_HOME") or ""
    return (Path(home) if Path(home).is_absolute() else Path.home() / ".local" / "share") / "milepost" / "pipelines"
