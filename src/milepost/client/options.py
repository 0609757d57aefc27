"""The options of a durable subscription."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from milepost import limits
from milepost.client.topic import require_text
from milepost.errors import InvalidValue

PREFETCH: Final = 10_000  # rows handed out and not acknowledged: some ten milliseconds of the fastest consumer


class DurableOptions(NamedTuple):
    """The options of a durable subscription, checked."""

    name: str  # empty: a replay, which belongs to this client alone and acknowledges nothing
    start: Any  # as on the wire
    explicit: bool
    prefetch: int  # rows that may be handed out and not acknowledged
    max_deliveries: int  # of a row before it is dead; 0: no limit
    dead_letter: str  # topic for dead rows
    create: bool
    stop: dict[int, int] | None = None  # of a read: the position where it ends
    hands: bool = False  # messages are handed on, and each handout is stored


def checked_options(
    name: str | None,
    start: Any,
    ack: str,
    prefetch: int,
    max_deliveries: int | None,
    dead_letter: str | None,
    create: bool,
) -> DurableOptions:
    """Check the options of a durable subscription here: the broker would close the connection over a bad one."""
    if name is not None:
        require_text("the name of a subscription", name)
        if not name:
            raise InvalidValue("the name of a subscription is empty; leave it out for a replay")
        limits.require("NAME_CHARS", len(name), "the characters of a subscription's name")
    elif max_deliveries is not None or dead_letter is not None or ack != "auto" or not create:
        raise InvalidValue("a replay acknowledges nothing; give the subscription a name")
    if ack not in ("auto", "explicit", "handed"):
        raise InvalidValue(f'ack={ack!r}: takes "auto", "explicit" or "handed"')
    if isinstance(prefetch, bool) or not isinstance(prefetch, int) or prefetch < 1:
        raise InvalidValue(f"prefetch={prefetch!r}: takes a number of messages, from 1 on")
    limits.require("PREFETCH_ROWS", prefetch, "the messages that may be here and not acknowledged")
    require_dead_letter("a dead-letter topic", max_deliveries, dead_letter)
    return DurableOptions(
        name or "", start, ack != "auto", prefetch, max_deliveries or 0, dead_letter or "", create,
        hands=ack == "handed",
    )  # fmt: skip


def require_dead_letter(what: str, max_deliveries: Any, dead_letter: Any) -> None:
    """Refuse a delivery limit or a dead-letter name that no topic and no queue can have."""
    if max_deliveries is not None:
        if isinstance(max_deliveries, bool) or not isinstance(max_deliveries, int) or max_deliveries < 1:
            raise InvalidValue(f"max_deliveries={max_deliveries!r}: takes a number from 1 on, or None for no bound")
        limits.require("DELIVERIES", max_deliveries, "max_deliveries")
    if dead_letter is not None:
        require_text(what, dead_letter)
    if (max_deliveries is None) != (dead_letter is None):
        raise InvalidValue("dead_letter takes messages that were delivered max_deliveries times: give both or neither")
