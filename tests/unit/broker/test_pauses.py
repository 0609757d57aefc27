"""Pauses are counted, with the longest of each kind."""

from __future__ import annotations

import gc

from milepost.broker.pauses import Pauses
from milepost.testing import FakeClock


def test_collections_and_timers_are_timed() -> None:
    clock, calls = FakeClock(), [0]

    def call() -> None:
        calls[0] += 1

    pauses = Pauses(clock)
    end = pauses.every(1.0, "tick", call)
    pauses.start()
    gc.collect()
    gc.collect()
    clock.advance(3.0)
    pauses.stop()
    pauses.stop()
    counted = pauses.figures()["collector"]["count"]
    gc.collect()
    end()
    clock.advance(3.0)
    found = pauses.figures()
    assert found.keys() == {"collector", "tick", "loading kernels"}
    assert found["tick"]["count"] == calls[0] > 0
    assert found["collector"]["count"] == counted >= 2
    for each in (found["collector"], found["tick"]):
        assert each["total_ms"] >= each["longest_ms"] > 0
    assert pauses._collected not in gc.callbacks
