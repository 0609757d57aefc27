"""Orders of messages: keys and directions, from a list or from a query."""

import pickle

import pytest

from milepost import query
from milepost.errors import LimitExceeded, QuerySyntaxError, QueryTypeError
from milepost.schema.text import parse
from tests.unit.query.test_select import FROM, MESSAGES, ORDERS

ROOT = "from mt_OrderMessage om, om.root o"


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("name", [1, 0, 2, 3]),
        ("name desc", [3, 0, 2, 1]),
        ("name ASC, count(lines)", [1, 2, 0, 3]),
        (f"count(select ol.item {FROM}) desc, id", [1, 0, 3, 2]),
        ("min(lines, price)", [0, 1, 2, 3]),
        ("min(lines, price) desc, name desc", [3, 2, 1, 0]),
        ("coalesce(min(lines, price), 0) , name", [2, 3, 0, 1]),
        (f"select om {ROOT} order by o.name desc, count(select ol {FROM})", [3, 2, 0, 1]),
        (f"select o.name {ROOT}", [1, 0, 2, 3]),
        (f"select om {ROOT} order by om.priority desc, o.name", [1, 0, 2, 3]),
        ("1", [0, 1, 2, 3]),
    ],
)
def test_messages_are_sorted(text: str, places: list[int]) -> None:
    order = query.ordering(text, ORDERS)
    assert sorted(range(len(MESSAGES)), key=lambda place: order.key(MESSAGES[place])) == places


def test_the_header_orders() -> None:
    order = query.ordering(f"select om {ROOT} order by om.priority desc, om.mid", ORDERS)
    headers = [{"priority": 1.0, "mid": "b"}, {"priority": 2.0, "mid": "a"}, {"priority": 1.0, "mid": "a"}, {}]
    keys = [order.key(message, header) for message, header in zip(MESSAGES, headers, strict=True)]
    assert sorted(range(4), key=keys.__getitem__) == [3, 1, 2, 0]
    assert keys[0] != keys[2]
    assert keys[0] == order.key(MESSAGES[1], headers[0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lines", "lines is a reference to order_line, and not a single value"),
        ("nme", "did you mean 'name'"),
        ("null", "null alone orders nothing"),
        ("name + 1", "cannot add string and integer"),
        (f"select om {FROM} order by ol.price", "a message has one place in an order"),
        (f"select ol.item {FROM}", "a message has one place in an order"),
        (f"select om {ROOT} where o.name = 'x' order by o.name", "'where' selects messages"),
        (f"select * {ROOT}", "has no order"),
        (f"select om {ROOT}, order_line ol order by o.name", "'ol' is a free variable"),
        (f"count(select x {ROOT}, item x)", "'x' is a free variable"),
        ("select om from mt_Other om order by om.mid", "free variable|mt_OrderMessage"),
    ],
)
def test_wrong_orders_are_refused(text: str, message: str) -> None:
    with pytest.raises(QueryTypeError, match=message):
        query.ordering(text, ORDERS)


@pytest.mark.parametrize("text", ["", "name,", ", name", "name name", "name asc desc", "order by name", "name; id"])
def test_what_does_not_parse_is_refused(text: str) -> None:
    with pytest.raises(QuerySyntaxError):
        query.ordering(text, ORDERS)
    with pytest.raises(QuerySyntaxError, match="'asc', 'desc'"):
        query.ordering("name upwards", ORDERS)


def test_absurd_orders_are_refused() -> None:
    with pytest.raises(LimitExceeded):
        query.ordering(", ".join(["id"] * 40_000), ORDERS)


def test_orders_are_values() -> None:
    order = query.ordering("name desc,id", ORDERS)
    assert order == query.ordering("NAME  desc".lower() + " , id asc", ORDERS)
    assert hash(order) == hash(query.ordering("name desc, id", ORDERS))
    assert order != query.ordering("name, id", ORDERS)
    assert order != "name desc,id"
    assert repr(order) == "<Ordering 'name desc,id' over OrderMessage>"
    order.key(MESSAGES[0])
    assert pickle.loads(pickle.dumps(order)) == order


def test_tuples_are_ordered_too() -> None:
    schema = parse("q: [symbol: string, price: double, tags: *(string)*]")
    messages = [{"symbol": "b", "price": 1.0, "tags": []}, {"symbol": "a", "price": float("nan"), "tags": ["x"]}]
    order = query.ordering("price desc, symbol", schema)
    assert sorted(range(2), key=lambda place: order.key(messages[place])) == [1, 0]
    with pytest.raises(QueryTypeError, match="select works on message types"):
        query.ordering("select m from mt_q m order by m.symbol", schema)
