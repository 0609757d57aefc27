"""Message IDs and the stamps they are made of."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.batch import IdRun, Ids, MessageId, Stamper
from milepost.errors import InvalidValue


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1))
def test_an_id_prints_and_parses(publisher: int, broker: int, stamp: int) -> None:
    made = MessageId(publisher, broker, stamp)
    assert MessageId.parse(str(made)) == made
    assert len(bytes(made)) == 16
    assert made.time_ms << 16 | made.counter == stamp


@pytest.mark.parametrize("text", ["", "x" * 32, "0" * 31, "0" * 33, "+" + "0" * 31])
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match="32 hexadecimal digits"):
        MessageId.parse(text)


@given(st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 70_000)), max_size=20))
def test_stamps_increase_whatever_the_clock_does(readings: list[tuple[int, int]]) -> None:
    now = 0
    stamper = Stamper(lambda: now)
    last = 0
    for now, count in readings:  # noqa: B007 - the stamper's clock reads it
        stamps = stamper.take(count)
        assert len(stamps) == count
        if count:
            assert int(stamps[0]) > last
            assert bool((np.diff(stamps) == 1).all())
            last = int(stamps[-1])


def test_a_stamper_goes_on_from_the_mark() -> None:
    assert int(Stamper(lambda: 0, last=7).take(1)[0]) == 8


@pytest.mark.parametrize(
    "runs", [(), (IdRun(1, 0, 0),), (IdRun(2, 0, 0), IdRun(2, 0, 0)), (IdRun(3, 0, 0),), (IdRun(2, 2**32, 0),)]
)
def test_runs_that_do_not_cover_the_rows_are_refused(runs: tuple[IdRun, ...]) -> None:
    with pytest.raises(InvalidValue):
        Ids(runs, np.zeros(2, np.uint64))
