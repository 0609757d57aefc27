"""Which rows are for which subscription."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.client.dispatch import shares
from milepost.errors import ProtocolError
from milepost.wire import Tags


def tags_of(rows):
    offsets = np.cumsum([0, *map(len, rows)]).astype(np.uint32)
    return Tags(offsets, np.array([tag for row in rows for tag in row], np.uint32))


@given(st.lists(st.lists(st.integers(0, 5), max_size=4), max_size=12))
def test_each_row_goes_to_each_of_its_tags_once(rows):
    found = {
        number: range(len(rows)) if mine is None else mine.tolist() for number, mine in shares(tags_of(rows), len(rows))
    }
    expected = {}
    for row, tags in enumerate(rows):
        for tag in set(tags):
            expected.setdefault(tag, []).append(row)
    assert {number: list(mine) for number, mine in found.items()} == expected


def test_tags_of_all_rows_need_no_list():
    assert shares((3, 1, 3), 10) == [(3, None), (1, None)]
    assert shares((), 10) == []
    assert shares(tags_of([[1], [1]]), 2) == [(1, None)]


def test_tags_of_other_rows_are_refused():
    with pytest.raises(ProtocolError, match="tags for 2 rows, and 3 rows"):
        shares(tags_of([[1], [1]]), 3)
