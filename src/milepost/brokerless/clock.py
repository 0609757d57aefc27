"""The time of the database: what is due and what has expired is not for each client's own clock to say."""

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
    """What the database says: microseconds since 1970, and of this process's steady clock before and after it."""


@execute.register
def _(operation: DatabaseTime, session: Session, context: WorkContext) -> tuple[int, int, int]:
    """See `DatabaseClock.set`."""
    before = _steady_us()
    (now,) = session.row(_NOW, time_us=context.time_us)
    return before, now, _steady_us()


class DatabaseClock:
    """Called for microseconds since 1970, as the database has them.

    Between the answers of that it goes by the machine's steady clock, which nobody sets.
    """

    def __init__(self) -> None:
        self._ahead_us = time.time_ns() // 1_000 - _steady_us()

    def __call__(self) -> int:
        return _steady_us() + self._ahead_us

    def set(self, before_us: int, now_us: int, after_us: int) -> None:
        """An answer was on its way between two times of the steady clock. What it does not contradict stays."""
        least, most = now_us - after_us, now_us - before_us
        self._ahead_us = min(max(self._ahead_us, least), most)


def _steady_us() -> int:
    return time.monotonic_ns() // 1_000
