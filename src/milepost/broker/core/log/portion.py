"""Rows of a durable subscription that were read, on their way to a client."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from milepost.batch import Batch
from milepost.broker.core.log.reach import Chosen, Offsets

HAND_BYTES: Final = 1 << 20  # of one frame: a client that gets a large log works on a piece while the next comes


class Portion(NamedTuple):
    """Rows that were read and match, all of one log and one schema."""

    log: int
    batch: Batch
    offsets: Offsets
    chosen: Chosen | None  # their places in the reach; None: a replay has none
    start: int = 0  # rows before it were handed out


def cut(portion: Portion, rows: npt.NDArray[np.intp]) -> Portion:
    """Some of its rows."""
    if len(rows) == len(portion.offsets):
        return portion
    chosen = None
    if portion.chosen is not None:
        chosen = Chosen(portion.chosen.lot, portion.chosen.places[rows])
    return Portion(portion.log, portion.batch.take(rows), portion.offsets[rows], chosen)


def rows_of(batch: Batch, size: int = HAND_BYTES) -> int:
    """How many rows of a batch make a frame of so many bytes."""
    return max(1, len(batch) * size // max(1, len(batch.data)))
