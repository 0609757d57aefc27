"""Messages as the payloads of ZeroMQ bodies, and back."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import UUID

import bson
import pytest
from hypothesis import given
from hypothesis import strategies as st

import milepost
from milepost.errors import InvalidValue
from milepost.gateway import bodies, rows
from milepost.gateway.bodies import Get
from tests.strategies import schemas, values

ORDER = milepost.parse_schema(
    "order: [at: timestamp, day: date, ref: uuid, price: decimal(10, 2), blob: bytes, size: double, note: string?,"
    " lines: *([qty: int, raw: bytes?])*, big: uint64]"
)
MESSAGE = {
    "at": datetime(2026, 1, 2, 3, 4, 5, 6000, tzinfo=UTC), "day": date(2026, 1, 2), "ref": UUID(int=5),
    "price": Decimal("12.34"), "blob": b"\0\xff", "size": 3.0, "note": None,
    "lines": [{"qty": 1, "raw": b"x"}, {"qty": 2, "raw": None}], "big": 2**64 - 1,
}  # fmt: skip


def view(schema, row):
    return milepost.encode(schema, [row])[0]


def through(message, encoding):
    """As a client would see it."""
    body = bodies.write_reply(Get("s", "t"), {"payload": rows.shown(message, encoding)}, encoding)
    read = {"bson": lambda raw: bson.decode(raw, bodies._CODEC), "json": json.loads}[encoding]
    return read(body)["payload"]["payload"]


def test_posts_are_bytes():
    schema = milepost.parse_schema(rows.POST_SCHEMA)
    assert rows.shown(view(schema, {"payload": b"hi"}), "bson") == b"hi"
    assert through(view(schema, {"payload": b"hi"}), "json") == "aGk="


def test_objects_go_out_and_come_back_in_json():
    assert rows.fitted(ORDER, through(view(ORDER, MESSAGE), "json")) == MESSAGE


def test_objects_go_out_and_come_back_in_bson():
    out = through(view(ORDER, MESSAGE), "bson")
    assert out["blob"] == b"\0\xff"
    assert out["big"] == str(2**64 - 1)  # BSON has no such integer
    assert rows.fitted(ORDER, out | {"big": 2**64 - 1}) == MESSAGE


def test_whole_numbers_of_json_fit_doubles():
    schema = milepost.parse_schema("q: [price: double]")
    assert rows.fitted(schema, {"price": 5}) == {"price": 5.0}


@pytest.mark.parametrize(
    ("field", "value"), [("at", "yesterday"), ("day", "x"), ("ref", "x"), ("price", "much"), ("blob", "not base64!")]
)
def test_texts_that_do_not_fit_name_their_field(field, value):
    with pytest.raises(InvalidValue, match=field):
        rows.fitted(ORDER, MESSAGE | {field: value})


@pytest.mark.parametrize("value", [None, 5, [], "x", {"unknown": 1}])
def test_what_does_not_fit_is_left_to_the_put(value):
    assert rows.fitted(ORDER, value) == value


def test_fields_may_be_called_as_methods_are():
    message = {"items": 1, "get": 2, "keys": 3, "inner": {"items": 4}}
    schema = milepost.parse_schema("m: [items: int, get: int, keys: int, inner: [items: int]]")
    assert rows.shown(view(schema, message), "json") == message
    assert rows.shown(view(milepost.parse_schema("m: [get: int]"), {"get": 2}), "json") == {"get": 2}


@given(st.data())
def test_messages_of_any_schema_can_be_shown(data):
    schema = data.draw(schemas())
    message = view(schema, data.draw(values(schema)))
    for encoding in ("bson", "json"):
        through(message, encoding)
