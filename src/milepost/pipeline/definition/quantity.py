"""Durations and sizes as people write them in a pipeline ("500ms", "10s", "64MB"), and back."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from milepost.errors import ConfigError

MICROSECONDS: Final = {"us": 1, "ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}
LONGEST_US: Final = 366 * 86_400_000_000  # one year: a longer window is a mistake in the unit
BYTES: Final = {
    "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
}  # fmt: skip
_WRITTEN: Final = re.compile(r"(\d+)(?:\.(\d{1,9}))?\s*([A-Za-z]+)", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    """A duration in whole microseconds, the resolution of a timestamp. `str()` gives the notation of a pipeline."""

    us: int

    def __post_init__(self) -> None:
        if not 0 <= self.us <= LONGEST_US:
            raise ConfigError(f"a duration is 0 to one year, not {self.us / 1e6:,g} s")

    @classmethod
    def of(cls, given: Any) -> Duration:
        """Parse "500ms", "10s", "5m", "1h", "1d", or convert a `timedelta` or another duration.

        A number without a unit is refused, because it could mean seconds or milliseconds.
        """
        if isinstance(given, Duration):
            return given
        if isinstance(given, timedelta):
            return cls(given // timedelta(microseconds=1))
        found = _WRITTEN.fullmatch(given.strip()) if isinstance(given, str) else None
        if found is None or found[3] not in MICROSECONDS:
            raise ConfigError(f"{given!r} is not a duration: write a number and a unit, as in 500ms, 10s, 5m, 1h or 1d")
        return cls(_scaled(found, MICROSECONDS[found[3]], given))

    @property
    def seconds(self) -> float:
        """The duration in seconds."""
        return self.us / 1e6

    def __str__(self) -> str:
        for unit, length in reversed(MICROSECONDS.items()):
            if self.us and self.us % length == 0:
                return f"{self.us // length}{unit}"
        return "0s"


def size(given: Any) -> int:
    """A number of bytes: an integer, or text such as "64MB" or "2GiB"."""
    if isinstance(given, int) and not isinstance(given, bool):
        return given
    found = _WRITTEN.fullmatch(given.strip()) if isinstance(given, str) else None
    known = {unit.lower(): factor for unit, factor in BYTES.items()}
    if found is None or found[3].lower() not in known:
        raise ConfigError(f"{given!r} is not a number of bytes: write it as in 64MB, 2GiB or 65536")
    return _scaled(found, known[found[3].lower()], given)


def _scaled(found: re.Match[str], factor: int, given: str) -> int:
    fraction = found[2] or ""
    unit: int = 10 ** len(fraction)
    value, rest = divmod(int(found[1] + fraction) * factor, unit)
    if rest:
        raise ConfigError(f"{given!r} is not a whole number of the smallest unit")
    return value
