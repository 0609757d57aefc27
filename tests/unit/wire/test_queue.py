"""ENQUEUE, TAKEN and the requests about queues: the bytes themselves, and what cannot be."""

import math
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.errors import MilepostError, ProtocolError
from milepost.wire import (
    Ack,
    Browse,
    Decide,
    Decisions,
    DeclareQueue,
    DeclareType,
    DeleteQueue,
    DeleteTransfer,
    DeleteType,
    Dequeue,
    Enqueue,
    Finish,
    ForgetDecision,
    FrameReader,
    HoldingRequest,
    Kind,
    ListInDoubt,
    MoveMessages,
    Purge,
    Queues,
    Settle,
    SetTransfer,
    Taken,
    Transfers,
    TypeAnnounced,
    Types,
    decode_control,
    encode_control,
    enqueue_parts,
    read_enqueue,
    read_taken,
    taken_parts,
)
from milepost.wire.queue import NO_PRIORITY

BATCH = bytes(range(21))
ENQUEUE = Enqueue(7, 3, 2, "orders", 1.5, 4, 5, False, BATCH)
HELD = ENQUEUE._replace(request=0, held=True, priority=NO_PRIORITY, due_us=0, ends_us=0, queue="größe")


def taken(rows, name="Order"):
    numbers = np.arange(rows, dtype=np.int64)
    return Taken(
        9, name, 10 + numbers, 20 + numbers, 30 + numbers, numbers / 2, numbers.astype(np.int32), BATCH
    )  # fmt: skip


def test_an_enqueue():
    head, data = enqueue_parts(ENQUEUE)
    assert head.hex() == (
        "5500000024004d50"
        + "0700000000000000" + "0300000000000000"  # request, transaction
        + "000000000000f83f"  # priority
        + "0400000000000000" + "0500000000000000"  # due, ends
        + "02000000" + "00000000" + "06000000" + "00000000"  # step, flags, length of the name
        + "6f7264657273" + "0000"
    )  # fmt: skip
    assert data is BATCH
    assert read_enqueue(head[8:] + data) == ENQUEUE
    assert ENQUEUE.size == len(head) + len(data)


def test_an_enqueue_that_is_held():
    head, data = enqueue_parts(HELD)
    assert head.hex() == (
        "5500000024004d50" + "0000000000000000" + "0300000000000000" + "000000000000f87f" + "00" * 16
        + "02000000" + "01000000" + "07000000" + "00000000" + "6772c3b6c39f65" + "00"
    )  # fmt: skip
    found = read_enqueue(head[8:] + data)
    assert math.isnan(found.priority)
    assert found._replace(priority=0.0) == HELD._replace(priority=0.0)
    assert HELD.size == len(head) + len(data)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"short", "cut off"),
        (struct.pack("<QQdqqIIII", 1, 1, 0, 0, 0, 1, 0, 0, 1) + BATCH, "must be zero"),
        (struct.pack("<QQdqqIIII", 1, 1, 0, 0, 0, 1, 2, 0, 0) + BATCH, "must be zero"),
        (struct.pack("<QQdqqIIII", 1, 1, 0, 0, 0, 1, 0, 1 << 30, 0) + BATCH, "no room for a queue's name"),
        (struct.pack("<QQdqqIIII", 1, 1, 0, 0, 0, 1, 0, 3, 0) + b"abc\0\0\0\0\1" + BATCH, "padding"),
        (struct.pack("<QQdqqIIII", 1, 1, 0, 0, 0, 1, 0, 3, 0) + b"\xff\xff\xff\0\0\0\0\0" + BATCH, "not UTF-8"),
        (struct.pack("<QQdqqIIII", 1, 1, 0, 0, 0, 1, 0, 8, 0) + b"abcdefgh" + BATCH[:15], "no room for a batch"),
    ],
)
def test_an_enqueue_that_cannot_be(body, why):
    with pytest.raises(ProtocolError, match=why):
        read_enqueue(body)


def test_messages_that_were_taken():
    head, data = taken_parts(taken(1))
    assert head.hex() == (
        "5500000025004d50"
        + "0900000000000000" + "01000000" + "05000000" + "4f72646572" + "000000"  # request, rows, name
        + "0a00000000000000" + "1400000000000000" + "1e00000000000000" + "0000000000000000"
        + "00000000" + "00000000"  # aborts, and up to a multiple of eight
    )  # fmt: skip
    assert data is BATCH


@pytest.mark.parametrize("rows", [1, 2, 3, 100])
def test_messages_come_back_as_they_went(rows):
    sent = taken(rows, "Übergabe")
    head, data = taken_parts(sent)
    found = read_taken(head[8:] + data)
    assert (found.request, found.type, bytes(found.data)) == (9, "Übergabe", BATCH)
    for mine, theirs in zip(sent[2:7], found[2:7], strict=True):
        assert mine.tolist() == theirs.tolist()


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"short", "cut off"),
        (struct.pack("<QII", 1, 0, 0) + BATCH, "no room for 0 messages"),
        (struct.pack("<QII", 1, (1 << 32) - 1, 0) + BATCH, "no room for"),
        (struct.pack("<QII", 1, 1, 0) + bytes(40) + BATCH[:15], "no room for 1 messages"),
        (struct.pack("<QII", 1, 1, 1 << 31) + BATCH, "no room for a type's name"),
        (struct.pack("<QII", 1, 1, 1) + b"\xff" + bytes(47) + BATCH, "not UTF-8"),
        (struct.pack("<QII", 1, 1, 1) + b"a\1" + bytes(46) + BATCH, "padding"),
    ],
)
def test_messages_that_cannot_be(body, why):
    with pytest.raises(ProtocolError, match=why):
        read_taken(body)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(body):
    for read in (read_enqueue, read_taken):
        try:
            read(body)
        except MilepostError:
            pass


def test_both_are_as_long_as_a_frame_may_be():
    reader = FrameReader(limit=64 << 20)
    head, data = enqueue_parts(ENQUEUE._replace(data=bytes(5 << 20)))  # more than a control frame may have
    (frame,) = reader.feed(head + data)
    assert frame.kind == Kind.ENQUEUE
    head, data = taken_parts(taken(1)._replace(data=bytes(5 << 20)))
    (frame,) = reader.feed(head + data)
    assert frame.kind == Kind.TAKEN


@pytest.mark.parametrize(
    "message",
    [
        TypeAnnounced(name="order", text="order: [a: int]"),
        DeclareType(request=1, text="order: [a: int]"),
        Types(request=1),
        DeleteType(request=1, name="order"),
        DeclareQueue(
            request=1, name="orders", types=["order"], level="ordered", functions={"order": "a + 1"}, dead_letter="d"
        ),
        DeleteQueue(request=1, name="orders"),
        Queues(request=1),
        Queues(request=1, name="orders"),
        Dequeue(request=1, transaction=2, step=3, queue="orders", type="order", count=4, where="a > 1", wait_s=0.5),
        Dequeue(request=1, queue="orders", order="a desc", peek=True),
        Finish(request=1, transaction=2, step=3, how="commit", acks=[Ack(request=0, subscription=4, sequence=5)]),
        Finish(request=1, transaction=2, step=3, how="prepare", gid="g", coordinator="c"),
        Browse(request=1, queue="orders", after=1 << 62, count=7),
        MoveMessages(request=1, source="a", target="b", where="a > 1"),
        Purge(request=1, queue="a", count=9),
        Decide(request=1, gid="g", commit=True),
        ListInDoubt(request=1, coordinator="c"),
        Decisions(request=1),
        ForgetDecision(request=1, gid="g"),
        Settle(request=1, gid="g", number=1 << 62),
        HoldingRequest(request=1, number=2),
        SetTransfer(request=1, queue="a", address="milepost://there:7450", target="b"),
        DeleteTransfer(request=1, queue="a"),
        Transfers(request=1),
    ],
    ids=lambda message: type(message).__name__,
)
def test_requests_come_back_as_they_went(message):
    frame = encode_control(message)
    assert decode_control(frame[4], frame[8:]) == message
