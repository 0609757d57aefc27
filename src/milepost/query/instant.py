"""Dates and timestamps as numbers, and timestamps from text, for all back ends."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import Final

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_DAY: Final = EPOCH.toordinal()
DAY_MICROSECONDS: Final = 86_400_000_000
_MICROSECOND: Final = timedelta(microseconds=1)
_TIMESTAMP: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?(Z|[+-][0-9]{2}:[0-9]{2})\Z"
)


def timestamp(text: str) -> datetime:
    """The timestamp of a literal, in UTC. Raises ValueError for other text."""
    if not _TIMESTAMP.match(text):
        raise ValueError(text)
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except OverflowError as error:
        raise ValueError(text) from error


def days(value: date) -> int:
    """Days since 1970-01-01."""
    return value.toordinal() - EPOCH_DAY


def microseconds(value: datetime) -> int:
    """Microseconds since 1970-01-01T00:00:00Z."""
    return (value - EPOCH) // _MICROSECOND
