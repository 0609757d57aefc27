"""What a process that writes a log knows between its transactions."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from milepost.schema import Schema

PUBLISHERS_KNOWN: Final = 200_000  # kept in memory, some 200 bytes each; others are looked up when they write


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
    trail: dict[int, int]  # topic -> log: where it wrote last, as far as that is not `home`


class StoreMemory:
    """What a process may remember between transactions, because no other process changes it while its epochs hold."""

    def __init__(self) -> None:
        self.publishers: Final[dict[int, PublisherState]] = {}
        self.nexts: Final[dict[int, int]] = {}  # topic -> the next offset in this log
        self.schemas: Final[dict[tuple[int, int], Schema]] = {}  # by topic and fingerprint; for ever the same
        self.parts: Final[dict[str, Any]] = {}  # what other parts remember of their own; they know when it is old

    def clear(self) -> None:
        self.publishers.clear()
        self.nexts.clear()

    def learn(self, publishers: dict[int, PublisherState], nexts: dict[int, int], dropped: set[int]) -> None:
        """Take over what a transaction did, once it is committed."""
        self.publishers.update(publishers)
        while len(self.publishers) > PUBLISHERS_KNOWN:
            del self.publishers[next(iter(self.publishers))]
        self.nexts.update(nexts)
        for topic in dropped:
            self.nexts.pop(topic, None)
