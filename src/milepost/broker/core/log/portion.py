"""Rows of a durable subscription that were read and are not yet delivered."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from milepost.batch import Batch
from milepost.broker.core.log.reach import Chosen, Offsets

HAND_BYTES: Final = 1 << 20  # of one frame: a client works on one piece of a large log while the next one comes


class Portion(NamedTuple):
    """Rows that were read and match, from one log and of one schema."""

    log: int
    batch: Batch
    offsets: Offsets
    chosen: Chosen | None  # their places in the reach; None for a replay
    start: int = 0  # rows before it were handed out


def cut(portion: Portion, rows: npt.NDArray[np.intp]) -> Portion:
    """A portion of only these rows."""
    if len(rows) == len(portion.offsets):
        return portion
    chosen = None
    if portion.chosen is not None:
        chosen = Chosen(portion.chosen.lot, portion.chosen.places[rows])
    return Portion(portion.log, portion.batch.take(rows), portion.offsets[rows], chosen)


def rows_of(batch: Batch, size: int = HAND_BYTES) -> int:
    """How many rows of a batch make a frame of `size` bytes."""
    return max(1, len(batch) * size // max(1, len(batch.data)))
