"""Value -> batch -> value, batch -> Arrow -> batch, and every way to remake a batch, over generated schemas."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from milepost.batch import Batch, IdRun, Ids
from milepost.schema.types import Schema
from tests import strategies


@st.composite
def tables(draw: st.DrawFn, max_rows: int = 9, **contents: Any) -> tuple[Schema, list[Any]]:
    """A schema and some of its messages."""
    schema = draw(strategies.schemas(**contents))
    return schema, draw(st.lists(strategies.values(schema), max_size=max_rows))


@st.composite
def id_columns(draw: st.DrawFn, rows: int) -> Ids:
    """Message IDs for so many rows, in runs of any length."""
    cuts = sorted(draw(st.sets(st.integers(1, rows), max_size=4)) | {rows}) if rows else []
    number = st.integers(0, 2**32 - 1)
    runs = tuple(IdRun(end, draw(number), draw(number)) for end in cuts)
    stamps = draw(st.lists(st.integers(0, 2**64 - 1), min_size=rows, max_size=rows))
    return Ids(runs, np.array(stamps, np.uint64))


@given(tables())
def test_values_come_back_from_the_bytes(table: tuple[Schema, list[Any]]) -> None:
    schema, rows = table
    made = Batch.encode(schema, rows)
    read = Batch.decode(made.data, schema)
    assert len(read) == len(rows)
    assert strategies.identical(made.to_pylist(), rows)
    assert strategies.identical(read.to_pylist(), rows)
    assert Batch.encode(schema, read.to_pylist()) == made


@given(tables())
def test_arrow_and_back_gives_the_same_bytes(table: tuple[Schema, list[Any]]) -> None:
    schema, rows = table
    made = Batch.encode(schema, rows)
    arrow = made.to_arrow()
    arrow.validate(full=True)
    again = Batch.encode(schema, arrow)
    assert strategies.identical(again.to_pylist(), rows)
    assert again == made


@given(st.data(), tables())
def test_rows_read_one_by_one_are_the_rows(data: st.DataObject, table: tuple[Schema, list[Any]]) -> None:
    schema, rows = table
    made = Batch.encode(schema, rows)
    assert strategies.identical(Batch.encode(schema, list(made)).to_pylist(), rows)  # views are rows too


@given(st.data(), tables())
def test_take_slice_and_concat_are_those_of_lists(data: st.DataObject, table: tuple[Schema, list[Any]]) -> None:
    schema, rows = table
    ids = data.draw(st.none() | id_columns(len(rows)))
    made = Batch.encode(schema, rows, ids)
    picked = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=12)) if rows else []
    taken = made.take(picked)
    assert strategies.identical(taken.to_pylist(), [rows[row] for row in picked])
    start, stop = data.draw(st.integers(-12, 12)), data.draw(st.none() | st.integers(-12, 12))
    cut = made.slice(start, stop)
    assert strategies.identical(cut.to_pylist(), rows[start:stop])
    joined = Batch.concat([made, taken, cut])
    assert strategies.identical(joined.to_pylist(), rows + [rows[row] for row in picked] + rows[start:stop])
    if ids is not None:
        every = [ids[row] for row in range(len(rows))]
        assert [taken.id(row) for row in range(len(taken))] == [every[row] for row in picked]
        expected = every + [every[row] for row in picked] + every[start:stop]
        assert [joined.id(row) for row in range(len(joined))] == expected
    for remade in (taken, cut, joined):
        assert Batch.decode(remade.data, schema) == remade


@given(tables(), st.integers(1, 7))
def test_a_batch_may_lie_anywhere_in_a_buffer(table: tuple[Schema, list[Any]], shift: int) -> None:
    schema, rows = table
    frame = bytearray(shift) + Batch.encode(schema, rows).data
    batch = Batch.decode(memoryview(frame)[shift:], schema)
    assert strategies.identical(batch.to_pylist(), rows)
    assert strategies.identical(Batch.encode(schema, list(batch)).to_pylist(), rows)
    assert strategies.identical(batch.take(range(len(rows))).to_pylist(), rows)
    assert Batch.encode(schema, batch.to_arrow()) == batch
