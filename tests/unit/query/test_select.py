"""JPMQ's queries: bindings, aggregates, rows, and the header."""

from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pytest

from milepost import query
from milepost.schema.text import parse

ORDERS = parse(
    """
    DEFINE MESSAGETYPE OrderMessage;
    NODE order; id: IDENT; date: DATE; name: STRING; lines: REFERENCE TO order_line; END;
    NODE order_line; line_no: INTEGER; amount: INTEGER; price: REAL?;
      item: REFERENCE TO item; of: REFERENCE TO order; END;
    NODE item; name: STRING; ean: INTEGER; END;
    ROOT order;
    END;
    """
)


def order(name: str, *prices: float | None) -> dict[str, Any]:
    """An order with one line for each price; all lines share an item, and lead back to the order."""
    bolt = {"name": "bolt", "ean": 1}
    made: dict[str, Any] = {"id": 1, "date": date(2024, 1, 31), "name": name, "lines": []}
    for number, price in enumerate(prices):
        items = [bolt, {"name": f"item {number}", "ean": 10 + number}]
        made["lines"].append({"line_no": number, "amount": 2, "price": price, "item": items, "of": [made]})
    return made


MESSAGES = [order("Smith", 5.0, 15.0), order("Jones", 20.0, None, 30.0), order("Smith"), order("Wu", None)]
BATCH = query.encode(ORDERS, MESSAGES)
FROM = "from mt_OrderMessage om, om.root o, o.lines ol"


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (f"count(select ol.item {FROM})", [4, 6, 0, 2]),
        (f"count(select ol {FROM})", [2, 3, 0, 1]),
        (f"count(select * {FROM}, ol.item i where i.name = 'bolt')", [2, 3, 0, 1]),
        (f"count(select ol.price {FROM})", [2, 2, 0, 0]),
        (f"count(select om {FROM} where ol.price > 10)", [1, 2, 0, 0]),
        (f"sum(select ol.price * ol.amount {FROM})", [40.0, 100.0, None, None]),
        (f"max(select ol.line_no {FROM} where ol.price is null)", [None, 1, None, 0]),
        (f"min(select i.name {FROM}, ol.item i where i.ean > 10)", ["item 1", "item 1", None, None]),
        (f"avg(select i.ean {FROM}, ol.item i)", [5.75, 6.0, None, 5.5]),
        (f"any(select ol.price > 25 {FROM})", [False, True, False, None]),
        (f"all(select ol.price > 1 {FROM})", [True, None, True, None]),
        ("count(select o.name from mt_OrderMessage om, om.root o)", [1, 1, 1, 1]),
        ("count(select b from mt_OrderMessage om, om.root o, o.lines l, l.of b, b.lines l2)", [4, 9, 0, 1]),
        (f"count(lines, price > avg(select ol.price {FROM}))", [1, 1, 0, 0]),
        (f"count(lines, count(select ol {FROM} where ol.price > price) > 0)", [1, 1, 0, 0]),
        ("sum(lines, count(item))", [4, 6, None, 2]),
        ("sum(lines, sum(of, count(lines)))", [4, 9, None, 1]),
    ],
)  # fmt: skip
def test_aggregates(text: str, values: list[Any]) -> None:
    expression = query.expression(text, ORDERS)
    assert [expression.value(message) for message in MESSAGES] == values
    assert [expression.value(node) for node in BATCH] == values
    assert expression.column(BATCH).to_pylist() == values


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("select om from mt_OrderMessage om, om.root o where o.name = 'Smith'", [0, 2]),
        ("select om from mt_OrderMessage om", [0, 1, 2, 3]),
        (f"select om {FROM}", [0, 1, 3]),
        (f"select om {FROM} where ol.price > 18", [1]),
        (f"select om {FROM} where not ol.price > 18", [0]),
        (f"select ol.item {FROM}, ol.item i where i.ean = 12", [1]),
        ("select om from l.item i, o.lines l, om.root o, mt_ORDERMESSAGE om where i.ean = 12", [1]),
        (f"select * {FROM}, o.lines other where ol.price < other.price", [0, 1]),
    ],
)
def test_predicates(text: str, rows: list[int]) -> None:
    predicate = query.compile(text, ORDERS)
    assert [row for row, message in enumerate(MESSAGES) if predicate.test(message)] == rows
    assert np.flatnonzero(predicate.mask(BATCH)).tolist() == rows
    assert all(isinstance(predicate.test(message), bool) for message in MESSAGES)
    selection = query.parse_query(text, ORDERS)
    assert selection.predicate == predicate
    assert [row for row, message in enumerate(MESSAGES) if selection.rows(message)] == rows


def test_rows_are_ordered_with_null_behind_every_value() -> None:
    text = f"select ol.line_no, ol.price {FROM} order by ol.price"
    jones = MESSAGES[1]
    assert query.parse_query(text, ORDERS).rows(jones) == [(0, 20.0), (2, 30.0), (1, None)]
    assert query.parse_query(text + " desc", ORDERS).rows(jones) == [(1, None), (2, 30.0), (0, 20.0)]
    several = query.parse_query(f"select i.name {FROM}, ol.item i order by i.name desc, ol.price", ORDERS)
    assert several.rows(jones) == [("item 2",), ("item 1",), ("item 0",), ("bolt",), ("bolt",), ("bolt",)]


def test_variables_stand_for_nodes_and_the_message() -> None:
    smith = MESSAGES[0]
    selection = query.parse_query(f"select * {FROM}", ORDERS)
    assert [str(kind) for kind in selection.types] == ["message", "node order", "node order_line"]
    first, second = selection.rows(smith)
    assert first[0] is first[1] is smith
    assert (first[2], second[2]) == (smith["lines"][0], smith["lines"][1])


def test_equal_queries_are_equal() -> None:
    one = query.parse_query(f"select ol.price {FROM} order by ol.price", ORDERS)
    other = query.parse_query("SELECT b.price FROM mt_ordermessage m, m.root a, a.lines b ORDER BY b.price asc", ORDERS)
    assert one == other
    assert hash(one) == hash(other)
    assert one != query.parse_query(f"select ol.price {FROM}", ORDERS)
    assert query.parse_query(str(one), ORDERS) == one


NOON = datetime(2024, 1, 31, 12, tzinfo=UTC)
HEADER: dict[str, Any] = {
    "priority": np.array([1.5, np.nan, 3.0, -0.0]),
    "mid": ["a", None, "c", "d"],
    "enqueued_at": [NOON, None, NOON, NOON],
    "abort_count": np.array([0, 1, 2, 3]),
}


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ("om.priority > 1", [0, 2]),
        ("om.priority is null", [1]),
        ("om.priority = 0", [3]),
        ("om.mid >= 'c'", [2, 3]),
        ("om.enqueued_at < timestamp '2024-01-31T13:00:00Z' and om.abort_count < 3", [0, 2]),
        ("om.message_type is null", [0, 1, 2, 3]),
        ("any(o.lines, price > 18 and om.abort_count = 1)", [1]),
    ],
)
def test_the_header_is_given_beside_the_message(where: str, rows: list[int]) -> None:
    predicate = query.compile(f"select om from mt_OrderMessage om, om.root o where {where}", ORDERS)
    one_by_one = [{name: column[row] for name, column in HEADER.items()} for row in range(4)]
    assert [row for row in range(4) if predicate.test(MESSAGES[row], one_by_one[row])] == rows
    assert np.flatnonzero(predicate.mask(BATCH, HEADER)).tolist() == rows


def test_a_header_has_a_value_for_each_row() -> None:
    predicate = query.compile("select om from mt_OrderMessage om where om.priority > 1", ORDERS)
    with pytest.raises(ValueError, match="2 values of priority for 4 rows"):
        predicate.mask(BATCH, {"priority": [1.0, 2.0]})
    assert predicate.mask(BATCH).tolist() == [False] * 4
