"""SQL expressions with the properties of their values: the kind, the form in the database, the bound.

An exact number has one of four *forms*. Numbers of the same form and scale can be compared and sorted directly:

::

    int      a whole number of units that fits 64 bits, in one of the database's integer types
    biased   a uint64 minus 2**63, as `tables` stores it
    wide     SQLite: units plus 10**38, as 39 digits of text
    num      PostgreSQL: a numeric, with its places

All other kinds have one form, `plain`. Dates are days and timestamps microseconds since 1970.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Final, Literal, TypeAlias
from uuid import UUID

from milepost.batch.atoms import date_of, timestamp_of
from milepost.query.instant import days, microseconds
from milepost.query.kinds import DECIMAL_BOUND, IDENT, INT64_MAX, INT64_MIN, Scalar, is_exact, of_atom
from milepost.query.number import scaled, unscaled
from milepost.query.sql.tables import NARROW_DIGITS
from milepost.schema.types import INTEGER_RANGES, Atom

Form: TypeAlias = Literal["int", "biased", "wide", "num", "plain"]
Dialect: TypeAlias = Literal["sqlite", "postgresql"]

BIAS: Final = 1 << 63  # subtracted from a uint64 to store it
WIDE_ZERO: Final = 10**38  # added to the units of a wide decimal
WIDE_DIGITS: Final = 39
TAME: Final = 2.0**200  # doubles from 1/TAME up to this size can be multiplied and divided without overflow


@dataclass(frozen=True, slots=True)
class Value:
    """An SQL expression. `text` has parentheses where it needs them."""

    text: str
    kind: Scalar
    form: Form = "plain"
    bound: int = 0  # of an exact number: the greatest absolute value of its units
    leaf: bool = False  # a column or a bound value: may be written twice
    null: bool = True  # may be null
    tame: bool = False  # of a double: 0, or of moderate size (see `TAME`)
    raw: str | None = None  # of a column of doubles: the bare column, in which NaN is not null

    def as_leaf(self, text: str) -> Value:
        """The same value under another name, as a leaf."""
        return replace(self, text=text, leaf=True, raw=None)


def has_units(kind: Scalar) -> bool:
    """Whether values are whole numbers of some unit: integers, decimals and idents."""
    return is_exact(kind) or kind == IDENT


def column(text: str, atom: Atom, null: bool, dialect: Dialect) -> Value:
    """The value of a column, as `tables` declares it."""
    kind = of_atom(atom)
    if kind.name == "double":
        return Value(not_nan(text, dialect), kind, leaf=True, raw=text)
    if not has_units(kind):
        return Value(text, kind, leaf=True, null=null)
    form = "biased" if atom.kind == "uint64" else form_of(kind, dialect)
    bound = bound_of(kind) if atom.kind == "decimal" else max(map(abs, INTEGER_RANGES[atom.kind]))
    return Value(text, kind, form, bound, True, null)


def not_nan(text: str, dialect: Dialect) -> str:
    """A column of doubles, with null for NaN."""
    return f"nullif({text}, 'NaN')" if dialect == "sqlite" else f"nullif({text}, CAST('NaN' AS double precision))"


def form_of(kind: Scalar, dialect: Dialect) -> Form:
    """The form of a calculated value of a kind."""
    if not has_units(kind):
        return "plain"
    if kind.name != "decimal":
        return "int"
    return "num" if dialect == "postgresql" else "int" if kind.precision <= NARROW_DIGITS else "wide"


def bound_of(kind: Scalar) -> int:
    """The bound of a calculated number's units."""
    return BIAS if kind.name != "decimal" else min(10**kind.precision, DECIMAL_BOUND) - 1


def encoded(value: Any, kind: Scalar, form: Form) -> Any:
    """A value as a parameter for the driver; None when the form cannot hold it."""
    if value is None:
        return None
    match form:
        case "int":
            return value if INT64_MIN <= value <= INT64_MAX else None
        case "biased":
            return value - BIAS if 0 <= value < 2 * BIAS else None
        case "wide":
            return f"{value + WIDE_ZERO:0{WIDE_DIGITS}}" if abs(value) < DECIMAL_BOUND else None
        case "num":
            return scaled(value, kind.scale)
    match kind.name:
        case "date":
            return days(value)
        case "timestamp":
            return microseconds(value)
        case "uuid":
            return value.bytes
    return value


def decoded(value: Any, kind: Scalar, form: Form) -> Any:
    """A value from the driver as a value of the language: exact numbers as whole units."""
    if value is None:
        return None
    match form:
        case "int":
            return int(value)
        case "biased":
            return int(value) + BIAS
        case "wide":
            return int(value) - WIDE_ZERO
        case "num":
            return unscaled(Decimal(value), kind.scale)
    match kind.name:
        case "boolean":
            return bool(value)
        case "double":
            return float(value)
        case "bytes":
            return bytes(value)
        case "date":
            return date_of(int(value))
        case "timestamp":
            return timestamp_of(int(value))
        case "uuid":
            return UUID(bytes=bytes(value))
    return value
