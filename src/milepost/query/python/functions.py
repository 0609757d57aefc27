"""The functions: each takes the kinds of its arguments and returns a function of their values, none of them null."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from milepost.query import subnet
from milepost.query.budget import require
from milepost.query.instant import days
from milepost.query.kinds import DOUBLE, Scalar
from milepost.query.number import bounded
from milepost.query.python.moment import Value

Function = Callable[..., Value]


def _joined(left: Any, right: Any) -> Any:
    require("QUERY_VALUE_BYTES", len(left) + len(right), "text joined by ||")
    return left + right


_LOWER: Final = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_UPPER: Final = {code + 32: code for code in _LOWER}
_SPACE: Final = " "


def _substring(text: str, start: int, length: int | None = None) -> str | None:
    if length is None:
        return text[max(start - 1, 0) :]
    if length < 0:
        return None
    return text[max(start - 1, 0) : max(start - 1 + length, 0)]


def _rounding(of_double: Callable[[float], float], of_units: Callable[[int, int], int]) -> Callable[[Scalar], Function]:
    """A rounding by kind, from a rounding of doubles and one of units, which gets the units in a whole too."""

    def rounding(kind: Scalar) -> Function:
        if kind == DOUBLE:
            return lambda value: of_double(value) if math.isfinite(value) else value
        whole = 10**kind.scale
        return lambda value: bounded(of_units(value, whole), kind)

    return rounding


def _half_away(value: float) -> float:
    # Not floor(value + 0.5): that sum rounds, so that 0.49999999999999994 would become 1.
    towards_zero = math.trunc(value)
    return float(towards_zero + math.copysign(1, value)) if abs(value - towards_zero) >= 0.5 else float(towards_zero)


def _units_half_away(units: int, whole: int) -> int:
    rounded = (2 * abs(units) + whole) // (2 * whole)
    return -rounded if units < 0 else rounded


def _utc(value: datetime) -> datetime:
    return value.astimezone(UTC)


def _day(value: date) -> date:
    return _utc(value).date() if isinstance(value, datetime) else value


def _seconds(start: datetime, end: datetime) -> float:
    return ((end - start) // timedelta(microseconds=1)) / 1e6


_PLAIN: Final[Mapping[str, Function]] = {
    "||": _joined,
    "length": len,
    "lower": lambda text: text.translate(_LOWER),
    "upper": lambda text: text.translate(_UPPER),
    "trim": lambda text: text.strip(_SPACE),
    "ltrim": lambda text: text.lstrip(_SPACE),
    "rtrim": lambda text: text.rstrip(_SPACE),
    "substring": _substring,
    "starts_with": str.startswith,
    "ends_with": str.endswith,
    "contains": lambda text, part: part in text,
    "position": lambda text, part: text.find(part) + 1,
    "year": lambda value: _day(value).year,
    "month": lambda value: _day(value).month,
    "day": lambda value: _day(value).day,
    "weekday": lambda value: _day(value).isoweekday(),
    "hour": lambda value: _utc(value).hour,
    "minute": lambda value: _utc(value).minute,
    "second": lambda value: _utc(value).second,
    "date": _day,
    "days_between": lambda start, end: days(end) - days(start),
    "seconds_between": _seconds,
    "in_subnet": lambda text, cidr: subnet.contains(subnet.network(cidr), text),
}
_BY_KIND: Final[Mapping[str, Callable[[Scalar], Function]]] = {
    "abs": lambda kind: abs if kind == DOUBLE else lambda value: bounded(abs(value), kind),
    "floor": _rounding(lambda value: float(math.floor(value)), lambda units, whole: units // whole),
    "ceil": _rounding(lambda value: float(math.ceil(value)), lambda units, whole: -(-units // whole)),
    "round": _rounding(_half_away, _units_half_away),
}


# Functions whose cost grows with their text, and how many characters they process in one step.
OF_TEXT: Final[Mapping[str, int]] = {
    **dict.fromkeys(
        ("||", "length", "trim", "ltrim", "rtrim", "substring", "starts_with", "ends_with", "contains", "position"), 256
    ),
    "lower": 64,
    "upper": 64,
    "in_subnet": 1,
}
LIKE_CHARS: Final = 1  # the same for `like`


def function(name: str, kinds: tuple[Scalar, ...]) -> Callable[..., Any]:
    """The implementation of a function for arguments of these kinds."""
    return _BY_KIND[name](kinds[0]) if name in _BY_KIND else _PLAIN[name]
