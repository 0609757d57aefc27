"""The texts of IP addresses as a pattern for PostgreSQL: its own type accepts more, and raises for other texts."""

from __future__ import annotations

from typing import Final

_BYTE: Final = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_V4: Final = rf"{_BYTE}(?:\.{_BYTE}){{3}}"
_GROUP: Final = "[0-9A-Fa-f]{1,4}"


def _v6() -> list[str]:
    """Patterns for every text of an IPv6 address; `::` replaces at least one group."""
    group = f"{_GROUP}:"
    whole = [f"(?:{group}){{7}}{_GROUP}", f"(?:{group}){{6}}{_V4}"]
    short = [f"(?:{group}){{1,7}}:", f"::(?:{group}){{0,6}}{_GROUP}", "::", f"::(?:{group}){{0,5}}{_V4}"]
    short += [f"(?:{group}){{1,{7 - after}}}:(?:{group}){{{after - 1}}}{_GROUP}" for after in range(1, 7)]
    short += [f"(?:{group}){{1,{5 - before}}}:(?:{group}){{{before}}}{_V4}" for before in range(5)]
    return [*whole, *short]


PATTERN: Final = rf"\A(?:{'|'.join((_V4, *_v6()))})\Z"
