"""Drafts become the batches that their rows would be; the checksum is zlib's, whoever computes it."""

from __future__ import annotations

import zlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.batch import Batch, Draft, Ids
from milepost.batch.checksum import crc32
from milepost.errors import InvalidValue
from milepost.query import parse_schema
from tests import strategies

QUOTE = parse_schema("quote: [symbol: string, price: double, size: int?]")


@given(st.binary(max_size=300), st.integers(0, 20), st.integers(0, (1 << 32) - 1))
def test_the_checksum_is_that_of_zlib(data: bytes, start: int, before: int) -> None:
    view = memoryview(data)[start:]
    assert crc32(view) == zlib.crc32(view)
    assert crc32(view, before) == zlib.crc32(view, before)


@given(st.data(), strategies.schemas(min_fields=1))
def test_a_draft_is_the_batch_under_its_ids(data: st.DataObject, schema: object) -> None:
    rows = data.draw(st.lists(strategies.values(schema), max_size=6))
    batch = Batch.encode(schema, rows)
    draft = Draft.of(schema, batch.to_arrow())
    assert len(draft) == len(rows)
    start, stop = sorted(data.draw(st.tuples(st.integers(0, len(rows)), st.integers(0, len(rows)))))
    for first, last in ((start, stop), (0, len(rows)), (start, stop)):
        ids = Ids.single(1, 2, range(10, 10 + last - first))
        made = draft.stamped(ids, first, last)
        assert made == batch.stamped(ids, first, last)
        assert Batch.decode(made.data, schema) == made  # with its checksum


@given(st.data(), strategies.schemas(min_fields=1))
def test_a_draft_of_rows_is_the_batch_of_them_under_its_ids(data: st.DataObject, schema: object) -> None:
    rows = data.draw(st.lists(strategies.values(schema), max_size=6))
    batch = Batch.encode(schema, rows)
    draft = Draft.of(schema, rows)
    assert len(draft) == len(rows)
    start, stop = sorted(data.draw(st.tuples(st.integers(0, len(rows)), st.integers(0, len(rows)))))
    for first, last in ((start, stop), (0, len(rows)), (start, stop)):
        ids = Ids.single(1, 2, range(10, 10 + last - first))
        made = draft.stamped(ids, first, last)
        assert made == batch.stamped(ids, first, last)
        assert not rows or (first, last) != (0, len(rows)) or made == Batch.encode(schema, rows, ids)
        assert Batch.decode(made.data, schema) == made


def test_rows_may_change_when_they_are_drafted() -> None:
    rows = [{"symbol": "a", "price": 1.0}, {"symbol": "Äpfel", "price": 2, "size": 3}]
    draft = Draft.of(QUOTE, iter(rows))
    assert isinstance(draft, Draft)
    rows[0]["price"] = 9.0
    assert draft.stamped(Ids.single(1, 2, [1, 2])).to_pylist() == [
        {"symbol": "a", "price": 1.0, "size": None},
        {"symbol": "Äpfel", "price": 2.0, "size": 3},
    ]


def test_columns_are_not_copied_before_they_are_written() -> None:
    prices = np.array([1.0, 2.0])
    draft = Draft.of(QUOTE, {"symbol": pa.array(["a", "b"]), "price": prices, "size": [1, None]})
    assert isinstance(draft, Draft)
    prices[1] = 9.0
    assert draft.stamped(Ids.single(1, 2, [1, 2])).to_pylist() == [
        {"symbol": "a", "price": 1.0, "size": 1},
        {"symbol": "b", "price": 9.0, "size": None},
    ]


def test_rows_that_only_a_batch_can_check_become_one() -> None:
    checked = parse_schema("quote: [price: double] check (price > 0)")
    assert isinstance(Draft.of(checked, {"price": np.array([1.0])}), Batch)
    assert isinstance(Draft.of(checked, [{"price": 1.0}, {"price": 2.0}]), Batch)
    assert isinstance(Draft.of(QUOTE, [{"symbol": "a", "price": 1.0}]), Batch)  # alone, it has a way of its own


def test_what_is_wrong_is_said_at_once() -> None:
    with pytest.raises(InvalidValue, match="price"):
        Draft.of(QUOTE, {"symbol": ["a"], "price": ["b"]})
    with pytest.raises(InvalidValue):
        Draft.of(QUOTE, {"symbol": ["a"], "price": [1.0, 2.0]})
    with pytest.raises(InvalidValue, match=r"row 1") as caught:
        Draft.of(QUOTE, [{"symbol": "a", "price": 1.0}, {"symbol": "b", "price": "c"}])
    assert (caught.value.row, caught.value.path) == (1, "price")
    for nothing in (5, "rows", [1, 2]):
        with pytest.raises(InvalidValue):
            Draft.of(QUOTE, nothing)


def test_the_size_says_about_how_many_bytes_it_takes() -> None:
    draft = Draft.of(QUOTE, {"symbol": ["a" * 50] * 1000, "price": np.zeros(1000), "size": [None] * 1000})
    real = len(draft.stamped(Ids.single(1, 2, range(1, 1001))).data)
    assert 0.8 * real < Draft.bytes_of(draft) < 1.2 * real
    rows = Draft.of(QUOTE, [{"symbol": "a" * 50, "price": 0.0}] * 1000)
    assert isinstance(rows, Draft)
    assert 0.8 * real < Draft.bytes_of(rows) < 1.2 * real
    assert Draft.bytes_of(Draft.of(QUOTE, {"symbol": [], "price": [], "size": []})) >= 0
