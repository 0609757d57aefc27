"""The load splitter: assigns the events of a pipeline's input to its lanes, by the current weights.

It reads only where logs end, so its cost grows with the number of runs and not with the number of events. Its decisions
are rows of the topic of splits, put under a publisher's name: a second splitter of the same pipeline fences the first
one, and a restarted splitter continues where the topic ends.

Each lane must get its events in the order of event time, except for `disorder`. One log alone has this order. Several
logs are assigned side by side, in steps of the time at which their rows were stored: the step of all logs, then the
next step. While all new rows are recent they are one step, and the broker is not asked. After a backlog the splitter
asks the broker where its logs were at some time (`look`), and halves the new rows until each step is short, or has rows
of one log only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, TypeAlias

from milepost.pipeline.control.pauses import EVENTS
from milepost.pipeline.control.split import split, without
from milepost.pipeline.own_topics import OwnTopics, Tail
from milepost.pipeline.splits import FAR_US, LONG_AGO_US, LaneRun, LaneRuns, Place, TimeStep

if TYPE_CHECKING:
    from milepost.client import Client

AHEAD_ROWS: Final = 1_000_000  # events a lane may have ahead; if it slows down, they cannot move to another lane
RUN_ROWS: Final = 50_000  # most of one run, so that lanes take turns at a backlog instead of getting one half each
NO_LANE: Final = -1  # the lane of a row that ends the splits
STEPS: Final = 4  # in `within_us`: most of that time is left to events that were stored out of order
LEAST_US: Final = 50_000  # shortest step: finding shorter ones could take longer than rows take to arrive
LOOKS: Final = 128  # most lookups of positions in one call, a millisecond or less each: they block the runner
NEVER: Final = float("-inf")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Targets: TypeAlias = Mapping[str, Mapping[int, int]]  # by input: the offset in each log up to which to assign


class Splitter:
    """Assigns runs of the inputs to lanes. One thread calls `assign` several times a second."""

    def __init__(
        self,
        client: Client,
        topics: OwnTopics,
        inputs: Sequence[str],
        lanes: int,
        starting: Mapping[str, Mapping[int, int]],
        now: Callable[[], float],
        *,
        within_us: int = 1_000_000,
    ) -> None:
        """`starting` has the start of each input, for logs of which nothing is assigned yet.

        `within_us` is by how much events may be out of order. Rows of several logs are assigned in steps of a small
        part of it.
        """
        self._client = client
        self._topics = topics
        self._inputs: Final = tuple(inputs)
        self._now = now
        self._next: dict[Place, int] = {}  # the first offset of each log that is not yet assigned
        self._gone: dict[Place, int] = {}  # the first offset of each log that existed at the last look
        self._short_us: Final = max(LEAST_US, within_us // STEPS)
        self._steps: list[TimeStep] = []  # new rows that are not assigned yet; the next step is the last item
        self._found = NEVER  # when the ends of the logs were read; all rows before them are assigned or in steps
        self._near_us = 0  # when the steps were made: most of their rows were stored shortly before
        self._starting: Final = {source: dict(starting.get(name, {})) for source, name in enumerate(inputs)}
        self._carry: list[float] = [0.0] * lanes
        self.runs: Final = [LaneRuns(lane) for lane in range(lanes)]
        self.weights: list[float] = [1.0 / lanes] * lanes
        self.late: list[int] = []  # lanes that get nothing for now, whatever their weights
        self.probes: set[int] = set()  # lanes that get a few events at once, whatever their weights
        self.given: dict[int, int] = {}  # by lane, also former ones: number of events ever assigned
        self.done = [0] * lanes  # positions up to which lanes are finished; set by the reader of the progress topic
        self._tail = Tail(client, topics.splits)
        self._last: dict[tuple[str, int, int], tuple[int, int]] = {}  # by lane and log: where its last run is
        self._assigned(self._news())

    def _news(self) -> list[LaneRun]:
        return [LaneRun.of(log, offset, row) for log, offset, row in self._tail.news()]

    def _assigned(self, runs: list[LaneRun]) -> None:
        for run in runs:
            if run.lane == NO_LANE:
                continue
            key = (run.source, run.log)
            self.given[run.lane] = max(self.given.get(run.lane, 0), run.first + run.stop - run.start)
            if run.place[0]:
                self._last["lane", run.lane, 0] = self._last["log", run.source, run.log] = run.place
            self._next[key] = max(self._next.get(key, 0), run.stop)
        for lane in self.runs:
            lane.extend(runs)

    def needed(self) -> dict[int, int]:
        """By log: the first offset of the topic of splits that a restarted splitter needs."""
        for run in self._news():
            for key in (("lane", run.lane, 0), ("log", run.source, run.log)):
                self._last[key] = run.place
        found: dict[int, int] = {}
        for log, offset in self._last.values():
            found[log] = min(found.get(log, offset), offset)
        return found

    def age(self, lane: int) -> float:
        """Seconds since the assignment of the oldest event that a lane has not finished; 0 when it has finished all."""
        run = self.runs[lane].at(self.done[lane])
        return 0.0 if run is None else max(0.0, self._now() - run.at_us / 1e6)

    def ahead(self, lane: int) -> int:
        """Events that are assigned to a lane and not finished."""
        return self.runs[lane].assigned - self.done[lane]

    def assign(self, targets: Targets | None = None) -> int:
        """Assign new events as far as lanes have room, but not beyond `targets`. Returns their number.

        After a backlog in several logs, one call assigns only as much as a bounded number of lookups can order, which
        may be nothing. The next call continues from there.
        """
        looked = self._now()
        next_, stops, whole = self._looked(targets)
        steps, found = list(self._steps), self._found
        if steps and any(stop > stops.get(place, stop) for place, stop in steps[0].stops.items()):
            steps, found = [], NEVER  # left by a call with later targets
        runs: list[LaneRun] = []
        assigned = [lane.assigned for lane in self.runs]
        at_us = round(looked * 1_000_000)
        asked = 0
        while self.probes or self._room(assigned) > 0:
            if not steps:
                just_now = 0 <= (looked - found) * 1_000_000 <= self._short_us
                step = TimeStep(at_us, at_us, stops) if just_now else TimeStep(LONG_AGO_US, FAR_US, stops)
                found, self._near_us = looked if whole else NEVER, at_us
                if not step.logs(next_):
                    break
                steps.append(step)
            step = steps[-1]
            middle_us = step.middle(next_, self._short_us, self._near_us)
            if middle_us is not None:
                if asked >= LOOKS:
                    break
                sources = {source for source, _ in step.logs(next_)}
                asked += len(sources)
                steps[-1:] = reversed(step.cut(middle_us, self._stored(sources, middle_us)))
                continue
            for source, log in step.logs(next_):
                start, stop = next_[source, log], step.stops[source, log]
                some = self._deal(source, log, start, stop, assigned, at_us)
                next_[source, log] = some[-1].stop if some else start
                runs += some
            if step.logs(next_):
                break  # lanes are full, and later rows must not overtake the rest
            steps.pop()
        if runs:
            self._put(runs)
            self._assigned(runs)
            for lane, done in zip(self.runs, self.done, strict=True):
                lane.forget(done)
        self._steps, self._found = steps, found  # only now: after a failed write nothing counts as assigned
        return sum(run.stop - run.start for run in runs)

    def _looked(self, targets: Targets | None) -> tuple[dict[Place, int], dict[Place, int], bool]:
        """The first and the last offset of each log that can be assigned, and whether these are all rows."""
        starts: dict[Place, int] = {}
        stops: dict[Place, int] = {}
        whole = True
        for source, name in enumerate(self._inputs):
            for each in self._client.look(name)["logs"]:
                log, stop = int(each["log"]), int(each["next"])
                begin = self._starting[source].get(log, 0)
                starts[source, log] = max(self._next.get((source, log), begin), int(each["start"]))
                self._gone[source, log] = int(each["start"])
                stops[source, log] = stop if targets is None else min(stop, targets[name].get(log, 0))
                whole = whole and stops[source, log] == stop
        return starts, stops, whole

    def _stored(self, sources: Collection[int], at_us: int) -> dict[Place, int]:
        """For each log of some inputs, the first row stored at a time or later. One request for each input."""
        at = _EPOCH + timedelta(microseconds=at_us)
        return {
            (source, int(log)): int(offset)
            for source in sources
            for log, offset in self._client.look(self._inputs[source], at)["position"].items()
        }

    def reached(self, targets: Targets) -> bool:
        """Whether everything before `targets` is assigned."""
        return all(
            max(self._next.get((source, log), self._starting[source].get(log, 0)), self._gone.get((source, log), 0))
            >= stop
            for source, name in enumerate(self._inputs)
            for log, stop in targets[name].items()
        )

    def end(self) -> None:
        """Tell readers of the splits that the input has ended, until something more is assigned."""
        at_us = round(self._now() * 1_000_000)
        self._put([LaneRun(0, 0, 0, 0, NO_LANE, 0, at_us)])

    def _put(self, runs: list[LaneRun]) -> None:
        names = ("source", "log", "start", "stop", "lane", "first")
        rows = [
            {name: getattr(run, name) for name in names} | {"at": datetime.fromtimestamp(run.at_us / 1_000_000, UTC)}
            for run in runs
        ]
        self._client.put_many(self._topics.splits, rows)

    def _deal(self, source: int, log: int, start: int, stop: int, assigned: list[int], at_us: int) -> list[LaneRun]:
        """Runs of one log for the lanes in turn, until all is assigned or a lane has no more room.

        A lane without room ends the turn for all lanes: the others must not get the share that the weights give to it.
        """
        runs: list[LaneRun] = []
        lanes, weights = len(self.runs), without(self.weights, self.late)
        while start < stop and self.probes:
            lane, count = self.probes.pop(), min(EVENTS, stop - start)
            runs.append(LaneRun(source, log, start, start + count, lane, assigned[lane], at_us))
            assigned[lane] += count
            start += count
        while start < stop:
            turn = min(stop - start, RUN_ROWS * lanes, self._room(assigned))
            if turn <= 0:
                break
            counts, self._carry = split(turn, weights, self._carry)
            for lane, count in enumerate(counts):
                if count:
                    runs.append(LaneRun(source, log, start, start + count, lane, assigned[lane], at_us))
                    assigned[lane] += count
                    start += count
        return runs

    def _room(self, assigned: Sequence[int]) -> int:
        """The room of the fullest lane among the lanes that get anything."""
        weights = without(self.weights, self.late)
        return min(
            AHEAD_ROWS - (given - done)
            for given, done, weight in zip(assigned, self.done, weights, strict=True)
            if weight
        )
