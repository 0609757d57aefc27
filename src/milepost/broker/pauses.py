"""Times the pauses of the event loop: Python's garbage collector, the broker's own timers, and a thread that loads
kernels and shares the GIL with the loop.

They explain the slowest messages. Timing adds a microsecond to a collection.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

from milepost.broker.clock import Clock
from milepost.kernels.compiler import loads


class Pause:
    """Count and duration of one kind of pause, in seconds."""

    __slots__ = ("count", "longest", "total")

    def __init__(self) -> None:
        self.count, self.total, self.longest = 0, 0.0, 0.0

    def add(self, seconds: float) -> None:
        self.count += 1
        self.total += seconds
        self.longest = max(self.longest, seconds)

    def figures(self) -> dict[str, Any]:
        return {"count": self.count, "total_ms": self.total * 1e3, "longest_ms": self.longest * 1e3}


class Pauses:
    """The pauses of one process by name, from `start` to `stop`. Collections of all its threads count."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._found: dict[str, Pause] = {"collector": Pause()}
        self._began = 0.0

    def start(self) -> None:
        gc.callbacks.append(self._collected)

    def stop(self) -> None:
        if self._collected in gc.callbacks:
            gc.callbacks.remove(self._collected)

    def every(self, seconds: float, name: str, call: Callable[[], None]) -> Callable[[], None]:
        """Call repeatedly, as `Clock.every` does, and time each call."""
        pause = self._found.setdefault(name, Pause())

        def timed() -> None:
            began = time.perf_counter()
            call()
            pause.add(time.perf_counter() - began)

        return self._clock.every(seconds, timed)

    def figures(self) -> dict[str, Any]:
        loading = Pause()
        for seconds in loads:
            loading.add(seconds)
        return {name: pause.figures() for name, pause in (*self._found.items(), ("loading kernels", loading))}

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._began = time.perf_counter()
        else:
            self._found["collector"].add(time.perf_counter() - self._began)
