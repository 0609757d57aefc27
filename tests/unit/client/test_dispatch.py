"""Which rows are for which subscription."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.client.dispatch import shares
from milepost.errors import ProtocolError
from milepost.wire import Marks


def marks_of(rows):
    offsets = np.cumsum([0, *map(len, rows)]).astype(np.uint32)
    return Marks(offsets, np.array([mark for row in rows for mark in row], np.uint32))


@given(st.lists(st.lists(st.integers(0, 5), max_size=4), max_size=12))
def test_each_row_goes_to_each_of_its_marks_once(rows):
    found = {
        number: range(len(rows)) if mine is None else mine.tolist()
        for number, mine in shares(marks_of(rows), len(rows))
    }
    expected = {}
    for row, marks in enumerate(rows):
        for mark in set(marks):
            expected.setdefault(mark, []).append(row)
    assert {number: list(mine) for number, mine in found.items()} == expected


def test_marks_of_all_rows_need_no_list():
    assert shares((3, 1, 3), 10) == [(3, None), (1, None)]
    assert shares((), 10) == []
    assert shares(marks_of([[1], [1]]), 2) == [(1, None)]


def test_marks_of_other_rows_are_refused():
    with pytest.raises(ProtocolError, match="marks for 2 rows, and 3 rows"):
        shares(marks_of([[1], [1]]), 3)
