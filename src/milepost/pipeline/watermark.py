"""How far the lanes' results can be put into one order: the fold over marks, and the least watermark.

A lane's results are in the order of its input, which is that of time but for `disorder`: no event comes more than
that much after a later one. So when a lane has gone through events up to time t, whatever it makes later is not before
t - disorder; and what all lanes have left behind in this sense can be merged, and is complete.

An *offset* of the combined stream says, for each lane, which marks were taken into account (`end`), up to which of
them everything is merged (`low`), and the watermark. Everything here is a pure function of offsets and marks, so a
micro-batch that Spark runs again has the same rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

NEVER: Final = -(1 << 62)  # microseconds: before every event
LAST_US: Final = 253_402_300_799_999_999  # the end of the year 9999: the last time that Python can tell


def complete(time_us: int, disorder_us: int) -> int:
    """The time up to which everything has come, when the latest event is of `time_us`: the last moment before those
    that may still come.
    """
    return NEVER if time_us == NEVER else time_us - disorder_us - 1


def drained(latest_us: int, open_us: Iterable[tuple[int, int]]) -> int:
    """The time at which nothing is open any more of what events up to `latest_us` have opened.

    `open_us`: of each rule that is open for a time, how long that is, and where it may begin: at multiples of what.
    """
    if latest_us == NEVER:
        return NEVER
    ends = (latest_us // step * step + length - 1 for length, step in open_us)
    return min(max([latest_us, *ends]), LAST_US)


class LaneProgress(NamedTuple):
    """How far a lane is, as the transaction said that made its results visible."""

    lane: int
    log: int  # where the mark is, and the results with it: both were written by one transaction of one broker
    offset: int
    rows: int  # results in the lane's topic
    position: int  # of the lane: events it has finished
    time_us: int  # the latest event it has seen in this epoch; NEVER: none

    @classmethod
    def of(cls, log: int, offset: int, row: Any) -> LaneProgress:
        """Out of a row of the topic of marks."""
        time_us = NEVER if row.time is None else round(row.time.timestamp() * 1_000_000)
        rows = 0 if getattr(row, "elsewhere", None) else row.rows  # which marks of older versions do not say
        return cls(row.lane, log, offset, rows, row.position, time_us)


class LaneReach(NamedTuple):
    """How far one lane is after some of its marks."""

    progress: dict[int, int]  # by log: the offset behind the last mark that counts
    rows: dict[int, int]  # by log: the offset behind its results
    position: int = 0
    time_us: int = NEVER  # of the latest event

    def after(self, progress: LaneProgress) -> LaneReach:
        """One mark later."""
        return LaneReach(
            {**self.progress, progress.log: progress.offset + 1},
            {**self.rows, progress.log: self.rows.get(progress.log, 0) + progress.rows},
            max(self.position, progress.position),
            max(self.time_us, progress.time_us),
        )

    def json(self) -> dict[str, Any]:
        """As Spark keeps it in its checkpoint, where progress has always been called `marks`."""
        return {
            "marks": {str(log): offset for log, offset in self.progress.items()},
            "rows": {str(log): offset for log, offset in self.rows.items()},
            "position": self.position,
            "time": self.time_us,
        }

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> LaneReach:
        """Back from JSON."""
        return cls(
            {int(log): int(offset) for log, offset in told["marks"].items()},
            {int(log): int(offset) for log, offset in told["rows"].items()},
            int(told["position"]),
            int(told["time"]),
        )


NOWHERE: Final = LaneReach({}, {})


def beginning(progress: Sequence[LaneProgress], logs: Mapping[int, tuple[int, int]]) -> LaneReach:
    """Where a combiner begins that has never read a lane: at the first of its marks of which all results are there.

    Old marks are removed, and so are old results, each by a rule of its own; only their ends belong together. `logs`:
    the first offset that is there and the one behind the last, of each log of the lane's results.
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
    """One lane: where everything is merged, and the marks since, each with how far the lane was then."""

    def __init__(self, low: LaneReach = NOWHERE) -> None:
        self.low = low
        self.later: deque[LaneReach] = deque()

    @property
    def end(self) -> LaneReach:
        """After the last mark."""
        return self.later[-1] if self.later else self.low

    def take(self, progress: LaneProgress) -> None:
        """One more mark; one that counts already is passed over."""
        if progress.offset >= self.end.progress.get(progress.log, 0):
            self.later.append(self.end.after(progress))

    def before(self, time_us: int) -> LaneReach:
        """The last reach of which every event is at or before a time."""
        found = self.low
        for reach in self.later:
            if reach.time_us > time_us:
                break
            found = reach
        return found

    def settle(self, low: LaneReach) -> None:
        """Marks up to a reach are merged, and forgotten."""
        while self.later and self.later[0].position <= low.position and _within(self.later[0].progress, low.progress):
            self.later.popleft()
        self.low = low


def _within(progress: Mapping[int, int], others: Mapping[int, int]) -> bool:
    return all(offset <= others.get(log, 0) for log, offset in progress.items())


class HeldResults:
    """How many results of one lane have to wait for the order, however fast they are combined: those within `disorder`
    of the latest event, as one that comes before them may still be made.
    """

    def __init__(self, disorder_us: int) -> None:
        self._disorder_us = disorder_us
        self._fold = LaneFold()

    def take(self, progress: LaneProgress) -> None:
        """One more mark."""
        fold = self._fold
        fold.take(progress)
        fold.settle(fold.before(complete(fold.end.time_us, self._disorder_us)))

    @property
    def held(self) -> int:
        """Results behind the last reach that can be merged."""
        return sum(self._fold.end.rows.values()) - sum(self._fold.low.rows.values())


class Quiet(NamedTuple):
    """What is known of a pipeline whose lanes are read, beside its marks."""

    assigned: Sequence[int]  # for each lane: the position behind what it was given
    silent: bool  # nothing was assigned for so long that nothing that is late in order is waited for


def watermark(folds: Sequence[LaneFold], quiet: Quiet, disorder_us: int) -> int | None:
    """The time up to which the results of one pipeline's lanes are complete; None: it says nothing (silent, empty).

    A lane that has finished whatever it was given does not hold the others back: what it will be given comes after all
    that was given to anybody. All lanes finished and silent: what the stream has is all there is.
    """
    latest = max((fold.end.time_us for fold in folds), default=NEVER)
    busy = [
        fold.end.time_us for fold, assigned in zip(folds, quiet.assigned, strict=True) if fold.end.position < assigned
    ]
    if not busy and quiet.silent:
        return None if latest == NEVER else latest
    return complete(min(busy, default=latest), disorder_us)


def least(found: Iterable[tuple[int | None, bool]]) -> int:
    """Of several pipelines: the least watermark. One that is silent counts only when all others are as well."""
    told = list(found)
    active = [time for time, silent in told if not silent and time is not None]
    if active:
        return min(active)
    return max((time for time, _ in told if time is not None), default=NEVER)
