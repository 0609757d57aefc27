"""The schema that fits what has none of ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given

from milepost.batch import Batch, schema_of
from milepost.errors import SchemaError
from milepost.schema.text import parse
from milepost.schema.types import Schema
from tests import strategies


@given(strategies.schemas())
def test_arrow_carries_the_schema_along(schema: Schema) -> None:
    assert schema_of(Batch.encode(schema, []).to_arrow()) == schema


@given(strategies.schemas())
def test_arrow_without_it_says_all_but_the_names_of_definitions(schema: Schema) -> None:
    bare = Batch.encode(schema, []).to_arrow().schema.remove_metadata()
    seen = schema_of(bare, schema.name)
    if not schema.definitions and not schema.recursive:
        assert seen == Schema(schema.name, schema.type)
    assert Batch.encode(seen, []).to_arrow().schema.remove_metadata().names == bare.names


def test_frames_and_rows_say_what_is_missing_in_them() -> None:
    columns: dict[str, list[Any]] = {"symbol": ["A", None], "price": [1.5, 2.0], "tags": [["x"], []]}
    expected = parse("quote: [symbol: string?, price: double, tags: *(string)*]")
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    for source in (columns, rows, pl.DataFrame(columns), pd.DataFrame(columns), pa.table(columns)):
        assert schema_of(source, "quote") == expected


def test_dataclasses_and_batches_have_one_already() -> None:
    @dataclass
    class Quote:
        symbol: str
        price: float | None

    schema = parse("Quote: [symbol: string, price: double?]")
    assert schema_of(Quote) == schema_of([Quote("A", None)]) == schema
    assert schema_of(Batch.encode(schema, [])) == schema


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ([], "no rows"),
        ([{"a": 1}, {"a": "x"}], "no schema in common"),
        ({"a": [None]}, "no value that shows its type"),
        (pa.schema([("a", pa.duration("us"))]), "number of microseconds"),
        ({"a b": [1]}, "no field name"),
    ],
)
def test_what_has_no_schema_is_explained(source: Any, says: str) -> None:
    with pytest.raises(SchemaError, match=says):
        schema_of(source)
