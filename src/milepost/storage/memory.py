"""The state that a process which writes a log keeps between transactions."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from milepost.schema import Schema

PUBLISHERS_KNOWN: Final = 200_000  # kept in memory, some 200 bytes each; others are looked up when they publish


class LogHolder(NamedTuple):
    """The log that this process writes, and the epoch that fences it."""

    log: int
    opening: int
    epoch: int
    shared: bool
    lease_us: int


class PublisherState(NamedTuple):
    """A publisher that this process enrolled."""

    epoch: int
    high_water: int
    home: int  # the log where it was enrolled first
    trail: dict[int, int]  # topic -> the log where it wrote last, if that is not `home`


class StoreMemory:
    """State that a process may cache between transactions: no other process changes it while the epochs hold."""

    def __init__(self) -> None:
        self.publishers: Final[dict[int, PublisherState]] = {}
        self.nexts: Final[dict[int, int]] = {}  # topic -> the next offset in this log
        self.schemas: Final[dict[tuple[int, int], Schema]] = {}  # by topic and fingerprint; never changes
        self.parts: Final[dict[str, Any]] = {}  # state of other parts, which know when it is stale

    def clear(self) -> None:
        self.publishers.clear()
        self.nexts.clear()
