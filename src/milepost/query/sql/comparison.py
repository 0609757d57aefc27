"""Comparisons with constants: the constant is converted to the form of the other side, so that a column stays bare.

Only then can a database use an index. If a constant is between two values of that form (`size > 2.5`), or beyond all of
them, the operator is changed instead of rounding the constant.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Final

from milepost.query.kinds import BOOLEAN, DECIMAL_BOUND, DOUBLE, INT64_MAX, INT64_MIN
from milepost.query.sql.operations import Operations
from milepost.query.sql.value import BIAS, Value, encoded, has_units
from milepost.query.typed import Const

_RANGES: Final = {
    "int": (INT64_MIN, INT64_MAX),
    "biased": (0, 2 * BIAS - 1),
    "wide": (1 - DECIMAL_BOUND, DECIMAL_BOUND - 1),
    "num": (-(10**80), 10**80),  # larger than every number of the language
}


class Comparison:
    """Compares values with constants."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations
        self._writer = operations.writer

    def compared(self, sign: str, value: Value, constant: Const, exactly: bool) -> str:
        """A value compared with a constant. Unless `exactly`, a null result may become false."""
        kind, other = value.kind, constant.value
        if other is None:
            return self._operations.typed("NULL", BOOLEAN, "plain")
        if kind == DOUBLE:
            return self._with_double(sign, value, constant, exactly)
        if not has_units(kind):
            return f"({value.text} {sign} {self._writer.bind(encoded(other, kind, 'plain'))})"
        if constant.kind == DOUBLE and kind.name == "decimal":
            return self._operations.compared(
                sign, self._operations.double(value), self._operations.constant(other, DOUBLE)
            )
        if constant.kind == DOUBLE and math.isinf(other):
            return self._always(sign in ("<>", *(("<", "<=") if other > 0 else (">", ">="))), value, exactly)
        if constant.kind == DOUBLE:
            at = Fraction(other) * 10**kind.scale
        else:
            at = Fraction(other * 10**kind.scale, 10**constant.kind.scale)
        return self._with_units(sign, value, at, exactly)

    def items(self, value: Value, constants: list[Const], exactly: bool) -> str | None:
        """Whether a value is one of the constants; None if it must be compared with each."""
        if value.kind == DOUBLE and any(
            constant.kind != DOUBLE for constant in constants if constant.value is not None
        ):
            return None
        if value.kind.name == "decimal" and any(constant.kind == DOUBLE for constant in constants):
            return None
        known = [self._item(value, constant) for constant in constants if constant.value is not None]
        found = [item for item in known if item is not None]
        nulls = exactly and len(known) < len(constants)
        text = value.text if exactly or value.raw is None else value.raw
        if not found:
            return None if nulls else self._always(False, value, exactly)
        bound = [self._writer.bind(item) for item in found]
        return f"({text} IN ({', '.join((*bound, *('NULL',) * nulls))}))"

    def _item(self, value: Value, constant: Const) -> Any:
        """A constant in the form of the other side; None when no value there equals it."""
        if not has_units(value.kind):
            return encoded(constant.value, value.kind, "plain")
        if constant.kind == DOUBLE and math.isinf(constant.value):
            return None
        at = Fraction(constant.value) / 10**constant.kind.scale * 10**value.kind.scale
        return None if at.denominator != 1 else encoded(int(at), value.kind, value.form)

    def _with_units(self, sign: str, value: Value, at: Fraction, exactly: bool) -> str:
        if sign in ("=", "<>") and at.denominator != 1:
            return self._always(sign == "<>", value, exactly)
        units = math.floor(at) if sign in ("<=", ">") else math.ceil(at)
        low, high = _RANGES[value.form]
        if units < low or units > high:
            above = units > high
            return self._always(sign == "<>" or ((sign in ("<", "<=")) == above and sign != "="), value, exactly)
        return f"({value.text} {sign} {self._writer.bind(encoded(units, value.kind, value.form))})"

    def _with_double(self, sign: str, value: Value, constant: Const, exactly: bool) -> str:
        other = constant.value
        if constant.kind != DOUBLE:  # an integer that is not an exact double: use its neighbours
            if sign in ("=", "<>"):
                return self._always(sign == "<>", value, exactly)
            below, above = _beside(other)
            sign, other = ("<=", below) if sign in ("<", "<=") else (">=", above)
        name = self._writer.bind(float(other))
        if exactly or value.raw is None or sign == "<>":
            return f"({value.text} {sign} {name})"
        if sign in (">", ">=") and value.raw != value.text:  # in both databases, NaN is larger than every number
            nan = "''" if self._writer.sqlite else "CAST('NaN' AS double precision)"
            return f"({value.raw} {sign} {name} AND {value.raw} < {nan})"
        return f"({value.raw} {sign} {name})"

    def _always(self, truth: bool, value: Value, exactly: bool) -> str:
        return self._operations.known(value, truth) if truth or exactly else self._operations.never(False)


def _beside(number: int) -> tuple[float, float]:
    """The doubles next below and above an integer that is not an exact double."""
    near = float(number)
    if int(near) < number:
        return near, math.nextafter(near, math.inf)
    return math.nextafter(near, -math.inf), near
