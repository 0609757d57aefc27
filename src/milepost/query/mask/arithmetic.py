"""Arithmetic of vectors: doubles here, exact numbers in `exact`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from milepost.query.kinds import DOUBLE, Scalar
from milepost.query.mask import exact
from milepost.query.mask.paths import numbers
from milepost.query.mask.vector import Vector, both

_DOUBLES: Final[dict[str, Any]] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "%": np.fmod,
}  # fmt: skip


def calculation(sign: str, left: Scalar, right: Scalar, result: Scalar) -> Callable[[Vector, Vector], Vector]:
    """An arithmetic operation on two columns, or on one and a constant."""
    if result == DOUBLE:
        left_double, right_double = doubling(left), doubling(right)
        return lambda a, b: _of_doubles(
            sign, Vector(left_double(a.values), a.known), Vector(right_double(b.values), b.known)
        )
    scales = (left.scale, right.scale)
    return lambda a, b: exact.calculated(sign, a, b, scales, result)


def _of_doubles(sign: str, left: Vector, right: Vector) -> Vector:
    with np.errstate(all="ignore"):
        values = _DOUBLES[sign](left.values, right.values)
    known = both(both(left.known, right.known), numbers(values))
    if sign == "/":
        zero = np.equal(right.values, 0)
        if np.any(zero):
            known = both(known, np.broadcast_to(~zero, values.shape))
    return Vector(values, known)


def doubling(kind: Scalar) -> Callable[[Any], Any]:
    """A function from numbers of a kind to the nearest doubles."""
    return (lambda values: values) if kind == DOUBLE else (lambda values: exact.doubled(values, kind.scale))


def negation(kind: Scalar) -> Callable[[Vector], Vector]:
    """The numbers with the other sign."""
    if kind == DOUBLE:
        return lambda vector: Vector(-vector.values, vector.known)
    return lambda vector: exact.negated(vector, kind)


def conversion(kind: Scalar, to: Scalar) -> Callable[[Vector], Vector]:
    """A function from numbers of one kind to another; null where they do not fit."""
    if to == DOUBLE:
        return lambda vector: Vector(exact.doubled(vector.values, kind.scale), vector.known)
    places = to.scale - kind.scale
    return lambda vector: exact.bounded(exact.raised(vector.values, places), vector.known, to)
