"""Lanes that get nothing for now, and how they are found well again."""

from __future__ import annotations

import numpy as np
import pytest

from milepost.pipeline.control import Balancer, ResponseMeter, split
from milepost.pipeline.control.pauses import BARRED, PROBE, RAREST, LanePauses, late
from milepost.pipeline.control.split import without
from milepost.pipeline.experiments.plant import Plant, SimulatedHog
from milepost.pipeline.experiments.simulation import CAPACITY, HOG, SimulatedRun, simulate


def test_a_lane_pauses_when_the_least_it_could_get_would_take_longer_than_all_that_others_have() -> None:
    pauses = LanePauses(2)
    pauses.step([1.4, 1.2], [0.5, 0.4])
    assert pauses.of([0.4, 0.6]) == [0.4, 0.6]
    pauses.step([3.0, 1.2], [1.1, 0.4])  # it is slow because much is before it: the balancer's business
    assert not pauses.paused(0)
    pauses.step([3.0, 1.2], [1.3, 0.4])
    assert pauses.paused(0)
    assert pauses.of([0.4, 0.6]) == [0.0, 1.0]


def test_probes_become_rarer_until_one_says_that_the_lane_is_well() -> None:
    pauses = LanePauses(2)
    probed = []
    for interval in range(100):
        pauses.step([3.0, 1.2], [2.0, 0.4])
        if pauses.probes:
            assert pauses.probes == [0]
            probed.append(interval)
    assert np.diff([0, *probed])[:3].tolist() == [PROBE, 2 * PROBE, 4 * PROBE]
    assert set(np.diff(probed)[2:]) == {RAREST}
    pauses.step([1.2, 1.2], [1.1, 0.4])
    assert pauses.paused(0)  # nearly
    pauses.step([1.2, 1.2], [0.5, 0.4])
    assert not pauses.paused(0)
    pauses.step([3.0, 1.2], [2.0, 0.4])
    assert pauses.paused(0)


def test_a_lane_that_others_cannot_do_without_is_left_alone_for_long() -> None:
    pauses = LanePauses(2)
    pauses.step([3.0, 1.2], [2.0, 0.4])
    assert pauses.paused(0)
    pauses.step([3.0, 9.0], [2.0, 0.4])
    assert not pauses.paused(0)
    for _ in range(BARRED - 1):
        pauses.step([3.0, 1.2], [2.0, 0.4])
        assert not pauses.paused(0)
    pauses.step([3.0, 1.2], [2.0, 0.4])
    assert pauses.paused(0)


def test_somebody_always_works() -> None:
    pauses = LanePauses(3)
    for _ in range(5):
        pauses.step([9.0, 5.0, 1.0], [9.0, 5.0, 1.0])
        assert pauses.of([0.2, 0.3, 0.5]) == [0.0, 0.0, 1.0]
    pauses.step([9.0, 5.0, None], [9.0, 5.0, None])
    assert sum(pauses.of([0.2, 0.3, 0.5])) == pytest.approx(1)
    alone = LanePauses(1)
    alone.step([100.0], [100.0])
    assert alone.of([1.0]) == [1.0]


def test_one_lane_alone_is_late() -> None:
    assert late([2.1, 1.0], 2.0) == [0]
    assert late([2.1, 2.2], 2.0) == []
    assert late([0.0, 1.9, 50.0], 2.0) == [2]
    assert late([9.0], 2.0) == []


def test_a_lane_without_a_weight_gets_no_event_at_all() -> None:
    carry: list[float] | None = None
    counts, carry = split(7, [0.3, 0.7], carry)
    for _ in range(50):
        counts, carry = split(3, without([0.3, 0.7], [0]), carry)
        assert counts == [0, 3]
    assert without([0.0, 1.0], [1]) == [0.0, 1.0]


def test_the_meter_tells_what_a_micro_batch_takes_anyway() -> None:
    meter = ResponseMeter()
    meter.step(0.0, 0)
    assert meter.alone is None
    meter.commit(1.0, 100, busy=0.2, turn=0.5)
    meter.step(1.0, 100)
    assert meter.alone == 0.5
    meter.step(1.8, 150)
    assert meter.alone == 0.5  # the next is under way, as long as usual
    meter.step(3.0, 200)
    assert meter.alone == pytest.approx(2.0)  # … and longer
    meter.commit(3.5, 200, busy=0.4)
    meter.step(4.0, 200)
    assert meter.alone == 0.4


def test_where_a_hog_makes_the_fixed_cost_dear_a_pause_keeps_the_delay() -> None:
    """Light load, so that one lane can do it all, and micro-batches whose fixed cost is most of them."""

    def run(balanced: bool) -> SimulatedRun:
        plant = Plant(
            [CAPACITY] * 2,
            lambda _: 0.1 * CAPACITY,
            bound=10**12,
            hogs=[SimulatedHog(*HOG, 0.15, lane=0)],
            overhead=0.5,
            overhead_slows=True,
        )
        return simulate(plant, 640, balancer=Balancer(2) if balanced else None)

    def ratio(run: SimulatedRun) -> float:
        before = run.trace.between(60, HOG[0]).column("delay")
        return float(np.nanmean(run.trace.between(*HOG).column("delay")) / np.nanmean(before))

    balanced, round_robin = run(True), run(False)
    assert ratio(round_robin) > 3
    assert ratio(balanced) < 1.5  # probes take six times as long as micro-batches did before
    accounts = balanced.plant.accounts()
    assert accounts["came"] == accounts["waiting"] + accounts["in_flight"] + accounts["out"]
    weights = balanced.trace.lane(0).column("weight")
    assert weights[round(HOG[1] / 2) - 1] == 0
    assert weights[-1] > 0.1  # and back, when the hog is gone
