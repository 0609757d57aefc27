"""Where a durable subscription begins."""

from __future__ import annotations

from typing import Any

from milepost import limits
from milepost.broker.core.topics.topic import Topic
from milepost.errors import BrokerError
from milepost.operations import Position, Start


def require_there(topic: Topic, start: Start) -> None:
    """Raise if the position at which a subscription begins is beyond the end of a log."""
    if isinstance(start, tuple) and start[0] == "position":
        for log, offset in start[1].items():
            end = topic.ends.get(log, 0)
            if offset > end:
                raise BrokerError(f"topic {topic.name!r} has no offset {offset} in log {log}: that ends at {end}")


def start_of(given: Any) -> Start:
    """The start of a subscription, from a request."""
    match given:
        case None | "new":
            return "new"
        case "earliest":
            return "earliest"
        case {"time_us": int(time_us)}:
            return ("time", time_us)
        case {"position": dict(position)} if _is_position(position):
            return ("position", dict(position))
    raise BrokerError('a subscription starts "new", "earliest", at a time or at a position')


def position_of(given: dict[int, int]) -> Position:
    """A position, from a request."""
    if not _is_position(given):
        raise BrokerError("a position is {log: offset}, both counted from 0 on")
    return dict(given)


def _is_position(position: dict[Any, Any]) -> bool:
    return len(position) <= limits.LOGS and all(
        isinstance(log, int) and isinstance(offset, int) and 0 <= offset < 1 << 63 and 0 <= log < 1 << 31
        for log, offset in position.items()
    )
