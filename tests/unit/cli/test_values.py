"""What people write becomes what the schema says, and what is printed reads back."""

from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

import milepost
from milepost.cli import values
from milepost.errors import InvalidValue
from milepost.gateway.values import converter
from milepost.schema.types import Ref, walk
from tests.strategies import schemas
from tests.strategies import values as messages

TRADE = milepost.parse_schema("""
trade: [
  symbol: string, price: double, size: int?, paid: decimal(9,2)?, day: date?, at: timestamp?, ref: uuid?, raw: bytes?,
  urgent: bool?, desk: [name: string, floor: int16?]?, tags: *(date)*, kind: {cash: [] | card: [until: date]}?
]""")


@given(st.data())
def test_what_is_printed_as_json_reads_back(data):
    schema = data.draw(schemas())
    rows = data.draw(st.lists(messages(schema), min_size=1, max_size=3))
    batch = milepost.Batch.encode(schema, rows)
    lines = values.to_json_lines(batch.to_pylist())
    convert = converter(schema)
    assert milepost.Batch.encode(schema, [convert(row) for row in values.decoded_lines(lines)]) == batch


def _kinds(schema):
    for kind in (schema.type, *(item.type for item in schema.definitions)):
        yield from walk(kind)


def test_json_says_what_json_cannot():
    read = converter(TRADE)({
        "symbol": "IBM", "price": 1, "paid": 1.1, "day": "2026-03-02", "at": "2026-03-02T14:30:00Z",
        "ref": "12345678-1234-5678-1234-567812345678", "raw": "aGk=", "tags": ["2026-03-03"],
        "kind": {"card": {"until": "2027-01-01"}},
    })  # fmt: skip
    assert read["paid"] == Decimal("1.1")
    assert read["day"] == date(2026, 3, 2)
    assert read["at"] == datetime(2026, 3, 2, 14, 30, tzinfo=UTC)
    assert read["ref"] == UUID("12345678-1234-5678-1234-567812345678")
    assert read["raw"] == b"hi"
    assert read["tags"] == [date(2026, 3, 3)]
    assert read["kind"] == {"card": {"until": date(2027, 1, 1)}}


def test_schemas_that_need_nothing_cost_nothing():
    plain = milepost.parse_schema("quote: [symbol: string, size: int, lines: *([n: long])*]")
    row = {"symbol": "IBM", "size": 3, "lines": [{"n": 1}]}
    assert converter(plain)(row) is row


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("day", "yesterday", "day: 'yesterday' is no date: write 2026-03-02"),
        ("at", "2026-03-02T14:30:00", "at: '2026-03-02T14:30:00' is no timestamp: say which time zone"),
        ("ref", "x", "ref: 'x' is no uuid"),
        ("raw", "?", "raw: '?' is no bytes: write it in base64"),
        ("paid", "many", "paid: 'many' is no decimal(9,2)"),
        ("tags", ["2026-03-03", "no"], "tags[]: 'no' is no date"),
        ("kind", {"card": {"until": "no"}}, "kind.card.until: 'no' is no date"),
    ],
)
def test_a_value_that_does_not_fit_is_named(field, value, words):
    with pytest.raises(InvalidValue) as raised:
        converter(TRADE)({"symbol": "IBM", field: value})
    assert words in str(raised.value)


def test_recursive_schemas_are_followed():
    tree = milepost.parse_schema("tree: [day: date, below: *(tree)*]")
    assert any(isinstance(kind, Ref) for kind in _kinds(tree))
    read = converter(tree)({"day": "2026-03-02", "below": [{"day": "2026-03-03", "below": []}]})
    assert read["below"][0]["day"] == date(2026, 3, 3)


def test_message_types_are_read_as_nodes():
    shop = milepost.parse_schema("""DEFINE MESSAGETYPE Shop;
      NODE order; day: DATE; lines: REFERENCE TO line; END;
      NODE line; due: DATE?; after: REFERENCE TO line; END;
      ROOT order; END;""")
    read = converter(shop)({"day": "2026-03-02", "lines": [{"due": "2026-03-03", "after": {"due": None}}]})
    assert read["lines"][0]["due"] == date(2026, 3, 3)
    assert len(milepost.encode(shop, [read])) == 1


def test_dynamic_values_carry_their_schema():
    schema = milepost.parse_schema("event: [what: dynamic]")
    read = converter(schema)({"what": {"schema": "point: [day: date]", "value": {"day": "2026-03-02"}}})
    batch = milepost.encode(schema, [read])
    again = converter(schema)(values.decoded(values.to_json(batch.to_pylist()[0])))
    assert milepost.encode(schema, [again]) == batch
    with pytest.raises(InvalidValue, match="schema"):
        converter(schema)({"what": 3})


def test_pairs_make_a_message():
    made = values.from_pairs(
        TRADE,
        ["symbol=a=b", "price=1e3", "size=", "urgent=True", "desk.name=north", "desk.floor=7", 'tags=["2026-03-02"]'],
    )
    assert made == {
        "symbol": "a=b", "price": 1000.0, "size": None, "urgent": True, "desk": {"name": "north", "floor": 7},
        "tags": [date(2026, 3, 2)],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("pair", "words"),
    [
        ("symbol", "'symbol' is not a field=value"),
        ("pirce=3", "did you mean 'price'?"),
        ("desk.flor=3", "did you mean 'floor'?"),
        ("symbol.x=3", "there is no field 'symbol.x'"),
        ("size=many", "size: 'many' is no int"),
        ("price=", "price: '' is no double"),
        ("urgent=yes", "urgent: 'yes' is no bool: write true or false"),
        ("tags=a", "tags: a list is written as JSON; this is not JSON"),
    ],
)
def test_a_pair_that_does_not_fit_is_named(pair, words):
    with pytest.raises(InvalidValue) as raised:
        values.from_pairs(TRADE, [pair])
    assert words in str(raised.value)


def test_a_field_given_twice_is_refused():
    with pytest.raises(InvalidValue, match="size: given twice"):
        values.from_pairs(TRADE, ["size=1", "size=2"])
