"""The combiner's merge: the rows of a micro-batch of the combined stream, and their order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from milepost.pipeline.watermark import LaneFold, LaneReach, complete

BATCH_ROWS: Final = 500_000  # most results of one micro-batch, which one task sorts at once: about 100 MB


class MergePoint(NamedTuple):
    """Where a micro-batch of the combined stream begins or ends."""

    time_us: int  # everything at or before it is merged
    lows: tuple[LaneReach, ...]  # by lane: up to here everything is merged
    ends: tuple[LaneReach, ...]  # by lane: up to here results were read


def next_point(
    folds: Sequence[LaneFold], before: MergePoint, time_us: int, disorder_us: int, most: int = BATCH_ROWS
) -> MergePoint:
    """The end of the next micro-batch: as far as `time_us`, the watermark, and `most` rows allow.

    A lane's results after a reach are not before the reach's time minus the disorder. So for a time before this, for
    the reach of every lane, no results after these reaches are needed. Of the times that the reaches give, the latest
    one within the bound is taken; when none is within it, the earliest one that advances the time. When the watermark
    does not advance, new results are still read, as many as allowed, because they may be late.
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
    """The first reach with events up to a time; the last reach when there is none."""
    return next((reach for reach in fold.later if reach.time_us >= time_us), fold.end)


def _first_beyond(fold: LaneFold, end: LaneReach, rows: int) -> LaneReach:
    """The first reach with at least so many rows after an earlier one; the last reach when there is none."""
    return next((reach for reach in fold.later if rows_between([end], [reach]) >= rows), fold.end)


def _behind(low: LaneReach, end: LaneReach) -> bool:
    return sum(low.progress.values()) <= sum(end.progress.values())


def _further(one: LaneReach, other: LaneReach) -> LaneReach:
    return other if _behind(one, other) else one


def rows_between(lows: Sequence[LaneReach], ends: Sequence[LaneReach]) -> int:
    """The number of results that a micro-batch reads."""
    return sum(sum(end.rows.values()) - sum(low.rows.values()) for low, end in zip(lows, ends, strict=True))


def wanted(
    times: npt.NDArray[np.int64], seen: npt.NDArray[np.bool_], after_us: int, until_us: int
) -> npt.NDArray[np.bool_]:
    """Which rows a micro-batch emits: the rows of its time, and the late ones. `seen` is as in `merged`."""
    found: npt.NDArray[np.bool_] = (times <= until_us) & ((times > after_us) | ~seen)
    return found


class Merged(NamedTuple):
    """The rows to emit, as indexes into all rows that were read, in the order of time. Late rows come first."""

    rows: npt.NDArray[np.intp]
    late: int  # number of late rows


def merged(times: npt.NDArray[np.int64], seen: npt.NDArray[np.bool_], after_us: int, until_us: int) -> Merged:
    """Choose and order rows. `times` has the times of all rows that were read, lane after lane, each in its own order.

    `seen` says whether the previous micro-batch read a row as well. Such a row is not late when it is before
    `after_us`. The sort is stable and fast on runs that are nearly in order (NumPy's is a merge sort of such runs).
    """
    chosen = np.flatnonzero((times > after_us) & (times <= until_us))
    chosen = chosen[np.argsort(times[chosen], kind="stable")]
    late = np.flatnonzero((times <= after_us) & ~seen)
    return Merged(np.concatenate([late, chosen]), len(late))
