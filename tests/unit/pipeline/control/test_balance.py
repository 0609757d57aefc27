"""Response times meet; shares stay shares; whole events add up."""

from __future__ import annotations

import json
import math
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.errors import ConfigError
from milepost.pipeline.control import Balancer, Model, ResponseMeter, pole_radius, split
from milepost.pipeline.control.balance import LANE
from milepost.pipeline.control.lqr import directions, lqr


def lanes_of(speeds: list[float], load: float, balancer: Balancer, intervals: int) -> np.ndarray:
    """Backlogs in intervals of work, under a balancer: R(k+1) = max(0, R(k) + load·weight/speed - 1)."""
    backlog = np.full(len(speeds), 5.0)
    seen = []
    for _ in range(intervals):
        seen.append(backlog)
        weights = np.array(balancer.step([float(value) * balancer.interval for value in backlog]))
        backlog = np.maximum(0.0, backlog + load * weights / np.array(speeds) - 1)
    return np.array(seen)


@pytest.mark.parametrize("speeds", [[1.0, 0.4], [1.0, 1.0, 1.0, 0.4], [1.0, 0.8, 0.6, 0.4, 1.2, 1.0, 1.0, 0.3]])
def test_lanes_of_different_speeds_come_to_the_same_response_time(speeds: list[float]) -> None:
    balancer = Balancer(len(speeds), tolerance=0.0)
    seen = lanes_of(speeds, sum(speeds), balancer, 120)  # as much work as all together can do
    spread = np.ptp(seen, axis=1)
    assert spread[0] == 0
    assert spread.max() > 0.3
    assert spread[60:].max() < 0.05
    assert balancer.weights == pytest.approx([speed / sum(speeds) for speed in speeds], rel=0.02)


def test_four_lanes_settle_after_a_hog() -> None:
    balancer = Balancer(4, tolerance=0.0)
    calm = lanes_of([1.0] * 4, 4.0, balancer, 10)
    assert np.ptp(calm) == 0
    hogged = lanes_of([1.0, 1.0, 1.0, 0.5], 3.5, balancer, 60)
    off = np.abs(hogged - hogged.mean(axis=1, keepdims=True)).max(axis=1)
    assert off.max() > 0.3
    assert off[25:].max() < 0.05 * off.max()


@pytest.mark.parametrize("delay", [0, 1, 2])
@pytest.mark.parametrize("count", [2, 4, 8])
def test_lqr_settles_in_the_time_that_is_wanted(count: int, delay: int) -> None:
    gains = lqr([Model(1.0, 1.0, 0.0, delay)] * count, settling=10)
    assert gains.radius == pytest.approx(pole_radius(10), abs=0.01)
    assert len(gains.on_past) == delay


def test_for_two_lanes_one_pi_controller_does_what_lqr_does() -> None:
    pi, optimal = Balancer(2, settling=10).gains, lqr([LANE, LANE], 10)
    assert pi.on_change == pytest.approx(optimal.on_change, rel=0.01)
    assert pi.on_level == pytest.approx(optimal.on_level, rel=0.3)


def test_the_basis_is_orthonormal_and_leaves_the_sum_alone() -> None:
    for count in range(2, 9):
        basis = directions(count)
        assert basis.T @ basis == pytest.approx(np.eye(count - 1))
        assert basis.sum(axis=0) == pytest.approx(0)


times = st.one_of(st.none(), st.just(math.nan), st.floats(0, 1e4))


@given(st.data(), st.integers(1, 6))
def test_weights_are_shares_whatever_is_measured(data: st.DataObject, count: int) -> None:
    balancer = Balancer(count)
    for _ in range(data.draw(st.integers(1, 12))):
        measured = data.draw(st.lists(times, min_size=count, max_size=count))
        before = balancer.weights
        weights = balancer.step(measured)
        assert sum(weights) == pytest.approx(1)
        assert min(weights) >= 0.05 / count - 1e-12
        for old, new, time in zip(before, weights, measured, strict=True):
            if time is None or math.isnan(time):
                assert new == pytest.approx(old)


def test_a_lane_that_is_stuck_keeps_a_little_and_is_found_well_again() -> None:
    balancer = Balancer(3)
    for k in range(50):
        weights = balancer.step([1.0, 1.0, 10.0 + 2 * k])
    assert weights[2] == pytest.approx(0.05 / 3)
    for _ in range(60):
        weights = balancer.step([1.0, 1.0, 0.2])
    assert weights[2] > 0.3  # nothing had wound up while it was at the floor


def test_jitter_is_left_alone() -> None:
    balancer = Balancer(2)
    random = np.random.default_rng(1)
    for _ in range(200):
        weights = balancer.step((1.0 + 0.04 * random.uniform(-1, 1, 2)).tolist())
    assert weights == [0.5, 0.5]


def test_a_balancer_goes_on_from_its_state() -> None:
    models = [Model(1.0, 1.0, 0.0, 1)] * 3
    first = Balancer(3, models=models)
    for _ in range(5):
        first.step([1.0, 2.0, 4.0])
    second = Balancer(3, models=models)
    second.restore(json.loads(json.dumps(first.state())))
    assert second.step([1.0, 3.0, 4.0]) == first.step([1.0, 3.0, 4.0])
    with pytest.raises(ConfigError):
        Balancer(2).restore(first.state())


def test_one_lane_gets_everything() -> None:
    assert Balancer(1).step([3.0]) == [1.0]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Balancer(0),
        lambda: Balancer(2, floor=0),
        lambda: Balancer(2, interval=0),
        lambda: Balancer(2, models=[LANE]),
        lambda: Balancer(2, models=[LANE, Model(1.0, 1.0, 0.0, 1)]),
        lambda: Balancer(2).step([1.0]),
        lambda: lqr([LANE], 5),
        lambda: split(-1, [1.0]),
        lambda: split(1, [0.0, 0.0]),
        lambda: split(1, [-1.0, 2.0]),
    ],
)
def test_what_cannot_be_is_refused(wrong: object) -> None:
    assert callable(wrong)
    with pytest.raises(ConfigError):
        wrong()


def test_without_python_control_the_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "control", None)
    Balancer(2)  # two lanes do without
    with pytest.raises(ModuleNotFoundError, match="pip install"):
        Balancer(3, settling=7.77)  # gains that were not found before


shares = st.lists(st.floats(0, 1), min_size=1, max_size=6).filter(lambda weights: sum(weights) > 0.01)


@given(shares, st.lists(st.integers(0, 1000), max_size=50))
def test_a_split_conserves_every_event_and_in_the_long_run_every_share(weights: list[float], loads: list[int]) -> None:
    carry: list[float] | None = None
    given_out = np.zeros(len(weights))
    for n in loads:
        counts, carry = split(n, weights, carry)
        assert sum(counts) == n
        assert min(counts) >= 0
        given_out += counts
        exact = np.array(weights) / sum(weights)
    if loads:
        assert np.abs(given_out - exact * sum(loads)).max() <= 1 + 1e-6


@given(st.lists(st.tuples(st.integers(0, 100), st.lists(st.floats(0.01, 1), min_size=3, max_size=3)), max_size=60))
def test_a_split_by_changing_weights_owes_nobody_much(steps: list[tuple[int, list[float]]]) -> None:
    carry: list[float] | None = None
    for n, weights in steps:
        counts, carry = split(n, weights, carry)
        assert sum(counts) == n
        assert min(counts) >= 0
        assert max(abs(value) for value in carry) <= 3


def test_a_small_share_of_few_events_is_given_in_time() -> None:
    carry: list[float] | None = None
    total = 0
    for _ in range(100):
        counts, carry = split(20, [0.01, 0.99], carry)
        total += counts[0]
    assert total == 20


def test_the_response_time_of_a_steady_lane_is_its_backlog_and_a_micro_batch() -> None:
    meter = ResponseMeter()
    assert meter.step(0.0, 0) is None
    for k in range(1, 11):
        meter.commit(float(k), 100 * k, busy=0.5)  # 200 events/s while at work
    assert meter.step(10.0, 1000) == pytest.approx(0.5)  # nobody is waiting
    assert meter.step(10.0, 1400) == pytest.approx(2.0 + 0.5)


def test_the_response_time_shows_a_stalled_lane_before_it_commits() -> None:
    meter = ResponseMeter()
    for k in range(1, 6):
        meter.commit(float(k), 100 * k, busy=1.0)
    seen = [meter.step(5.0 + later, 600 + 100 * later) for later in range(6)]
    assert all(value is not None for value in seen)
    rising = [value for value in seen if value is not None]
    assert rising == sorted(rising)
    assert rising[-1] > 5 * rising[0]


def test_a_lane_that_is_held_back_is_not_taken_for_a_slow_one() -> None:
    held, slow = ResponseMeter(), ResponseMeter()
    for k in range(1, 6):
        held.commit(2.0 * k, 100 * k, busy=0.2)
        slow.commit(2.0 * k, 100 * k, busy=2.0)
    first, second = held.step(10.0, 600), slow.step(10.0, 600)
    assert first is not None
    assert second is not None
    assert second > 3 * first
    with pytest.raises(ConfigError):
        held.step(9.0, 600)


def test_a_lane_that_had_nothing_to_do_is_not_late() -> None:
    meter = ResponseMeter()
    meter.commit(1.0, 100, busy=0.5)
    assert meter.step(100.0, 100) == pytest.approx(0.5)
    after_idling = meter.step(102.0, 110)
    assert after_idling is not None
    assert after_idling < 3
    held_back = ResponseMeter()
    held_back.commit(1.0, 100, busy=0.5)
    for second in range(2, 60, 2):
        waiting = held_back.step(float(second), 300, admitted=100)
    assert waiting == pytest.approx(200 / 200 + 0.5)


def test_a_lane_that_never_starts_is_found_out() -> None:
    meter = ResponseMeter()
    seen = [meter.step(float(second), 10 * second) for second in range(0, 60, 2)]
    assert seen[:15] == [None] * 15
    assert seen[-1] == 58
