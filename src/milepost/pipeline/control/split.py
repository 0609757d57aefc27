"""Weights into whole events."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from milepost.errors import ConfigError


def without(weights: Sequence[float], lanes: Collection[int]) -> list[float]:
    """Weights with nothing for some lanes; they sum to 1 again. As they are, when that leaves nothing."""
    kept = [0.0 if lane in lanes else weight for lane, weight in enumerate(weights)]
    total = sum(kept)
    return [weight / total for weight in kept] if total > 0 else list(weights)


def split(n: int, weights: Sequence[float], carry: Sequence[float] | None = None) -> tuple[list[int], list[float]]:
    """`n` events over lanes by `weights`, and what is to be carried to the next call.

    Each lane is owed n·weight and what was carried; it gets the whole part, and the events that are then left go one
    each to the lanes with the largest remainders. The counts sum to n exactly. The carry of a lane stays within one
    event either way (for constant weights; while they change, within the number of lanes), so that over any number of
    calls the shares are exact, which rounding each call alone would not give: a lane with a weight of 0.01 and 20
    events a call would never get one.
    """
    if n < 0:
        raise ConfigError(f"there are no {n} events to split")
    shares = np.asarray(weights, dtype=np.float64)
    total = float(shares.sum())
    if shares.ndim != 1 or len(shares) == 0 or not np.isfinite(total) or total <= 0 or float(shares.min()) < 0:
        raise ConfigError("weights are one number for each lane, none negative, and not all 0")
    carried: NDArray[np.float64] = np.zeros(len(shares)) if carry is None else np.asarray(carry, dtype=np.float64)
    some = shares > 0
    if not some.all():  # a share of nothing is nothing: not the one event that is left over, nor one that is still owed
        counts, rest = np.zeros(len(shares), np.int64), np.zeros(len(shares))
        counts[some], rest[some] = split(n, shares[some].tolist(), carried[some].tolist())
        return [int(count) for count in counts], [float(value) for value in rest]
    owed = n * (shares / total) + carried
    counts = np.maximum(np.floor(owed), 0)
    left = n - int(counts.sum())
    if left > 0:
        counts[np.argsort(-(owed - counts), kind="stable")[:left]] += 1
    while left < 0:  # a lane that is ahead (a negative carry) got 0 instead of less: others wait for theirs
        took = np.flatnonzero(counts > 0)
        behind = took[np.argmin((owed - counts)[took])]
        counts[behind] -= 1
        left += 1
    rest = owed - counts
    return [int(count) for count in counts], [float(value) for value in rest - rest.mean()]
