"""Where a durable subscription begins, and where a read ends: a replay with a `stop`, before which all rows exist."""

from __future__ import annotations

from typing import Any

from milepost import limits
from milepost.broker.core.topics.topic import Topic
from milepost.errors import BrokerError, RowsGone
from milepost.operations import Position, Start
from milepost.wire import Subscribe


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


def stop_of(request: Subscribe, start: Start) -> Position | None:
    """The stop of a request; None: the subscription has no end."""
    if request.stop is None:
        return None
    if request.name:
        raise BrokerError("only a replay has a stop; a subscription with a name goes on")
    if not isinstance(start, tuple) or start[0] != "position":
        raise BrokerError("what has a stop starts at a position")
    stop = position_of(request.stop)
    for log, end in stop.items():
        if start[1].get(log, 0) > end:
            raise BrokerError(f"a read of log {log} from offset {start[1][log]} to before offset {end} is no range")
    return stop


def begin_of(topic: Topic, start: Position, stop: Position, logs: list[dict[str, Any]]) -> Position:
    """The first offset of a read in each of its logs; `logs` are the extents as the store reports them.

    Raises `RowsGone` when rows were removed, `BrokerError` when a log ends before the stop: waiting for the rows would
    hide that the offset belongs to another broker or another topic.
    """
    extents = {each["log"]: each for each in logs}
    begin = {log: start.get(log, 0) for log in stop}
    for log, end in stop.items():
        extent = extents.get(log, {"start": 0, "next": 0})
        if end > extent["next"]:
            raise BrokerError(
                f"topic {topic.name!r} has no rows to before offset {end} in log {log}: that ends at {extent['next']}"
            )
        if begin[log] < min(extent["start"], end):
            raise gone(topic, log, begin[log], min(extent["start"], end))
    return begin


def gone(topic: Topic, log: int, first: int, after: int) -> RowsGone:
    """The error for rows of a read that were removed."""
    return RowsGone(
        f"offsets {first} to {after - 1} of log {log} of topic {topic.name!r} were to be read and are gone: retention "
        "or an operator removed them; begin behind them, and hold what is still to be read (see `hold`)"
    )
