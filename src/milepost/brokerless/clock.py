"""The time of the database, which decides for all clients which messages are due or expired."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from milepost.operations import Look
from milepost.storage.database import Session
from milepost.storage.execution import WorkContext, execute
from milepost.storage.statement import Statement

_NOW: Final = Statement("SELECT {now}")


@dataclass(frozen=True)
class DatabaseTime(Look):
    """Read the database's clock, in microseconds since 1970, and this process's monotonic clock before and after."""


@execute.register
def _(operation: DatabaseTime, session: Session, context: WorkContext) -> tuple[int, int, int]:
    """The arguments of `DatabaseClock.set`."""
    before = _steady_us()
    (now,) = session.row(_NOW, time_us=context.time_us)
    return before, now, _steady_us()


class DatabaseClock:
    """Calling it returns the database's time, in microseconds since 1970.

    Between readings of the database's clock it follows the machine's monotonic clock.
    """

    def __init__(self) -> None:
        self._ahead_us = time.time_ns() // 1_000 - _steady_us()

    def __call__(self) -> int:
        return _steady_us() + self._ahead_us

    def set(self, before_us: int, now_us: int, after_us: int) -> None:
        """Adjust to a reading made between two times of the monotonic clock; only as far as the reading requires."""
        least, most = now_us - after_us, now_us - before_us
        self._ahead_us = min(max(self._ahead_us, least), most)


def _steady_us() -> int:
    return time.monotonic_ns() // 1_000
