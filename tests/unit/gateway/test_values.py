"""Values of JSON and BSON: one form for each type, and what is written reads back as the same message."""

import json
import math
import re
import struct
import uuid
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import bson
import pytest
from hypothesis import given
from hypothesis import strategies as st

import milepost
from milepost.errors import InvalidValue
from milepost.gateway import values
from milepost.gateway.zmq.bodies import read_request
from tests.strategies import graphs, identical_graphs, message_types, schemas
from tests.strategies import values as messages

DOCUMENT = Path(__file__).parents[3] / "docs" / "zeromq.md"
UUID = "2f1e9a0c-5d53-4b6e-9d3b-0a4f5d1c2b3a"
ENCODINGS = ("json", "bson")


def written(value, encoding):
    """A plain value as the gateway writes it, and as a client that knows nothing of schemas reads it."""
    if encoding == "json":
        return json.loads(values.to_json(value))
    return bson.decode(bson.encode({"value": values.to_bson(value)}))["value"]


def received(value, encoding):
    """A client's value as the gateway reads it out of a PUT."""
    fields = {"pub_id": "p", "topic": "t", "message_uuid": UUID, "payload": value}
    whole = {"msg_type": "PUT", "payload": fields}
    body = bson.encode(whole) if encoding == "bson" else json.dumps(whole).encode()
    return read_request(body, encoding).payload


def again(schema, message, encoding):
    """The batch that comes of a message which is got and put again."""
    (plain,) = values.plain_rows(milepost.encode(schema, [message]))
    return milepost.encode(schema, [values.converter(schema)(received(written(plain, encoding), encoding))])


def same(one, other):
    """Whether batches are equal; NaN is NaN, whatever its bits are, as no text tells those apart."""
    if one == other:
        return True
    first, second = (str(values.to_json_lines(values.plain_rows(each))) for each in (one, other))
    return first == second and "NaN" in first


@given(st.data())
def test_messages_of_any_schema_come_back_as_they_were(data):
    schema = data.draw(schemas())
    message = data.draw(messages(schema))
    for encoding in ENCODINGS:
        assert same(again(schema, message, encoding), milepost.encode(schema, [message]))


@given(st.data())
def test_graphs_of_any_message_type_come_back_as_they_were(data):
    message_type = data.draw(message_types())
    graph = data.draw(graphs(message_type))
    for encoding in ENCODINGS:
        (found,) = again(message_type.schema, graph, encoding).to_pylist()
        assert identical_graphs(message_type, graph, found)


@given(st.data())
def test_lines_of_json_come_back_as_they_were(data):
    schema = data.draw(schemas())
    rows = data.draw(st.lists(messages(schema), min_size=1, max_size=3))
    lines = values.to_json_lines(values.plain_rows(milepost.encode(schema, rows))).splitlines()
    convert = values.converter(schema)
    back = milepost.encode(schema, [convert(json.loads(line)) for line in lines])
    assert same(back, milepost.encode(schema, rows))


def test_a_nan_of_other_bits_comes_back_as_nan():
    schema = milepost.parse_schema("m: [x: float, y: double]")
    odd = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_0001))[0]
    for encoding in ENCODINGS:
        (found,) = again(schema, {"x": odd, "y": odd}, encoding).to_pylist()
        assert math.isnan(found["x"])
        assert math.isnan(found["y"])


# One value of each type, in JSON and in BSON: the table of the document.
FORMS = [
    ("bool", True, True, True),
    ("int", -7, -7, -7),
    ("uint64", 2**63 - 1, 2**63 - 1, 2**63 - 1),
    ("uint64", 2**63, 2**63, "9223372036854775808"),
    ("double", 1.5, 1.5, 1.5),
    ("double", -math.inf, "-Infinity", -math.inf),
    ("decimal(9,2)", Decimal("1.50"), "1.50", "1.50"),
    ("string", "a", "a", "a"),
    ("bytes", b"\0\xff", "AP8=", b"\0\xff"),
    ("date", datetime(2026, 3, 2, tzinfo=UTC).date(), "2026-03-02", "2026-03-02"),
    ("timestamp", datetime(2026, 3, 2, 14, 30, 0, 1, UTC), "2026-03-02T14:30:00.000001Z",
     "2026-03-02T14:30:00.000001Z"),
    ("uuid", uuid.UUID(UUID), UUID, UUID),
    ("int?", None, None, None),
    ("*(int)*", [1, 2], [1, 2], [1, 2]),
    ("[floor: int]", {"floor": 7}, {"floor": 7}, {"floor": 7}),
    ("{cash: [] | card: [until: date]}", {"card": {"until": datetime(2027, 1, 1, tzinfo=UTC).date()}},
     {"card": {"until": "2027-01-01"}}, {"card": {"until": "2027-01-01"}}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value", "in_json", "in_bson"), FORMS)
def test_each_type_has_one_form(kind, value, in_json, in_bson):
    schema = milepost.parse_schema(f"m: [x: {kind}]")
    batch = milepost.encode(schema, [{"x": value}])
    for encoding, form in zip(ENCODINGS, (in_json, in_bson), strict=True):
        found = written(values.plain_rows(batch)[0], encoding)["x"]
        assert found == form
        assert type(found) in (type(form), bson.Int64)
        assert milepost.encode(schema, [values.converter(schema)({"x": found})]) == batch


def test_not_a_number_is_a_text_in_json_and_a_number_in_bson():
    schema = milepost.parse_schema("m: [x: float, y: double?]")
    (row,) = milepost.encode(schema, [{"x": math.nan, "y": None}]).to_pylist()
    assert written(row, "json") == {"x": "NaN", "y": None}
    assert math.isnan(written(row, "bson")["x"])


def test_the_document_shows_the_forms():
    words = {"boolean": bool, "integer": int, "text": str, "double": float, "binary": bytes, "null": type(None),
             "array": list, "document": dict}  # fmt: skip
    text = DOCUMENT.read_text().replace(r"\|", "/")
    table = re.findall(r"^\| `([^`]+)`[^|]*\| (`[^|]+) \| (\w+)", text, re.MULTILINE)
    rows = [row for row in table if row[2] in words]
    assert {kind for kind, *_ in rows} >= {"bool", "uint64", "decimal(9,2)", "bytes", "timestamp", "uuid"}
    for kind, examples, word in rows:
        schema = milepost.parse_schema(f"m: [x: {kind.replace('/', '|')}]")
        for example in re.findall("`([^`]+)`", examples):
            message = values.converter(schema)({"x": json.loads(example)})
            (plain,) = values.plain_rows(milepost.encode(schema, [message]))
            assert values.to_json(plain["x"]).decode() == example
            assert type(values.to_bson(plain)["x"]) is words[word]


# Message types

SHOP = milepost.parse_schema("""DEFINE MESSAGETYPE Shop;
  NODE order; day: DATE; lines: REFERENCE TO line; END;
  NODE line; due: DATE?; after: REFERENCE TO line; END;
  ROOT order; END;""")


def test_a_tree_is_nodes_within_nodes_and_any_other_graph_lists_of_nodes():
    day = datetime(2026, 3, 2, tzinfo=UTC).date()
    line = {"due": None, "after": []}
    for lines, form in (
        ([line], {"day": "2026-03-02", "lines": [{"due": None, "after": []}]}),
        ([line, line], {
            "order": [{"day": "2026-03-02", "lines": [0, 0]}], "line": [{"due": None, "after": []}]
        }),
    ):  # fmt: skip
        (row,) = values.plain_rows(milepost.encode(SHOP, [{"day": day, "lines": lines}]))
        assert written(row, "json") == form


def test_a_graph_whose_tree_would_be_huge_or_deep_is_lists():
    day = datetime(2026, 3, 2, tzinfo=UTC).date()
    shared = deep = {"due": None, "after": []}
    for _ in range(100):
        shared = {"due": None, "after": [shared, shared]}
    for _ in range(2_000):
        deep = {"due": None, "after": [deep]}
    for line in (shared, deep):
        graph = {"day": day, "lines": [line]}
        for encoding in ENCODINGS:
            found = again(SHOP, graph, encoding).to_pylist()[0]
            assert identical_graphs(SHOP.message_type, graph, found)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ({"after": [1]}, "from 0 to 0"),
        ({"after": [-1]}, "from 0 to 0"),
        ({"after": [True, 0]}, "from 0 to 0"),
        ({"after": 0}, "positions"),
        ({"after": [0], "due": "x"}, "is no date"),
        (5, "expected a node line"),
    ],
)
def test_lists_of_nodes_that_are_wrong(line, words):
    with pytest.raises(InvalidValue, match=words):
        values.converter(SHOP)({"order": [{"day": "2026-03-02", "lines": [0]}], "line": [line]})


# Dynamic values


@pytest.mark.parametrize("value", [3, {}, {"data": ""}, {"data": b"x"}, {"data": "!"}, {"schema": "m: [", "value": {}}])
def test_what_is_no_dynamic_value_names_its_field(value):
    schema = milepost.parse_schema("event: [what: dynamic]")
    with pytest.raises(InvalidValue, match=r"what: .* is no dynamic: "):
        values.converter(schema)({"what": value})


@pytest.mark.parametrize("text", ["", "-1", "1.0", "x", "٣", "9" * 21, "9" * 10_000])
def test_texts_that_are_no_uint64(text):
    schema = milepost.parse_schema("m: [x: uint64]")
    with pytest.raises(InvalidValue):
        milepost.encode(schema, [values.converter(schema)({"x": text})])
