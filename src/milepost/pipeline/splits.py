"""Which events belong to which lane: runs of offsets, and a lane's position in them.

A lane's *position* is the number of events assigned to it before. Each run states the position at which it begins, so a
range of positions translates to a few ranges of input offsets, without reading or copying an event.

Several logs are assigned side by side, in *steps* of the time at which their rows were stored.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeAlias

RUNS_KEPT: Final = 1_000  # runs kept before a lane's position; older ones are removed together
LONG_AGO_US: Final = 0  # 1970: no row was stored before it
FAR_US: Final = 1 << 56  # the year 4253: no row was stored after it, and a datetime can still represent it

Place: TypeAlias = tuple[int, int]  # (index of the pipeline's input, log)


class LaneRun(NamedTuple):
    """A run of offsets of one log, from `start` to before `stop`, assigned to one lane."""

    source: int  # index of the pipeline's input
    log: int
    start: int
    stop: int
    lane: int
    first: int  # the lane's position at the start of the run
    at_us: int  # when it was assigned
    place: tuple[int, int] = (0, 0)  # the log and the offset of its row in the topic of splits

    @property
    def end(self) -> int:
        """The lane's position after the run."""
        return self.first + self.stop - self.start

    @classmethod
    def of(cls, log: int, offset: int, row: Any) -> LaneRun:
        """Parse a row of the topic of splits."""
        at_us = round(row.at.timestamp() * 1_000_000)
        return cls(row.source, row.log, row.start, row.stop, row.lane, row.first, at_us, (log, offset))


class TimeStep(NamedTuple):
    """Rows stored from one time to before another: in each log the rows before `stops` that are in no earlier step."""

    since_us: int
    until_us: int
    stops: Mapping[Place, int]

    def logs(self, starts: Mapping[Place, int]) -> list[Place]:
        """The logs that have rows in this step, from `starts` on."""
        return [place for place, stop in self.stops.items() if starts.get(place, stop) < stop]

    def middle(self, starts: Mapping[Place, int], short_us: int, near_us: int) -> int | None:
        """The time at which to cut the step; None when it can be assigned whole: it is short, or only one log has rows
        in it.

        A step with an unknown beginning or end is cut at doubling distances from `near_us`. So the rows of a pause of a
        second are found with a few cuts, and the rows of a pause of a day with a few more.
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
        """The rows before a time, and the rest. `position` has the first row of each log that was stored at this time
        or later.

        A log that is not in `position` has no rows in this step.
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
    """The runs of one lane, by position."""

    def __init__(self, lane: int) -> None:
        self.lane: Final = lane
        self._runs: list[LaneRun] = []

    def extend(self, runs: Iterable[LaneRun]) -> None:
        """Add runs. Rows of several logs of splits may come mixed, when a pipeline has moved to another broker."""
        mine = [run for run in runs if run.lane == self.lane]
        if not mine:
            return
        last = self._runs[-1:]
        self._runs += mine
        if any(one.first > next_.first for one, next_ in pairwise([*last, *mine])):
            self._runs.sort(key=lambda run: run.first)

    @property
    def assigned(self) -> int:
        """The position after the last run, which is the number of events ever assigned to this lane."""
        return self._runs[-1].end if self._runs else 0

    def at(self, position: int) -> LaneRun | None:
        """The run that has a position; None when it is not assigned yet or already removed."""
        index = bisect_right(self._runs, position, key=lambda run: run.first) - 1
        if index < 0 or position >= self._runs[index].end:
            return None
        return self._runs[index]

    def pieces(self, start: int, stop: int) -> list[RunPart]:
        """The events from one position to before another, as ranges of offsets. Raises LookupError when some are
        missing.
        """
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
        """By log of an input: the first offset that is still needed from a position on. Later runs begin after it."""
        found: dict[int, int] = {}
        for run in reversed(self._runs):
            if run.source != source or (run.end <= position and run.log in found):
                continue
            behind = run.stop if run.end <= position else run.start + max(0, position - run.first)
            found[run.log] = behind if run.end <= position else min(found.get(run.log, behind), behind)
        return found

    def forget(self, position: int) -> None:
        """Remove runs that lie wholly before a position."""
        index = bisect_right(self._runs, position, key=lambda run: run.first) - 1
        if index >= RUNS_KEPT:
            del self._runs[:index]


def partitioned(pieces: list[RunPart], count: int) -> list[list[RunPart]]:
    """The same events in at most `count` parts of about equal size, grouped by log.

    A micro-batch needs no order, and one task reads one input: keeping the order of assignment would make a task of
    each run when inputs alternate.
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
