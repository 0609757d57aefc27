"""Rows with their places in a log."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.batch import Batch
from milepost.client.logbatch import LogBatch, ranges
from milepost.errors import ProtocolError
from milepost.query import parse_schema

SCHEMA = parse_schema("s: [n: int]")


@given(st.sets(st.integers(0, 60) | st.integers((1 << 63) - 20, (1 << 63) - 1)))
def test_ranges_are_the_offsets_and_as_few_as_can_be(offsets):
    found = ranges(np.array(sorted(offsets), np.uint64))
    assert [offset for first, last in found for offset in range(first, last + 1)] == sorted(offsets)
    assert all(after[0] > before[1] + 1 for before, after in pairwise(found))


def opened(values, offsets, tries=None):
    data = Batch.encode(SCHEMA, [{"n": n} for n in values]).data
    return LogBatch.opened(data, SCHEMA, 3, np.array(offsets, np.uint64), tries)


@given(st.data())
def test_some_rows_keep_their_places(data):
    offsets = sorted(data.draw(st.sets(st.integers(0, 1_000), min_size=1)))
    batch = opened(offsets, offsets, np.array(offsets, np.uint32))
    chosen = sorted(data.draw(st.sets(st.integers(0, len(offsets) - 1))))
    for rows in (chosen, slice(chosen[0], None) if chosen else slice(0, 1)):
        part = batch.some(rows)
        assert part.log == 3
        assert part.column("n").tolist() == part.offsets.tolist() == part.tries.tolist()
        assert len(part) == len(np.arange(len(offsets))[rows])


def test_offsets_are_as_many_as_rows():
    with pytest.raises(ProtocolError, match="2 offsets for 3 rows"):
        opened([1, 2, 3], [1, 2])
