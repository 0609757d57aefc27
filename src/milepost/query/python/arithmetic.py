"""Arithmetic and comparisons of numbers: exact ones as integers, doubles by IEEE 754."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, Final

from milepost.query.kinds import DOUBLE, Scalar, is_exact
from milepost.query.number import bounded, nearest_double, remainder
from milepost.query.python.moment import Value
from milepost.query.python.paths import number

Operation = Callable[[Any, Any], Value]

COMPARISONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_DOUBLES: Final[dict[str, Callable[[float, float], float]]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "%": math.fmod,
}  # fmt: skip
_EXACT: Final[dict[str, Callable[[int, int], int]]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "%": remainder,
}  # fmt: skip


def calculation(sign: str, left: Scalar, right: Scalar, result: Scalar) -> Operation:
    """An arithmetic operation on two values that are not null."""
    return _of_doubles(sign, left, right) if result == DOUBLE else _of_exact(sign, left, right, result)


def _of_doubles(sign: str, left: Scalar, right: Scalar) -> Operation:
    calculate = _DOUBLES[sign]
    left_double, right_double = doubled(left), doubled(right)

    def operation(a: Any, b: Any) -> float | None:
        x, y = left_double(a), right_double(b)
        if sign in "/%" and (y == 0 or (sign == "%" and math.isinf(x))):
            return None
        return number(calculate(x, y))

    return operation


def _of_exact(sign: str, left: Scalar, right: Scalar, result: Scalar) -> Operation:
    calculate = _EXACT[sign]
    # A product has the sum of both scales; for the other operations, both sides go to the larger scale first.
    scale = None if sign == "*" else result.scale
    up_left = 1 if scale is None else 10 ** (scale - left.scale)
    up_right = 1 if scale is None else 10 ** (scale - right.scale)

    def operation(a: int, b: int) -> int | None:
        if sign == "%" and b == 0:
            return None
        return bounded(calculate(a * up_left, b * up_right), result)

    return operation


def comparison(sign: str, left: Scalar, right: Scalar) -> Callable[[Any, Any], bool]:
    """A comparison of two values that are not null."""
    compare = COMPARISONS[sign]
    if is_exact(left) and is_exact(right):
        scale = max(left.scale, right.scale)
        up_left, up_right = 10 ** (scale - left.scale), 10 ** (scale - right.scale)
        return lambda a, b: compare(a * up_left, b * up_right)
    if DOUBLE in (left, right) and "decimal" in (left.name, right.name):
        left_double, right_double = doubled(left), doubled(right)
        return lambda a, b: compare(left_double(a), right_double(b))
    return compare  # Python compares an integer with a double exactly


def doubled(kind: Scalar) -> Callable[[Any], float]:
    """A function from numbers of a kind to the nearest doubles."""
    return float if kind == DOUBLE else lambda value: nearest_double(value, kind.scale)


def converted(kind: Scalar, to: Scalar) -> Callable[[Any], Value]:
    """A function from numbers of one kind to another; null when they do not fit."""
    if to == DOUBLE:
        return doubled(kind)
    up = 10 ** (to.scale - kind.scale)
    return lambda value: bounded(value * up, to)


def negation(kind: Scalar) -> Callable[[Any], Value]:
    """The number with the other sign."""
    return operator.neg if kind == DOUBLE else lambda value: bounded(-value, kind)
