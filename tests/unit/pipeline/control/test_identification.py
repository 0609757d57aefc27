"""Data that tells, tells the truth; data that cannot, is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.errors import ConfigError, InvalidValue
from milepost.pipeline.control import Model, Recursive, excitation, identify
from milepost.pipeline.experiments.plant import FirstOrder


def run(model: Model, inputs: np.ndarray, noise: float = 0.0, seed: int = 0) -> np.ndarray:
    """What is measured at the start of each interval of a run with these inputs."""
    plant = FirstOrder(model, start=1000.0, noise=noise, seed=seed)
    measured = []
    for u in inputs:
        measured.append(plant.measure())
        plant.step(u)
    return np.array(measured)


@given(
    a=st.floats(0.3, 1.0),
    b=st.floats(0.5, 500).flatmap(lambda size: st.sampled_from([size, -size])),
    delay=st.integers(0, 3),
    seed=st.integers(0, 1000),
)
def test_a_b_and_the_delay_are_found_in_noise(a: float, b: float, delay: int, seed: int) -> None:
    model = Model(a, b, -b * 100.0, delay)  # u = 100 is in balance
    inputs = excitation(80, 120, 120, seed)
    found = identify(inputs, run(model, inputs, noise=abs(b) * 0.5, seed=seed))
    assert found.model.delay == delay
    assert found.model.a == pytest.approx(a, abs=0.06)
    assert found.model.b == pytest.approx(b, rel=0.06)
    assert abs(found.model.b - b) < 6 * found.quality.gain_error
    assert found.quality.r2 > 0.9
    assert found.quality.samples == 116
    assert set(found.quality.by_delay) == {0, 1, 2, 3}


def test_without_noise_it_is_exact() -> None:
    model = Model(0.985, -134.0, 5000.0, 1)
    inputs = excitation(20, 60, 40)
    found = identify(inputs, run(model, inputs))
    assert found.model.delay == 1
    assert (found.model.a, found.model.b, found.model.c) == pytest.approx((model.a, model.b, model.c), rel=1e-6)
    assert found.quality.residual == pytest.approx(0, abs=1e-6)


def test_measurements_that_were_missed_are_left_out() -> None:
    model = Model(0.9, -2.0, 100.0)
    inputs = excitation(20, 60, 60)
    outputs = run(model, inputs)
    outputs[[5, 6, 20]] = math.nan
    found = identify(inputs, outputs)
    assert found.model.b == pytest.approx(-2.0)
    assert found.quality.samples == 60 - 4 - 5


def test_a_constant_input_is_refused() -> None:
    with pytest.raises(InvalidValue, match="constant"):
        identify(np.full(50, 10.0), run(Model(0.9, 1.0), np.full(50, 10.0)))


def test_an_input_without_effect_is_refused() -> None:
    random = np.random.default_rng(1)
    with pytest.raises(InvalidValue, match="not visible"):
        identify(excitation(1, 2, 60), random.standard_normal(60))
    with pytest.raises(InvalidValue, match="not visible"):
        identify(excitation(1, 2, 60), np.full(60, 7.0))


def test_too_little_data_and_data_of_no_shape_are_refused() -> None:
    with pytest.raises(InvalidValue, match="at least 12"):
        identify(excitation(1, 2, 10), np.arange(10.0))
    with pytest.raises(InvalidValue, match="one value each"):
        identify([1.0, 2.0], [1.0])
    with pytest.raises(ConfigError):
        identify([1.0], [1.0], delays=())
    with pytest.raises(ConfigError):
        excitation(2, 1, 10)


def test_an_excitation_is_balanced_and_repeats_from_its_seed() -> None:
    drawn = excitation(10, 30, 80, seed=3)
    assert set(drawn) == {10.0, 30.0}
    assert drawn.mean() == 20
    assert np.abs(np.cumsum(drawn - 20)).max() <= 20 * 2  # a queue that it feeds stays where it is
    assert (drawn == excitation(10, 30, 80, seed=3)).all()
    assert (drawn != excitation(10, 30, 80, seed=4)).any()


def observed(recursive: Recursive, plant: FirstOrder, inputs: np.ndarray) -> None:
    for u in inputs:
        recursive.observe(plant.measure(), float(u))
        plant.step(float(u))


@pytest.mark.parametrize("delay", [0, 1, 2])
def test_online_a_wrong_guess_is_corrected(delay: int) -> None:
    plant = FirstOrder(Model(1.0, -134.0, 134.0 * 20_000, delay), start=4e6, noise=20_000, seed=1)
    recursive = Recursive(Model(0.9, -60.0, 0.0, delay), 4e6, 20_000, doubt=1.0)
    observed(recursive, plant, excitation(15_000, 25_000, 200, seed=1))
    assert recursive.model is not None
    assert recursive.model.b == pytest.approx(-134, rel=0.1)
    assert recursive.gain_error < 15
    assert recursive.samples == 199 - delay


def test_online_a_changed_b_is_followed() -> None:
    plant = FirstOrder(Model(1.0, -100.0, 2e6), start=4e6, noise=5_000, seed=2)
    recursive = Recursive(plant.model, 4e6, 20_000)
    observed(recursive, plant, excitation(15_000, 25_000, 100, seed=1))
    plant.model = Model(1.0, -200.0, 4e6)
    observed(recursive, plant, excitation(15_000, 25_000, 200, seed=2))
    assert recursive.model is not None
    assert recursive.model.b == pytest.approx(-200, rel=0.1)


def test_online_a_hog_is_not_taken_for_a_changed_b() -> None:
    plant = FirstOrder(Model(1.0, -134.0, 134.0 * 20_000), start=4e6, noise=5_000, seed=2)
    recursive = Recursive(plant.model, 4e6, 20_000)
    observed(recursive, plant, excitation(18_000, 22_000, 100, seed=1))
    plant.disturbance = -134.0 * 10_000  # half of what was taken away
    observed(recursive, plant, excitation(8_000, 12_000, 100, seed=2))  # and a controller that has answered
    assert recursive.model is not None
    assert recursive.model.b == pytest.approx(-134, rel=0.25)


def test_online_the_covariance_stays_bounded_when_nothing_moves() -> None:
    recursive = Recursive(Model(1.0, -134.0), 4e6, 20_000, forgetting=0.9)
    for _ in range(2000):
        recursive.observe(4e6, 20_000.0)
    recursive.observe(None, 20_000.0)
    recursive.observe(4e6 + 1000, 20_000.0)
    recursive.observe(4e6, 20_000.0)
    assert recursive.model is not None
    assert recursive.model.b == pytest.approx(-134, rel=0.2)
    assert recursive.residual < 4e6


def test_online_settings_that_cannot_be_are_refused() -> None:
    with pytest.raises(ConfigError):
        Recursive(Model(1.0, 1.0), 1.0, 1.0, forgetting=1.1)
    with pytest.raises(ConfigError):
        Recursive(Model(1.0, 1.0), 0.0, 1.0)
