"""How everything here is timed."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar

Name = TypeVar("Name", bound=Hashable)


def best(contestants: Mapping[Name, Callable[[], Any]], repeats: int) -> dict[Name, float]:
    """Nanoseconds of the quickest of `repeats` runs of each contestant.

    All take turns, so that a neighbour's noise on the machine hits all alike, and the quickest run is kept, because
    noise only adds. A turn is two runs: other work in between may have emptied the caches, and the first run of the
    two fills them again, as checking a message on arrival does. No collector runs in between.
    """
    shortest = dict.fromkeys(contestants, float("inf"))
    gc.collect()
    gc.disable()
    try:
        for _ in range(repeats):
            for name, contestant in contestants.items():
                for _ in range(2):
                    start = time.perf_counter_ns()
                    contestant()
                    shortest[name] = min(shortest[name], time.perf_counter_ns() - start)
    finally:
        gc.enable()
    return shortest


def seconds(contestant: Callable[[], Any], repeats: int) -> float:
    """Seconds of the quickest run of one contestant alone."""
    return best({"": contestant}, repeats)[""] / 1e9
