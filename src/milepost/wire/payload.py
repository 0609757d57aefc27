"""PUT, DELIVER and HAND: a batch behind a short header.

::

    PUT                 │ topic u32 │ 0 u32     │ batch …
    … with KEYED        │ topic u32 │ 0 u32     │ key, 16 bytes │ batch …
    DELIVER             │ topic u32 │ tags u32 │ subscription u32 × tags │ padding │ batch …
    … with MARKED_ROWS  │ topic u32 │ tags u32 │ rows u32 │ position u32 × (rows+1) │ subscription … as above
    … with PLACED       │ topic u32 │ tags u32 │ log u32 │ 0 u32 │ offset u64 │ … as above
    HAND                │ topic u32 │ subscription u32 │ log u32 │ rows u32 │ first offset u64 │ batch …
    … with SCATTERED    │ … │ offset minus the first u32 × rows │ …
    … with RETRIED      │ … │ earlier deliveries u32 × rows │ padding │ batch …

A tag is the client's number of a subscription that a row is for. Usually all rows have the same tags. With flag
`MARKED_ROWS` they differ: `tags` is the total number of tags of all rows, and the positions say where in the list
the tags of each row begin. Padding fills up to a multiple of eight bytes, so a batch always starts at one, and its
columns are aligned when the frame is.

A DELIVER with flag PLACED comes from a durable topic. After it, the client has all rows of this log before the
offset that its subscriptions to the topic select.

PUTs with flag MORE form a group with the next PUT that lacks the flag: rows of durable topics that are stored all or
none. A key is the sender's name for a put: a put whose key was stored before is refused as a duplicate.

HAND carries rows from the log of a durable topic, for one subscription. Their offsets are consecutive from the
first on, unless SCATTERED lists them; RETRIED says how often each row was handed out before.

Only the tags depend on the connection. So one frame serves every connection whose client gave its subscription the
same number, which clients that count from 1 mostly do.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from milepost import limits
from milepost.batch.header import HEADER as BATCH_HEADER
from milepost.errors import ProtocolError
from milepost.wire.frames import MAGIC, Kind

MARKED_ROWS: Final = 0x01  # of a DELIVER
PLACED: Final = 0x02
KEYED: Final = 0x01  # of a PUT
MORE: Final = 0x02
SCATTERED: Final = 0x01  # of a HAND
RETRIED: Final = 0x02
KEY_BYTES: Final = 16
_WORDS: Final = struct.Struct("<IBBHII")  # header, topic, tags
_PUT: Final = int(Kind.PUT)
_DELIVER: Final = int(Kind.DELIVER)
_ONE_TAG: Final = struct.Struct("<III")  # topic, tags, the only subscription
_ONE_TAG_BYTES: Final = 16  # with its padding
_ONE_PLACED: Final = struct.Struct("<IIIIQI")  # topic, tags, log, zero, offset, the only subscription
_ONE_PLACED_BYTES: Final = 32  # with its padding
_TWO: Final = struct.Struct("<II")
_ROWS: Final = struct.Struct("<I")
_PLACE: Final = struct.Struct("<IIQ")  # log, zero, offset
_HAND: Final = struct.Struct("<IIIIQ")  # topic, subscription, log, rows, first offset
_FRAME: Final = struct.Struct("<IBBH")
_COPIED: Final = 4_096  # bytes: smaller batches are copied out of their frame, as bytes are read faster than views
_U4: Final = np.dtype("<u4")

Buffer: TypeAlias = bytes | bytearray | memoryview


class Tags(NamedTuple):
    """The subscriptions of each row: those from `offsets[row]` to `offsets[row + 1]`."""

    offsets: npt.NDArray[np.uint32]  # rows + 1
    subscriptions: npt.NDArray[np.uint32]


class DeliverFrame(NamedTuple):
    """The body of a DELIVER frame, split. The batch is not decoded yet."""

    topic: int
    tags: tuple[int, ...] | Tags  # the same for all rows, or per row
    data: Buffer
    place: tuple[int, int] | None = None  # of a durable topic: a log, and the offset before which all is delivered


class Hand(NamedTuple):
    """The body of a HAND frame, split. The batch is not decoded yet."""

    topic: int
    subscription: int
    log: int
    offsets: npt.NDArray[np.uint64]
    tries: npt.NDArray[np.uint32] | None  # earlier deliveries of each row; None: no row had any
    data: Buffer


def put_parts(topic: int, data: Buffer, key: bytes = b"", more: bool = False) -> tuple[bytes, Buffer]:
    """The frame of a PUT in two parts, so that a large batch is not copied. A key has 16 bytes."""
    length = 8 + len(key) + len(data)
    if length > limits.FRAME_BYTES:
        limits.require("FRAME_BYTES", length, "the bytes of a PUT frame")
    if key or more:
        flags = (KEYED if key else 0) | (MORE if more else 0)
        return _WORDS.pack(length, _PUT, flags, MAGIC, topic, 0) + key, data
    return _WORDS.pack(length, _PUT, 0, MAGIC, topic, 0), data


def put_head(topic: int, size: int) -> bytes:
    """The bytes before a batch of `size` bytes in the frame of a PUT without a key."""
    return _WORDS.pack(_TWO.size + size, _PUT, 0, MAGIC, topic, 0)


def read_key(flags: int, body: Buffer) -> tuple[bytes, Buffer]:
    """The key of a PUT, if it has one, and its body without it."""
    if not flags & KEYED:
        return b"", body
    if len(body) < _TWO.size + KEY_BYTES:
        raise ProtocolError(f"a PUT of {len(body)} bytes has no room for its key")
    end = _TWO.size + KEY_BYTES
    return bytes(body[_TWO.size : end]), bytes(body[: _TWO.size]) + bytes(body[end:])


def hand_parts(
    topic: int,
    subscription: int,
    log: int,
    offsets: npt.NDArray[np.uint64],
    tries: npt.NDArray[np.uint32] | None,
    data: Buffer,
) -> tuple[bytes, Buffer]:
    """The frame of a HAND in two parts. Offsets ascend, and span less than 2**32."""
    rows, first, flags, told = len(offsets), int(offsets[0]), 0, b""
    if int(offsets[-1]) - first != rows - 1:
        flags |= SCATTERED
        told += (offsets - np.uint64(first)).astype(_U4).tobytes()
    if tries is not None:
        flags |= RETRIED
        told += tries.astype(_U4, copy=False).tobytes()
    told += bytes(-len(told) % 8)
    length = _HAND.size + len(told) + len(data)
    head = _FRAME.pack(length, Kind.HAND, flags, MAGIC) + _HAND.pack(topic, subscription, log, rows, first)
    return head + told, data


def read_hand(flags: int, body: Buffer) -> Hand:
    """Split a HAND; every count is checked against the body's length before it is used."""
    view = memoryview(body)
    if len(view) < _HAND.size:
        raise ProtocolError(f"a HAND of {len(view)} bytes is cut off")
    topic, subscription, log, rows, first = _HAND.unpack_from(view)
    at = _HAND.size
    end = at + 4 * rows * (bool(flags & SCATTERED) + bool(flags & RETRIED))
    end += -end % 8
    if not rows or end + BATCH_HEADER.size > len(view):
        raise ProtocolError(f"a HAND of {len(view)} bytes has no room for {rows} rows and their offsets")
    if first + (1 << 32) >= 1 << 64:
        raise ProtocolError(f"a HAND begins at offset {first}, where no log reaches")
    if flags & SCATTERED:
        steps = np.frombuffer(view, _U4, rows, at)
        at += 4 * rows
        if steps[0] or (steps[1:] <= steps[:-1]).any():
            raise ProtocolError("the offsets of a HAND do not ascend")
        offsets = steps.astype(np.uint64) + np.uint64(first)
    else:
        if rows > limits.BATCH_ROWS:
            raise ProtocolError(f"a HAND of {rows} rows is more than a batch")
        offsets = np.arange(first, first + rows, dtype=np.uint64)
    tries = np.frombuffer(view, _U4, rows, at) if flags & RETRIED else None
    return Hand(topic, subscription, log, offsets, tries, _rest(body, end))


def read_put(body: Buffer) -> tuple[int, Buffer]:
    """The topic's number and the batch of a PUT without a key; `read_key` removes the key."""
    if len(body) < _TWO.size + BATCH_HEADER.size:
        raise ProtocolError(f"a PUT of {len(body)} bytes has no room for a batch")
    topic, zero = _TWO.unpack_from(body)
    if zero:
        raise ProtocolError("a PUT has a word that must be zero and is not")
    return topic, _rest(body, _TWO.size)


def deliver_parts(
    topic: int, tags: tuple[int, ...] | Tags, data: Buffer, place: tuple[int, int] | None = None
) -> tuple[bytes, Buffer]:
    """The frame of a DELIVER in two parts: everything before the batch, and the batch."""
    if not isinstance(tags, Tags):
        return deliver_head(topic, tags, len(data), place), data
    count, flags = len(tags.subscriptions), MARKED_ROWS
    words = (tags.offsets.astype(_U4, copy=False), tags.subscriptions.astype(_U4, copy=False))
    told = b"".join((_ROWS.pack(len(tags.offsets) - 1), *(part.tobytes() for part in words)))
    told += bytes(-len(told) % 8)
    if place is not None:
        flags, told = flags | PLACED, _PLACE.pack(place[0], 0, place[1]) + told
    length = _TWO.size + len(told) + len(data)
    return _WORDS.pack(length, Kind.DELIVER, flags, MAGIC, topic, count) + told, data


def deliver_head(topic: int, tags: tuple[int, ...], size: int, place: tuple[int, int] | None = None) -> bytes:
    """The bytes before a batch of `size` bytes, all of whose rows have the same tags, in a DELIVER frame."""
    count, flags = len(tags), 0
    told = struct.pack(f"<{count}I{4 * (count % 2)}x", *tags)
    if place is not None:
        flags, told = PLACED, _PLACE.pack(place[0], 0, place[1]) + told
    return _WORDS.pack(_TWO.size + len(told) + size, _DELIVER, flags, MAGIC, topic, count) + told


def read_deliver(flags: int, body: Buffer) -> DeliverFrame:
    """Split a DELIVER; every count is checked against the body's length before it is used."""
    if not flags and _ONE_TAG_BYTES + BATCH_HEADER.size <= len(body) < _COPIED:
        topic, count, tag = _ONE_TAG.unpack_from(body)
        if count == 1:  # the fast path: most small deliveries are one message for one subscription
            return tuple.__new__(DeliverFrame, (topic, (tag,), bytes(body[_ONE_TAG_BYTES:]), None))
    elif flags == PLACED and _ONE_PLACED_BYTES + BATCH_HEADER.size <= len(body) < _COPIED:
        topic, count, log, _, offset, tag = _ONE_PLACED.unpack_from(body)
        if count == 1:
            return tuple.__new__(DeliverFrame, (topic, (tag,), bytes(body[_ONE_PLACED_BYTES:]), (log, offset)))
    view = memoryview(body)
    if len(view) < _TWO.size + (_PLACE.size if flags & PLACED else 0):
        raise ProtocolError(f"a DELIVER of {len(view)} bytes is cut off")
    topic, count = _TWO.unpack_from(view)
    start, place = _TWO.size, None
    if flags & PLACED:
        log, _, offset = _PLACE.unpack_from(view, start)
        start, place = start + _PLACE.size, (log, offset)
    if not flags & MARKED_ROWS:
        end = start + 4 * count
        end += -end % 8
        if end + BATCH_HEADER.size > len(view):
            raise ProtocolError(f"a DELIVER of {len(view)} bytes has no room for {count} tags and a batch")
        return DeliverFrame(topic, struct.unpack_from(f"<{count}I", view, start), _rest(body, end), place)
    (rows,) = _ROWS.unpack_from(view, start) if len(view) >= start + _ROWS.size else (limits.BATCH_ROWS,)
    start += _ROWS.size
    end = start + 4 * (rows + 1 + count)
    end += -end % 8
    if end + BATCH_HEADER.size > len(view):
        raise ProtocolError(f"a DELIVER of {len(view)} bytes has no room for {count} tags of {rows} rows and a batch")
    offsets = np.frombuffer(view, _U4, rows + 1, start)
    subscriptions = np.frombuffer(view, _U4, count, start + 4 * (rows + 1))
    if offsets[0] != 0 or offsets[-1] != count or (offsets[1:] < offsets[:-1]).any():
        raise ProtocolError("the positions of a DELIVER's tags do not rise from 0 to their number")
    return DeliverFrame(topic, Tags(offsets, subscriptions), _rest(body, end), place)


def _rest(body: Buffer, start: int) -> Buffer:
    return bytes(body[start:]) if len(body) < _COPIED else memoryview(body)[start:]
