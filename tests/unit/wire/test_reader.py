import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost import limits
from milepost.errors import LimitExceeded, MilepostError, ProtocolError
from milepost.wire import FrameReader, Kind, Ping, encode_control, put_parts, read_deliver
from milepost.wire.frames import HEADER, MAGIC

FRAMES = st.lists(
    st.one_of(
        st.integers(0, 2**40).map(lambda number: encode_control(Ping(number))),
        st.binary(min_size=16, max_size=300).map(lambda data: b"".join(put_parts(1, data))),
    ),
    max_size=8,
)


@given(FRAMES, st.lists(st.integers(1, 80)), st.sampled_from([16, 64, 1024]))
def test_however_bytes_are_cut_the_frames_are_the_same(frames, cuts, room):
    stream = b"".join(frames)
    whole = FrameReader(limit=limits.FRAME_BYTES)
    expected = whole.feed(stream)
    reader = FrameReader(memoryview(bytearray(room)), limits.FRAME_BYTES)
    found = []
    for size in [*cuts, len(stream)]:
        found += reader.feed(stream[:size])
        stream = stream[size:]
    found += reader.feed(stream)
    assert [(kind, flags, bytes(body)) for kind, flags, body in found] == [
        (kind, flags, bytes(body)) for kind, flags, body in expected
    ]
    assert len(found) == len(frames)
    assert not reader.partial


def test_a_frame_in_the_middle_is_partial():
    reader = FrameReader()
    frame = encode_control(Ping(1))
    assert reader.feed(frame[:3]) == []
    assert reader.partial
    assert reader.feed(frame[3:10]) == []
    assert reader.partial
    assert len(reader.feed(frame[10:])) == 1
    assert not reader.partial


def test_another_protocol_is_noticed_by_its_first_bytes():
    with pytest.raises(ProtocolError, match="another program"):
        FrameReader().feed(b"GET / HTTP/1.1\r\n\r\n")


def test_an_unknown_kind_is_refused():
    with pytest.raises(ProtocolError, match="kind 77"):
        FrameReader().feed(HEADER.pack(0, 77, 0, MAGIC))


@pytest.mark.parametrize(
    ("limit", "kind", "length", "name"),
    [
        (limits.HELLO_BYTES, Kind.HELLO, limits.HELLO_BYTES + 1, "HELLO_BYTES"),
        (limits.FRAME_BYTES, Kind.PING, limits.CONTROL_BYTES + 1, "CONTROL_BYTES"),
        (limits.FRAME_BYTES, Kind.PUT, limits.FRAME_BYTES + 1, "FRAME_BYTES"),
        (1 << 20, Kind.PUT, 2**32 - 1, "FRAME_BYTES"),
    ],
)
def test_a_length_is_refused_before_memory_is_taken(limit, kind, length, name):
    reader = FrameReader(limit=limit)
    with pytest.raises(LimitExceeded) as caught:
        reader.feed(HEADER.pack(length, kind, 0, MAGIC))
    assert caught.value.limit == name
    assert not reader.partial


@given(st.integers(0, 1), st.binary(max_size=200))
def test_no_deliver_body_reads_beyond_its_end(flags, body):
    try:
        found = read_deliver(flags, body)
    except MilepostError:
        return
    assert len(found.data) >= 16
