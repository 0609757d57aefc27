"""Fields by constant offset, by column and by view say what the plain values say."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.batch import Batch, ListView, TupleView, VariantView, projection, reader
from milepost.batch.column import steps
from milepost.errors import InvalidValue
from milepost.schema.text import parse
from milepost.schema.types import Optional, Ref, Schema, Tuple, Type, Variant
from tests import strategies

ORDER = parse(
    "order: [id: long, customer: [name: string, vip: bool?]?, lines: *([item: string, price: double?,"
    " tags: *(string)*])*, pay: {cash: [] | card: [number: string] | split: *(decimal(9,2))*}, at: timestamp]"
)


def thawed(value: Any) -> Any:
    """A view as the plain value it shows."""
    match value:
        case TupleView() | VariantView():
            return {name: thawed(value[name]) for name in value}
        case ListView():
            return [thawed(item) for item in value]
    return value


def leaves(schema: Schema, kind: Type, path: str = "") -> Iterator[str]:
    """The paths of a type's parts, lists not entered."""
    while isinstance(kind, Optional) or (isinstance(kind, Ref) and kind.name not in schema.recursive):
        kind = kind.type if isinstance(kind, Optional) else schema.resolve(kind)
    if path:
        yield path
    if isinstance(kind, Tuple | Variant):
        fields = kind.fields if isinstance(kind, Tuple) else kind.cases
        for item in fields:
            yield from leaves(schema, item.type, f"{path}.{item.name}" if path else item.name)


def follow(value: Any, path: str) -> Any:
    for step in steps(path):
        if isinstance(step, int):
            value = value[step] if value is not None and step < len(value) else None
        else:
            value = None if value is None else value.get(step)
    return value


@given(st.data(), strategies.schemas())
def test_readers_and_projections_read_what_was_written(data: st.DataObject, schema: Schema) -> None:
    row = data.draw(strategies.values(schema))
    raw = bytes(Batch.encode(schema, [row]).data)
    paths = list(leaves(schema, schema.type))
    for path in paths:
        assert strategies.identical(thawed(reader(schema, path)(raw)), follow(row, path)), path
    chosen = data.draw(st.lists(st.sampled_from(paths), max_size=9)) if paths else []
    expected = [follow(row, path) for path in chosen]
    assert strategies.identical([thawed(value) for value in projection(schema, chosen)(raw)], expected)


@given(st.data(), strategies.schemas())
def test_columns_are_the_fields_of_the_rows(data: st.DataObject, schema: Schema) -> None:
    rows = data.draw(st.lists(strategies.values(schema), min_size=1, max_size=6))
    batch = Batch.encode(schema, rows)
    for path in leaves(schema, schema.type):
        column = batch.column(path)
        absent = np.ma.getmaskarray(column)
        values = np.ma.getdata(column).tolist()
        kinds = {"datetime64[us]": lambda value: value.replace(tzinfo=None)}
        convert = kinds.get(str(column.dtype), lambda value: value)
        for row, value, gone in zip(rows, values, absent, strict=True):
            expected = follow(row, path)
            assert gone == (expected is None), path
            if expected is not None:
                assert strategies.identical(value, convert(expected)), path


@given(st.data(), strategies.schemas())
def test_views_show_the_plain_values(data: st.DataObject, schema: Schema) -> None:
    rows = data.draw(st.lists(strategies.values(schema), min_size=1, max_size=4))
    batch = Batch.encode(schema, rows)
    assert strategies.identical([thawed(view) for view in batch], rows)


@given(st.data(), strategies.schemas())
def test_replace_changes_one_field_and_no_other(data: st.DataObject, schema: Schema) -> None:
    assert isinstance(schema.type, Tuple)
    rows = data.draw(st.lists(strategies.values(schema), min_size=1, max_size=4))
    if not schema.type.fields:
        return
    name = data.draw(st.sampled_from([item.name for item in schema.type.fields]))
    values = [data.draw(strategies.values(schema))[name] for _ in rows]
    batch = Batch.encode(schema, rows).replace(name, values)
    assert strategies.identical(batch.to_pylist(), [row | {name: v} for row, v in zip(rows, values, strict=True)])
    assert Batch.decode(batch.data, schema) == batch


def orders() -> list[dict[str, Any]]:
    from datetime import datetime
    from decimal import Decimal

    at = datetime(2024, 1, 31, 12, tzinfo=UTC)
    ink = {"item": "ink", "price": 3.5, "tags": ["blue", "wet"]}
    pen = {"item": "pen", "price": None, "tags": []}
    return [
        {"id": 1, "customer": {"name": "Smith", "vip": None}, "lines": [ink, pen], "pay": {"cash": {}}, "at": at},
        {"id": 2, "customer": None, "lines": [], "pay": {"card": {"number": "4111"}}, "at": at},
        {
            "id": 3,
            "customer": {"name": "Lee", "vip": True},
            "lines": [pen],
            "pay": {"split": [Decimal("1.50")]},
            "at": at,
        },
    ]


def test_a_row_reads_like_an_object_and_like_a_dict() -> None:
    row = Batch.encode(ORDER, orders())[0]
    assert row.lines[0].item == row["lines"][0]["item"] == "ink"
    assert row.lines[0].tags[-1] == "wet"
    assert list(row.lines[0].tags[::-1]) == ["wet", "blue"]
    assert row.customer.name == "Smith"
    assert row.customer.vip is None
    assert row.pay.case == "cash"
    assert row.pay.card is None
    assert row.id == row["id"] == 1  # a field of that name comes before the message's own ID
    assert row.header.id is None
    assert "lines" in dir(row)
    with pytest.raises(AttributeError, match="did you mean 'lines'"):
        _ = row.line


def test_elements_of_lists_are_read_by_index() -> None:
    batch = Batch.encode(ORDER, orders())
    assert batch.column("lines[0].item").tolist() == ["ink", None, "pen"]
    assert batch.column("lines[0].tags[1]").tolist() == ["wet", None, None]
    assert batch.column("pay.card.number").tolist() == [None, "4111", None]


def test_numbers_and_text_are_not_copied() -> None:
    schema = parse("m: [a: int, b: double?, s: string, t: [u: long, v: string?]]")
    rows = [{"a": i, "b": i / 2, "s": f"s{i}", "t": {"u": i, "v": None}} for i in range(100)]
    batch = Batch.decode(Batch.encode(schema, rows).data, schema)
    whole = np.frombuffer(batch.data, np.uint8)
    inside = (whole.ctypes.data, whole.ctypes.data + len(whole))
    for path in ("a", "b", "t.u"):
        assert np.shares_memory(np.ma.getdata(batch.column(path)), whole), path
    for column in batch.to_arrow().flatten() if hasattr(batch.to_arrow(), "flatten") else batch.to_arrow().columns:
        for buffer in column.buffers():
            assert buffer is None or inside[0] <= buffer.address < inside[1]
    for path in ("s", "t.v"):
        for buffer in batch.arrow(path).buffers():
            assert buffer is None or inside[0] <= buffer.address < inside[1]


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("customre", "did you mean 'customer'"),
        ("lines.item", r"choose an element, as in \[0\]"),
        ("pay.cheque", "there is no case"),
        ("id.x", "a value of type long has no"),
        ("lines[x]", "invalid path at character"),
        ("", "invalid path"),
        (".id", "starts with the name"),
    ],
)
def test_a_wrong_path_is_explained(path: str, says: str) -> None:
    with pytest.raises(InvalidValue, match=says):
        Batch.encode(ORDER, orders()).column(path)


def test_a_wrong_path_is_found_when_the_reader_is_compiled() -> None:
    for broken in (lambda: reader(ORDER, "idd"), lambda: projection(ORDER, ["id", "pay.cheque"])):
        with pytest.raises(InvalidValue):
            broken()
