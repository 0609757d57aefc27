"""Assembles arriving bytes into whole frames.

Made for a transport that reads into a given buffer (`asyncio.BufferedProtocol`): an idle connection holds no buffer at
all. Small frames are read many at a time into one buffer that all connections of a thread share, and copied out; a
frame that is not yet whole gets its own memory, and the rest of it is read directly into that.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from milepost import limits
from milepost.errors import LimitExceeded, ProtocolError
from milepost.wire.frames import HEADER, MAGIC, Frame, Kind

SHARED_BYTES: Final = 256 << 10  # read at once; more brings no fewer system calls on a busy socket
MOST_READ: Final = 1 << 20  # bytes of one frame in one read: this much may arrive before a limit can be enforced

_new: Final = tuple.__new__  # what Frame(...) calls, without a function in between

_KNOWN: Final = frozenset(map(int, Kind))
_BATCHES: Final = frozenset(map(int, (Kind.PUT, Kind.DELIVER, Kind.HAND, Kind.STAGE, Kind.ENQUEUE, Kind.TAKEN)))


class FrameReader:
    """The frames of one connection. `shared` is used between `buffer` and `received` only, never across them."""

    __slots__ = ("_body", "_filled", "_flags", "_kind", "_rest", "limit", "shared")

    def __init__(self, shared: memoryview | None = None, limit: int = limits.HELLO_BYTES) -> None:
        self.shared = memoryview(bytearray(SHARED_BYTES)) if shared is None else shared
        self.limit = limit  # bytes of a frame; raised after the handshake
        self._rest = b""  # the beginning of a header
        self._body: memoryview | None = None  # an unfinished frame
        self._filled = 0
        self._kind = 0
        self._flags = 0

    @property
    def between(self) -> bool:
        """Whether the next bytes begin a frame, and go to the beginning of `shared`."""
        return self._body is None and not self._rest

    @property
    def partial(self) -> int:
        """Bytes that have arrived of an unfinished frame; 0 between frames."""
        return HEADER.size + self._filled if self._body is not None else len(self._rest)

    def buffer(self) -> memoryview:
        """Where the next bytes go."""
        if self._body is not None:
            return self._body[self._filled : self._filled + MOST_READ]
        return self.shared

    def received(self, count: int) -> list[Frame]:
        """The frames that are complete now that `count` bytes were written into `buffer()`.

        Raises `ProtocolError` or `LimitExceeded`, after which the stream is unusable.
        """
        if self._body is not None:
            self._filled += count
            if self._filled < len(self._body):
                return []
            frame = Frame(self._kind, self._flags, self._body)
            self._body = None
            return [frame]
        if self._rest:
            return self._split(memoryview(self._rest + self.shared[:count]))
        length, kind, flags, magic = HEADER.unpack_from(self.shared)
        if length + HEADER.size == count and magic == MAGIC and kind in _BATCHES and length <= self.limit:
            # The usual case at low rates: one frame alone. Fewer than eight bytes never match their stated length.
            return [_new(Frame, (kind, flags, bytes(self.shared[HEADER.size : count])))]
        return self._split(self.shared[:count])

    def feed(self, data: bytes) -> list[Frame]:
        """Like `received`, for bytes in other memory, in one piece or many."""
        frames: list[Frame] = []
        view = memoryview(data)
        while len(view):
            room = self.buffer()
            count = min(len(room), len(view))
            room[:count] = view[:count]
            frames += self.received(count)
            view = view[count:]
        return frames

    def _split(self, view: memoryview) -> list[Frame]:
        self._rest = b""
        frames: list[Frame] = []
        at, end = 0, len(view)
        while end - at >= HEADER.size:
            length, kind, flags, magic = HEADER.unpack_from(view, at)
            if magic != MAGIC or length > self.limit or kind not in _BATCHES:
                self._check(length, kind, magic)
            at += HEADER.size
            if length > end - at:
                # The system provides memory only when it is written to, so a length alone costs nothing. A bytearray
                # would be filled with zeros at once.
                self._body = memoryview(np.empty(length, np.uint8).data)
                self._filled = end - at
                self._body[: self._filled] = view[at:]
                self._kind, self._flags = kind, flags
                return frames
            frames.append(_new(Frame, (kind, flags, bytes(view[at : at + length]))))
            at += length
        self._rest = bytes(view[at:])
        return frames

    def _check(self, length: int, kind: int, magic: int) -> None:
        if magic != MAGIC:
            raise ProtocolError("this is not Milepost's protocol; is another program talking to this port?")
        if kind not in _KNOWN:
            raise ProtocolError(f"a frame of unknown kind {kind}; is the other end newer than this one?")
        limit = self.limit if kind in _BATCHES else min(self.limit, limits.CONTROL_BYTES)
        if length > limit:
            name = (
                "CONTROL_BYTES"
                if limit == limits.CONTROL_BYTES
                else "HELLO_BYTES"
                if limit == limits.HELLO_BYTES
                else "FRAME_BYTES"
            )
            raise LimitExceeded(name, length, limit, f"the bytes of a {Kind(kind).name} frame")
