"""Delays double, up to a bound, and are drawn evenly below it."""

import random

from hypothesis import given
from hypothesis import strategies as st

from milepost.client.backoff import FIRST_SECONDS, LONGEST_SECONDS, Backoff


@given(st.integers(0, 2**32), st.integers(1, 3_000))
def test_a_delay_never_exceeds_its_bound(seed, attempts):
    backoff = Backoff(random.Random(seed))
    for _ in range(attempts):
        bound = backoff.bound
        assert 0 <= backoff.next() <= bound <= LONGEST_SECONDS


def test_bounds_double():
    backoff = Backoff(random.Random(1))
    bounds = []
    for _ in range(10):
        bounds.append(backoff.bound)
        backoff.next()
    assert bounds[:3] == [FIRST_SECONDS, 2 * FIRST_SECONDS, 4 * FIRST_SECONDS]
    assert bounds[-1] == LONGEST_SECONDS


def test_the_first_and_the_longest_can_be_given():
    backoff = Backoff(random.Random(1), first=1.0, longest=6.0)
    bounds = [(backoff.bound, backoff.next())[0] for _ in range(5)]
    assert bounds == [1.0, 2.0, 4.0, 6.0, 6.0]
    assert Backoff(first=9.0, longest=6.0).bound == 9.0


def test_jitter_is_full():
    delays = [Backoff(random.Random(seed)).next() for seed in range(1_000)]
    assert min(delays) < 0.1 * FIRST_SECONDS
    assert max(delays) > 0.9 * FIRST_SECONDS
