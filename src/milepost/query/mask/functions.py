"""The functions, on vectors. Each takes the vectors of its arguments, none of them None, and their frame."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow.compute as pc

from milepost import limits
from milepost.query import subnet
from milepost.query.instant import DAY_MICROSECONDS
from milepost.query.kinds import DATE, DOUBLE, Scalar
from milepost.query.mask import exact, text
from milepost.query.mask.address import in_subnet
from milepost.query.mask.frame import RowFrame
from milepost.query.mask.text import bools, text_bytes
from milepost.query.mask.vector import Array, Vector, both, from_list, require, spread
from milepost.query.python.functions import function as reference
from milepost.query.typed import Call, scalar

Function: TypeAlias = Callable[[list[Vector], RowFrame], Vector]


def function(node: Call) -> Function:
    """The implementation of a call."""
    kinds = [scalar(argument) for argument in node.arguments]
    if node.function in _OF_TIME:
        return _of_time(_OF_TIME[node.function], kinds[0])
    if node.function in _ROUNDING:
        return _rounding(node.function, kinds[0], node.kind)
    if node.function == "abs":
        return _changed(np.abs) if kinds[0] == DOUBLE else lambda arguments, _: exact.absolute(arguments[0], kinds[0])
    if node.function in _WITH_CONSTANTS:
        return _with_constants(node, kinds)
    return _PLAIN[node.function]


def known_of(arguments: list[Vector]) -> Any:
    """Known where all arguments are."""
    return reduce(both, (argument.known for argument in arguments))


def _changed(change: Callable[[Any], Any]) -> Function:
    """A function of one argument that returns a value wherever that has one."""
    return lambda arguments, frame: Vector(change(arguments[0].values), arguments[0].known)


# Strings


def _concatenation(arguments: list[Vector], frame: RowFrame) -> Vector:
    left, right = arguments
    require("QUERY_VALUE_BYTES", text_bytes(left, frame.n) + text_bytes(right, frame.n), "text joined by ||")
    return Vector(pc.binary_join_element_wise(left.values, right.values, ""), known_of(arguments))


def _with_constants(node: Call, kinds: list[Scalar]) -> Function:
    """A function that Arrow has only for a constant second (and third) argument; a result of None means null."""
    change = _WITH_CONSTANTS[node.function]
    row_by_row = _row_by_row(node, kinds)

    def call(arguments: list[Vector], frame: RowFrame) -> Vector:
        first, *rest = arguments
        if first.constant or not all(argument.constant for argument in rest):
            return row_by_row(arguments, frame)
        values = change(first.values, *(_python(argument.values) for argument in rest))
        if values is None:
            return Vector(first.values, np.zeros(frame.n, np.bool_))
        return Vector(values, first.known)

    return call


def _row_by_row(node: Call, kinds: list[Scalar]) -> Function:
    """The reference, row by row: for arguments that are rarely columns, and that NumPy and Arrow do not support."""
    calculate = reference(node.function, tuple(kinds))

    def call(arguments: list[Vector], frame: RowFrame) -> Vector:
        n = frame.n
        frame.origin.spend(n * limits.QUERY_ROW_STEPS)
        known = known_of(arguments)
        columns = [spread(vector, n, kind).tolist() for vector, kind in zip(arguments, kinds, strict=True)]
        there = [True] * n if known is None else known.tolist()
        rows = zip(there, *columns, strict=True)
        return from_list([calculate(*values) if known else None for known, *values in rows], node.kind)

    return call


def _python(value: Any) -> Any:
    return value.as_py() if hasattr(value, "as_py") else value


_WITH_CONSTANTS: Final[Mapping[str, Callable[..., Any]]] = {
    "substring": text.substring,
    "starts_with": lambda texts, part: bools(pc.starts_with(texts, part)),
    "ends_with": lambda texts, part: bools(pc.ends_with(texts, part)),
    "contains": lambda texts, part: bools(pc.match_substring(texts, part)),
    "position": text.position,
}


# Numbers


def _half_away(values: Array) -> Array:
    whole = np.trunc(values)
    with np.errstate(invalid="ignore"):  # infinity minus itself, for values that are whole already
        half = np.abs(values - whole) >= 0.5
    return np.where(half, whole + np.copysign(1.0, values), whole)


def _units_half_away(units: Any, whole: int) -> Any:
    rounded = (2 * abs(units) + whole) // (2 * whole)
    return np.where(units < 0, -rounded, rounded)


_ROUNDING: Final[Mapping[str, tuple[Callable[[Array], Array], Callable[[Any, int], Any]]]] = {
    "floor": (np.floor, operator.floordiv),
    "ceil": (np.ceil, lambda units, whole: -(-units // whole)),
    "round": (_half_away, _units_half_away),
}


def _rounding(name: str, kind: Scalar, result: Scalar) -> Function:
    of_doubles, of_units = _ROUNDING[name]
    if kind == DOUBLE:
        return _changed(of_doubles)
    return lambda arguments, frame: exact.lowered(arguments[0], kind.scale, of_units, result)


# Dates and timestamps


def _days(values: Array, kind: Scalar) -> Array:
    return values if kind == DATE else values // DAY_MICROSECONDS


def _calendar(unit: str, within: str, first: int) -> Callable[[Array, Scalar], Array]:
    """A part of a date, counted within a larger unit."""

    def part(values: Array, kind: Scalar) -> Array:
        dates = _days(values, kind).astype("datetime64[D]")
        inner = dates.astype(f"datetime64[{unit}]")
        since: Array = (inner - dates.astype(f"datetime64[{within}]").astype(inner.dtype)).astype(np.int64)
        return since + first

    return part


def _clock(unit: int, within: int) -> Callable[[Array, Scalar], Array]:
    """A part of the time of day; `//` and `%` round down, so they are right before 1970 too."""
    return lambda values, kind: values // unit % within


def _weekday(values: Array, kind: Scalar) -> Array:
    return (_days(values, kind).astype(np.int64) + 3) % 7 + 1  # 1970-01-01 was a Thursday


def _year(values: Array, kind: Scalar) -> Array:
    return _days(values, kind).astype("datetime64[D]").astype("datetime64[Y]").astype(np.int64) + 1970


_OF_TIME: Final[Mapping[str, Callable[[Array, Scalar], Array]]] = {
    "year": _year,
    "month": _calendar("M", "Y", 1),
    "day": _calendar("D", "M", 1),
    "weekday": _weekday,
    "hour": _clock(3_600_000_000, 24),
    "minute": _clock(60_000_000, 60),
    "second": _clock(1_000_000, 60),
    "date": _days,
}


def _of_time(part: Callable[[Array, Scalar], Array], kind: Scalar) -> Function:
    return lambda arguments, frame: Vector(part(arguments[0].values, kind), arguments[0].known)


def _days_between(arguments: list[Vector], frame: RowFrame) -> Vector:
    start, end = (_wide(argument.values) for argument in arguments)
    return Vector(end - start, known_of(arguments))


def _seconds_between(arguments: list[Vector], frame: RowFrame) -> Vector:
    start, end = (_wide(argument.values) for argument in arguments)
    return Vector((end - start).astype(np.float64) / 1e6, known_of(arguments))


def _wide(values: Any) -> Any:
    return values.astype(np.int64) if isinstance(values, np.ndarray) else values


def _in_subnet(arguments: list[Vector], frame: RowFrame) -> Vector:
    texts, cidr = arguments
    return in_subnet(texts.values, texts.known, subnet.network(cidr.values.as_py()), frame.origin.spend)


_PLAIN: Final[Mapping[str, Function]] = {
    "||": _concatenation,
    "length": _changed(text.length),
    "lower": _changed(text.lower),
    "upper": _changed(text.upper),
    "trim": _changed(lambda texts: pc.utf8_trim(texts, " ")),
    "ltrim": _changed(lambda texts: pc.utf8_ltrim(texts, " ")),
    "rtrim": _changed(lambda texts: pc.utf8_rtrim(texts, " ")),
    "days_between": _days_between,
    "seconds_between": _seconds_between,
    "in_subnet": _in_subnet,
}

IMPLEMENTED: Final = frozenset({*_PLAIN, *_OF_TIME, *_ROUNDING, *_WITH_CONSTANTS, "abs"})
"""Every function of this back end; a test compares it with the table of the language."""
