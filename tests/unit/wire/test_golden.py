"""The bytes themselves: what another implementation, or an older one, would have to agree with."""

import struct

import numpy as np
import pytest

from milepost.errors import ProtocolError
from milepost.wire import (
    MORE,
    Ack,
    CaughtUp,
    Credit,
    Declare,
    Dropped,
    Ended,
    Failure,
    Hello,
    Kind,
    Look,
    Ping,
    Positions,
    Publish,
    PublishedEpoch,
    Resume,
    RetentionHold,
    Stage,
    Stored,
    Subscribe,
    Tags,
    TopicAnnounced,
    Trim,
    Unstage,
    Unsubscribe,
    Welcome,
    decode_control,
    deliver_parts,
    encode_control,
    hand_parts,
    put_parts,
    read_deliver,
    read_hand,
    read_key,
    read_put,
    read_stage,
    stage_parts,
)

BATCH = b"sixteen bytes or more"


def test_kinds_keep_their_numbers():
    assert {kind.name: int(kind) for kind in Kind} == {
        "HELLO": 1, "WELCOME": 2, "FAILURE": 3, "PING": 4, "PONG": 5, "CREDIT": 6, "BYE": 7, "REPLY": 8, "TOPIC": 9,
        "DROPPED": 10, "STORED": 11, "ENDED": 15, "DECLARE": 16, "DELETE": 17, "SUBSCRIBE": 18, "UNSUBSCRIBE": 19,
        "LIST": 20, "STATUS": 21, "ACK": 22, "RESUME": 23, "TRIM": 24, "LOOK": 25, "PUBLISH": 26, "UNSTAGE": 27,
        "PUBLISHED": 28, "HOLD": 30, "PUT": 32, "DELIVER": 33, "HAND": 34, "STAGE": 35, "TYPE": 12,
        "ENQUEUE": 36, "TAKEN": 37, "CAUGHT_UP": 13, "POSITIONS": 29,
        "DECLARE_TYPE": 48, "TYPES": 49, "DELETE_TYPE": 50, "DECLARE_QUEUE": 51, "DELETE_QUEUE": 52, "QUEUES": 53,
        "DEQUEUE": 54, "FINISH": 55, "BROWSE": 56, "MOVE_MESSAGES": 57, "PURGE": 58, "DECIDE": 59, "IN_DOUBT": 60,
        "DECISIONS": 61, "FORGET_DECISION": 62, "SETTLE": 63, "HOLDING": 64, "SET_TRANSFER": 65, "DELETE_TRANSFER": 66,
        "TRANSFERS": 67,
    }  # fmt: skip


def test_a_ping():
    assert encode_control(Ping(7)).hex() == "09000000" + "04" + "00" + "4d50" + "81a66e756d62657207"


def test_a_hello():
    frame = encode_control(Hello(name="feed", window=1024))
    assert frame.hex() == (
        "6200000001004d50"  # length, kind, flags, magic
        "8b"  # eleven keys
        "a870726f746f636f6c03"
        "a46b696e64a6636c69656e74"
        "a46e616d65a466656564"
        "a46175746880"
        "a8736f667477617265a0"
        "a677696e646f77cd0400"
        "a4736c6f77c0"
        "a8696e7374616e6365c400"
        "a6726573756d65c2"
        "a468656c6400"
        "a6706c61636573c2"
    )


def test_what_is_stored():
    assert encode_control(Stored(7)).hex() == "06000000" + "0b00" + "4d50" + "81a370757407"


def test_what_has_ended():
    assert encode_control(Ended(7)).hex() == "0f000000" + "0f00" + "4d50" + "81ac737562736372697074696f6e07"


def test_a_hold():
    frame = encode_control(RetentionHold(request=1, topic="q", name="lane", position={3: 4}))
    assert frame.hex() == (
        "280000001e004d50"
        "84"  # four keys
        "a77265717565737401"
        "a5746f706963a171"
        "a46e616d65a46c616e65"
        "a8706f736974696f6e810304"
    )


def test_a_subscribe_with_a_stop():
    frame = encode_control(
        Subscribe(request=1, subscription=2, pattern="q", durable=True, start={"position": {3: 4}}, stop={3: 9})
    )
    assert frame[4] == Kind.SUBSCRIBE
    assert frame.endswith(b"\xa4stop\x81\x03\x09\xa6resume\xc0\xa5hands\xc2")


def test_what_is_asked_about_a_sink():
    frame = encode_control(Publish(request=1, sink="s", epoch=2, parts=[(3, 4), (5, 6)]))
    assert frame.hex() == (
        "250000001a004d50"
        "84"  # four keys
        "a77265717565737401"
        "a473696e6ba173"
        "a565706f636802"
        "a57061727473" + "92" + "920304" + "920506"
    )  # fmt: skip
    assert encode_control(Unstage(request=1, sink="s", epoch=2))[4] == Kind.UNSTAGE
    assert encode_control(PublishedEpoch(request=1, sink="s")).hex() == (
        "110000001c004d50" + "82" + "a77265717565737401" + "a473696e6ba173"
    )


def test_a_stage():
    stage = Stage(request=1, sink="söm", epoch=2, part=3, attempt=4, sequence=5, topic=6, data=BATCH)
    head, data = stage_parts(stage)
    assert head.hex() == (
        "4d00000023004d50"
        "0100000000000000" "0200000000000000" "0300000000000000" "0400000000000000"
        "06000000" "05000000"  # topic, sequence
        "04000000" "00000000"  # bytes of the sink's name
        "73c3b66d" "00000000"  # the name, padding
    )  # fmt: skip
    assert data is BATCH
    found = read_stage(head[8:] + data)
    assert found._replace(data=bytes(found.data)) == stage


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"short", "cut off"),
        (struct.pack("<QQQQIIII", 1, 2, 3, 4, 5, 6, 0, 1) + BATCH, "must be zero"),
        (struct.pack("<QQQQIIII", 1, 2, 3, 4, 5, 6, 1 << 31, 0) + BATCH, "no room"),
        (struct.pack("<QQQQIIII", 1, 2, 3, 4, 5, 6, 1021, 0) + bytes(2000), "no room"),
        (struct.pack("<QQQQIIII", 1, 2, 3, 4, 5, 6, 8, 0) + BATCH, "no room"),
        (struct.pack("<QQQQIIII", 1, 2, 3, 4, 5, 6, 1, 0) + b"sxxxxxxx" + BATCH, "padding"),
        (struct.pack("<QQQQIIII", 1, 2, 3, 4, 5, 6, 8, 0) + b"\xff" * 8 + BATCH, "not UTF-8"),
    ],
)
def test_a_stage_that_cannot_be(body, why):
    with pytest.raises(ProtocolError, match=why):
        read_stage(body)


def test_an_acknowledgement():
    frame = encode_control(Ack(request=1, subscription=2, sequence=3, done={4: [[5, 6]]}))
    assert frame.hex() == (
        "3c00000016004d50" + "86" + "a77265717565737401" + "ac737562736372697074696f6e02" + "a873657175656e636503"
        + "a4646f6e65" + "8104" + "91920506"  # {4: [[5, 6]]}
        + "a5616761696e80" + "a668616e64656480"  # again, handed
    )  # fmt: skip


def test_a_put():
    head, data = put_parts(3, BATCH)
    assert head.hex() == "1d00000020004d50" + "03000000" + "00000000"
    assert data is BATCH
    assert read_put(head[8:] + data) == (3, BATCH)


def test_a_put_with_a_key_that_belongs_together_with_the_next():
    key = bytes(range(16))
    head, data = put_parts(3, BATCH, key, more=True)
    assert head.hex() == "2d00000020034d50" + "03000000" + "00000000" + key.hex()
    assert head[5] & MORE
    found, body = read_key(head[5], head[8:] + data)
    assert (found, read_put(body)) == (key, (3, BATCH))
    assert read_key(MORE, head[8:] + data) == (b"", head[8:] + data)
    with pytest.raises(ProtocolError, match="key"):
        read_key(head[5], head[8:20])


def test_a_hand_of_neighbours():
    head, data = hand_parts(3, 2, 5, np.arange(7, 9, dtype=np.uint64), None, BATCH)
    assert head.hex() == (
        "2d00000022004d50" + "03000000" + "02000000" + "05000000" + "02000000" + "0700000000000000"
    )  # fmt: skip
    found = read_hand(head[5], head[8:] + data)
    assert found[:3] == (3, 2, 5)
    assert (found.offsets.tolist(), found.tries, bytes(found.data)) == ([7, 8], None, BATCH)


def test_a_hand_of_scattered_rows_that_were_handed_out_before():
    head, data = hand_parts(3, 2, 5, np.array([7, 9, 20], np.uint64), np.array([0, 1, 4], np.uint32), BATCH)
    assert head.hex() == (
        "4500000022034d50" + "03000000" + "02000000" + "05000000" + "03000000" + "0700000000000000"
        + "00000000" + "02000000" + "0d000000"  # from the first
        + "00000000" + "01000000" + "04000000"  # earlier deliveries
    )  # fmt: skip
    found = read_hand(head[5], head[8:] + data)
    assert found.tries is not None
    assert (found.offsets.tolist(), found.tries.tolist(), bytes(found.data)) == ([7, 9, 20], [0, 1, 4], BATCH)


@pytest.mark.parametrize(
    ("flags", "body", "why"),
    [
        (0, b"short", "cut off"),
        (0, bytes(24) + BATCH, "no room for 0 rows"),
        (0, struct.pack("<IIIIQ", 1, 2, 3, 1 << 30, 0) + BATCH, "more than a batch"),
        (1, struct.pack("<IIIIQ", 1, 2, 3, 1 << 30, 0) + BATCH, "no room for"),
        (0, struct.pack("<IIIIQ", 1, 2, 3, 1, (1 << 64) - 1) + BATCH, "where no log reaches"),
        (1, struct.pack("<IIIIQII", 1, 2, 3, 2, 0, 0, 0) + BATCH, "do not ascend"),
        (1, struct.pack("<IIIIQII", 1, 2, 3, 2, 0, 1, 2) + BATCH, "do not ascend"),
    ],
)
def test_a_hand_that_cannot_be(flags, body, why):
    with pytest.raises(ProtocolError, match=why):
        read_hand(flags, body)


def test_a_deliver_with_the_same_marks_for_all_rows():
    head, data = deliver_parts(3, (1, 2, 9), BATCH)
    assert head.hex() == "2d00000021004d50" + "03000000" * 2 + "01000000" + "02000000" + "09000000" + "00000000"
    found = read_deliver(head[5], head[8:] + data)
    assert (found.topic, found.tags, bytes(found.data)) == (3, (1, 2, 9), BATCH)


def test_a_delivery_from_a_durable_topic_says_how_far_it_is():
    head, data = deliver_parts(3, (1,), BATCH, (2, 5))
    assert head.hex() == f"{len(head) - 8 + len(data):02x}00000021024d50" + (
        "0300000001000000"  # topic, marks
        "02000000000000000500000000000000"  # log, zero, offset
        "0100000000000000"  # the mark, padding
    )
    found = read_deliver(head[5], head[8:] + data)
    assert (found.topic, found.tags, bytes(found.data), found.place) == (3, (1,), BATCH, (2, 5))
    head, data = deliver_parts(3, (1, 2, 9), BATCH, (2, 5))
    assert read_deliver(head[5], head[8:] + data) == (3, (1, 2, 9), BATCH, (2, 5))
    rows = Tags(np.array([0, 1, 2], np.uint32), np.array([7, 8], np.uint32))
    head, data = deliver_parts(3, rows, BATCH, (2, 5))
    found = read_deliver(head[5], head[8:] + data)
    assert head[5] == 3
    assert (found.tags.subscriptions.tolist(), bytes(found.data), found.place) == ([7, 8], BATCH, (2, 5))
    for cut in range(len(head) - 8):
        with pytest.raises(ProtocolError):
            read_deliver(head[5], head[8 : 8 + cut])


def test_a_deliver_with_marks_row_by_row():
    marks = Tags(np.array([0, 1, 3], np.uint32), np.array([4, 4, 5], np.uint32))
    head, data = deliver_parts(3, marks, BATCH)
    assert head.hex() == (
        "3d00000021014d50" + "03000000" + "03000000" + "02000000"  # two rows
        + "00000000" + "01000000" + "03000000"
        + "04000000" + "04000000" + "05000000"
        + "00000000"
    )  # fmt: skip
    found = read_deliver(head[5], head[8:] + data)
    assert isinstance(found.tags, Tags)
    assert found.tags.offsets.tolist() == [0, 1, 3]
    assert found.tags.subscriptions.tolist() == [4, 4, 5]
    assert bytes(found.data) == BATCH


@pytest.mark.parametrize(
    "message",
    [
        Hello(name="a", window=1),
        Welcome(broker="b", broker_id=1, publisher=2, time_us=3, window=4, heartbeat_s=5.0),
        Failure(code="x", message="y", request=1),
        Credit(12),
        Publish(request=1, sink="s", epoch=2, parts=[(3, 4)]),
        Unstage(request=1, sink="s", epoch=2),
        PublishedEpoch(request=1, sink="s"),
        TopicAnnounced(number=1, name="q", schemas=["q: [a: int]"]),
        Declare(request=1, name="q", schema=None),
        Subscribe(request=1, subscription=2, pattern="q.>", where="a > 1"),
        Subscribe(request=1, subscription=2, pattern="q", durable=True, name="n", start={"position": {3: 4}}),
        Unsubscribe(request=1, name="n", token=bytes(16)),
        Unsubscribe(request=1, subscription=2, seen={3: [[4, 5], [7, 7]]}),
        Ack(request=1, subscription=2, sequence=3, again={4: [[5, 6], [8, 8]]}),
        Declare(request=1, name="q", durable=True, retain={"age_s": 1.5, "bytes": None, "hold": False}),
        Dropped({1: 2}, [[1, 3, 4, 9]]),
        Dropped({}, skipped={1: {"q": "why"}}),
        CaughtUp(1, 7, {2: 9}),
        Positions(request=3),
        Subscribe(request=1, subscription=2, pattern="q", resume={7: {2: 9}}),
        Stored(9),
        Resume(9),
        Trim(request=1, topic="q", before={3: 4}),
        Look(request=1, topic="q", start={"time_us": 5}),
        Subscribe(request=1, subscription=2, pattern="q", durable=True, start={"position": {3: 4}}, stop={3: 9, 5: 6}),
        Ended(2),
        RetentionHold(request=1, topic="q", name="lane"),
        RetentionHold(request=1, topic="q", name="lane", position={3: 4}),
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
