"""Numbers of messages and transactions: 63 bits, unique in a store, ordered by time.

::

    ┌──────────────────────────────────────────────────┬─────────┐
    │ microseconds since 2024-01-01T00:00Z, 51 bits    │ lane 12 │
    └──────────────────────────────────────────────────┴─────────┘

The lane is the log number of the broker that made the number, so that brokers of a cell need not coordinate. A broker
uses each microsecond once: after a million messages in half a second its numbers are half a second ahead of its clock,
which does no harm. M alone identifies a message; in `S/T/M`, S is its writer, the number of the client, and T the
transaction that wrote it.
"""

from __future__ import annotations

from typing import Final

from milepost.errors import ConfigError
from milepost.query.header import EPOCH_US, LANE_BITS

LANES: Final = 1 << LANE_BITS
OUTBOX_LANE: Final = 0  # of messages enqueued in a caller's own database transaction; logs count from 1


class Numbers:
    """Makes the numbers of one lane. Used by one thread."""

    def __init__(self, lane: int, highest: int = 0) -> None:
        """`highest` is the highest number made before, in any lane."""
        if lane >= LANES:
            raise ConfigError(
                f"queues know {LANES - 1} brokers of a store, and this one is number {lane}: "
                "keep the names of brokers when they are replaced"
            )
        self._lane = lane
        self._next = (highest >> LANE_BITS) + 1

    def follow(self, number: int) -> None:
        """Make only numbers above `number`, from another broker, whose clock may be ahead."""
        self._next = max(self._next, (number >> LANE_BITS) + 1)

    def take(self, count: int, time_us: int) -> list[int]:
        """The next `count` numbers, ascending, above all earlier ones."""
        first = max(self._next, time_us - EPOCH_US)
        self._next = first + count
        return [tick << LANE_BITS | self._lane for tick in range(first, first + count)]


def later(number: int, by: int) -> int:
    """The number that follows `number` by `by` places, of numbers taken together."""
    return number + (by << LANE_BITS)


def enqueued_us(number: int) -> int:
    """When a number was made, in microseconds since 1970."""
    return (number >> LANE_BITS) + EPOCH_US


def mid(s: int, t: int, m: int) -> str:
    """A message ID as text."""
    return f"{s}/{t}/{m}"
