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


def opened(values, offsets, deliveries=None):
    data = Batch.encode(SCHEMA, [{"n": n} for n in values]).data
    return LogBatch.opened(data, SCHEMA, 3, np.array(offsets, np.uint64), deliveries)


@given(st.data())
def test_some_rows_keep_their_places(data):
    offsets = sorted(data.draw(st.sets(st.integers(0, 1_000), min_size=1)))
    batch = opened(offsets, offsets, np.array(offsets, np.uint32))
    chosen = sorted(data.draw(st.sets(st.integers(0, len(offsets) - 1))))
    for rows in (chosen, slice(chosen[0], None) if chosen else slice(0, 1)):
        part = batch.some(rows)
        assert part.log == 3
        assert part.column("n").tolist() == part.offsets.tolist() == part.deliveries.tolist()
        assert len(part) == len(np.arange(len(offsets))[rows])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("s: [n: int]", "s: [n: int, more: string]"),
        ("s: [n: int, c: {a: int | b: string}]", "s: [more: string, n: int, c: {a: int | b: string}]"),
        ("s: [n: int, next: s?]", "s: [n: int, next: s?, more: string]"),
    ],
    ids=["by columns", "by Arrow", "by values"],
)
def test_rows_of_another_version_keep_their_places(old, new):
    schema = parse_schema(old)
    rows = [{"n": 1, "c": {"a": 1}}, {"n": 2, "c": {"b": "x"}}]
    data = Batch.encode(schema, [{name: row[name] for name in row if name in old} for row in rows]).data
    batch = LogBatch.opened(data, schema, 3, np.array([7, 9], np.uint64), np.array([0, 2], np.uint32))
    read = batch.read_as(parse_schema(new))
    assert isinstance(read, LogBatch)
    assert [(row.n, row.more) for row in read] == [(1, None), (2, None)]
    assert (read.log, read.offsets.tolist(), read.deliveries.tolist()) == (3, [7, 9], [0, 2])
    assert batch.read_as(schema) is batch
    assert read.some([1]).offsets.tolist() == [9]


def test_offsets_are_as_many_as_rows():
    with pytest.raises(ProtocolError, match="2 offsets for 3 rows"):
        opened([1, 2, 3], [1, 2])
