"""Gains put poles where they are wanted; with a delay that nobody told of, they do not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.errors import ConfigError
from milepost.pipeline.control import (
    Gains,
    Model,
    best_pi,
    closed_loop_poles,
    design,
    gain_margin,
    place,
    place_pi,
    pole_pair,
    pole_radius,
    settling_time,
    spectral_radius,
)
from milepost.pipeline.experiments.simulation import PAPER, PAPER_GAINS, PAPER_POLES

PAPER_LATE = Model(PAPER.a, PAPER.b, 0.0, 1)

models = st.builds(
    Model,
    a=st.floats(0.1, 1.05),
    b=st.floats(0.01, 1e4).flatmap(lambda size: st.sampled_from([size, -size])),
    delay=st.integers(0, 3),
)


def test_the_gains_of_the_paper_s_poles() -> None:
    assert f"{PAPER_GAINS.proportional:.5f}" == "-0.00614"
    assert f"{PAPER_GAINS.integral:.5f}" == "-0.00799"
    assert closed_loop_poles(PAPER, PAPER_GAINS) == pytest.approx(np.array(PAPER_POLES), abs=1e-12)
    assert place(PAPER, PAPER_POLES).proportional == pytest.approx(PAPER_GAINS.proportional)


def test_the_integral_gain_that_is_printed_there_is_unstable() -> None:
    assert spectral_radius(PAPER, Gains(-0.00614, 0.02168)) > 1


def test_one_more_interval_of_delay_makes_them_unstable() -> None:
    assert spectral_radius(PAPER, PAPER_GAINS) == pytest.approx(0.403, abs=0.001)
    assert spectral_radius(PAPER_LATE, PAPER_GAINS) == pytest.approx(1.51, abs=0.005)


def test_plain_pi_with_the_delay_settles_in_ten_intervals_at_best() -> None:
    gains = best_pi(PAPER_LATE)
    radius = spectral_radius(PAPER_LATE, gains)
    assert radius == pytest.approx((1 + PAPER.a) / 3, abs=1e-3)  # the roots' sum is 1 + a, and they are equal
    assert f"{radius:.2f}" == "0.66"
    assert settling_time(radius) == pytest.approx(10, abs=0.5)
    assert gains.feedback == ()


@pytest.mark.parametrize("delay", [1, 2, 3])
def test_no_pi_gains_on_a_grid_are_better_than_the_best(delay: int) -> None:
    model = Model(PAPER.a, PAPER.b, 0.0, delay)
    best = spectral_radius(model, best_pi(model))
    scale = 1 / abs(model.b)
    grid = [
        spectral_radius(model, Gains(-p * scale, -i * scale))
        for p in np.linspace(0.01, 1, 34)
        for i in np.geomspace(1e-4, 1, 30)
    ]
    assert best <= min(grid) + 1e-9


def test_with_feedback_on_past_inputs_the_delay_costs_no_speed() -> None:
    gains = design(PAPER_LATE, settling=5)
    assert len(gains.feedback) == 1
    assert settling_time(spectral_radius(PAPER_LATE, gains)) == pytest.approx(5, rel=1e-3)
    assert gain_margin(PAPER_LATE, gains) > 1.5


def test_where_plain_pi_is_fast_enough_nothing_is_fed_back() -> None:
    assert design(PAPER_LATE, settling=20).feedback == ()
    assert spectral_radius(PAPER_LATE, design(PAPER_LATE, settling=20)) == pytest.approx(pole_radius(20))


@given(models, st.floats(2, 40), st.floats(0, 0.3))
def test_placement_places(model: Model, settling: float, overshoot: float) -> None:
    pair = pole_pair(settling, overshoot)
    # All poles at once: compare polynomials, because equal roots are ill-conditioned and their product is not.
    wanted = np.poly([*pair, *[0.0] * model.delay]).real
    found = np.poly(closed_loop_poles(model, place(model, pair))).real
    np.testing.assert_allclose(np.pad(found, (0, len(wanted) - len(found))), wanted, atol=1e-6)


@given(models, st.floats(2, 40))
def test_plain_pi_has_the_wanted_pair_among_its_poles(model: Model, settling: float) -> None:
    pole = pole_pair(settling)[0]
    poles = closed_loop_poles(model, place_pi(model, pole_pair(settling)))
    assert np.abs(poles - pole).min() < 1e-4


@given(models, st.floats(2, 40))
def test_every_design_is_as_fast_as_it_was_asked_to_be(model: Model, settling: float) -> None:
    gains = design(model, settling)
    assert spectral_radius(model, gains) == pytest.approx(pole_radius(settling), abs=0.02)
    assert gain_margin(model, gains) > 1


@given(models, st.floats(4, 40))
def test_the_margin_is_where_stability_ends(model: Model, settling: float) -> None:
    gains = design(model, settling)
    margin = gain_margin(model, gains)
    inside = Model(model.a, model.b * (1 + (margin - 1) * 0.99), 0.0, model.delay)
    outside = Model(model.a, model.b * margin * 1.01, 0.0, model.delay)
    assert spectral_radius(inside, gains) < 1 <= spectral_radius(outside, gains)


def test_settling_times_and_radii_are_inverse() -> None:
    assert settling_time(pole_radius(5)) == pytest.approx(5)
    assert f"{pole_radius(5):.3f}" == "0.449"
    assert settling_time(0.985) == pytest.approx(264.7, abs=0.1)  # the paper's open loop
    assert settling_time(1.0) == math.inf
    assert settling_time(0.0) == 0.0
    assert gain_margin(PAPER_LATE, PAPER_GAINS) == 0.0


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: pole_radius(0),
        lambda: pole_pair(5, 1.0),
        lambda: place_pi(PAPER, (0.5 + 0.1j, 0.5 + 0.2j)),
        lambda: place(PAPER, [0.5j]),
        lambda: place(PAPER, [0.1, 0.2, 0.3]),
        lambda: Model(1.0, 0.0),
        lambda: Model(math.nan, 1.0),
        lambda: Model(1.0, 1.0, 0.0, -1),
        lambda: Model(1.0, 1.0, 0.0, True),
    ],
)
def test_what_cannot_be_is_refused(wrong: object) -> None:
    assert callable(wrong)
    with pytest.raises(ConfigError):
        wrong()


def test_gains_and_models_survive_json() -> None:
    gains = design(PAPER_LATE)
    assert Gains.from_dict(gains.as_dict()) == gains
    assert Model.from_dict(PAPER_LATE.as_dict()) == PAPER_LATE
    assert PAPER.steady_gain == pytest.approx(-134 / 0.015)
    assert Model(1.0, 2.0).steady_gain == math.inf
    assert PAPER_LATE.next(100.0, PAPER_LATE.input_for(100.0)) == pytest.approx(100.0)
