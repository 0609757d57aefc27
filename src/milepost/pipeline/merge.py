"""The combiner's merge: what a micro-batch of the combined stream has, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from milepost.pipeline.watermark import LaneFold, LaneReach, complete

BATCH_ROWS: Final = 500_000  # most results of one micro-batch: what one task sorts at once, some 100 MB


class MergePoint(NamedTuple):
    """Where a micro-batch of the combined stream begins or ends."""

    time_us: int  # everything at or before it is merged
    lows: tuple[LaneReach, ...]  # by lane: up to here everything is merged
    ends: tuple[LaneReach, ...]  # … and up to here it was looked at


def next_point(
    folds: Sequence[LaneFold], before: MergePoint, time_us: int, disorder_us: int, most: int = BATCH_ROWS
) -> MergePoint:
    """The end of the next micro-batch: as far as `time_us`, the watermark, and as `most` rows allow.

    A lane's results behind a reach are not before its time less the disorder; so for a time that is before that, for
    the reach of every lane, nothing behind these reaches is needed. Of the times that reaches give, the latest within
    the bound is taken; when none is, the earliest that brings the time on. Where time does not go on, what came since
    is looked at all the same, as many rows as are allowed: it may be too late.
    """
    ends = tuple(fold.end for fold in folds)
    if time_us <= before.time_us:
        share = max(1, most // len(folds))
        ends = tuple(_first_beyond(fold, end, share) for fold, end in zip(folds, before.ends, strict=True))
    elif rows_between(before.lows, ends) > most:
        times = {reach.time_us for fold in folds for reach in fold.later}
        for latest in sorted(times, reverse=True):
            if before.time_us < complete(latest, disorder_us) < time_us:
                time_us = complete(latest, disorder_us)
                ends = tuple(_first_at(fold, latest) for fold in folds)
                if rows_between(before.lows, ends) <= most:
                    break
    ends = tuple(_further(end, old) for end, old in zip(ends, before.ends, strict=True))
    time_us = max(time_us, before.time_us)
    lows = tuple(
        _further(low if _behind(low, end) else end, old)
        for low, end, old in zip((fold.before(time_us) for fold in folds), ends, before.lows, strict=True)
    )
    return MergePoint(time_us, lows, ends)


def _first_at(fold: LaneFold, time_us: int) -> LaneReach:
    """The first reach with events up to a time; the last when there is none."""
    return next((reach for reach in fold.later if reach.time_us >= time_us), fold.end)


def _first_beyond(fold: LaneFold, end: LaneReach, rows: int) -> LaneReach:
    """The first reach with so many rows behind an earlier one; the last when there is none."""
    return next((reach for reach in fold.later if rows_between([end], [reach]) >= rows), fold.end)


def _behind(low: LaneReach, end: LaneReach) -> bool:
    return sum(low.progress.values()) <= sum(end.progress.values())


def _further(one: LaneReach, other: LaneReach) -> LaneReach:
    return other if _behind(one, other) else one


def rows_between(lows: Sequence[LaneReach], ends: Sequence[LaneReach]) -> int:
    """How many results a micro-batch reads."""
    return sum(sum(end.rows.values()) - sum(low.rows.values()) for low, end in zip(lows, ends, strict=True))


def wanted(
    times: npt.NDArray[np.int64], seen: npt.NDArray[np.bool_], after_us: int, until_us: int
) -> npt.NDArray[np.bool_]:
    """Which rows a micro-batch hands on: those of its time, and those that are too late. `seen`: as in `merged`."""
    found: npt.NDArray[np.bool_] = (times <= until_us) & ((times > after_us) | ~seen)
    return found


class Merged(NamedTuple):
    """Rows to hand on, as indexes into all that were read, in the order of time; the late ones first."""

    rows: npt.NDArray[np.intp]
    late: int  # of them, at the beginning


def merged(times: npt.NDArray[np.int64], seen: npt.NDArray[np.bool_], after_us: int, until_us: int) -> Merged:
    """Choose and order. `times` of all rows that were read, lane after lane, each in its own order; `seen`: whether
    the micro-batch before this one looked at a row too, so that it is no late one when it is before `after_us`.

    The sort is stable and made for runs that are nearly in order (NumPy's is a merge sort of such runs).
    """
    chosen = np.flatnonzero((times > after_us) & (times <= until_us))
    chosen = chosen[np.argsort(times[chosen], kind="stable")]
    late = np.flatnonzero((times <= after_us) & ~seen)
    return Merged(np.concatenate([late, chosen]), len(late))
