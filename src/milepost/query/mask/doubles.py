"""Doubles: IEEE 754 as NumPy has it, with NaN taken for null."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from milepost.query.mask.reading import numbers
from milepost.query.mask.vector import Bools, Vector, both

_OPERATIONS: Final[dict[str, Any]] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "%": np.fmod,
}  # fmt: skip


def calculated(sign: str, left: Any, right: Any, known: Bools | None) -> Vector:
    """An arithmetic operation on doubles; not known where it comes to NaN or divides by zero."""
    with np.errstate(all="ignore"):
        values = _OPERATIONS[sign](left, right)
    known = both(known, numbers(values))
    if sign == "/":
        zero = np.equal(right, 0)
        if np.any(zero):
            known = both(known, np.broadcast_to(~zero, values.shape))
    return Vector(values, known)
