"""The paper's experiments on the plant: drops, held space, balanced delays, and the accident."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.errors import ConfigError
from milepost.pipeline.control import Balancer, FlowController, Model, Record, Trace, settled_after
from milepost.pipeline.experiments.plant import Plant, SimulatedHog
from milepost.pipeline.experiments.simulation import (
    CAPACITY,
    EVENT_BYTES,
    HOG,
    REFERENCE,
    SimulatedRun,
    flow_control,
    identified,
    load_balancing,
    no_control,
    simulate,
    wrong_delay,
)


def lost(run: SimulatedRun) -> int:
    accounts = run.plant.accounts()
    return accounts["came"] - accounts["waiting"] - accounts["in_flight"] - accounts["out"] - accounts["dropped"]


def during_hog(run: SimulatedRun) -> np.ndarray:
    return run.trace.between(*HOG).column("measurement")


def test_figure_3_without_control_drops_grow_with_the_load() -> None:
    run = no_control()
    dropped, free = run.trace.column("dropped"), run.trace.column("measurement")
    assert dropped[:150].sum() == 0  # up to what can be merged
    steps = [dropped[last - 10 : last].mean() for last in (200, 250, 300)]
    assert 0 < steps[0] < steps[1] < steps[2]
    assert free[-10:].max() < 0.1 * free[0]  # drops come with the end of the free space
    assert run.plant.accounts()["dropped"] > 0
    assert lost(run) == 0


@pytest.mark.parametrize(("delay", "most"), [(0, 5), (1, 8), (2, 10)])
def test_figure_6_free_space_is_held_through_the_hog(delay: int, most: int) -> None:
    run = flow_control(delay=delay)
    seen = during_hog(run)
    assert np.abs(seen - REFERENCE).max() > 0.05 * REFERENCE  # the hog is felt
    settled = settled_after(seen, REFERENCE, 0.05)
    assert settled is not None
    assert settled <= most
    assert run.trace.column("dropped").sum() == 0
    assert run.trace.column("queue_bytes").max() < 2 * REFERENCE
    assert run.trace.column("waiting").max() > 10 * CAPACITY  # the excess load waits at the input
    assert lost(run) == 0


def test_figure_6_with_noise_and_micro_batches() -> None:
    plant = Plant(
        [4 * CAPACITY],
        lambda _: 1.5 * CAPACITY,
        combiner=CAPACITY,
        bound=round(2 * REFERENCE),
        hogs=[SimulatedHog(*HOG, 0.5)],
        overhead=0.8,
        delay=1,
        noise=0.005,
    )
    run = simulate(plant, 640, [FlowController(Model(1.0, -EVENT_BYTES, 0.0, 1), REFERENCE, limits=(0, 4 * CAPACITY))])
    assert np.abs(during_hog(run)[15:] - REFERENCE).max() < 0.1 * REFERENCE
    assert lost(run) == 0


def test_figure_9_a_delay_that_was_not_in_the_model_oscillates() -> None:
    wrong, right = during_hog(wrong_delay())[40:], during_hog(flow_control(delay=1))[40:]
    assert np.ptp(wrong) > 0.5 * REFERENCE
    assert np.ptp(right) < 0.01 * REFERENCE
    assert lost(wrong_delay(100)) == 0


@pytest.mark.parametrize("lanes", [2, 4])
def test_figure_8_balanced_lanes_against_round_robin(lanes: int) -> None:
    def ratio(run: SimulatedRun) -> float:
        before = run.trace.between(60, HOG[0]).column("delay")
        return float(np.nanmean(run.trace.between(*HOG).column("delay")) / np.nanmean(before))

    balanced, round_robin = load_balancing(lanes=lanes), load_balancing(lanes=lanes, balanced=False)
    assert ratio(round_robin) > 10
    assert ratio(balanced) < 1.8
    assert lost(balanced) == lost(round_robin) == 0
    weights = balanced.trace.lane(0).column("weight")
    assert weights[round(HOG[1] / 2) - 1] < 0.8 / lanes
    assert weights[-1] == pytest.approx(1 / lanes, rel=0.2)  # and back, when the hog is gone


def test_both_controllers_at_once_lose_nothing_and_hold() -> None:
    plant = Plant(
        [CAPACITY] * 3,
        lambda _: 1.8 * CAPACITY,
        combiner=3 * CAPACITY,
        bound=round(2 * REFERENCE),
        hogs=[SimulatedHog(100, 250, 0.3, lane=1)],
        overhead=0.3,
    )
    flow = [FlowController(Model(1.0, -EVENT_BYTES), REFERENCE, limits=(0, 4 * CAPACITY)) for _ in plant.lanes]
    run = simulate(plant, 400, flow, Balancer(3))
    assert lost(run) == 0
    assert run.plant.accounts()["dropped"] == 0
    assert run.trace.column("queue_bytes").max() <= 2 * REFERENCE
    assert run.plant.accounts()["waiting"] < CAPACITY  # what had to wait has been done since
    assert np.nanmean(run.trace.between(350, 400).column("delay")) < 2


@pytest.mark.parametrize("delay", [0, 1, 2])
def test_the_delay_of_a_plant_is_identified_from_a_short_run(delay: int) -> None:
    plant = Plant(
        [4 * CAPACITY],
        lambda _: 100 * CAPACITY,
        combiner=CAPACITY,
        bound=round(2 * REFERENCE),
        overhead=0.3,
        delay=delay,
        noise=0.005,
    )
    found = identified(plant, CAPACITY, 3 * CAPACITY)
    assert found.model.delay == delay
    assert found.model.a == pytest.approx(1.0, abs=0.02)
    assert found.model.b == pytest.approx(-EVENT_BYTES, rel=0.05)
    assert found.quality.r2 > 0.98


@given(
    rates=st.lists(st.integers(10, 3000), min_size=1, max_size=3),
    loads=st.lists(st.integers(0, 5000), min_size=1, max_size=6),
    bound=st.integers(1, 2000),
    drops=st.booleans(),
    controlled=st.booleans(),
    overhead=st.sampled_from([0.0, 0.4]),
    delay=st.integers(0, 2),
)
def test_no_event_is_ever_lost_without_being_counted(
    rates: list[int], loads: list[int], bound: int, drops: bool, controlled: bool, overhead: float, delay: int
) -> None:
    plant = Plant(
        rates,
        lambda time: float(loads[int(time / 4) % len(loads)]),
        combiner=2000.0,
        bound=bound,
        event_bytes=1,
        hogs=[SimulatedHog(8, 16, 0.2, lane=0)],
        on_overflow="drop" if drops else "wait",
        overhead=overhead,
        delay=delay,
    )
    flow = [FlowController(Model(1.0, -1.0, 0.0, delay), bound / 2) for _ in rates] if controlled else None
    run = simulate(plant, 24, flow)
    assert lost(run) == 0
    if not drops:
        assert run.plant.accounts()["dropped"] == 0
    assert run.trace.column("queue_bytes").max() <= bound


def test_a_trace_survives_json_and_gives_columns() -> None:
    run = load_balancing(20)
    again = Trace.from_json_lines(run.trace.to_json_lines().replace('{"k"', '{"new_in_a_later_version":1,"k"'))
    assert list(again) == list(run.trace)
    assert again.lanes == [0, 1]
    assert again.last()[1].k == 9
    assert len(again.lane(0)) == 10
    assert np.isnan(again.column("set_point")).all()
    assert len(Trace((Record(k, 0.0, 0) for k in range(10)), limit=3)) == 3


def test_settled_after_counts_intervals() -> None:
    assert settled_after(np.array([100.0, 101, 99]), 100, 0.05) == 0
    assert settled_after(np.array([100.0, 80, 99, 94, 100]), 100, 0.05) == 4
    assert settled_after(np.array([100.0, 80]), 100, 0.05) is None


def test_a_lane_at_a_full_queue_can_wait_or_drop() -> None:
    with pytest.raises(ConfigError):
        Plant([1.0], lambda _: 1.0, on_overflow="explode")
