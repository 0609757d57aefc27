"""Each of these was wrong once."""

from __future__ import annotations

import pytest

from milepost import query
from milepost.batch import Batch
from milepost.errors import LimitExceeded
from milepost.schema.text import parse


def test_a_selected_reference_keeps_its_own_variable() -> None:
    orders = parse(
        "DEFINE MESSAGETYPE OrderMessage; NODE o; lines: REFERENCE TO l; END; NODE l; price: REAL;"
        " item: REFERENCE TO i; END; NODE i; name: STRING; END; ROOT o; END;"
    )
    bolt, nut = {"name": "bolt"}, {"name": "nut"}
    order = {"lines": [{"price": 1.0, "item": [bolt]}, {"price": 2.0, "item": [bolt, nut]}]}
    chosen = "select ol.item from mt_OrderMessage om, om.root o, o.lines ol where any(o.lines, price > 0)"
    rows = query.parse_query(chosen, orders).rows(order)
    assert [row[0]["name"] for row in rows] == ["bolt", "bolt", "nut"]


def test_a_number_may_begin_with_any_number_of_zeros() -> None:
    schema = parse("m: [size: int]")
    assert query.compile("size = " + "0" * 5000 + "1", schema).test({"size": 1}) is True


@pytest.mark.slow
def test_text_does_not_grow_without_bound() -> None:
    schema = parse("m: [body: string, tags: *(string)*]")
    row = {"body": "x" * 3_000_000, "tags": ["y"] * 1000}
    batch = Batch.encode(schema, [row, {"body": "z", "tags": ["y"]}])
    with pytest.raises(LimitExceeded, match="QUERY_VALUE_BYTES"):
        query.compile("any(tags, contains(body, it))", schema).mask(batch)
    joined = "body"
    for _ in range(8):
        joined = f"({joined} || {joined})"
    for run in (query.compile(f"length({joined}) > 1", schema), query.compile(f"{joined} = 'x'", schema)):
        with pytest.raises(LimitExceeded, match="QUERY_VALUE_BYTES"):
            run.test(row)
        with pytest.raises(LimitExceeded, match="QUERY_STEPS"):
            run.mask(batch)
