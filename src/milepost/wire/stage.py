"""STAGE: a batch that is stored but not yet visible, behind the sink, epoch and attempt that it belongs to.

::

    STAGE │ request u64 │ epoch u64 │ part u64 │ attempt u64 │ topic u32 │ sequence u32 │ sink's length u32 │ 0 u32 │
          │ sink, UTF-8 │ padding │ batch …

Padding fills up to a multiple of eight bytes, so that the batch begins at one. `sequence` counts the STAGE frames of
one attempt from 0 on: it identifies a frame that is repeated on another connection.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from milepost import limits
from milepost.batch.header import HEADER as BATCH_HEADER
from milepost.errors import ProtocolError
from milepost.wire.frames import HEADER, MAGIC, Kind
from milepost.wire.payload import Buffer

_WORDS: Final = struct.Struct("<QQQQIIII")
_SINK_BYTES: Final = 4 * limits.NAME_CHARS  # UTF-8 takes at most four for a character
STAGE_HEADER: Final = _WORDS.size + _SINK_BYTES + 8  # bytes before the batch in the body, at most
NUMBER_MOST: Final = (1 << 63) - 1  # of epochs, parts and attempts: databases count in signed 64 bits


class Stage(NamedTuple):
    """The body of a STAGE frame, split. The batch is not decoded yet."""

    request: int
    sink: str
    epoch: int
    part: int
    attempt: int
    sequence: int
    topic: int  # its number on this connection
    data: Buffer


def stage_parts(stage: Stage) -> tuple[bytes, Buffer]:
    """The frame in two parts, so that a large batch is not copied."""
    sink = stage.sink.encode()
    padding = -(_WORDS.size + len(sink)) % 8
    length = _WORDS.size + len(sink) + padding + len(stage.data)
    limits.require("FRAME_BYTES", length, "the bytes of a STAGE frame")
    words = _WORDS.pack(
        stage.request, stage.epoch, stage.part, stage.attempt, stage.topic, stage.sequence, len(sink), 0
    )
    return HEADER.pack(length, Kind.STAGE, 0, MAGIC) + words + sink + bytes(padding), stage.data


def read_stage(body: Buffer) -> Stage:
    """Split a STAGE; every length is checked against the body's length before it is used."""
    view = memoryview(body)
    if len(view) < _WORDS.size:
        raise ProtocolError(f"a STAGE of {len(view)} bytes is cut off")
    request, epoch, part, attempt, topic, sequence, named, zero = _WORDS.unpack_from(view)
    if zero:
        raise ProtocolError("a STAGE has a word that must be zero and is not")
    end = _WORDS.size + named
    start = end + -end % 8
    if named > _SINK_BYTES or start + BATCH_HEADER.size > len(view):
        raise ProtocolError(f"a STAGE of {len(view)} bytes has no room for a sink's name of {named} and a batch")
    if any(view[end:start]):
        raise ProtocolError("the padding of a STAGE is not zero")
    try:
        sink = str(view[_WORDS.size : end], "utf-8")
    except UnicodeDecodeError:
        raise ProtocolError("the name of a sink is not UTF-8") from None
    return Stage(request, sink, epoch, part, attempt, sequence, topic, view[start:])
