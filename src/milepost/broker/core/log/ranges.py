"""Ranges of offsets, by which acknowledgements name rows: [first, last] for each run of consecutive offsets."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from milepost import limits
from milepost.errors import AckMismatch
from milepost.wire import Unsubscribe

Seen: TypeAlias = dict[int, npt.NDArray[np.uint64]]  # log -> pairs


def pairs_of(given: list[list[int]], what: str, *, anyhow: bool = False) -> npt.NDArray[np.uint64]:
    """Ranges as an array. Raises `AckMismatch` if they overlap or, unless `anyhow`, are not ascending."""
    try:
        pairs = np.array(given, np.int64).reshape(len(given), 2)
        if anyhow:
            pairs = pairs[np.argsort(pairs[:, 0])]
        right = bool(len(pairs)) and bool(
            (pairs[:, 0] <= pairs[:, 1]).all() and pairs[0, 0] >= 0 and (pairs[1:, 0] > pairs[:-1, 1]).all()
        )
    except (ValueError, TypeError, OverflowError):
        right = False
    if not right:
        raise AckMismatch(f"{what} ranges of offsets that are none: [first, last], ascending, and none over another")
    return pairs.astype(np.uint64)


def require_apart(*named: dict[int, list[list[int]]]) -> None:
    """Raise if a row is named twice: each is done, to be redelivered, or handed on."""
    for log in {log for ranges in named for log in ranges}:
        given = [ranges[log] for ranges in named if log in ranges]
        if len(given) > 1:
            pairs_of([pair for pairs in given for pair in pairs], "acknowledged and sent back were", anyhow=True)


def seen_of(request: Unsubscribe) -> Seen | None:
    """The rows that the application has seen, according to its client; None: the request does not say."""
    if request.seen is None:
        return None
    limits.require("ACK_RANGES", sum(map(len, request.seen.values())), "the ranges of one request")
    return {log: pairs_of(pairs, "seen were") for log, pairs in request.seen.items()}
