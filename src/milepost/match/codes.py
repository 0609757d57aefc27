"""Codes: values as 64-bit numbers, so that every term of a conjunction is `low <= code <= high`.

::

    null                        the least number, for every column; no other value has it
    integers, dates, times      the number itself; uint64 minus 2^63, to keep the order
    decimals up to 18 digits    units of the last place
    doubles, floats             their bits, changed so that they are in order; both zeros are one code, NaN is null
    booleans                    0 and 1
    strings, bytes              *start*: seven bytes and the length, up to eight: in order, and exact up to seven bytes
                                *number*: the number of a text that subscriptions name, see `texts`
    uuids                       *number*

Where a column has 2^64 values, two must share a code, since null takes one: the least two of a long, the greatest two
of a uint64. A predicate that has to distinguish these gets no term, and is evaluated as a mask.
"""

from __future__ import annotations

import math
import struct
from enum import Enum
from typing import Any, Final, NamedTuple

from milepost.query import instant
from milepost.query.kinds import DATE, DOUBLE, IDENT, INTEGER, TIMESTAMP, Scalar, is_exact

NULL: Final = -(1 << 63)
LEAST: Final = NULL + 1  # the least code that is not null
GREATEST: Final = (1 << 63) - 1
START_BYTES: Final = 7  # of a text in its start code


class Coding(Enum):
    """How the values of a column become codes."""

    SIGNED = "signed"
    UNSIGNED = "unsigned"  # uint64; narrower types fit SIGNED
    DOUBLE = "double"
    BIT = "bit"
    START = "start"
    NUMBER = "number"


class Never(Exception):
    """The comparison is true for no value."""


class Inexact(Exception):
    """Codes cannot express this comparison exactly."""


class CodeSpan(NamedTuple):
    """Codes from `low` to `high`, without null, which is below all."""

    low: int
    high: int


EVERYTHING: Final = CodeSpan(LEAST, GREATEST)


def compared(sign: str, coding: Coding, scale: int, constant: Any, kind: Scalar) -> tuple[CodeSpan, bool]:
    """The codes of the values `x` for which `x sign constant`, and whether they are the codes *outside* the span.

    For numbers, booleans, dates and times. Raises `Never` and `Inexact`.
    """
    if coding is Coding.DOUBLE:
        return _ordered(sign, _double(constant, kind))
    top, bottom = _ratio(constant, kind, scale)
    floor, rest = divmod(top, bottom)
    if sign == "=":
        if rest:
            raise Never
        return _encoded(floor, floor, coding), False
    if sign == "<>":
        return (EVERYTHING, False) if rest else _others(floor, coding)
    if sign in ("<", "<="):
        return _encoded(None, floor if rest or sign == "<=" else floor - 1, coding), False
    return _encoded(floor + 1 if rest or sign == ">" else floor, None, coding), False


def _others(value: int, coding: Coding) -> tuple[CodeSpan, bool]:
    try:
        return _encoded(value, value, coding), True
    except Never:
        return EVERYTHING, False


def _ordered(sign: str, code: int) -> tuple[CodeSpan, bool]:
    """`compared` for a code whose neighbours are the codes of the neighbouring values."""
    low = LEAST if sign in ("<", "<=") else code + (sign == ">")
    high = GREATEST if sign in (">", ">=") else code - (sign == "<")
    return CodeSpan(low, high), sign == "<>"


def _ratio(constant: Any, kind: Scalar, scale: int) -> tuple[int, int]:
    """A constant as a fraction of the units of a column with `scale` places."""
    if kind in (INTEGER, IDENT):
        return constant * 10**scale, 1
    if kind.name == "boolean":
        return int(constant), 1
    if kind == DATE:
        return instant.days(constant), 1
    if kind == TIMESTAMP:
        return instant.microseconds(constant), 1
    if is_exact(kind):
        return constant * 10**scale, 10**kind.scale
    if kind == DOUBLE and not scale and math.isfinite(constant):
        top, bottom = constant.as_integer_ratio()
        return top, bottom
    raise Inexact


def _double(constant: Any, kind: Scalar) -> int:
    if kind == INTEGER:
        if abs(constant) > 1 << 53:
            raise Inexact  # no double may equal it
    elif kind != DOUBLE or math.isnan(constant):
        raise Inexact
    bits: int = struct.unpack("<q", struct.pack("<d", constant))[0]
    return bits if bits >= 0 else -(bits & 0x7FFFFFFFFFFFFFFF)


def _encoded(low: int | None, high: int | None, coding: Coding) -> CodeSpan:
    """The codes of the integers from `low` to `high`; None means no bound."""
    shift, least, most = (0, NULL, GREATEST)
    if coding is Coding.UNSIGNED:
        shift, least, most = (1 - (1 << 63), 0, (1 << 64) - 1)
    if (low is not None and low > most) or (high is not None and high < least):
        raise Never
    first, last = LEAST, GREATEST
    if low is not None and low > least:
        first = low + shift
    if high is not None and high < most:
        last = high + shift
    # Where two values share a code, no span may begin or end between them.
    if coding is Coding.UNSIGNED:
        if low == most or high == most - 1:
            raise Inexact
    elif low == least + 1 or high == least:
        raise Inexact
    return CodeSpan(first, last)


def start(text: bytes) -> int:
    """The start code of a text."""
    return _start(text[:START_BYTES], min(len(text), START_BYTES + 1))


def _start(head: bytes, size: int) -> int:
    return int.from_bytes(head.ljust(START_BYTES, b"\0") + bytes((size,)), "big") + 1 - (1 << 63)


def compared_text(sign: str, text: bytes) -> tuple[CodeSpan, bool, bool]:
    """The start codes of the texts `x` for which `x sign text`; whether outside the span; whether exact."""
    span, outside = _ordered(sign, start(text))
    if len(text) <= START_BYTES:
        return span, outside, True
    if sign == "<>":
        raise Inexact
    # Other long texts, on both sides of this one, share the code.
    return CodeSpan(min(span.low, start(text)), max(span.high, start(text))), False, False


def beginning(text: bytes) -> tuple[CodeSpan, bool]:
    """The start codes of the texts that begin with a text, and whether exactly these."""
    if len(text) > START_BYTES:
        return CodeSpan(start(text), start(text)), False
    last = int.from_bytes(text.ljust(START_BYTES, b"\xff") + bytes((START_BYTES + 1,)), "big") + 1 - (1 << 63)
    return CodeSpan(_start(text, len(text)), last), True
