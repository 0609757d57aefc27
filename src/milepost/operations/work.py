"""The base class of operations of parts other than the log: what the store needs to know of them."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass


class Work:
    """An operation of a part other than the log. The part registers a function with `storage.execution.execute`."""

    @property
    def durable(self) -> bool:
        """Whether its outcome promises that it is on disk; a group without such a promise is not synced."""
        return True

    @property
    def size(self) -> int:
        """Approximate number of bytes that it writes."""
        return 0

    @property
    def client(self) -> Hashable | None:
        """The client whose expressions it evaluates, if any: one that delays the others for long is delayed itself."""
        return None


class Look(Work):
    """An operation that only reads."""

    durable = False


@dataclass(frozen=True)
class Barrier(Look):
    """Wait for all operations before it. Outcome: None."""
