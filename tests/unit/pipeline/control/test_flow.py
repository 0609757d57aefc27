"""Free space is held; limits, gaps and changes of the plant are lived through; nothing winds up."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.errors import ConfigError
from milepost.pipeline.control import FlowController, Model, settled_after, spectral_radius
from milepost.pipeline.control.flow import PATIENCE
from milepost.pipeline.control.placement import Gains
from milepost.pipeline.control.regulator import Regulator
from milepost.pipeline.experiments.plant import FirstOrder
from milepost.pipeline.experiments.simulation import PAPER_GAINS

REFERENCE = 400.0
BALANCE = 10.0  # events an interval that hold the free space where it is


def queue(delay: int = 0, b: float = -1.0, a: float = 1.0) -> Model:
    return Model(a, b, (1 - a) * REFERENCE - b * BALANCE, delay)


def held(controller: FlowController, plant: FirstOrder, intervals: int) -> np.ndarray:
    """Free space at the start of each interval."""
    seen = []
    for _ in range(intervals):
        seen.append(plant.y)
        plant.step(controller.step(plant.measure()))
    return np.array(seen)


@pytest.mark.parametrize("delay", [0, 1, 2, 3])
def test_a_disturbance_is_gone_in_about_the_settling_time(delay: int) -> None:
    plant = FirstOrder(queue(delay), start=REFERENCE)
    controller = FlowController(plant.model, REFERENCE, settling=5)
    assert controller.input == BALANCE  # it knows where it will end
    assert held(controller, plant, 5) == pytest.approx(REFERENCE)
    plant.disturbance = -4.0
    after = settled_after(held(controller, plant, 60) - REFERENCE + 40.0, 40.0, 0.02)
    # The formula is about the slowest pole; a delay adds its own intervals before anything can happen, and poles.
    assert after is not None
    assert after <= 5 + 3 * delay + 2


def test_the_same_gains_without_and_with_the_delay_nobody_told_of() -> None:
    model = Model(0.985, -134.0)
    late = Model(0.985, -134.0, 0.0, 1)

    def run(plant_model: Model, gains: Gains | None, believed: Model) -> np.ndarray:
        plant = FirstOrder(plant_model, start=100.0)
        controller = FlowController(believed, 0.0, 5, limits=(0, 1e9), gains=gains, start=1e6)
        plant.y = 100.0
        seen = []
        for _ in range(40):
            seen.append(plant.y)
            plant.step(controller.step(plant.y) - 1e6)  # around an operating point, so that no limit is in play
        return np.abs(np.array(seen))

    assert run(model, PAPER_GAINS, model)[10:].max() < 2
    wrong = run(late, PAPER_GAINS, model)
    assert wrong[30:40].max() > 50 * wrong[15:25].max()  # 1.51 to the 15th is 480
    assert run(late, None, late)[12:].max() < 2
    assert spectral_radius(late, PAPER_GAINS) > 1.5


@given(
    delay=st.integers(0, 3),
    episode=st.lists(st.floats(-300, 300), min_size=1, max_size=60),
    settling=st.floats(4, 12),
)
def test_after_any_time_at_a_limit_it_recovers_as_if_nothing_had_been(
    delay: int, episode: list[float], settling: float
) -> None:
    """Whatever drives it to its limits, for however long: afterwards the way back has a bounded length."""
    plant = FirstOrder(queue(delay), start=REFERENCE)
    controller = FlowController(plant.model, REFERENCE, settling, limits=(0, 40))
    for disturbance in episode:
        plant.disturbance = disturbance
        held(controller, plant, 1)
        plant.y = min(max(plant.y, 0.0), 2 * REFERENCE)  # a queue is neither more than empty nor more than full
    plant.disturbance = 0.0
    # From the far end it takes REFERENCE / 10 intervals at the limit of 0 (or / 30 at that of 40), then the loop
    # settles.
    seen = held(controller, plant, 200)
    after = settled_after(seen, REFERENCE, 0.05)
    assert after is not None
    assert after <= REFERENCE / BALANCE + 10 * (settling + delay)


def test_at_a_limit_nothing_winds_up() -> None:
    controller = FlowController(queue(), REFERENCE, limits=(0, 40))
    for _ in range(1000):
        assert controller.step(REFERENCE + 300) == 40
    assert controller.saturated
    first = controller.step(REFERENCE - 20)  # the first sign of too little space is acted on at once
    assert first < 40
    for _ in range(1000):
        controller.step(REFERENCE - 300)
    assert controller.input == 0
    assert controller.step(REFERENCE + 20) > 0


def test_an_input_that_was_not_used_up_is_not_saved_for_later() -> None:
    controller = FlowController(queue(), REFERENCE, limits=(0, 1e6), start=0.0)
    for _ in range(500):
        assert controller.admit(2 * REFERENCE, waiting=3) == 3  # an idle night
    burst = controller.admit(2 * REFERENCE, waiting=10**9)
    assert burst <= REFERENCE + 3  # never more than fits
    assert FlowController(queue(), REFERENCE).admit(REFERENCE, waiting=0) == 0


def test_what_was_applied_later_than_decided_can_be_told() -> None:
    regulator = Regulator(Gains(0.0, 1.0), (0, 100), 10.0)
    assert regulator.step(5.0) == 15
    assert regulator.step(5.0) == 20
    regulator.applied(12.0, ago=1)  # so there was no more: the last one will not find more either
    assert regulator.input == 12
    assert regulator.step(5.0) == 17
    regulator.applied(17.0, ago=0)
    assert regulator.input == 17
    with pytest.raises(ConfigError):
        regulator.applied(1.0, ago=99)


def test_fractions_of_events_are_carried() -> None:
    controller = FlowController(queue(), REFERENCE, start=0.4, gains=Gains(0.0, 0.0))
    assert sum(controller.admit(REFERENCE) for _ in range(10)) == 4


def test_missing_measurements_hold_the_input_and_then_lower_it() -> None:
    controller = FlowController(queue(), REFERENCE, start=64.0)
    assert [controller.step(None) for _ in range(PATIENCE)] == [64.0] * PATIENCE
    assert [controller.step(math.nan) for _ in range(8)] == [32, 16, 8, 4, 2, 1, 1, 1]  # a probe remains
    before = controller.input
    assert controller.step(REFERENCE) == pytest.approx(before)  # at the reference: no jump


def test_it_holds_with_every_third_measurement_missing() -> None:
    plant = FirstOrder(queue(), start=2 * REFERENCE, noise=1.0, seed=1)
    controller = FlowController(plant.model, REFERENCE, settling=8, limits=(0, 200))
    for k in range(200):
        plant.step(controller.step(None if k % 3 == 0 else plant.measure()))
    assert plant.y == pytest.approx(REFERENCE, rel=0.05)


@pytest.mark.parametrize("adaptive", [False, True])
@pytest.mark.parametrize("delay", [0, 2])
def test_restored_from_json_it_goes_on_as_if_it_had_not_stopped(adaptive: bool, delay: int) -> None:
    plant = FirstOrder(queue(delay), start=2 * REFERENCE)
    controller = FlowController(plant.model, REFERENCE, limits=(0, 40), adaptive=adaptive)
    held(controller, plant, 7)
    controller.step(None)
    again = FlowController.restore(json.loads(json.dumps(controller.state())))
    assert again.state() == controller.state()
    for measurement in (390.0, None, 410.0, 405.0):
        assert again.admit(measurement) == controller.admit(measurement)


def test_events_that_grow_are_noticed_and_gains_are_placed_anew() -> None:
    plant = FirstOrder(queue(1), start=REFERENCE, noise=0.5, seed=4)
    controller = FlowController(plant.model, REFERENCE, settling=5, limits=(0, 100), adaptive=True)
    random = np.random.default_rng(1)
    held(controller, plant, 50)
    assert controller.model.b == -1  # nothing happened, nothing changed
    plant.model = queue(1, b=-1.6)  # beyond the margin that it was designed with, nearly
    for _ in range(150):
        plant.disturbance = 3 * float(random.standard_normal())
        held(controller, plant, 1)
    assert controller.model.b == pytest.approx(-1.6, rel=0.2)
    assert controller.model.delay == 1
    plant.disturbance = 0.0
    assert held(controller, plant, 60)[-10:] == pytest.approx(REFERENCE, rel=0.02)


def test_a_hog_is_not_taken_for_events_that_grow() -> None:
    plant = FirstOrder(queue(), start=REFERENCE, noise=1.0, seed=5)
    controller = FlowController(plant.model, REFERENCE, settling=5, limits=(0, 100), adaptive=True)
    held(controller, plant, 50)
    plant.disturbance = -5.0
    held(controller, plant, 100)
    plant.disturbance = 0.0
    held(controller, plant, 100)
    assert controller.model.b == -1


@pytest.mark.parametrize(
    "wrong",
    [
        {"limits": (-1, 5)},
        {"limits": (5, 5)},
        {"interval": 0},
        {"reference": math.nan},
        {"settling": -1},
        {"reference": 0.0, "adaptive": True},
    ],
)
def test_settings_that_cannot_be_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        FlowController(**{"model": queue(), "reference": REFERENCE, **wrong})  # type: ignore[arg-type]


def test_a_state_of_another_shape_is_refused() -> None:
    state = FlowController(queue(), REFERENCE).state()
    state["regulator"]["inputs"] = [1.0]
    with pytest.raises(ConfigError, match="new regulator"):
        FlowController.restore(state)
