"""Two ends in one event loop: the same bytes through the same reader, and no sockets.

As with socket buffers, `write` asks the writer to wait while more than `ROOM_BYTES` are in flight to a paused peer, so
that flow control can be tested without sockets.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from milepost.address import Address
from milepost.errors import ConfigError, ConnectionLost, MilepostError
from milepost.transport.channel import Receiver
from milepost.wire.reader import FrameReader

ROOM_BYTES: Final = 256 << 10  # what a pair of socket buffers holds, roughly

_listeners: dict[str, InprocListener] = {}


class InprocChannel:
    """One end. Written bytes reach the other end in a later turn of the event loop, never within the call."""

    def __init__(self, receiver: Receiver, peer: str) -> None:
        self._receiver = receiver
        self._reader = FrameReader()
        self._other: InprocChannel | None = None
        self._arriving: deque[bytes] = deque()  # written by the other end, not yet read
        self._arriving_bytes = 0
        self._paused = False
        self._woken = False
        self._kept = False  # this end was told to wait
        self._ending = False  # closed by the other end, after the bytes that are arriving
        self._lost = False
        self.peer = peer
        self.fast_path: Callable[[int], bool] | None = (
            None  # never called: bytes come in pieces that were written elsewhere
        )

        self.growing: Callable[[int], None] | None = None

    def write(self, *parts: bytes | bytearray | memoryview) -> bool:
        other = self._other
        if self._lost or other is None or self._ending:
            return True
        data = b"".join(parts)
        other._arriving.append(data)
        other._arriving_bytes += len(data)
        other._wake()
        if other._arriving_bytes > ROOM_BYTES:
            self._kept = True  # until `_read` of the other end clears it
        return not self._kept

    @property
    def buffer(self) -> bytearray:
        return self._reader.shared.obj  # type: ignore[return-value]

    def _wake(self) -> None:
        if not self._woken:
            self._woken = True
            asyncio.get_running_loop().call_soon(self._read)

    def _read(self) -> None:
        self._woken = False
        while self._arriving and not self._paused and not self._lost:
            data = self._arriving.popleft()
            self._arriving_bytes -= len(data)
            try:
                frames = self._reader.feed(data)
            except MilepostError as error:
                self._paused = True
                self._receiver.refused(error)
                return
            if frames:
                self._receiver.frames(frames)
            elif self.growing is not None:
                self.growing(self._reader.partial)
        other = self._other
        if other is not None and other._kept and self._arriving_bytes <= ROOM_BYTES // 2 and not other._lost:
            other._kept = False
            other._receiver.drained()
        if self._ending and not self._arriving:
            self._lose(None)

    @property
    def waiting(self) -> int:
        return max(0, self._other._arriving_bytes - ROOM_BYTES) if self._other is not None else 0

    def set_limit(self, limit: int) -> None:
        self._reader.limit = limit

    @property
    def partial(self) -> int:
        return self._reader.partial

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self._wake()

    def close(self) -> None:
        """Close: the other end reads the bytes in flight, then sees the end."""
        if self._lost:
            return
        if self._other is not None and not self._other._lost:
            self._other._ending = True
            self._other._paused = False
            self._other._wake()
        self._later()

    def abort(self) -> None:
        """Close now: the other end sees the end at once."""
        if self._other is not None and not self._other._lost:
            self._other._arriving.clear()
            self._other._arriving_bytes = 0
            self._other._ending = True
            self._other._paused = False
            self._other._wake()
        self._later()

    def _later(self) -> None:
        asyncio.get_running_loop().call_soon(self._lose, None)

    def _lose(self, error: Exception | None) -> None:
        if not self._lost:
            self._lost = True
            self._receiver.lost(error)


class InprocListener:
    """Accepts connections within the process, under a name."""

    refused = 0  # inproc connections use no descriptors

    def __init__(self, address: Address, accept: Callable[[], Receiver]) -> None:
        self.address = address
        self._accept = accept
        self._count = 0

    def connected(self, receiver: Receiver) -> InprocChannel:
        self._count += 1
        near = InprocChannel(receiver, str(self.address))
        far = InprocChannel(self._accept(), f"inproc client {self._count}")
        near._other, far._other = far, near
        far._receiver.connected(far)
        receiver.connected(near)
        return near

    async def close(self) -> None:
        if _listeners.get(self.address.host) is self:
            del _listeners[self.address.host]


async def connect(address: Address, receiver: Receiver) -> InprocChannel:
    """A connection to a listener of this process."""
    listener = _listeners.get(address.host)
    if listener is None:
        raise ConnectionLost(f"no broker at {address}: nobody listens under that name in this process")
    return listener.connected(receiver)


async def listen(address: Address, accept: Callable[[], Receiver]) -> InprocListener:
    """A listener under a name that is free."""
    if address.host in _listeners:
        raise ConfigError(f"{address} is taken: a listener of that name is in this process already")
    listener = _listeners[address.host] = InprocListener(address, accept)
    return listener
