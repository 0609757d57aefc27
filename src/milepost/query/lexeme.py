"""The values of literals, by the grammar's terminals."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import date
from decimal import Decimal
from typing import Final
from uuid import UUID

from milepost import limits
from milepost.query.ast import LiteralValue
from milepost.query.instant import timestamp


class WrongLexeme(Exception):
    """A text that matches a terminal but has no value. The message is for the author of the query."""


def integer(written: str) -> int:
    """An integer from decimal digits, with any number of leading zeros."""
    _require_digits(written)
    return int(written.lstrip("0") or "0")  # Python refuses to read thousands of digits, zeros included


def string(written: str) -> str:
    """The text between the quotes."""
    return written[1:-1].replace("''", "'")


def negated(value: int | float | Decimal) -> int | float | Decimal:
    """The negated number. The minus of a Decimal would round it to Python's 28 digits."""
    return value.copy_negate() if isinstance(value, Decimal) else -value


def _decimal(written: str) -> Decimal:
    _require_digits(written)
    return Decimal(written)


def _require_digits(written: str) -> None:
    if len(written) <= limits.DECIMAL_DIGITS:
        return
    digits = len(written.replace(".", "").lstrip("0"))
    if digits > limits.DECIMAL_DIGITS:
        raise WrongLexeme(f"a number has at most {limits.DECIMAL_DIGITS} digits, and this one has {digits}")
    if len(written.partition(".")[2]) > limits.DECIMAL_DIGITS:
        raise WrongLexeme(f"a number has at most {limits.DECIMAL_DIGITS} digits after the point")


def _double(written: str) -> float:
    if math.isinf(value := float(written)):
        raise WrongLexeme("this number is beyond what a double can hold")
    return value


def _quoted(read: Callable[[str], LiteralValue], form: str) -> Callable[[str], LiteralValue]:
    """A reader of the text between the quotes of a typed literal; `form` is the error message."""

    def value(written: str) -> LiteralValue:
        try:
            return read(written[written.index("'") + 1 : -1])
        except ValueError:
            raise WrongLexeme(form) from None

    return value


def _date(written: str) -> date:
    if not _DATE.match(written):  # `fromisoformat` also accepts weeks and bare digits
        raise ValueError(written)
    return date.fromisoformat(written)


_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")

# By the terminal of the grammar. For a text that the terminal matches, each raises `WrongLexeme` and nothing else.
VALUES: Final[Mapping[str, Callable[[str], LiteralValue]]] = {
    "INTEGER": integer,
    "DECIMAL": _decimal,
    "DOUBLE": _double,
    "STRING": string,
    "BYTES": _quoted(bytes.fromhex, "bytes are written as pairs of hexadecimal digits: x'00ff'"),
    "DATE": _quoted(_date, "a date is written date '2024-01-31', from year 0001 to 9999, and is in the calendar"),
    "TIMESTAMP": _quoted(
        timestamp, "a timestamp is written timestamp '2024-01-31T12:00:00Z'; instead of Z, an offset such as +01:00"
    ),
    "UUID": _quoted(UUID, "a uuid is written uuid '12345678-1234-5678-1234-567812345678'"),
}
