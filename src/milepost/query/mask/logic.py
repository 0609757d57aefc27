"""Logic of three values, on vectors."""

from __future__ import annotations

import numpy as np

from milepost.query.kinds import BOOLEAN
from milepost.query.mask.vector import Bools, Vector, both, spread


def conjunction(vectors: list[Vector | None], n: int) -> Vector | None:
    """`and` in three-valued logic: known where one is false, or where all are known."""
    return _joined(vectors, n, decisive=False)


def disjunction(vectors: list[Vector | None], n: int) -> Vector | None:
    """`or` in three-valued logic: known where one is true, or where all are known."""
    return _joined(vectors, n, decisive=True)


def _joined(vectors: list[Vector | None], n: int, decisive: bool) -> Vector | None:
    there = [vector for vector in vectors if vector is not None]
    if not there:
        return None
    decided: Bools | None = None  # where one vector has the decisive value
    known: Bools | None = None if len(there) == len(vectors) else np.zeros(n, np.bool_)  # where all are known
    for vector in there:
        values: Bools = spread(vector, n, BOOLEAN)
        values = values if decisive else ~values
        values = values if vector.known is None else values & vector.known
        decided = values if decided is None else decided | values
        known = both(known, vector.known)
    assert decided is not None
    return Vector(decided if decisive else ~decided, None if known is None else known | decided)
