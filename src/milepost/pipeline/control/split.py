"""Splits whole events by weights."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from milepost.errors import ConfigError


def without(weights: Sequence[float], lanes: Collection[int]) -> list[float]:
    """Weights with 0 for some lanes, scaled to a sum of 1 again. Unchanged when no lane would be left."""
    kept = [0.0 if lane in lanes else weight for lane, weight in enumerate(weights)]
    total = sum(kept)
    return [weight / total for weight in kept] if total > 0 else list(weights)


def split(n: int, weights: Sequence[float], carry: Sequence[float] | None = None) -> tuple[list[int], list[float]]:
    """Split `n` events over lanes by `weights`. Returns the counts, and the carry for the next call.

    Each lane is owed n·weight plus its carry. It gets the whole part, and the remaining events go one each to the lanes
    with the largest remainders. The counts sum to n exactly. The carry of a lane stays within one event either way (for
    constant weights; while they change, within the number of lanes), so the shares are exact over any number of calls.
    Rounding each call alone would not give that: with 20 events a call, a lane with a weight of 0.01 would never get
    one.
    """
    if n < 0:
        raise ConfigError(f"the number of events to split is at least 0, not {n}")
    shares = np.asarray(weights, dtype=np.float64)
    total = float(shares.sum())
    if shares.ndim != 1 or len(shares) == 0 or not np.isfinite(total) or total <= 0 or float(shares.min()) < 0:
        raise ConfigError("weights are one number for each lane, none negative, and not all 0")
    carried: NDArray[np.float64] = np.zeros(len(shares)) if carry is None else np.asarray(carry, dtype=np.float64)
    some = shares > 0
    if not some.all():  # a lane with weight 0 gets nothing: neither a remaining event nor one that is still owed
        counts, rest = np.zeros(len(shares), np.int64), np.zeros(len(shares))
        counts[some], rest[some] = split(n, shares[some].tolist(), carried[some].tolist())
        return [int(count) for count in counts], [float(value) for value in rest]
    owed = n * (shares / total) + carried
    counts = np.maximum(np.floor(owed), 0)
    left = n - int(counts.sum())
    if left > 0:
        counts[np.argsort(-(owed - counts), kind="stable")[:left]] += 1
    while left < 0:  # a lane that is ahead (negative carry) got 0 instead of less, so others wait for their events
        took = np.flatnonzero(counts > 0)
        behind = took[np.argmin((owed - counts)[took])]
        counts[behind] -= 1
        left += 1
    rest = owed - counts
    return [int(count) for count in counts], [float(value) for value in rest - rest.mean()]
