"""The short ways: IDs of one message, rows under IDs of their own, and fields read one by one or as a column."""

import copy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.batch import Batch, Ids, MessageId, Stamper
from milepost.errors import InvalidValue, MalformedBatch
from milepost.query import parse_schema
from tests.strategies import identical, schemas, values

QUOTE = parse_schema("quote: [symbol: string, price: double, size: int?]")
WORD = st.integers(0, (1 << 32) - 1)


@given(WORD, WORD, st.integers(0, (1 << 64) - 1))
def test_the_id_of_one_message_is_that_of_one_among_many(publisher, broker, stamp):
    one, single = Ids.one(publisher, broker, stamp), Ids.single(publisher, broker, [stamp])
    assert one == single
    assert one[0] == one[-1] == single[0] == MessageId(publisher, broker, stamp)
    rows = [{"symbol": "A", "price": 1.0, "size": None}]
    assert Batch.encode(QUOTE, rows, one) == Batch.encode(QUOTE, rows, single)
    assert Batch.decode(Batch.encode(QUOTE, rows, one).data, QUOTE).ids == single
    assert one.stamps.tolist() == [stamp]
    assert Ids.concat([one, single]) == Ids.single(publisher, broker, [stamp, stamp])


def test_what_is_no_id():
    for wrong in ((1 << 32, 0, 0), (0, -1, 0), (0, 0, 1 << 64)):
        with pytest.raises(InvalidValue):
            Ids.one(*wrong)
    for row in (1, -2):
        with pytest.raises(IndexError):
            Ids.one(1, 2, 3)[row]


def test_stamps_one_by_one_and_many_at_once_increase():
    clock = iter([5, 5, 3, 9, 9])
    stamper = Stamper(lambda: next(clock))
    stamps = [stamper.next(), *stamper.take(3).tolist(), stamper.next(), stamper.next(), *stamper.take(2).tolist()]
    assert stamps == sorted(set(stamps))
    assert stamps[0] == 5 << 16
    assert stamps[5] == 9 << 16


@given(st.data())
def test_rows_under_other_ids(data):
    schema = data.draw(schemas())
    rows = data.draw(st.lists(values(schema), max_size=6))
    batch = Batch.encode(schema, rows, Ids.single(1, 2, range(1, len(rows) + 1)))
    start, stop = sorted(data.draw(st.tuples(st.integers(0, len(rows)), st.integers(0, len(rows)))))
    ids = Ids.single(7, 8, range(100, 100 + stop - start))
    made = batch.stamped(ids, start, stop)
    assert made.ids == ids
    assert identical(made.to_pylist(), batch.slice(start, stop).to_pylist())
    assert Batch.decode(made.data, schema) == made


@pytest.mark.parametrize("rows", [1, 2, 8, 9, 200])
def test_a_field_is_the_same_however_often_it_is_read(rows):
    values_of = [{"symbol": "é" * (n % 3), "price": n / 2, "size": n if n % 2 else None} for n in range(rows)]
    for data in (Batch.encode(QUOTE, values_of).data, memoryview(Batch.encode(QUOTE, values_of).data)):
        batch = Batch.decode(data, QUOTE)
        for _ in range(7):  # the first ones alone, the others out of a column
            assert [dict(row) for row in batch] == values_of
            assert [(row.symbol, row.price, row.size) for row in batch] == [tuple(row.values()) for row in values_of]


def test_some_messages_of_a_batch():
    batch = Batch.encode(QUOTE, [{"symbol": str(n), "price": 1.0} for n in range(5)], Ids.single(1, 2, range(5)))
    assert [(row.symbol, row.id.stamp) for row in batch.messages([4, 0, 2])] == [("4", 4), ("0", 0), ("2", 2)]
    first = copy.copy(batch[3])
    assert (first.symbol, first["symbol"], first.header.id) == ("3", "3", MessageId(1, 2, 3))
    with pytest.raises(KeyError, match="did you mean 'symbol'"):
        _ = first["simbol"]
    with pytest.raises(AttributeError, match="did you mean 'symbol'"):
        _ = first.simbol


def test_damaged_single_rows_are_refused():
    data = Batch.encode(QUOTE, [{"symbol": "A", "price": 1.0}], Ids.one(1, 2, 3)).data
    for cut in range(len(data)):
        with pytest.raises(MalformedBatch):
            Batch.decode(data[:cut], QUOTE)
    for position in range(0, len(data), 3):
        damaged = bytearray(data)
        damaged[position] ^= 0x10
        with pytest.raises(MalformedBatch):
            Batch.decode(bytes(damaged), QUOTE)
    assert np.array_equal(Batch.decode(data, QUOTE).ids.stamps, [3])
