"""Python values of atomic types <-> the bytes of a column.

The packers take a whole column at once and leave the work per value to the interpreter's C code. They raise its
errors; `bad_value` then finds the wrong value and makes the message.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any, Final
from uuid import UUID

import numpy as np

from milepost.errors import InvalidValue
from milepost.schema.types import INTEGER_RANGES, Atom

Values = Sequence[Any]

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
# The range of Python's datetime and of SQL: other numbers in these columns are refused.
DATE_RANGE: Final = (date.min.toordinal() - EPOCH_DAY, date.max.toordinal() - EPOCH_DAY)
TIMESTAMP_RANGE: Final = (-62_135_596_800_000_000, 253_402_300_799_999_999)
RANGES: Final = {"date": DATE_RANGE, "timestamp": TIMESTAMP_RANGE}
# Exact or an error: more digits than any decimal has, so that nothing is rounded.
_EXACT: Final = Context(prec=100, traps=[Inexact, InvalidOperation])

CODES: Final = {
    "int8": "b", "int16": "h", "int": "i", "long": "q", "ident": "q",
    "uint8": "B", "uint16": "H", "uint32": "I", "uint64": "Q",
    "float": "f", "double": "d", "date": "i", "timestamp": "q",
}  # fmt: skip
DEFAULTS: Final[dict[str, Any]] = {
    "bool": False, "float": 0.0, "double": 0.0, "decimal": Decimal(0), "string": "", "bytes": b"",
    "date": date(1970, 1, 1), "timestamp": EPOCH, "uuid": UUID(int=0),
} | dict.fromkeys(INTEGER_RANGES, 0)  # fmt: skip
"""The value in the slot of an absent one: always zero bytes."""


def _numbers(kind: Atom, values: Values) -> bytes:
    return struct.pack(f"<{len(values)}{CODES[kind.kind]}", *values)


def days(value: date) -> int:
    """A date as its column holds it."""
    if isinstance(value, datetime):
        raise TypeError("a datetime is not a date; use .date()")
    return value.toordinal() - EPOCH_DAY


def micros(value: datetime) -> int:
    """A timestamp as its column holds it."""
    since = value - EPOCH  # raises TypeError for a naive datetime, as intended: its instant is unknown
    number = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    if not TIMESTAMP_RANGE[0] <= number <= TIMESTAMP_RANGE[1]:  # a year 9999 in one zone may be 10000 in UTC
        raise OverflowError("outside the years 1 to 9999 in UTC")
    return number


def unscaled(kind: Atom, value: Decimal | int) -> int:
    """A decimal as its column holds it: the number of units of the last digit."""
    if isinstance(value, float):
        raise TypeError("a float is not a decimal; use Decimal(str(value))")
    number = int(_EXACT.to_integral_exact(_EXACT.scaleb(_EXACT.create_decimal(value), kind.scale)))
    if abs(number) >= 10**kind.precision:
        raise OverflowError(f"more than {kind.precision} digits")
    return number


def decimal_of(kind: Atom, number: int) -> Decimal:
    """A decimal from its number of units."""
    return Decimal(number).scaleb(-kind.scale, _EXACT)


def exactly(kind: type) -> Callable[[Any], Any]:
    """A function that returns a value of exactly this type, and raises TypeError for others."""

    def same(value: Any) -> Any:
        if type(value) is not kind:
            raise TypeError
        return value

    return same


# From a value to the number, or the 16 bytes, that its column holds; for kinds that `struct` does not convert itself.
CONVERTERS: Final[dict[str, Callable[[Atom, Any], Any]]] = {
    "date": lambda kind, value: days(value),
    "timestamp": lambda kind, value: micros(value),
    "uuid": lambda kind, value: value.bytes,
    "decimal": lambda kind, value: unscaled(kind, value).to_bytes(16, "little", signed=True),
}


PACKERS: Final[dict[str, Callable[[Atom, Values], bytes]]] = dict.fromkeys(CODES, _numbers) | {
    "date": lambda kind, values: _numbers(kind, [days(value) for value in values]),
    "timestamp": lambda kind, values: _numbers(kind, [micros(value) for value in values]),
    "decimal": lambda kind, values: b"".join(
        [unscaled(kind, value).to_bytes(16, "little", signed=True) for value in values]
    ),
    "uuid": lambda kind, values: b"".join([value.bytes for value in values]),
}
# The errors of a packer for a value that does not fit.
REFUSED: Final = (struct.error, TypeError, ValueError, OverflowError, AttributeError, ArithmeticError)


def bad_value(kind: Atom, values: Values, path: str) -> InvalidValue:
    """The error for the first value that a packer refused."""
    for value in values:
        if value is None:
            return InvalidValue(f"missing; {kind} is required here (an optional field is written {kind}?)", path)
        try:
            pack_one(kind, value)
        except REFUSED as reason:
            return InvalidValue(f"{_short(value)} is no {kind}{_hint(kind, value, reason)}", path)
    return InvalidValue(f"not values of {kind}", path)


def pack_one(kind: Atom, value: Any) -> bytes:
    """One value as a column would hold it."""
    match kind.kind:
        case "string":
            return "".join((value,)).encode()
        case "bytes":
            return b"".join((value,))
        case "bool":
            if not isinstance(value, bool | np.bool_):
                raise TypeError("not a bool")
            return bytes((bool(value),))
    return PACKERS[kind.kind](kind, (value,))


def _hint(kind: Atom, value: Any, reason: Exception) -> str:
    if kind.kind in INTEGER_RANGES and isinstance(value, int):
        low, high = INTEGER_RANGES[kind.kind]
        return f": it goes from {low} to {high}"
    if kind.kind == "timestamp" and isinstance(value, datetime) and value.tzinfo is None:
        return ": say which time zone, as in .replace(tzinfo=timezone.utc)"
    if kind.kind in ("timestamp", "date") and isinstance(value, str):
        return ": give a datetime with a time zone" if kind.kind == "timestamp" else ": give a datetime.date"
    if isinstance(reason, Inexact):
        return f": it has more than {kind.scale} digits after the point"
    if isinstance(reason, UnicodeEncodeError):
        return ": a lone surrogate is not a character"
    if type(reason) in (TypeError, OverflowError) and kind.kind in ("date", "decimal", "timestamp"):
        return f": {reason}"
    return f" (a {type(value).__name__})"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def date_of(number: int) -> date:
    """A date from its column."""
    return date.fromordinal(number + EPOCH_DAY)


def timestamp_of(number: int) -> datetime:
    """A timestamp from its column."""
    return EPOCH + timedelta(microseconds=number)


def uuid_of(raw: bytes) -> UUID:
    """A UUID from its column."""
    return UUID(bytes=raw)


def unpack(kind: Atom, column: np.ndarray[Any, Any]) -> list[Any]:
    """A fixed-width column, or an unpacked bool column, as Python values."""
    match kind.kind:
        case "date":
            return [date_of(number) for number in column.tolist()]
        case "timestamp":
            return [timestamp_of(number) for number in column.tolist()]
        case "uuid":
            return [uuid_of(raw) for raw in column.tolist()]
        case "decimal":
            return [decimal_of(kind, int.from_bytes(raw, "little", signed=True)) for raw in column.tolist()]
    return column.tolist()  # type: ignore[no-any-return]
