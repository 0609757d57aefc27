"""A clock that tests advance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(eq=False)
class _Timer:
    seconds: float
    call: Callable[[], None]
    due: float


class FakeClock:
    """A clock that stands still between calls of `advance`."""

    def __init__(self, time_us: int = 1_700_000_000_000_000) -> None:
        self._start_us = time_us
        self._now = 0.0
        self._timers: list[_Timer] = []

    def monotonic(self) -> float:
        return self._now

    def time_us(self) -> int:
        return self._start_us + int(self._now * 1_000_000)

    def every(self, seconds: float, call: Callable[[], None]) -> Callable[[], None]:
        timer = _Timer(seconds, call, self._now + seconds)
        self._timers.append(timer)
        return lambda: self._timers.remove(timer) if timer in self._timers else None

    def advance(self, seconds: float) -> None:
        """Advance the time. Due timers are called in order, each at its time."""
        end = self._now + seconds
        while self._timers:
            timer = min(self._timers, key=lambda each: each.due)
            if timer.due > end:
                break
            self._now = timer.due
            timer.due += timer.seconds
            timer.call()
        self._now = end
