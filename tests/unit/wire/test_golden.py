"""The bytes themselves: what another implementation, or an older one, would have to agree with."""

import numpy as np
import pytest

from milepost.errors import ProtocolError
from milepost.wire import (
    Credit,
    Declare,
    Failure,
    Hello,
    Kind,
    Marks,
    Ping,
    Subscribe,
    Topic,
    Welcome,
    decode_control,
    deliver_parts,
    encode_control,
    put_parts,
    read_deliver,
    read_put,
)

BATCH = b"sixteen bytes or more"


def test_kinds_keep_their_numbers():
    assert {kind.name: int(kind) for kind in Kind} == {
        "HELLO": 1, "WELCOME": 2, "FAILURE": 3, "PING": 4, "PONG": 5, "CREDIT": 6, "BYE": 7, "REPLY": 8, "TOPIC": 9,
        "DROPPED": 10, "DECLARE": 16, "DELETE": 17, "SUBSCRIBE": 18, "UNSUBSCRIBE": 19, "LIST": 20, "STATUS": 21,
        "PUT": 32, "DELIVER": 33,
    }  # fmt: skip


def test_a_ping():
    assert encode_control(Ping(7)).hex() == "09000000" + "04" + "00" + "4d50" + "81a66e756d62657207"


def test_a_hello():
    frame = encode_control(Hello(name="feed", window=1024))
    assert frame.hex() == (
        "3500000001004d50"  # length, kind, flags, magic
        "86"  # six keys
        "a870726f746f636f6c01"
        "a46e616d65a466656564"
        "a46175746880"
        "a8736f667477617265a0"
        "a677696e646f77cd0400"
        "a4736c6f77c0"
    )


def test_a_put():
    head, data = put_parts(3, BATCH)
    assert head.hex() == "1d00000020004d50" + "03000000" + "00000000"
    assert data is BATCH
    assert read_put(head[8:] + data) == (3, BATCH)


def test_a_deliver_with_the_same_marks_for_all_rows():
    head, data = deliver_parts(3, (1, 2, 9), BATCH)
    assert head.hex() == "2d00000021004d50" + "03000000" * 2 + "01000000" + "02000000" + "09000000" + "00000000"
    found = read_deliver(head[5], head[8:] + data)
    assert (found.topic, found.marks, bytes(found.data)) == (3, (1, 2, 9), BATCH)


def test_a_deliver_with_marks_row_by_row():
    marks = Marks(np.array([0, 1, 3], np.uint32), np.array([4, 4, 5], np.uint32))
    head, data = deliver_parts(3, marks, BATCH)
    assert head.hex() == (
        "3d00000021014d50" + "03000000" + "03000000" + "02000000"  # two rows
        + "00000000" + "01000000" + "03000000"
        + "04000000" + "04000000" + "05000000"
        + "00000000"
    )  # fmt: skip
    found = read_deliver(head[5], head[8:] + data)
    assert isinstance(found.marks, Marks)
    assert found.marks.offsets.tolist() == [0, 1, 3]
    assert found.marks.subscriptions.tolist() == [4, 4, 5]
    assert bytes(found.data) == BATCH


@pytest.mark.parametrize(
    "message",
    [
        Hello(name="a", window=1),
        Welcome(broker="b", broker_id=1, publisher=2, time_us=3, window=4, heartbeat_s=5.0),
        Failure(code="x", message="y", request=1),
        Credit(12),
        Topic(number=1, name="q", schemas=["q: [a: int]"]),
        Declare(request=1, name="q", schema=None),
        Subscribe(request=1, subscription=2, pattern="q.>", where="a > 1"),
    ],
)
def test_control_frames_come_back_as_they_went(message):
    frame = encode_control(message)
    assert decode_control(frame[4], frame[8:]) == message


def test_unknown_keys_are_ignored_and_missing_ones_take_their_default():
    body = b"\x82\xa6number\x07\xa3new\x01"
    assert decode_control(Kind.PING, body) == Ping(7)
    assert decode_control(Kind.PONG, b"\x81\xa6number\x07").time_us == 0


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x80", b"\x81\xa6number\xa1x", b"\x91" * 2000, b"\x81\xa6number\xd9"])
def test_a_wrong_body_is_a_protocol_error(body):
    with pytest.raises(ProtocolError, match="PING"):
        decode_control(Kind.PING, body)
