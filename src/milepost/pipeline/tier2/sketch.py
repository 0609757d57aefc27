"""Quantiles from counts: a DDSketch (Masson, Rim, Lee 2019) for many groups at once.

A positive value x falls into bucket i = ceil(log(x) / log(g)), g = (1 + a) / (1 - a), which covers (g^(i-1), g^i]. Its
middle, 2 g^i / (g + 1), is within a = 1 % of every value in it. Zero has its own bucket, and negative values mirror
positive ones, so bucket numbers sort as values do::

    -INFINITE … -(i + SHIFT) …  0  … i + SHIFT … INFINITE

Sketches are merged by adding counts, which gives exactly the sketch of all values, independent of the order. Buckets
are never collapsed. Values between 1e-9 and 1e9 of one sign use at most 2,073 buckets, all doubles 145,000.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from milepost.pipeline.tier2.columns import Ints

ACCURACY: Final = 0.01  # relative
_GAMMA: Final = (1 + ACCURACY) / (1 - ACCURACY)
_LOG_GAMMA: Final = math.log(_GAMMA)
_MIDDLE: Final = math.log(2 / (_GAMMA + 1))
SHIFT: Final = 40_000  # the smallest double, 5e-324, is in bucket -37,220, so numbers of positive values stay positive
INFINITE: Final = 100_000  # beyond the largest double, which is 35,488 + SHIFT
SPAN: Final = 2 * INFINITE + 1  # count of possible bucket numbers

Doubles = npt.NDArray[np.float64]


def bucket(values: npt.NDArray[Any]) -> Ints:
    """The bucket of each value. NaN is not allowed."""
    doubles = np.ascontiguousarray(values, np.float64)
    size = np.abs(doubles)
    with np.errstate(divide="ignore"):  # logarithm of zero; replaced below
        index = np.ceil(np.log(size) / _LOG_GAMMA)
    index = np.where(np.isfinite(index), index + SHIFT, INFINITE)
    return np.where(doubles == 0, 0, np.copysign(index, doubles)).astype(np.int64)


def estimate(buckets: Ints) -> Doubles:
    """The value that represents each bucket."""
    exponent = (np.abs(buckets) - SHIFT) * _LOG_GAMMA + _MIDDLE
    with np.errstate(over="ignore", under="ignore"):
        size = np.exp(exponent)
    size = np.clip(size, 5e-324, np.finfo(np.float64).max)  # the outermost buckets extend beyond the doubles
    size = np.where(np.abs(buckets) == INFINITE, np.inf, size)
    return np.where(buckets == 0, 0.0, np.copysign(size, buckets))


def merge(groups: Ints, buckets: Ints, counts: Ints) -> tuple[Ints, Ints, Ints]:
    """Counts summed by group and bucket, sorted by group and then by bucket."""
    codes = groups * SPAN + (buckets + INFINITE)
    order = np.argsort(codes)
    codes = codes[order]
    starts = np.flatnonzero(np.r_[True, codes[1:] != codes[:-1]][: len(codes)])
    if not len(starts):
        return groups[:0], buckets[:0], counts[:0]
    codes = codes[starts]
    return codes // SPAN, codes % SPAN - INFINITE, np.add.reduceat(counts[order], starts)


def quantiles(lengths: Ints, buckets: Ints, counts: Ints, quantile: float) -> Doubles:
    """The quantile of each sketch; NaN for an empty one.

    Sketches lie one after the other; `lengths` has the number of buckets of each, and buckets ascend. The quantile q of
    n sorted values is the value at position floor(q * (n - 1)).
    """
    ends = np.cumsum(lengths)
    total = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    before, after = total[ends - lengths], total[ends]
    rank = np.floor(quantile * np.maximum(after - before - 1, 0)).astype(np.int64)
    place = np.searchsorted(total[1:], before + rank, side="right")
    found = np.full(len(lengths), np.nan)
    filled = after > before
    found[filled] = estimate(buckets[place[filled]])
    return found
