"""Messages as the payloads of ZeroMQ bodies, and back."""

import json
import sys

import bson
import pytest

import milepost
from milepost.errors import CheckFailed, InvalidValue, MilepostError
from milepost.gateway.values import SCHEMA_COST
from milepost.gateway.zmq import bodies, rows
from milepost.gateway.zmq.bodies import GetRequest

OLD, NEW = milepost.parse_schema("q: [price: double]"), milepost.parse_schema("q: [price: double, lot: uint8?]")
CHECKED = milepost.parse_schema("q: [price: double] check (price > 0)")


def through(schema, row, encoding):
    """A message as a client would see it."""
    other = {"payload": b"another"}
    payload = rows.shown(milepost.encode(schema, [other, row, other]), 1, encoding)
    body = bodies.write_reply(GetRequest("s", "t"), {"payload": payload}, encoding)
    return {"bson": bson.decode, "json": json.loads}[encoding](body)["payload"]["payload"]


@pytest.mark.parametrize(
    ("text", "in_json", "in_bson"),
    [
        (rows.POST_SCHEMA, "aGk=", b"hi"),
        ("blob: [payload: bytes]", "aGk=", b"hi"),
        ("blob: [payload: bytes?]", {"payload": "aGk="}, {"payload": b"hi"}),
        ("blob: [payload: bytes, at: int?]", {"payload": "aGk=", "at": None}, {"payload": b"hi", "at": None}),
    ],
)
def test_posts_are_bytes_and_all_others_objects(text, in_json, in_bson):
    schema = milepost.parse_schema(text)
    assert through(schema, {"payload": b"hi"}, "json") == in_json
    assert through(schema, {"payload": b"hi"}, "bson") == in_bson


def test_an_object_is_put_in_the_newest_version_that_takes_it():
    assert rows.encoded((OLD, NEW), {"price": 5, "lot": 3}).schema is NEW
    assert rows.encoded((OLD, NEW), {"price": 5}).schema is NEW
    assert rows.encoded((NEW, OLD), {"price": 5}).schema is OLD
    assert rows.encoded((NEW, OLD), {"price": 5, "lot": 3}).schema is NEW
    assert rows.encoded((OLD, CHECKED), {"price": -5}).schema is OLD


def test_schemas_that_come_with_a_message_are_bounded():
    """Also inside one another; those of one message do not count for the next, nor for the next version."""
    schema = milepost.parse_schema("event: [what: *(dynamic)*]")
    other = milepost.parse_schema("event: [what: *(dynamic)*, more: int]")
    most = rows.DYNAMIC_CHARS // SCHEMA_COST

    def events(count):
        return {"what": [{"schema": f"p{number}: [x: int]", "value": {"x": 1}} for number in range(count)]}

    for _ in range(2):
        assert len(rows.encoded((schema, other), events(most)).to_pylist()[0]["what"]) == most
    with pytest.raises(InvalidValue, match="too many schemas"):
        rows.encoded((schema,), events(most + 1))
    inner = {"schema": "e: [what: *(dynamic)*]", "value": events(most // 2)}
    with pytest.raises(InvalidValue, match="too many schemas"):
        rows.encoded((schema,), {"what": [inner, inner]})


@pytest.mark.parametrize("text", ["tree: [day: date, below: tree?]", "tree: [what: dynamic?]"])
def test_what_is_nested_too_deep_is_refused(text):
    value = {}
    for _ in range(sys.getrecursionlimit()):
        value = {"below": value} if "below" in text else {"what": {"schema": "t: [what: dynamic?]", "value": value}}
    with pytest.raises(MilepostError):
        rows.encoded((milepost.parse_schema(text),), value)


@pytest.mark.parametrize("encoding", ["json", "bson"])
def test_a_message_that_is_too_deep_for_its_encoding_is_an_error_that_says_so(encoding):
    """Forty tuples inside one another, and thirty of these."""
    schema = milepost.parse_schema("deep: " + "[a: " * 40 + "deep?" + "]" * 40)
    value = None
    for _ in range(30 * 40):
        value = {"a": value}
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)  # as another program may have it
    try:
        batch = milepost.encode(schema, [value])
    finally:
        sys.setrecursionlimit(usual)
    with pytest.raises(InvalidValue, match="too deep"):
        rows.shown(batch, 0, encoding)


def test_a_message_that_bson_does_not_take_is_an_error_that_says_why(monkeypatch):
    def refuse(_):
        raise bson.errors.InvalidDocument("a key must not be empty")

    monkeypatch.setattr(bson, "encode", refuse)
    with pytest.raises(InvalidValue, match="a key must not be empty"):
        rows.shown(milepost.encode(OLD, [{"price": 1.0}]), 0, "bson")


def test_what_no_version_takes_is_refused_in_the_words_of_the_newest():
    with pytest.raises(InvalidValue, match="lot"):
        rows.encoded((OLD, NEW), {"price": 5, "lot": 300})
    with pytest.raises(CheckFailed):
        rows.encoded((CHECKED,), {"price": -5})
    for value in (None, 5, [], "x", {"unknown": 1}):
        with pytest.raises(InvalidValue):
            rows.encoded((OLD, NEW), value)


@pytest.mark.parametrize("encoding", ["json", "bson"])
def test_fields_may_be_called_as_methods_are(encoding):
    message = {"items": 1, "get": 2, "keys": 3, "header": 5, "inner": {"items": 4}}
    schema = milepost.parse_schema("m: [items: int, get: int, keys: int, header: int, inner: [items: int]]")
    payload = rows.shown(milepost.encode(schema, [message]), 0, encoding)
    body = bodies.write_reply(GetRequest("s", "t"), {"payload": payload}, encoding)
    assert {"bson": bson.decode, "json": json.loads}[encoding](body)["payload"]["payload"] == message
