"""The load splitter: assigns the events of a pipeline's input to its lanes, by the current weights.

It looks at where logs end and at nothing else, so its cost goes with the number of runs and not with that of events.
What it decides is in the topic of splits, under a publisher's name: a second splitter of the same pipeline fences the
first off, and one that begins anew goes on where the topic ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, TypeAlias

from milepost.pipeline.beside import Beside, Tail
from milepost.pipeline.control.pauses import EVENTS
from milepost.pipeline.control.split import split, without
from milepost.pipeline.splits import Run, Runs

if TYPE_CHECKING:
    from milepost.client import Client

AHEAD_ROWS: Final = 1_000_000  # that a lane may have before it: more could not be given to another when it slows down
RUN_ROWS: Final = 50_000  # most of one run: a backlog is dealt out in turns, not in one half to each lane
NOBODY: Final = -1  # the lane of a row that ends the splits

Targets: TypeAlias = Mapping[str, Mapping[int, int]]  # by input: the offset in each log up to which it is assigned


class Splitter:
    """Assigns runs of the inputs to lanes. `assign` is called several times a second, by one thread."""

    def __init__(
        self,
        client: Client,
        beside: Beside,
        inputs: Sequence[str],
        lanes: int,
        starting: Mapping[str, Mapping[int, int]],
        now: Callable[[], float],
    ) -> None:
        """`starting`: for each input where it begins, for logs of which nothing was assigned before."""
        self._client = client
        self._beside = beside
        self._inputs: Final = tuple(inputs)
        self._now = now
        self._next: dict[tuple[int, int], int] = {}  # by source and log: the first offset not yet assigned
        self._starting: Final = {source: dict(starting.get(name, {})) for source, name in enumerate(inputs)}
        self._carry: list[float] = [0.0] * lanes
        self.runs: Final = [Runs(lane) for lane in range(lanes)]
        self.weights: list[float] = [1.0 / lanes] * lanes
        self.late: list[int] = []  # lanes that get nothing at the moment, whatever their weights are
        self.probes: set[int] = set()  # lanes that get a few events at once, whatever their weights are
        self.done: list[int] = [0] * lanes  # positions up to which lanes are finished: set by whoever reads the marks
        self._tail = Tail(client, beside.splits)
        self._last: dict[
            tuple[str, int, int], tuple[int, int]
        ] = {}  # of each lane, and each log: where its last run is
        self._assigned(self._news())

    def _news(self) -> list[Run]:
        return [Run.of(log, offset, row) for log, offset, row in self._tail.news()]

    def _assigned(self, runs: list[Run]) -> None:
        for run in runs:
            if run.lane == NOBODY:
                continue
            key = (run.source, run.log)
            if run.place[0]:
                self._last["lane", run.lane, 0] = self._last["log", run.source, run.log] = run.place
            self._next[key] = max(self._next.get(key, 0), run.stop)
        for lane in self.runs:
            lane.extend(runs)

    def needed(self) -> dict[int, int]:
        """The first offset of the topic of splits that a splitter which begins anew must find, by log."""
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
        """Events that a lane was given and has not finished."""
        return self.runs[lane].assigned - self.done[lane]

    def assign(self, targets: Targets | None = None) -> int:
        """Assign what is new, as far as lanes have room for it, and not beyond `targets`; the number of events."""
        runs: list[Run] = []
        assigned = [lane.assigned for lane in self.runs]
        at_us = round(self._now() * 1_000_000)
        for source, name in enumerate(self._inputs):
            for each in self._client.look(name)["logs"]:
                log, stop = int(each["log"]), int(each["next"])
                if targets is not None:
                    stop = min(stop, targets[name].get(log, 0))
                begin = self._starting[source].get(log, 0)
                start = max(self._next.get((source, log), begin), int(each["start"]))
                runs += self._deal(source, log, start, stop, assigned, at_us)
        if not runs:
            return 0
        self._put(runs)
        self._assigned(runs)
        for lane, done in zip(self.runs, self.done, strict=True):
            lane.forget(done)
        return sum(run.stop - run.start for run in runs)

    def reached(self, targets: Targets) -> bool:
        """Whether everything before `targets` is assigned."""
        return all(
            self._next.get((source, log), self._starting[source].get(log, 0)) >= stop
            for source, name in enumerate(self._inputs)
            for log, stop in targets[name].items()
        )

    def end(self) -> None:
        """Tell those who read the splits that nothing more comes, until something does."""
        at_us = round(self._now() * 1_000_000)
        self._put([Run(0, 0, 0, 0, NOBODY, 0, at_us)])

    def _put(self, runs: list[Run]) -> None:
        rows = [
            {
                "source": run.source,
                "log": run.log,
                "start": run.start,
                "stop": run.stop,
                "lane": run.lane,
                "first": run.first,
                "at": datetime.fromtimestamp(run.at_us / 1_000_000, UTC),
            }
            for run in runs
        ]
        self._client.put_many(self._beside.splits, rows)

    def _deal(self, source: int, log: int, start: int, stop: int, assigned: list[int], at_us: int) -> list[Run]:
        """Runs of one log, in turns, until it is dealt out or a lane has no more room.

        A lane without room ends it for all: others must not be given the share that the weights say is its.
        """
        runs: list[Run] = []
        lanes, weights = len(self.runs), without(self.weights, self.late)
        while start < stop and self.probes:
            lane, count = self.probes.pop(), min(EVENTS, stop - start)
            runs.append(Run(source, log, start, start + count, lane, assigned[lane], at_us))
            assigned[lane] += count
            start += count
        while start < stop:
            room = min(AHEAD_ROWS - (assigned[lane] - self.done[lane]) for lane in range(lanes) if weights[lane])
            turn = min(stop - start, RUN_ROWS * lanes, max(0, room))
            if not turn:
                break
            counts, self._carry = split(turn, weights, self._carry)
            for lane, count in enumerate(counts):
                if count:
                    runs.append(Run(source, log, start, start + count, lane, assigned[lane], at_us))
                    assigned[lane] += count
                    start += count
        return runs
