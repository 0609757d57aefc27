"""Messages as the payloads of ZeroMQ bodies, and back."""

import json

import bson
import pytest

import milepost
from milepost.errors import CheckFailed, InvalidValue
from milepost.gateway import bodies, rows
from milepost.gateway.bodies import Get

OLD, NEW = milepost.parse_schema("q: [price: double]"), milepost.parse_schema("q: [price: double, lot: uint8?]")
CHECKED = milepost.parse_schema("q: [price: double] check (price > 0)")


def through(schema, row, encoding):
    """A message as a client would see it."""
    other = {"payload": b"another"}
    payload = rows.shown(milepost.encode(schema, [other, row, other]), 1, encoding)
    body = bodies.write_reply(Get("s", "t"), {"payload": payload}, encoding)
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


def test_what_no_version_takes_is_refused_in_the_words_of_the_newest():
    with pytest.raises(InvalidValue, match="lot"):
        rows.encoded((OLD, NEW), {"price": 5, "lot": 300})
    with pytest.raises(CheckFailed):
        rows.encoded((CHECKED,), {"price": -5})
    for value in (None, 5, [], "x", {"unknown": 1}):
        with pytest.raises(InvalidValue):
            rows.encoded((OLD, NEW), value)
