"""The broker's clock. Tests use their own: `milepost.testing.FakeClock`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """Time, and calls at intervals."""

    def monotonic(self) -> float:
        """Seconds that only go forward."""

    def time_us(self) -> int:
        """Microseconds since 1970."""

    def every(self, seconds: float, call: Callable[[], None]) -> Callable[[], None]:
        """Call repeatedly, in the event loop's thread. The result is a function that ends it."""


class SystemClock:
    """The machine's clock and the running event loop's timers."""

    monotonic = staticmethod(time.monotonic)

    def time_us(self) -> int:
        return time.time_ns() // 1_000

    def every(self, seconds: float, call: Callable[[], None]) -> Callable[[], None]:
        loop = asyncio.get_running_loop()
        pending: list[asyncio.TimerHandle] = []

        def again() -> None:
            pending[:] = [loop.call_later(seconds, again)]
            call()

        pending.append(loop.call_later(seconds, again))
        return lambda: pending[0].cancel()
