"""Exact numbers in the reference: integers and decimals as whole numbers of units in the last place."""

from __future__ import annotations

from decimal import Context, Decimal
from typing import Final

from milepost.query.kinds import DECIMAL_BOUND, INT64_MAX, INT64_MIN, Scalar

_EXACT: Final = Context(prec=100)  # digits; Python's default of 28 would round


def unscaled(value: Decimal, scale: int) -> int:
    """A decimal in units of its last place."""
    return int(value.scaleb(scale, _EXACT))


def scaled(units: int, scale: int) -> Decimal:
    """The decimal of so many units in the last place."""
    return Decimal(units).scaleb(-scale, _EXACT)


def nearest_double(units: int, scale: int) -> float:
    """The double nearest to an exact number."""
    return float(scaled(units, scale)) if scale else float(units)


def bounded(units: int, kind: Scalar) -> int | None:
    """A result, or None when it does not fit: 64 bits with sign for an integer, 38 digits for a decimal."""
    if kind.name == "decimal":
        return units if abs(units) < DECIMAL_BOUND else None
    return units if INT64_MIN <= units <= INT64_MAX else None


def remainder(left: int, right: int) -> int:
    """The remainder of a division, with the sign of the dividend."""
    rest = abs(left) % abs(right)
    return -rest if left < 0 else rest
