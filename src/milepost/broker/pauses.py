"""What keeps an event loop from its clients for a moment: Python's collector, the broker's own timers, and a thread
that loads kernels, with which the loop shares the interpreter.

Each is timed, to explain the slowest messages; that adds a microsecond to a collection.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

from milepost.broker.clock import Clock
from milepost.kernels.compiler import loads


class Pause:
    """How often something happened, and how long it took."""

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
    """Of one process, from `start` to `stop`; by name. Those of the collector are of all its threads."""

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
        """Call something again and again, as a clock does, and time it."""
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
