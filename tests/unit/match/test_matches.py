"""Grouping by connection is what a loop over pairs would give."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.match import Deliveries, Matches
from milepost.match.assembly import regroup
from milepost.match.matches import _regrouped

ROWS = st.lists(st.lists(st.integers(0, 60), unique=True, max_size=12), max_size=20)
OWNERS = st.lists(st.integers(0, 30) | st.just(100_000), min_size=61, max_size=61)


@pytest.mark.parametrize("regrouped", [regroup, _regrouped], ids=["kernel", "numpy"])
@given(ROWS, OWNERS)
def test_by_owner_equals_a_loop(regrouped: Any, rows: list[list[int]], owners: list[int]) -> None:
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    keys = np.array([key for row in rows for key in row], np.int32)
    found = Deliveries(*regrouped(offsets, keys, np.array(owners, np.int32)))
    assert found.owners.dtype == found.marks.dtype == np.int32
    assert found.starts.dtype == found.rows.dtype == found.mark_offsets.dtype == np.int64
    expected: dict[int, dict[int, list[int]]] = defaultdict(dict)
    for number, row in enumerate(rows):
        for key in row:
            expected[owners[key]].setdefault(number, []).append(key)
    assert found.owners.tolist() == sorted(expected)
    for i, owner in enumerate(found.owners.tolist()):
        mine = range(found.starts[i], found.starts[i + 1])
        assert found.rows[mine.start : mine.stop].tolist() == sorted(expected[owner])
        marks = {
            int(found.rows[j]): sorted(found.marks[found.mark_offsets[j] : found.mark_offsets[j + 1]].tolist())
            for j in mine
        }
        assert marks == {number: sorted(some) for number, some in expected[owner].items()}
    assert found.starts[-1] == len(found.rows)
    assert found.mark_offsets[-1] == len(found.marks) == len(keys)


def test_every_key_needs_an_owner() -> None:
    with pytest.raises(ValueError, match="no owner"):
        Matches(np.array([0, 1], np.int64), np.array([3], np.int32)).by_owner(np.zeros(3, np.int32))
