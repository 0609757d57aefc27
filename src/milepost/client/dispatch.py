"""Which rows of a delivery are for which subscription."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from milepost.errors import ProtocolError
from milepost.wire import Tags

Rows = npt.NDArray[Any] | None
"""Rows of a batch, ascending; None stands for all of them."""


def shares(tags: tuple[int, ...] | Tags, rows: int) -> list[tuple[int, Rows]]:
    """The subscriptions that a delivery of `rows` rows is for, each with its rows."""
    if not isinstance(tags, Tags):
        return [(number, None) for number in dict.fromkeys(tags)]
    if len(tags.offsets) != rows + 1:
        raise ProtocolError(f"a delivery has tags for {len(tags.offsets) - 1} rows, and {rows} rows")
    owners = np.repeat(np.arange(rows), np.diff(tags.offsets).astype(np.intp))
    order = np.argsort(tags.subscriptions, kind="stable")  # stable: rows stay ascending
    numbers, owners = tags.subscriptions[order], owners[order]
    cuts = np.flatnonzero(np.diff(numbers)) + 1
    found: list[tuple[int, Rows]] = []
    for start, end in zip([0, *cuts.tolist()], [*cuts.tolist(), len(numbers)], strict=True):
        if start < end:
            mine = owners[start:end]
            if len(mine) > 1 and bool((mine[1:] == mine[:-1]).any()):
                mine = np.unique(mine)  # a tag given twice to one row is one message
            found.append((int(numbers[start]), None if len(mine) == rows else mine))
    return found
