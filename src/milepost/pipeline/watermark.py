"""How far the results of the lanes can be merged into one order: the fold over progress rows, and the least watermark.

A lane's results are in the order of its input, which is the order of time except for `disorder`: no event comes more
than that much after a later one. So when a lane has processed events up to time t, its later results are not before t -
disorder. The results that every lane has passed in this sense are complete, and can be merged.

An *offset* of the combined stream says for each lane which progress rows were considered (`end`) and up to which of
them everything is merged (`low`), and it has the watermark. Everything here is a pure function of offsets and progress
rows, so a micro-batch that Spark repeats has the same rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

NEVER: Final = -(1 << 62)  # microseconds: before every event
LAST_US: Final = 253_402_300_799_999_999  # the end of the year 9999: the last time that Python can represent


def complete(time_us: int, disorder_us: int) -> int:
    """The time up to which all events have come, when the latest one has the time `time_us`."""
    return NEVER if time_us == NEVER else time_us - disorder_us - 1


def drained(latest_us: int, open_us: Iterable[tuple[int, int]]) -> int:
    """The time at which everything is closed that events up to `latest_us` have opened.

    `open_us` has, for each rule with a duration, the duration and the step: the rule opens at multiples of the step.
    """
    if latest_us == NEVER:
        return NEVER
    ends = (latest_us // step * step + length - 1 for length, step in open_us)
    return min(max([latest_us, *ends]), LAST_US)


class LaneProgress(NamedTuple):
    """A progress row: how far a lane was when a transaction made its results visible."""

    lane: int
    log: int  # of the row and of its results: one transaction of one broker wrote both
    offset: int
    rows: int  # results in the lane's topic
    position: int  # events that the lane has finished
    time_us: int  # of the latest event in this epoch; NEVER: there was none

    @classmethod
    def of(cls, log: int, offset: int, row: Any) -> LaneProgress:
        """Parse a row of the progress topic."""
        time_us = NEVER if row.time is None else round(row.time.timestamp() * 1_000_000)
        rows = 0 if getattr(row, "elsewhere", None) else row.rows  # missing in rows of older versions
        return cls(row.lane, log, offset, rows, row.position, time_us)


class LaneReach(NamedTuple):
    """How far one lane is after some of its progress rows."""

    progress: dict[int, int]  # by log: the offset after the last row that counts
    rows: dict[int, int]  # by log: the offset after its results
    position: int = 0
    time_us: int = NEVER  # of the latest event

    def after(self, progress: LaneProgress) -> LaneReach:
        """The reach after one more row."""
        return LaneReach(
            {**self.progress, progress.log: progress.offset + 1},
            {**self.rows, progress.log: self.rows.get(progress.log, 0) + progress.rows},
            max(self.position, progress.position),
            max(self.time_us, progress.time_us),
        )

    def json(self) -> dict[str, Any]:
        """The form in Spark's checkpoints, where progress has always been called `marks`."""
        return {
            "marks": {str(log): offset for log, offset in self.progress.items()},
            "rows": {str(log): offset for log, offset in self.rows.items()},
            "position": self.position,
            "time": self.time_us,
        }

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> LaneReach:
        """Parse the form of a checkpoint."""
        return cls(
            {int(log): int(offset) for log, offset in told["marks"].items()},
            {int(log): int(offset) for log, offset in told["rows"].items()},
            int(told["position"]),
            int(told["time"]),
        )


NOWHERE: Final = LaneReach({}, {})


def beginning(progress: Sequence[LaneProgress], logs: Mapping[int, tuple[int, int]]) -> LaneReach:
    """Where a combiner begins that has never read a lane: at the first progress row whose results are all there.

    Old progress rows and old results are removed by different rules, so only their ends correspond. `logs` has, for
    each log of the lane's results, the first offset that exists and the offset after the last one.
    """
    found = NOWHERE
    for log in sorted({each.log for each in progress} | set(logs)):
        start, stop = logs.get(log, (0, 0))
        place, position = None, 0
        for told in sorted((each for each in progress if each.log == log), key=lambda each: -each.offset):
            if stop - told.rows < start:
                position = told.position
                place = told.offset + 1 if place is None else place
                break
            stop, place = stop - told.rows, told.offset
        found = LaneReach(
            {**found.progress, log: place or 0}, {**found.rows, log: stop}, max(found.position, position), NEVER
        )
    return found


class LaneFold:
    """One lane: the reach up to which everything is merged, and the reach after each later progress row."""

    def __init__(self, low: LaneReach = NOWHERE) -> None:
        self.low = low
        self.later: deque[LaneReach] = deque()

    @property
    def end(self) -> LaneReach:
        """The reach after the last progress row."""
        return self.later[-1] if self.later else self.low

    def take(self, progress: LaneProgress) -> None:
        """Add a progress row. A row that counts already is ignored."""
        if progress.offset >= self.end.progress.get(progress.log, 0):
            self.later.append(self.end.after(progress))

    def before(self, time_us: int) -> LaneReach:
        """The last reach whose events are all at or before a time."""
        found = self.low
        for reach in self.later:
            if reach.time_us > time_us:
                break
            found = reach
        return found

    def settle(self, low: LaneReach) -> None:
        """Remove the reaches up to one that is merged."""
        while self.later and self.later[0].position <= low.position and _within(self.later[0].progress, low.progress):
            self.later.popleft()
        self.low = low


def _within(progress: Mapping[int, int], others: Mapping[int, int]) -> bool:
    return all(offset <= others.get(log, 0) for log, offset in progress.items())


class HeldResults:
    """The results of one lane that cannot be combined yet, however fast the combiner is: an event within `disorder` of
    the latest one may still come before them.
    """

    def __init__(self, disorder_us: int) -> None:
        self._disorder_us = disorder_us
        self._fold = LaneFold()

    def take(self, progress: LaneProgress) -> None:
        """Add a progress row."""
        fold = self._fold
        fold.take(progress)
        fold.settle(fold.before(complete(fold.end.time_us, self._disorder_us)))

    @property
    def held(self) -> int:
        """The number of results after the last reach that can be merged."""
        return sum(self._fold.end.rows.values()) - sum(self._fold.low.rows.values())


def watermark(folds: Sequence[LaneFold], assigned: Sequence[int], silent: bool, disorder_us: int) -> int | None:
    """The time up to which the results of a pipeline's lanes are complete; None when it is silent and has no events.

    `assigned` has, for each lane, the position after its last assigned event. `silent`: nothing was assigned for so
    long that the combiner does not wait for events out of order.

    A lane that has finished all its events does not hold the others back, since its next events come after all events
    assigned so far. When all lanes are finished and silent, the stream is complete.
    """
    latest = max((fold.end.time_us for fold in folds), default=NEVER)
    busy = [fold.end.time_us for fold, stop in zip(folds, assigned, strict=True) if fold.end.position < stop]
    if not busy and silent:
        return None if latest == NEVER else latest
    return complete(min(busy, default=latest), disorder_us)


def least(found: Iterable[tuple[int | None, bool]]) -> int:
    """The least watermark of several pipelines. A silent pipeline counts only when all are silent."""
    told = list(found)
    active = [time for time, silent in told if not silent and time is not None]
    if active:
        return min(active)
    return max((time for time, _ in told if time is not None), default=NEVER)
