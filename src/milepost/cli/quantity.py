"""Quantities as people write them (7d, 90s, 10GB), and back."""

from __future__ import annotations

import re
from typing import Final

from milepost.errors import InvalidValue

SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
BYTES: Final = {
    "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
}  # fmt: skip
_WRITTEN: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", re.ASCII)


def seconds(text: str) -> float:
    """A duration: a number and one of s, m, h, d, w."""
    number, unit = _parts(text)
    if unit not in SECONDS:
        raise InvalidValue(f"{text!r} is not a duration: write a number and a unit, as in 90s, 30m, 12h, 7d or 2w")
    return number * SECONDS[unit]


def size(text: str) -> int:
    """A number of bytes: 10GB, 512MiB, or the number alone."""
    number, unit = _parts(text)
    known = {name.lower(): factor for name, factor in BYTES.items()} | {"": 1}
    if unit.lower() not in known:
        raise InvalidValue(f"{text!r} is not a number of bytes: write it as in 500MB, 10GB or 2GiB")
    return int(number * known[unit.lower()])


def _parts(text: str) -> tuple[float, str]:
    found = _WRITTEN.fullmatch(text.strip())
    return (float(found[1]), found[2]) if found else (0.0, "?")


def duration_text(seconds: float) -> str:
    """A duration in the largest unit that divides it: 604800 is "7 days"."""
    for name, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds and seconds % length == 0:
            return counted(int(seconds // length), name)
    return f"{seconds:,g} s"


def size_text(count: float) -> str:
    """A size with about three digits: 27.1 kB."""
    return "{} {}B".format(*_scaled(count, "kMGT"))


def short(value: float) -> str:
    """A number in at most four characters and a unit, as in 12.3k."""
    return "".join(_scaled(value, "kMGTP"))


def _scaled(value: float, units: str) -> tuple[str, str]:
    unit = ""
    for larger in units:
        if value < 999.5:
            break
        value, unit = value / 1000, larger
    return f"{value:.0f}" if value >= 100 or value == int(value) else f"{value:.3g}", unit


def counted(count: int, noun: str) -> str:
    """A number of things, as in 1 row and 2,000 rows."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
