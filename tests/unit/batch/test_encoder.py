"""What a batch can be made of, and what it says to what it cannot."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.batch import Batch
from milepost.batch.encoder import Encoder
from milepost.batch.format import format_of
from milepost.errors import InvalidValue
from milepost.schema.text import parse
from milepost.schema.types import Schema
from tests import strategies

QUOTE = parse("quote: [symbol: string, price: double, size: int, at: timestamp?]")
ROWS = [
    {"symbol": "IBM", "price": 101.5, "size": 200, "at": datetime(2024, 1, 31, tzinfo=UTC)},
    {"symbol": "Ünï", "price": -0.5, "size": -1, "at": None},
]


@given(st.data(), strategies.schemas(variants=False, lists=False, dynamic=False))
def test_one_row_alone_has_the_bytes_it_has_by_columns(data: st.DataObject, schema: Schema) -> None:
    row = data.draw(strategies.values(schema))
    form = format_of(schema)
    columns = Encoder(form).columns(form.layout(), [row])
    assert Batch.encode(schema, [row]) == Batch.assemble(form, 1, {0: (columns, None)}, None)


def test_frames_and_columns_make_the_same_batch() -> None:
    expected = Batch.encode(QUOTE, ROWS)
    columns = {name: [row[name] for row in ROWS] for name in ROWS[0]}
    arrow = pa.table(columns)
    sources = {
        "lists": columns,
        "numpy": columns | {"price": np.array(columns["price"]), "size": np.array(columns["size"], np.int32)},
        "arrow table": arrow,
        "arrow batch": arrow.to_batches()[0],
        "arrow in chunks": pa.concat_tables([arrow.slice(0, 1), arrow.slice(1)]),
        "pandas": pd.DataFrame(columns),
        "polars": pl.DataFrame(columns),
        "another batch": list(Batch.encode(QUOTE, ROWS)),
        "a generator": (row for row in ROWS),
    }
    for name, source in sources.items():
        assert Batch.encode(QUOTE, source) == expected, name


def test_a_slice_of_an_arrow_table_is_encoded_as_its_rows() -> None:
    schema = parse("m: [n: int, s: string?, xs: *(string)*, t: [b: bool]?]")
    rows = [
        {"n": i, "s": None if i % 3 else f"s{i}", "xs": ["x"] * (i % 4), "t": None if i % 2 else {"b": i > 5}}
        for i in range(20)
    ]
    whole = Batch.encode(schema, rows).to_arrow()
    assert Batch.encode(schema, whole.slice(5, 9)).to_pylist() == rows[5:14]


def test_masked_arrays_say_what_is_absent_and_nan_is_a_value() -> None:
    schema = parse("m: [x: double?]")
    masked = np.ma.array([1.0, 2.0], mask=[False, True])
    assert Batch.encode(schema, {"x": masked}).to_pylist() == [{"x": 1.0}, {"x": None}]
    assert np.isnan(Batch.encode(schema, {"x": np.array([np.nan])}).column("x")[0])


def test_dataclasses_are_rows() -> None:
    @dataclass
    class Line:
        item: str
        price: Decimal

    @dataclass
    class Card:
        number: str

    @dataclass
    class Order:
        id: int
        day: date
        pay: Card
        lines: list[Line] = field(default_factory=list)

    schema = parse(
        "Order: [id: long, day: date, pay: {Cash: [] | Card: [number: string]},"
        " lines: *([item: string, price: decimal(9,2)])*]"
    )
    order = Order(1, date(1969, 12, 31), Card("4111"), [Line("ink", Decimal("2.5"))])
    assert Batch.encode(schema, [order]).to_pylist() == [
        {
            "id": 1,
            "day": date(1969, 12, 31),
            "pay": {"Card": {"number": "4111"}},
            "lines": [{"item": "ink", "price": Decimal("2.50")}],
        }
    ]


@pytest.mark.parametrize(
    ("kind", "value", "says"),
    [
        ("int", 2**31, "2147483648 is no int: it goes from -2147483648 to 2147483647"),
        ("int", 1.5, "1.5 is no int"),
        ("int", None, r"missing; int is required here \(an optional field is written int\?\)"),
        ("uint8", -1, "it goes from 0 to 255"),
        ("float", 1e300, "1e.300 is no float"),
        ("string", 5, "5 is no string"),
        ("string", "\ud800", "a lone surrogate"),
        ("bytes", "x", "'x' is no bytes"),
        ("bool", 1, "1 is no bool"),
        ("date", datetime(2024, 1, 1), "use .date()"),
        ("timestamp", datetime(2024, 1, 1), "say which time zone"),
        ("decimal(5,2)", Decimal("1.005"), "more than 2 digits after the point"),
        ("decimal(5,2)", Decimal(1000), "more than 5 digits"),
        ("decimal(5,2)", 1.5, r"use Decimal\(str\(value\)\)"),
        ("decimal(5,2)", Decimal("NaN"), "is no decimal"),
        ("uuid", "x", "'x' is no uuid"),
        ("*(int)*", 5, "expected a list, got 5"),
        ("*(int)*", "12", "expected a list"),
        ("*(int)*", None, "missing; a list is required"),
        ("[a: int]", 5, "expected a dict with a, got 5"),
        ("[a: int]", {"b": 1}, "there is no field 'b'"),
        ("{a: int | b: int}", {"c": 1}, "with one of a, b"),
        ("{a: int | b: int}", {"a": 1, "b": 2}, "with one of a, b"),
        ("{a: int | b: int}", None, "missing"),
        ("dynamic", 5, r"DynamicValue\(schema, value\)"),
    ],
)
def test_a_value_that_does_not_fit_is_explained_with_its_row_and_path(kind: str, value: Any, says: str) -> None:
    schema = parse(f"m: [ok: int, outer: [x: {kind}?]?, x: {kind}]")
    row = {"ok": 1, "outer": None, "x": value}
    with pytest.raises(InvalidValue, match=says) as alone:
        Batch.encode(schema, [row])
    assert alone.value.path == "x"
    if isinstance(value, int | float | str) and kind in ("int", "string"):
        with pytest.raises(InvalidValue, match=says) as among:
            Batch.encode(schema, [{"ok": 1, "outer": None, "x": "s" if kind == "string" else 1}] * 3 + [row])
        assert among.value.row == 3


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ({"symbol": ["A"], "prize": [1.0]}, "did you mean 'price'"),
        ({"symbol": ["A"], "price": [1.0, 2.0], "size": [1]}, "different lengths"),
        ({"symbol": ["A"], "price": [1.0]}, "size: missing"),
        (
            pa.table({"symbol": ["A"], "price": ["1.0"], "size": [1]}),
            "price: a column of string cannot become a column of double",
        ),
        (pa.table({"symbol": ["A"], "price": [1.0], "size": [2**40]}), "does not fit int"),
        (pa.table({"symbol": ["A", None], "price": [1.0, 2.0], "size": [1, 2]}), "row 1, symbol: missing"),
        (pa.table({"symbol": ["A"], "price": [1.0], "size": [1], "at": [2**60]}), "at: a column of int64"),
    ],
)
def test_a_table_that_does_not_fit_is_explained(source: Any, says: str) -> None:
    with pytest.raises(InvalidValue, match=says):
        Batch.encode(QUOTE, source)


@given(st.sampled_from(["int", "long", "uint32", "double", "int16"]), st.lists(st.integers(0, 100) | st.none()))
def test_absent_numbers_are_zeros(kind: str, values: list[int | None]) -> None:
    schema = parse(f"s: [a: {kind}?]")
    types: dict[str, Any] = {"int": pa.int32(), "long": pa.int64(), "uint32": pa.uint32(), "double": pa.float64()}
    column = pa.array(values, types.get(kind, pa.int16()))
    buffers = column.buffers()
    full = pa.Array.from_buffers(column.type, len(column), [buffers[0], pa.py_buffer(b"\x11" * (buffers[1].size))])
    assert full.null_count == column.null_count
    table = pa.record_batch({"a": full})
    made = Batch.encode(schema, table)
    assert Batch.decode(made.data, schema).to_pylist() == [{"a": value} for value in full.to_pylist()]
    body = bytes(made.data)[16:]
    width = column.type.bit_width // 8
    for row, value in enumerate(values):
        if value is None:
            assert body[row * width : (row + 1) * width] == bytes(width)
