"""Operations of other parts than the log, which say by themselves what the store is to know of them."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass


class Work:
    """An operation of another part than the log, which registers how it is carried out: `storage.execution.execute`."""

    @property
    def durable(self) -> bool:
        """Whether its answer promises that it is on disk; a group without such a promise is not synced."""
        return True

    @property
    def size(self) -> int:
        """Bytes that it writes, more or less."""
        return 0

    @property
    def client(self) -> Hashable | None:
        """Whose expressions it evaluates, if any: a client that holds up the others for long is held back itself."""
        return None


class Look(Work):
    """Work that changes nothing."""

    @property
    def durable(self) -> bool:
        """There is nothing to promise."""
        return False


@dataclass(frozen=True)
class Barrier(Look):
    """Is done when everything before it is: None."""
