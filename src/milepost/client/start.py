"""Where a durable subscription begins."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

from milepost.errors import InvalidValue

Start: TypeAlias = str | int | datetime | Mapping[int, int] | None

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_OFFSETS_END: Final = 1 << 63  # beyond the range of SQL's integers
_LOGS_END: Final = 1 << 32


def start_on_wire(start: Start) -> Any:
    """`start=` as SUBSCRIBE and LOOK carry it. Raises `InvalidValue` for an invalid start.

    An int stays one: it is an offset in the topic's only log, whose number the caller must still ask for.
    """
    if start is None or start in ("new", "earliest"):
        return start
    if isinstance(start, datetime):
        if start.tzinfo is None:
            raise InvalidValue(f"start={start!r} has no time zone; write datetime(..., tzinfo=UTC)")
        return {"time_us": (start - _EPOCH) // timedelta(microseconds=1)}
    if isinstance(start, int) and not isinstance(start, bool):
        _require_number("an offset", start, _OFFSETS_END)
        return start
    if isinstance(start, Mapping):
        return {"position": position_on_wire(start)}
    raise InvalidValue(
        f'start={start!r:.60}: takes "new", "earliest", an offset, a position {{log: offset}} or a datetime'
    )


def position_on_wire(position: Mapping[int, int]) -> dict[int, int]:
    """A position, checked."""
    for log, offset in position.items():
        _require_number("the number of a log", log, _LOGS_END)
        _require_number("an offset", offset, _OFFSETS_END)
    return {int(log): int(offset) for log, offset in position.items()}


def _require_number(what: str, value: Any, end: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < end:
        raise InvalidValue(f"{what} is a number from 0 on, not {value!r:.40}")
