"""ENQUEUE and TAKEN: messages into a queue and out of it, behind their metadata.

::

    ENQUEUE │ request u64 │ transaction u64 │ priority f64 │ due i64 │ ends i64 │ step u32 │ flags u32 │
            │ name's length u32 │ 0 u32 │ queue's name, UTF-8 │ padding │ batch …

    TAKEN   │ request u64 │ rows u32 │ name's length u32 │ type's name, UTF-8 │ padding │
            │ message i64 × rows │ writer i64 × rows │ writing transaction i64 × rows │ priority f64 × rows │
            │ aborts i32 × rows │ padding │ batch …

Padding fills up to a multiple of eight bytes, so that every column and the batch begin at one. A priority of NaN
means that none was given. `due` and `ends` are microseconds since 1970, 0 for none. The writer, the writing
transaction and the message make up a message's ID, "S/T/M".

`transaction` is the client's own number. `step` counts the client's frames for one transaction from 1 on, over its
connections: it identifies a frame that is repeated on another connection.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from milepost import limits
from milepost.batch.header import HEADER as BATCH_HEADER
from milepost.errors import ProtocolError
from milepost.wire.frames import HEADER, MAGIC, Kind
from milepost.wire.payload import Buffer

HELD: Final = 1  # flag of an ENQUEUE: held until the transaction's next request, and answered with that
NO_PRIORITY: Final = float("nan")

_ENQUEUE: Final = struct.Struct("<QQdqqIIII")
_TAKEN: Final = struct.Struct("<QII")
_NAME_BYTES: Final = 4 * limits.NAME_CHARS  # UTF-8 takes at most four for a character
ENQUEUE_HEADER: Final = _ENQUEUE.size + _NAME_BYTES + 8  # bytes before the batch in the body, at most
_I8: Final = np.dtype("<i8")
_F8: Final = np.dtype("<f8")
_I4: Final = np.dtype("<i4")
_ROW_BYTES: Final = 4 * 8 + 4  # of the columns of a TAKEN


class Enqueue(NamedTuple):
    """The body of an ENQUEUE frame, split. The batch is not decoded yet."""

    request: int  # 0 when it is held
    transaction: int
    step: int
    queue: str
    priority: float  # NaN: none
    due_us: int  # 0: at once
    ends_us: int  # 0: never
    held: bool
    data: Buffer

    @property
    def size(self) -> int:
        """Bytes of the frame, which count as outstanding until they are credited."""
        named = len(self.queue.encode())
        return HEADER.size + _ENQUEUE.size + named + -named % 8 + len(self.data)


class Taken(NamedTuple):
    """The body of a TAKEN frame, split: messages of one type. The batch is not decoded yet."""

    request: int
    type: str
    mids: npt.NDArray[np.int64]
    writers: npt.NDArray[np.int64]
    transactions: npt.NDArray[np.int64]
    priorities: npt.NDArray[np.float64]
    aborts: npt.NDArray[np.int32]
    data: Buffer


def enqueue_parts(enqueue: Enqueue) -> tuple[bytes, Buffer]:
    """The frame in two parts, so that a large batch is not copied."""
    name = enqueue.queue.encode()
    padding = -len(name) % 8
    length = _ENQUEUE.size + len(name) + padding + len(enqueue.data)
    limits.require("FRAME_BYTES", length, "the bytes of an ENQUEUE frame")
    words = _ENQUEUE.pack(
        enqueue.request, enqueue.transaction, enqueue.priority, enqueue.due_us, enqueue.ends_us,
        enqueue.step, HELD if enqueue.held else 0, len(name), 0,
    )  # fmt: skip
    return HEADER.pack(length, Kind.ENQUEUE, 0, MAGIC) + words + name + bytes(padding), enqueue.data


def read_enqueue(body: Buffer) -> Enqueue:
    """Split an ENQUEUE; every length is checked against the body's length before it is used."""
    view = memoryview(body)
    if len(view) < _ENQUEUE.size:
        raise ProtocolError(f"an ENQUEUE of {len(view)} bytes is cut off")
    request, transaction, priority, due, ends, step, flags, named, zero = _ENQUEUE.unpack_from(view)
    if zero or flags & ~HELD:
        raise ProtocolError("an ENQUEUE has a word that must be zero and is not")
    name, start = _name(view, _ENQUEUE.size, named, "an ENQUEUE", "a queue")
    if start + BATCH_HEADER.size > len(view):
        raise ProtocolError(f"an ENQUEUE of {len(view)} bytes has no room for a batch")
    data = bytes(view[start:]) if len(view) < _COPIED else view[start:]
    return Enqueue(request, transaction, step, name, priority, due, ends, bool(flags & HELD), data)


def taken_parts(taken: Taken) -> tuple[bytes, Buffer]:
    """The frame of messages that were taken or browsed, in two parts: everything before the batch, and the batch."""
    name = taken.type.encode()
    rows = len(taken.mids)
    told = b"".join(
        (
            _TAKEN.pack(taken.request, rows, len(name)),
            name,
            bytes(-len(name) % 8),
            taken.mids.astype(_I8, copy=False).tobytes(),
            taken.writers.astype(_I8, copy=False).tobytes(),
            taken.transactions.astype(_I8, copy=False).tobytes(),
            taken.priorities.astype(_F8, copy=False).tobytes(),
            taken.aborts.astype(_I4, copy=False).tobytes(),
            bytes(4 * (rows & 1)),
        )
    )
    length = len(told) + len(taken.data)
    limits.require("FRAME_BYTES", length, "the bytes of a TAKEN frame")
    return HEADER.pack(length, Kind.TAKEN, 0, MAGIC) + told, taken.data


def read_taken(body: Buffer) -> Taken:
    """Split a TAKEN; every count is checked against the body's length before it is used."""
    view = memoryview(body)
    if len(view) < _TAKEN.size:
        raise ProtocolError(f"a TAKEN of {len(view)} bytes is cut off")
    request, rows, named = _TAKEN.unpack_from(view)
    name, at = _name(view, _TAKEN.size, named, "a TAKEN", "a type")
    end = at + _ROW_BYTES * rows + 4 * (rows & 1)
    if not rows or end + BATCH_HEADER.size > len(view):
        raise ProtocolError(f"a TAKEN of {len(view)} bytes has no room for {rows} messages")
    numbers = np.frombuffer(view, _I8, 3 * rows, at)
    priorities = np.frombuffer(view, _F8, rows, at + 24 * rows)
    aborts = np.frombuffer(view, _I4, rows, at + 32 * rows)
    mids, writers, transactions = numbers[:rows], numbers[rows : 2 * rows], numbers[2 * rows :]
    return Taken(request, name, mids, writers, transactions, priorities, aborts, view[end:])


_COPIED: Final = 4_096  # bytes: a smaller batch is copied out of its frame, which makes reading it cheaper


def _name(view: memoryview, at: int, length: int, frame: str, what: str) -> tuple[str, int]:
    """A name of `length` bytes, and where the padding after it ends."""
    end = at + length
    start = end + -end % 8
    if length > _NAME_BYTES or start > len(view):
        raise ProtocolError(f"{frame} of {len(view)} bytes has no room for {what}'s name of {length}")
    if any(view[end:start]):
        raise ProtocolError(f"the padding of {frame} is not zero")
    try:
        return str(view[at:end], "utf-8"), start
    except UnicodeDecodeError:
        raise ProtocolError(f"the name of {what} in {frame} is not UTF-8") from None
