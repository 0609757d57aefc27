"""Bodies over ZeroMQ: what is documented is read and written in both encodings, and hostile bytes are refused."""

import json
import struct
from base64 import b64encode
from datetime import UTC, datetime

import bson
import pytest
from bson import Regex
from hypothesis import given
from hypothesis import strategies as st

from milepost import errors
from milepost.gateway.zmq import bodies
from milepost.gateway.zmq.bodies import (
    AckRequest,
    GetRequest,
    PutRequest,
    SubRequest,
    UnsubRequest,
    encoding_of,
    payload_bytes,
    read_request,
)
from milepost.gateway.zmq.refusal import DESCRIPTION_CHARS, NAMES, Refusal, refusal

UUID = "2f1e9a0c-5d53-4b6e-9d3b-0a4f5d1c2b3a"
REQUESTS = [
    ("PUT", {"pub_id": "p", "topic": "t", "message_uuid": UUID, "payload": "aGk="}, PutRequest("p", "t", UUID, "aGk=")),
    ("GET", {"sub_id": "s", "topic": "t"}, GetRequest("s", "t")),
    ("GET", {"sub_id": "s", "topic": "t", "timeout_ms": 500}, GetRequest("s", "t", 500)),
    ("ACK", {"sub_id": "s", "message_no": 7}, AckRequest("s", 7)),
    ("SUB", {"sub_id": "s", "topic": "t"}, SubRequest("s", "t")),
    ("UNSUB", {"sub_id": "s", "request_uuid": UUID}, UnsubRequest("s", UUID)),
]
ENCODE = {"bson": bson.encode, "json": lambda body: json.dumps(body).encode()}


def read(body):
    return read_request(body, encoding_of(body))


@pytest.mark.parametrize("encoding", ["bson", "json"])
@pytest.mark.parametrize(("name", "fields", "expected"), REQUESTS)
def test_documented_requests_are_read(encoding, name, fields, expected):
    body = ENCODE[encoding]({"msg_type": name, "payload": fields})
    assert encoding_of(body) == encoding
    assert read(body) == expected


def test_a_payload_may_be_a_document_serialised_on_its_own():
    body = bson.encode({"msg_type": "GET", "payload": bson.encode({"sub_id": "s", "topic": "t"})})
    assert read(body) == GetRequest("s", "t")


def test_unknown_fields_are_ignored():
    body = b'{"msg_type": "GET", "payload": {"sub_id": "s", "topic": "t", "more": 1}, "version": 2}'
    assert read(body) == GetRequest("s", "t")


@pytest.mark.parametrize(
    "body",
    [
        b"", b"\0", b"{", b"[]", b"17", b"null", b"{}", b'{"msg_type": 5}', b'{"msg_type": "POST", "payload": {}}',
        b'{"msg_type": "GET"}', b'{"msg_type": "GET", "payload": []}',
        b'{"msg_type": "GET", "payload": {"sub_id": "s"}}',
        b'{"msg_type": "GET", "payload": {"sub_id": "", "topic": "t"}}',
        b'{"msg_type": "GET", "payload": {"sub_id": 3, "topic": "t"}}',
        b'{"msg_type": "GET", "payload": {"sub_id": "s", "topic": "t", "timeout_ms": -1}}',
        b'{"msg_type": "GET", "payload": {"sub_id": "s", "topic": "t", "timeout_ms": 1e300}}',
        b'{"msg_type": "ACK", "payload": {"sub_id": "s", "message_no": -1}}',
        b'{"msg_type": "ACK", "payload": {"sub_id": "s", "message_no": 99999999999999999999}}',
        json.dumps({"msg_type": "GET", "payload": {"sub_id": "s" * 256, "topic": "t"}}).encode(),
        json.dumps({"msg_type": "GET", "payload": {"sub_id": "s", "topic": "t" * 10_000}}).encode(),
        b"[" * 100_000, b'{"msg_type":' * 100_000,
        b"\x05\0\0\0\0", b"\xff\xff\xff\xff\0", b"\x06\0\0\0\0\0", struct.pack("<i", 12) + b"\x02a\0\xff\xff\xff\x7f\0",
        bson.encode({"msg_type": "GET", "payload": b"\x01"}), bson.encode({"msg_type": "GET", "payload": Regex("(")}),
        bson.encode({"msg_type": "GET", "payload": {"$ref": "a", "$id": 1}}),
    ],
)  # fmt: skip
def test_what_is_no_request_is_an_unknown_message(body):
    with pytest.raises(Refusal) as caught:
        read(body)
    assert caught.value.name == "UnknownMessage"
    assert not caught.value.retry
    assert len(caught.value.description) <= DESCRIPTION_CHARS + 2


def nested(depth):
    inner = b"\x05\0\0\0\0"
    for _ in range(depth):
        inner = struct.pack("<i", len(inner) + 8) + b"\x03a\0" + inner + b"\0"
    return inner


@pytest.mark.parametrize("depth", [100, 1_000, 10_000])
def test_deep_documents_end_in_a_refusal(depth):
    with pytest.raises(Refusal):
        read(nested(depth))


def refused(body):
    """The name of the error that a body is answered with, or None: nothing else may come out."""
    try:
        read(body)
    except Refusal as error:
        return error.name
    return None


@given(st.binary(max_size=400))
def test_any_bytes_are_read_or_refused(body):
    assert refused(body) in (None, "UnknownMessage")


@given(st.binary(max_size=200))
def test_any_bson_frame_is_read_or_refused(inside):
    body = struct.pack("<i", len(inside) + 5) + inside + b"\0"
    assert encoding_of(body) == "bson"
    assert refused(body) in (None, "UnknownMessage")


WHOLE = bson.encode(
    {"msg_type": "PUT", "payload": {"pub_id": "p", "topic": "t", "message_uuid": UUID, "payload": b"hello", "n": 2**40}}
)


@given(st.integers(4, len(WHOLE) - 2), st.integers(0, 255))
def test_a_changed_byte_is_read_or_refused(place, value):
    assert refused(WHOLE[:place] + bytes([value]) + WHOLE[place + 1 :]) in (None, "UnknownMessage")


def values(leaf):
    return st.recursive(leaf, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3))


@given(values(st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text() | st.floats(allow_nan=False)))
def test_any_json_payload_is_read_or_refused(value):
    for name in ("PUT", "GET", "ACK", "SUB", "UNSUB"):
        for fields in (value, {"sub_id": value, "topic": value, "message_no": value, "payload": value}):
            assert refused(json.dumps({"msg_type": name, "payload": fields}).encode()) in (None, "UnknownMessage")


@given(st.binary(max_size=100))
def test_payloads_come_back_as_they_were_put(raw):
    assert payload_bytes(raw, "bson") == raw
    assert payload_bytes(list(raw), "bson") == raw
    assert payload_bytes(b64encode(raw).decode(), "json") == raw


@pytest.mark.parametrize(
    ("value", "encoding"),
    [(5, "bson"), ("text", "bson"), ([1, 256], "bson"), ([1, -1], "bson"), ([True], "bson"), (None, "bson"),
     (5, "json"), ([1, 2], "json"), ("no base64!", "json"), ("a", "json"), (None, "json"), ("ü", "json")],
)  # fmt: skip
def test_payloads_that_are_none(value, encoding):
    with pytest.raises(errors.InvalidValue):
        payload_bytes(value, encoding)


def test_objects_are_no_bytes():
    assert payload_bytes({"a": 1}, "json") is None
    assert payload_bytes({}, "bson") is None


@pytest.mark.parametrize("text", ["", "x" * 32, "2f1e9a0c-5d53-4b6e-9d3b-0a4f5d1c2b3", "ü" * 36])
def test_what_is_no_uuid(text):
    with pytest.raises(Refusal, match="UUID"):
        bodies.uuid_bytes(text)


def test_a_uuid_in_any_form_is_the_same():
    forms = [UUID, UUID.upper(), UUID.replace("-", ""), f"{{{UUID}}}", f"urn:uuid:{UUID}"]
    assert len({bodies.uuid_bytes(form) for form in forms}) == 1


@pytest.mark.parametrize("encoding", ["bson", "json"])
def test_answers_are_written_in_the_encoding_of_the_question(encoding):
    reply = bodies.write_reply(GetRequest("s", "t"), {"message_no": 3, "payload": b"hi", "broker_id": "b"}, encoding)
    error = bodies.write_error(Refusal("NoPostsInTopic", "none", code="nothing_there", retry=True), "b", encoding)
    read = {"bson": bson.decode, "json": json.loads}[encoding]
    assert encoding_of(reply) == encoding
    assert read(reply) == {
        "msg_type": "GET",
        "payload": {"message_no": 3, "payload": b"hi" if encoding == "bson" else "aGk=", "broker_id": "b"},
    }
    assert read(error) == {
        "msg_type": "ERROR",
        "payload": {
            "error_type": "NoPostsInTopic", "broker_id": "b", "description": "none", "code": "nothing_there",
            "retry": True,
        },
    }  # fmt: skip


def test_there_are_nine_errors():
    assert len(NAMES) == 9
    assert refusal(errors.UnknownTopic("x")).name == "InexistentTopic"
    assert refusal(errors.TopicMismatch("x")).name == "TopicMismatch"
    assert refusal(errors.SubscriptionExists("x")).name == "SubscriberAlreadyRegistered"
    assert refusal(errors.AckMismatch("x")).name == "AckMessageMismatch"
    assert refusal(errors.NotExpectingAck("x")).name == "NotExpectingAck"
    assert refusal(errors.UnknownSubscription("x")).name == "SubscriberNotRegistered"
    assert refusal(errors.DuplicateMessage("x")).name == "DuplicateMessage"
    assert refusal(errors.NothingThere("x")).name == "NoPostsInTopic"


def test_other_errors_keep_their_code_and_say_whether_to_retry():
    full = refusal(errors.StoreFull("no room"))
    assert (full.name, full.code, full.retry) == ("UnknownMessage", "store_full", True)
    wrong = refusal(errors.InvalidValue("not an int", "price"))
    assert (wrong.name, wrong.code, wrong.retry) == ("UnknownMessage", "invalid_value", False)


def test_dates_of_bson_have_a_zone():
    moment = datetime(2026, 1, 2, tzinfo=UTC)
    fields = {"pub_id": "p", "topic": "t", "message_uuid": UUID, "payload": {"at": moment}}
    asked = read(bson.encode({"msg_type": "PUT", "payload": fields}))
    assert asked.payload["at"] == moment
    assert asked.payload["at"].tzinfo is not None
