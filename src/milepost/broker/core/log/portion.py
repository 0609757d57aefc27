"""Rows of a durable subscription, from the read of the log, or their commit, to their delivery."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from milepost.batch import Batch
from milepost.broker.core.log.reach import Chosen, Offsets

HAND_BYTES: Final = 1 << 20  # of one frame: a client works on one piece of a large log while the next one comes


@dataclass(slots=True, eq=False)
class Portion:
    """The rows of one log, from offset `start` to before `next`, that match; they have one schema."""

    log: int
    start: int
    next: int
    batch: Any  # a `Batch`; None: no row matches
    offsets: Offsets  # of the batch's rows
    after: tuple[int, int] | None = None  # a log, and the offset that must be reached there first
    chosen: Chosen | None = None  # the places of the rows in the reach; None for a replay
    given: int = 0  # rows of the batch that were handed out, the first ones


def cut(portion: Portion, rows: npt.NDArray[np.intp]) -> Portion:
    """A portion of only these rows."""
    if len(rows) == len(portion.offsets):
        return portion
    chosen = None
    if portion.chosen is not None:
        chosen = Chosen(portion.chosen.lot, portion.chosen.places[rows])
    batch, offsets = portion.batch.take(rows), portion.offsets[rows]
    return Portion(portion.log, portion.start, portion.next, batch, offsets, chosen=chosen)


def rows_of(batch: Batch, size: int = HAND_BYTES) -> int:
    """How many rows of a batch make a frame of `size` bytes."""
    return max(1, len(batch) * size // max(1, len(batch.data)))
