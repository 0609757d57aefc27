from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.pipeline.tier2 import sketch

SLACK = 1e-9  # logarithms are rounded, so a value next to a bucket's edge may fall on its other side
NORMAL = st.floats(min_value=np.finfo(np.float64).tiny, allow_nan=False, allow_infinity=False)
VALUES = st.one_of(NORMAL, NORMAL.map(lambda x: -x), st.just(0.0), st.just(-0.0))


def quantile(values: np.ndarray, q: float) -> float:
    groups = np.zeros(len(values), np.int64)
    _, buckets, counts = sketch.merge(groups, sketch.bucket(values), np.ones(len(values), np.int64))
    return float(sketch.quantiles(np.array([len(buckets)]), buckets, counts, q)[0])


@given(st.lists(VALUES, min_size=1, max_size=100), st.floats(0, 1))
def test_a_quantile_is_within_one_percent(values: list[float], q: float) -> None:
    exact = sorted(values)[math.floor(q * (len(values) - 1))]
    found = quantile(np.array(values), q)
    assert math.isclose(found, exact, rel_tol=sketch.ACCURACY * (1 + sketch.ACCURACY) + SLACK)
    assert abs(found - exact) <= abs(exact) * (sketch.ACCURACY + SLACK)


@pytest.mark.parametrize("name", ["lognormal", "pareto", "normal", "uniform", "exponential"])
def test_accuracy_on_many_values(name: str) -> None:
    random = np.random.default_rng(7)
    values = {
        "lognormal": random.lognormal(3, 2, 100_000),
        "pareto": random.pareto(1, 100_000),
        "normal": random.normal(0, 100, 100_000),
        "uniform": random.uniform(-5, 50, 100_000),
        "exponential": -random.exponential(3, 100_000),
    }[name]
    for q in (0, 0.001, 0.01, 0.25, 0.5, 0.9, 0.99, 0.999, 1):
        exact = np.quantile(values, q, method="lower")
        assert abs(quantile(values, q) - exact) <= abs(exact) * (sketch.ACCURACY + SLACK)


@given(st.lists(st.tuples(st.integers(0, 3), VALUES), max_size=60), st.integers(0, 60))
def test_merged_sketches_are_the_sketch_of_all(pairs: list[tuple[int, float]], cut: int) -> None:
    groups = np.array([group for group, _ in pairs], np.int64)
    buckets = sketch.bucket(np.array([value for _, value in pairs], np.float64))
    ones = np.ones(len(pairs), np.int64)
    whole = sketch.merge(groups, buckets, ones)
    one = sketch.merge(groups[:cut], buckets[:cut], ones[:cut])
    two = sketch.merge(groups[cut:], buckets[cut:], ones[cut:])
    together = sketch.merge(*(np.concatenate(each) for each in zip(two, one, strict=True)))
    for left, right in zip(together, whole, strict=True):
        assert left.tolist() == right.tolist()
    assert int(whole[2].sum()) == len(pairs)


@given(st.lists(st.floats(allow_nan=False), min_size=2))
def test_buckets_sort_as_values_do(values: list[float]) -> None:
    buckets = sketch.bucket(np.sort(np.array(values)))
    assert (np.diff(buckets) >= 0).all()
    assert (np.abs(buckets) <= sketch.INFINITE).all()


def test_the_outermost_values() -> None:
    largest, smallest = np.finfo(np.float64).max, 5e-324
    values = np.array([-np.inf, -largest, -smallest, -0.0, smallest, largest, np.inf])
    found = sketch.estimate(sketch.bucket(values))
    assert found[[0, 3, 6]].tolist() == [-np.inf, 0.0, np.inf]
    assert found[5] == pytest.approx(largest, rel=0.0101)
    assert found[1] == -found[5]
    assert found[4] == smallest
    assert found[2] == -smallest


def test_an_empty_sketch_has_no_quantile() -> None:
    found = sketch.quantiles(np.array([0, 1, 0]), sketch.bucket(np.array([5.0])), np.array([3]), 0.5)
    assert np.isnan(found).tolist() == [True, False, True]
