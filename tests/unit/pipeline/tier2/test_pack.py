from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.errors import ConfigError, MalformedBatch
from milepost.pipeline.tier2 import pack, shard, unpack

KEYS = st.tuples(st.one_of(st.none(), st.text(max_size=3)), st.one_of(st.none(), st.integers(-3, 3)))


@given(st.lists(KEYS), st.integers(1, 9))
def test_equal_keys_are_in_one_shard_and_no_row_is_lost(keys: list[tuple[Any, Any]], shards: int) -> None:
    table = pa.table(
        {"a": pa.array([a for a, _ in keys], pa.string()), "b": pa.array([b for _, b in keys], pa.int64())}
    )
    dealt = shard(table, ["a", "b"], shards)
    assert len(dealt) == shards
    assert sorted(row for rows in dealt for row in rows.tolist()) == list(range(len(keys)))
    place: dict[tuple[Any, Any], int] = {}
    for number, rows in enumerate(dealt):
        assert rows.tolist() == sorted(rows.tolist())
        for row in rows.tolist():
            assert place.setdefault(keys[row], number) == number
            alone = shard(table.slice(row, 1), ["a", "b"], shards)  # whatever else is in the table
            assert len(alone[number]) == 1


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array(["a", "b", "host-1", "", None]), [475, 226, 261, 55, 700]),
        (pa.array([b"a", b"b"]), [475, 226]),
        (pa.array([0, 1, 2, -1, None]), [55, 158, 636, 767, 700]),
        (pa.array([0.0, -0.0, 1.5, math.nan]), [55, 55, 358, 700]),
        (pa.array([True, False]), [158, 55]),
        (pa.array([Decimal("1.50"), Decimal("-2.25")]), [655, 686]),
        (pa.array([dt.datetime(2020, 1, 1, tzinfo=dt.UTC)]), [33]),
    ],
)
def test_shards_are_the_same_everywhere(values: pa.Array, expected: list[int]) -> None:
    """Pinned: a stored state belongs to its shard. What changes these numbers makes every state useless."""
    dealt = shard(pa.table({"k": values}), ["k"], 1000)
    assert [len(dealt[place]) for place in expected] == [expected.count(place) for place in expected]
    assert all(row in dealt[place].tolist() for row, place in enumerate(expected))


def test_what_is_equal_hashes_alike() -> None:
    def place(values: pa.Array) -> list[list[int]]:
        return [rows.tolist() for rows in shard(pa.table({"k": values}), ["k"], 64)]

    assert place(pa.array([1, 2, 3], pa.int32())) == place(pa.array([1, 2, 3], pa.int64()))
    assert place(pa.array([1.5], pa.float32())) == place(pa.array([1.5], pa.float64()))
    assert place(pa.array(["a", "b"])) == place(pa.array(["a", "b"]).dictionary_encode())


def test_shards_are_of_like_size() -> None:
    table = pa.table({"n": range(80_000), "s": [f"host-{n}" for n in range(80_000)]})
    for key in ("n", "s"):
        assert all(9_500 < len(rows) < 10_500 for rows in shard(table, [key], 8))


def test_without_keys_there_is_one_shard() -> None:
    assert sorted(map(len, shard(pa.table({"a": [1, 2, 3]}), [], 4))) == [0, 0, 0, 3]


def test_what_cannot_be_dealt_out() -> None:
    table = pa.table({"a": [[1]]})
    with pytest.raises(ConfigError, match="no column 'b'"):
        shard(table, ["b"], 2)
    with pytest.raises(ConfigError, match="cannot be a key"):
        shard(table, ["a"], 2)
    with pytest.raises(ConfigError, match="the number of shards"):
        shard(table, [], 0)


def test_tables_come_back_from_bytes() -> None:
    table = pa.table({"a": [1, None], "b": ["x", "y"], "c": [[1], []]})
    assert unpack(pack(table)).equals(table)
    assert pack(table) == pack(table)
    assert unpack(pack(table[:0])).schema == table.schema


@pytest.mark.parametrize("data", [b"", b"no", pack(pa.table({"a": [1]}))[:-40]])
def test_bytes_that_are_no_table(data: bytes) -> None:
    with pytest.raises(MalformedBatch, match="not an Arrow stream"):
        unpack(data)
