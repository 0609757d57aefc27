"""Batches as frames of pandas and Polars, and back."""

import sys
from datetime import UTC, date, datetime
from decimal import Decimal

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import milepost
from milepost.errors import MissingPackage

SCHEMA = milepost.parse_schema("""
    order: [id: long, pay: { cash: [] | card: [number: string] }, who: string?, count: long?,
            lines: *([item: string, price: decimal(9,2)])*, at: timestamp, due: date]
""")
ROWS = [
    {"id": 1, "pay": {"cash": {}}, "who": "a", "count": None, "lines": [{"item": "ink", "price": Decimal("2.50")}],
     "at": datetime(2026, 3, 1, 12, tzinfo=UTC), "due": date(2026, 3, 2)},
    {"id": 2**62 + 1, "pay": {"card": {"number": "7"}}, "who": None, "count": 2**62 + 1, "lines": [],
     "at": datetime(2026, 3, 1, 13, tzinfo=UTC), "due": date(2026, 3, 3)},
]  # fmt: skip


def test_pandas():
    batch = milepost.encode(SCHEMA, ROWS)
    frame = batch.to_pandas()
    assert [*frame.columns] == [*ROWS[0]]
    assert frame["id"].tolist() == [1, 2**62 + 1]
    assert frame["pay"].tolist() == [{"cash": {}}, {"card": {"number": "7"}}]
    assert frame["at"].dt.hour.tolist() == [12, 13]
    assert frame["count"].isna().tolist() == [True, False]
    exact = batch.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)
    assert exact["count"][1] == 2**62 + 1


def test_polars():
    frame = milepost.encode(SCHEMA, ROWS).to_polars()
    assert frame.columns == [*ROWS[0]]
    assert frame["count"].to_list() == [None, 2**62 + 1]
    assert frame["pay"].to_list() == [{"cash": {}}, {"card": {"number": "7"}}]
    assert frame["lines"].to_list()[0] == [{"item": "ink", "price": Decimal("2.50")}]
    assert frame.schema["at"] == pl.Datetime("us", "UTC")


@pytest.mark.parametrize("rows", [0, 2])
def test_a_frame_goes_back_to_a_batch(rows):
    schema = milepost.parse_schema("quote: [symbol: string, price: double?]")
    batch = milepost.encode(schema, [{"symbol": "A", "price": 1.5}, {"symbol": "B"}][:rows])
    assert milepost.encode(schema, batch.to_pandas()) == batch
    assert milepost.encode(schema, batch.to_polars()) == batch


def test_columns_with_variants_alone_and_no_columns():
    batch = milepost.encode(milepost.parse_schema("v: [a: {x: int | y: string}]"), [{"a": {"x": 1}}, {"a": {"y": "z"}}])
    assert batch.to_pandas()["a"].tolist() == batch.to_polars()["a"].to_list() == [{"x": 1}, {"y": "z"}]
    empty = milepost.encode(milepost.parse_schema("e: []"), [{}, {}])
    assert (empty.to_pandas().shape, empty.to_polars().width) == ((2, 0), 0)


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_a_package_that_is_not_installed_is_named(monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingPackage, match=f"pip install {package}"):
        getattr(milepost.encode(SCHEMA, ROWS), f"to_{package}")()
