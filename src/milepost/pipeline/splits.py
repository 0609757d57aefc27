"""Which events belong to which lane: runs of offsets, and a lane's place in them.

A lane's *position* is a number of events: those that were assigned to it before. A run says at which position it
begins, so a range of positions is a few ranges of offsets of the input. No event is looked at for that, or copied.

Several logs are dealt side by side, in *steps* of the time at which their rows were stored.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeAlias

RUNS_KEPT: Final = 1_000  # behind a lane's position, before those that are done are forgotten in one step
LONG_AGO_US: Final = 0  # 1970: no row was stored before
FAR_US: Final = 1 << 56  # the year 4253: no row was stored after, and a datetime can still say it

Place: TypeAlias = tuple[int, int]  # which of the pipeline's inputs, and which log of it


class LaneRun(NamedTuple):
    """Offsets from `start` to before `stop` of a log of an input topic."""

    source: int  # which of the pipeline's inputs
    log: int
    start: int
    stop: int
    lane: int
    first: int  # the lane's position at its beginning
    at_us: int  # when it was assigned
    place: tuple[int, int] = (0, 0)  # the log and the offset of its row in the topic of splits

    @property
    def end(self) -> int:
        """The lane's position behind it."""
        return self.first + self.stop - self.start

    @classmethod
    def of(cls, log: int, offset: int, row: Any) -> LaneRun:
        """Out of a row of the topic of splits."""
        at_us = round(row.at.timestamp() * 1_000_000)
        return cls(row.source, row.log, row.start, row.stop, row.lane, row.first, at_us, (log, offset))


class TimeStep(NamedTuple):
    """What was stored from one time to before another: of each log what is before `stops`, and in no earlier step."""

    since_us: int
    until_us: int
    stops: Mapping[Place, int]

    def logs(self, starts: Mapping[Place, int]) -> list[Place]:
        """Those that have something in it, from `starts` on."""
        return [place for place, stop in self.stops.items() if starts.get(place, stop) < stop]

    def middle(self, starts: Mapping[Place, int], short_us: int, near_us: int) -> int | None:
        """Where to cut it; None: it can be dealt as it is, because it is short or one log alone has something in it.

        A step whose beginning or end nobody knows is cut at distances from `near_us` that double: what came during a
        pause of a second is found with a few cuts, and what came during one of a day with a few more.
        """
        since, until = self.since_us, self.until_us
        if until - since <= short_us or len(self.logs(starts)) < 2:
            return None
        cut = since
        if since == LONG_AGO_US and until == FAR_US:
            cut = near_us
        elif since == LONG_AGO_US:
            cut = near_us - max(short_us, 2 * (near_us - until))
        elif until == FAR_US:
            cut = near_us + max(short_us, 2 * (since - near_us))
        return cut if since < cut < until else (since + until) // 2

    def cut(self, at_us: int, position: Mapping[Place, int]) -> tuple[TimeStep, TimeStep]:
        """What is before a time, and the rest; `position` has the first row of each log that was stored then or later.

        A log that it does not name has nothing in this step.
        """
        stops = {place: min(stop, position.get(place, stop)) for place, stop in self.stops.items()}
        return TimeStep(self.since_us, at_us, stops), self._replace(since_us=at_us)


class RunPart(NamedTuple):
    """A part of a run."""

    source: int
    log: int
    start: int
    stop: int


class LaneRuns:
    """The runs of one lane, in the order of its positions."""

    def __init__(self, lane: int) -> None:
        self.lane: Final = lane
        self._runs: list[LaneRun] = []

    def extend(self, runs: Iterable[LaneRun]) -> None:
        """More of them. Rows of several logs of splits (a pipeline that moved to another broker) may come mixed."""
        mine = [run for run in runs if run.lane == self.lane]
        if not mine:
            return
        last = self._runs[-1:]
        self._runs += mine
        if any(one.first > next_.first for one, next_ in pairwise([*last, *mine])):
            self._runs.sort(key=lambda run: run.first)

    @property
    def assigned(self) -> int:
        """The position behind the last run: as many events were ever assigned to this lane."""
        return self._runs[-1].end if self._runs else 0

    def at(self, position: int) -> LaneRun | None:
        """The run that holds a position; None when it is not there (yet, or any more)."""
        index = bisect_right(self._runs, position, key=lambda run: run.first) - 1
        if index < 0 or position >= self._runs[index].end:
            return None
        return self._runs[index]

    def pieces(self, start: int, stop: int) -> list[RunPart]:
        """The events from one position to before another, as ranges of offsets; LookupError when some are missing."""
        found: list[RunPart] = []
        index = bisect_right(self._runs, start, key=lambda run: run.first) - 1
        position = start
        while position < stop:
            run = self._runs[index] if 0 <= index < len(self._runs) else None
            if run is None or not run.first <= position < run.end:
                raise LookupError(f"no run of lane {self.lane} has position {position}")
            end = min(stop, run.end)
            piece = RunPart(run.source, run.log, run.start + position - run.first, run.start + end - run.first)
            if found and found[-1][:2] == piece[:2] and found[-1].stop == piece.start:
                found[-1] = found[-1]._replace(stop=piece.stop)
            else:
                found.append(piece)
            position, index = end, index + 1
        return found

    def needed(self, source: int, position: int) -> dict[int, int]:
        """By log of an input: the first offset that is needed from a position on; runs to come are behind it too."""
        found: dict[int, int] = {}
        for run in reversed(self._runs):
            if run.source != source or (run.end <= position and run.log in found):
                continue
            behind = run.stop if run.end <= position else run.start + max(0, position - run.first)
            found[run.log] = behind if run.end <= position else min(found.get(run.log, behind), behind)
        return found

    def forget(self, position: int) -> None:
        """Runs wholly before a position are not asked for again."""
        index = bisect_right(self._runs, position, key=lambda run: run.first) - 1
        if index >= RUNS_KEPT:
            del self._runs[:index]


def partitioned(pieces: list[RunPart], count: int) -> list[list[RunPart]]:
    """The same events in at most `count` parts of about as many each, those of one log together.

    Nobody asks for their order within a micro-batch, and one task reads one input: inputs that were dealt in turns
    would make a task of every turn.
    """
    total = sum(piece.stop - piece.start for piece in pieces)
    size = max(1, -(-total // max(1, count)))
    parts: list[list[RunPart]] = [[]]
    room = size
    for piece in sorted(pieces):
        while piece.start < piece.stop:
            if not room:
                parts.append([])
                room = size
            end = min(piece.stop, piece.start + room)
            parts[-1].append(piece._replace(stop=end))
            room -= end - piece.start
            piece = piece._replace(start=end)
    return [part for part in parts if part]
