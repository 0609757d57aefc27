"""How everything here is timed."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar

Name = TypeVar("Name", bound=Hashable)


def best(contestants: Mapping[Name, Callable[[], Any]], repeats: int) -> dict[Name, float]:
    """Nanoseconds of the quickest of `repeats` runs of each contestant.

    The runs are interleaved, so that a neighbour's noise on the machine hits all alike, and the quickest is kept,
    because noise only ever adds. The first round warms caches and does not count. No collector runs in between.
    """
    shortest = dict.fromkeys(contestants, float("inf"))
    gc.collect()
    gc.disable()
    try:
        for round_number in range(repeats + 1):
            for name, contestant in contestants.items():
                start = time.perf_counter_ns()
                contestant()
                spent = time.perf_counter_ns() - start
                if round_number:
                    shortest[name] = min(shortest[name], spent)
    finally:
        gc.enable()
    return shortest


def seconds(contestant: Callable[[], Any], repeats: int) -> float:
    """Seconds of the quickest run of one contestant alone."""
    return best({"": contestant}, repeats)[""] / 1e9
