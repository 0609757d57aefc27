"""Exact numbers: integers and decimals in integer arrays, without undetected overflow.

The result of a calculation is bounded first, by the types or the extremes of its operands. If the bounds fit into 64
bits, so does every value, and the calculation is one pass of NumPy. The operands may even be uint64, since integers
that wrap around are right again when the result fits. If they do not fit, Python's integers do the same one by one:
some hundred times slower, but only for columns that hold such numbers.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from milepost.query.kinds import DECIMAL_BOUND, INT64_MAX, INT64_MIN, Scalar
from milepost.query.mask.vector import Bools, Vector, both
from milepost.query.number import nearest_double, remainder

_NARROW: Final = {
    np.dtype(name): (int(np.iinfo(name).min), int(np.iinfo(name).max)) for name in ("i1", "i2", "i4", "u1", "u2", "u4")
}
_EXACT_DOUBLE: Final = 1 << 53  # integers up to here are exact doubles
_EXACT_POWER: Final = 22  # powers of ten up to here are exact doubles

_OPERATIONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "%": np.frompyfunc(remainder, 2, 1),
}  # fmt: skip
_IN_64_BITS: Final[dict[str, Any]] = {"+": np.add, "-": np.subtract, "*": np.multiply, "%": np.fmod}


def bounds(values: Any) -> tuple[int, int]:
    """A lower and an upper bound of the values: by the type where it is narrow, else the extremes."""
    if not isinstance(values, np.ndarray):
        return int(values), int(values)
    if (found := _NARROW.get(values.dtype)) is not None:
        return found
    return (int(values.min()), int(values.max())) if len(values) else (0, 0)


def in_int64(low: int, high: int) -> bool:
    """Whether both bounds fit into 64 bits with sign."""
    return low >= INT64_MIN and high <= INT64_MAX


def calculated(sign: str, left: Vector, right: Vector, scales: tuple[int, int], result: Scalar) -> Vector:
    """An arithmetic operation on exact numbers of two scales."""
    a, b = left.values, right.values
    known = both(left.known, right.known)
    if sign != "*":
        a, b = raised(a, result.scale - scales[0]), raised(b, result.scale - scales[1])
    if sign == "%":
        b, known = _divisor(b, known, len(a) if isinstance(a, np.ndarray) else len(b))
    if _wraps(a) and _wraps(b) and in_int64(*_span(sign, bounds(a), bounds(b))):
        return Vector(_IN_64_BITS[sign](_wrapped(a), _wrapped(b)), known)
    return bounded(_OPERATIONS[sign](_objects(a), _objects(b)), known, result)


def _divisor(values: Any, known: Bools | None, n: int) -> tuple[Any, Bools | None]:
    """The divisors without zeros; the results of these are null."""
    zero = values == 0
    if not np.any(zero):
        return values, known
    if not isinstance(values, np.ndarray):
        return 1, np.zeros(n, np.bool_)
    return np.where(zero, 1, values), both(known, ~zero)


def _span(sign: str, a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
    """The bounds of a result from the bounds of the operands."""
    match sign:
        case "+":
            return a[0] + b[0], a[1] + b[1]
        case "-":
            return a[0] - b[1], a[1] - b[0]
        case "*":
            products = [x * y for x in a for y in b]
            return min(products), max(products)
        case _:
            # A remainder is not modular, so the operands themselves must fit.
            return min(a[0], b[0]), max(a[1], b[1])


def negated(vector: Vector, kind: Scalar) -> Vector:
    """The numbers with the other sign."""
    low, high = bounds(vector.values)
    if _wraps(vector.values) and in_int64(-high, -low):
        return Vector(-_wrapped(vector.values), vector.known)
    return bounded(-_objects(vector.values), vector.known, kind)


def absolute(vector: Vector, kind: Scalar) -> Vector:
    """The numbers without their signs."""
    low, high = bounds(vector.values)
    if _wraps(vector.values) and in_int64(low, high) and low > INT64_MIN:
        return Vector(np.abs(_wrapped(vector.values)), vector.known)
    return bounded(abs(_objects(vector.values)), vector.known, kind)


def raised(values: Any, places: int) -> Any:
    """The same numbers in units smaller by so many places. They may exceed 38 digits: only results are bounded."""
    factor = 10**places
    if not places or not isinstance(values, np.ndarray):
        return values * factor if places else values
    low, high = bounds(values)
    if _wraps(values) and factor <= INT64_MAX and in_int64(low * factor, high * factor):
        return _wrapped(values) * factor
    return _objects(values) * factor


def lowered(vector: Vector, scale: int, towards: Callable[[Any, int], Any], kind: Scalar) -> Vector:
    """Whole numbers from units; `towards` divides units by the units in a whole, rounding in some direction."""
    values = vector.values
    low, high = bounds(values)
    factor = 10**scale
    # Twice the bounds, because rounding to the nearest adds half a whole before it divides.
    fits = _wraps(values) and in_int64(2 * (low - factor), 2 * (high + factor))
    return bounded(towards(_wrapped(values) if fits else _objects(values), factor), vector.known, kind)


def bounded(values: Any, known: Bools | None, kind: Scalar) -> Vector:
    """A result; values that its kind cannot hold become null."""
    low, high = bounds(values)
    decimal = kind.name == "decimal"
    least, most = (1 - DECIMAL_BOUND, DECIMAL_BOUND - 1) if decimal else (INT64_MIN, INT64_MAX)
    if low < least or high > most:
        fits = ((values >= least) & (values <= most)).astype(np.bool_)
        known = both(known, fits)
        values = np.where(fits, values, 0)
        low, high = bounds(values)
    return Vector(_wrapped(values) if in_int64(low, high) else values, known)


def doubled(values: Any, scale: int) -> Any:
    """The nearest doubles."""
    if not isinstance(values, np.ndarray):
        return nearest_double(int(values), scale)
    if values.dtype != object:
        low, high = bounds(values)
        if not scale:
            return values.astype(np.float64)
        if low >= -_EXACT_DOUBLE and high <= _EXACT_DOUBLE and scale <= _EXACT_POWER:
            return values.astype(np.float64) / 10.0**scale  # of exact doubles: rounded only once
    # Larger numbers NumPy would round twice; Python converts one number at a time, exactly.
    return np.array([nearest_double(value, scale) for value in values.tolist()], np.float64)


def compared(compare: Any, left: Any, right: Any, scales: tuple[int, int]) -> Any:
    """A comparison of exact numbers of two scales. NumPy compares int64 with uint64 exactly."""
    scale = max(scales)
    return compare(raised(left, scale - scales[0]), raised(right, scale - scales[1]))


def compared_with_double(sign: str, integers: Any, doubles: Any) -> Any:
    """An exact comparison of integers with doubles.

    NumPy would turn the integers into doubles first, which is exact only up to 2^53. Beyond, the double is rounded to
    an integer in the direction that does not change the result.
    """
    low, high = bounds(integers)
    if low >= -_EXACT_DOUBLE and high <= _EXACT_DOUBLE:
        return COMPARE[sign](np.asarray(integers, np.float64), doubles)
    doubles = np.asarray(doubles)
    doubles = np.where(np.isnan(doubles), 0.0, doubles)  # NaN is null, and cannot become an integer
    if sign in ("=", "<>"):
        same = (np.floor(doubles) == doubles) & _ordered("<=", integers, doubles) & _ordered(">=", integers, doubles)
        return same if sign == "=" else ~same
    return _ordered(sign, integers, doubles)


def _ordered(sign: str, integers: Any, doubles: Any) -> Any:
    # i < d and i >= d round d up to an integer, i <= d and i > d round it down.
    whole = np.ceil(doubles) if sign in ("<", ">=") else np.floor(doubles)
    # All integers are in [-2^63, 2^64), so a double beyond becomes the nearest integer outside this range.
    outside = (whole < -(2.0**63)) | (whole >= 2.0**64)
    unsigned = np.where(outside | (whole < 0), 0.0, whole).astype(np.uint64)
    signed = np.where(outside | (whole >= 0), 0.0, whole).astype(np.int64)
    compare = COMPARE[sign]
    within = np.where(whole < 0, compare(integers, signed), compare(integers, unsigned))
    return np.where(outside, compare(0.0, whole), within)


COMPARE: Final[dict[str, Any]] = {
    "=": np.equal, "<>": np.not_equal, "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal,
}  # fmt: skip


def _wraps(values: Any) -> bool:
    """Whether values are machine integers, which wrap around, or can become such."""
    return not (isinstance(values, np.ndarray) and values.dtype == object)


def _wrapped(values: Any) -> Any:
    """As int64, modulo 2^64."""
    if isinstance(values, np.ndarray):
        return values.astype(np.int64, copy=False)
    return np.int64((values + (1 << 63)) % (1 << 64) - (1 << 63))


def _objects(values: Any) -> Any:
    return values.astype(object) if isinstance(values, np.ndarray) else values
