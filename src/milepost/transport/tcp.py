"""Frames over TCP, by the running event loop: uvloop where it is installed, asyncio otherwise.

Writes go to the socket at once, past the loop's own buffers, while those are empty: Gryphon's cut-through. It is
cheaper than `transport.write`, which in uvloop waits for the end of the loop's turn. Bytes that the socket does not
take go to the transport, which sends them when it can.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from milepost.address import Address
from milepost.errors import ConnectionLost, MilepostError, Overloaded
from milepost.transport.channel import Channel, Receiver
from milepost.wire import encode_control
from milepost.wire.control import failure
from milepost.wire.reader import SHARED_BYTES, FrameReader

if TYPE_CHECKING:
    from milepost.transport.admission import ConnectionAdmission

CONNECT_SECONDS: Final = 10.0  # to reach a host at all; the handshake has its own limit
LINGER_SECONDS: Final = 5.0  # for a peer to read the last frames
GATHERED_BYTES: Final = 16_384  # parts smaller than this together are joined: one copy is cheaper than a vector
MOST_PARTS: Final = 512  # written one by one, in one call; the system takes 1,024
ACCEPTED: Final = 128  # connections accepted in one go: then the existing ones are served
EXHAUSTED: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))  # temporary, of accept
EXHAUSTED_S: Final = 1.0  # seconds until connections are accepted again after that


class TcpChannel(asyncio.BufferedProtocol):
    """One end of a TCP connection: a protocol to the event loop, a `Channel` to its receiver."""

    __slots__ = (
        "__weakref__", "_aborted", "_admission", "_fd", "_kept", "_linger", "_reader", "_receiver", "_transport",
        "fast_path", "growing", "peer",
    )  # fmt: skip

    def __init__(self, receiver: Receiver, shared: memoryview, admission: ConnectionAdmission | None = None) -> None:
        self._receiver = receiver
        self._admission = admission  # of the listener that accepted it
        self._aborted = False
        self._reader: FrameReader = FrameReader(shared)
        self._transport: Any = None
        self._fd = -1
        self._kept = False
        self._linger: asyncio.TimerHandle | None = None  # set when closing
        self.peer = ""
        self.fast_path: Callable[[int], bool] | None = None
        self.growing: Callable[[int], None] | None = None

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        if self._aborted:
            self._transport.abort()
            return
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._fd = sock.fileno()
        self.peer = _peer(transport.get_extra_info("peername"))
        self._transport.set_write_buffer_limits(0)  # resume_writing then means that the buffer is empty
        self._receiver.connected(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.buffer() if self._linger is None else self._reader.shared

    def buffer_updated(self, nbytes: int) -> None:
        if self._linger is not None:
            return  # closing: read only so that the peer can read too
        if self.fast_path is not None and self._reader.between and self.fast_path(nbytes):
            return
        try:
            frames = self._reader.received(nbytes)
        except MilepostError as error:
            self._transport.pause_reading()
            self._receiver.refused(error)
            return
        if frames:
            self._receiver.frames(frames)
        elif self.growing is not None:
            self.growing(self._reader.partial)

    def pause_writing(self) -> None:
        pass

    def resume_writing(self) -> None:
        self._kept = False
        self._receiver.drained()

    def eof_received(self) -> bool:
        return False  # the transport closes itself

    def connection_lost(self, error: Exception | None) -> None:
        self._fd = -1
        self.fast_path = self.growing = None
        if self._admission is not None:
            self._admission.left(self)
        if self._linger is not None:
            self._linger.cancel()
        receiver, self._receiver = self._receiver, _NO_RECEIVER
        receiver.lost(error)

    # Called by the receiver

    def write(self, *parts: bytes | bytearray | memoryview) -> bool:
        if self._fd < 0 or self._linger is not None:
            return True
        size = len(parts[0]) if len(parts) == 1 else sum(map(len, parts))
        sent = 0
        if not self._kept:
            try:
                if len(parts) == 1:
                    sent = os.write(self._fd, parts[0])
                elif size < GATHERED_BYTES or len(parts) > MOST_PARTS:
                    sent = os.write(self._fd, b"".join(parts))
                else:
                    sent = os.writev(self._fd, parts)
            except BlockingIOError:
                pass
            except OSError:
                self._transport.abort()  # the loop reports the reason
                return True
            if sent == size:
                return True
        self._keep(parts, sent)
        return False

    def _keep(self, parts: tuple[bytes | bytearray | memoryview, ...], sent: int) -> None:
        self._kept = True
        rest = []
        for part in parts:
            if sent >= len(part):
                sent -= len(part)
                continue
            rest.append(memoryview(part)[sent:] if sent else part)
            sent = 0
        # Not `writelines`: some versions of asyncio never report its completion, and others report it within the call.
        self._transport.write(rest[0] if len(rest) == 1 else b"".join(rest))
        if self._transport.get_write_buffer_size() == 0:
            # The loop has sent it all without having been full, so it will not call `resume_writing`.
            asyncio.get_running_loop().call_soon(self._emptied)

    def _emptied(self) -> None:
        if self._kept and self._fd >= 0 and self._transport.get_write_buffer_size() == 0:
            self.resume_writing()

    @property
    def buffer(self) -> bytearray:
        return self._reader.shared.obj  # type: ignore[return-value]

    @property
    def waiting(self) -> int:
        return int(self._transport.get_write_buffer_size()) if self._fd >= 0 else 0

    def set_limit(self, limit: int) -> None:
        self._reader.limit = limit
        if self._admission is not None:
            self._admission.greeted(self)

    @property
    def partial(self) -> int:
        return self._reader.partial

    def pause(self) -> None:
        if self._fd >= 0:
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._fd >= 0:
            self._transport.resume_reading()

    def close(self) -> None:
        """Send the end of the stream, and wait a short time for the peer to close.

        Closing at once would reset the connection if unread bytes of the peer are here, and the peer would lose the
        last frames, which give the reason.
        """
        if self._fd < 0 or self._linger is not None:
            return
        self._linger = asyncio.get_running_loop().call_later(LINGER_SECONDS, self._transport.abort)
        try:
            self._transport.write_eof()
            self._transport.resume_reading()
        except (OSError, RuntimeError):  # already closed, on one side or the other
            self._transport.abort()

    def abort(self) -> None:
        self._aborted = True
        if self._transport is not None:
            self._transport.abort()


class _NoReceiver:
    """The receiver of a channel that is lost."""

    def connected(self, channel: Channel) -> None: ...
    def frames(self, frames: list[Any]) -> None: ...
    def drained(self) -> None: ...
    def refused(self, error: Exception) -> None: ...
    def lost(self, error: Exception | None) -> None: ...


_NO_RECEIVER: Final = _NoReceiver()


class TcpListener:
    """Accepts TCP connections, as far as `ConnectionAdmission` allows."""

    def __init__(
        self,
        sockets: list[socket.socket],
        address: Address,
        accept: Callable[[], Receiver],
        admission: ConnectionAdmission,
    ) -> None:
        self.address = address
        self._sockets = sockets
        self._accept = accept
        self._admission = admission
        self._loop = asyncio.get_running_loop()
        self._shared = memoryview(bytearray(SHARED_BYTES))  # one for all connections: it is used within a call only
        self._opening: set[asyncio.Task[Any]] = set()
        self._resuming: asyncio.TimerHandle | None = None  # no connections are accepted before it fires
        self._resume()

    @property
    def refused(self) -> int:
        """Connections that were refused, or closed to make room for others."""
        return self._admission.refused

    def _resume(self) -> None:
        self._resuming = None
        for each in self._sockets:
            self._loop.add_reader(each.fileno(), self._ready, each)

    def _pause(self, error: OSError) -> None:
        """Stop accepting while no descriptors are free, whatever uses them: new connections wait in the backlog."""
        for each in self._sockets:
            self._loop.remove_reader(each.fileno())
        self._resuming = self._loop.call_later(EXHAUSTED_S, self._resume)
        self._admission.tell(f"accept failed: {error.strerror}; connections wait until descriptors are free")

    def _ready(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTED):
            try:
                accepted, name = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in EXHAUSTED:
                    self._pause(error)
                    return
                continue  # it was gone before it was accepted
            told = self.refused
            try:
                where = self._admission.require(accepted.fileno(), str(name[0]))
            except Overloaded as error:
                _refuse(accepted, error)
                continue
            accepted.setblocking(False)
            channel = TcpChannel(self._accept(), self._shared, self._admission)
            self._admission.came(channel, where)
            task = self._loop.create_task(self._open(channel, accepted))
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)
            if self.refused > told:
                return  # another connection makes room: its descriptor is free in the next turn of the event loop

    async def _open(self, channel: TcpChannel, accepted: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: channel, accepted)
        except OSError:  # gone already
            self._admission.left(channel)
            accepted.close()

    async def close(self) -> None:
        for each in self._sockets:
            if each.fileno() >= 0:  # it may have been closed before
                self._loop.remove_reader(each.fileno())
                each.close()
        if self._resuming is not None:
            self._resuming.cancel()
        if self._opening:
            await asyncio.gather(*self._opening, return_exceptions=True)
        self._admission.close()


def _refuse(accepted: socket.socket, error: Overloaded) -> None:
    """Send the reason, as far as that works without waiting, and close."""
    with accepted:
        try:
            accepted.setblocking(False)
            accepted.send(encode_control(failure(error, fatal=True)))
        except OSError:
            pass


async def connect(address: Address, receiver: Receiver) -> Channel:
    """A connection to a broker. Raises `ConnectionLost` with the reason."""
    loop = asyncio.get_running_loop()
    channel = TcpChannel(receiver, memoryview(bytearray(SHARED_BYTES)))
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await loop.create_connection(lambda: channel, address.host, address.port)
    except TimeoutError:
        raise ConnectionLost(f"{address} did not answer within {CONNECT_SECONDS:.0f} s") from None
    except OSError as error:
        raise ConnectionLost(
            f"no broker at {address}: {error.strerror or error}; is one running there? Start it with: milepost up"
        ) from None
    return channel


async def listen(address: Address, accept: Callable[[], Receiver], backlog: int, per_address: int = 0) -> TcpListener:
    """A listener. Raises `OSError` when the port is taken."""
    from milepost.transport.admission import ConnectionAdmission  # clients need none

    found = await asyncio.get_running_loop().getaddrinfo(
        address.host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, where in dict.fromkeys(found):
            listening = socket.socket(family, kind, protocol)
            sockets.append(listening)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listening.setblocking(False)
            listening.bind(where)
            listening.listen(backlog)
    except BaseException:
        for each in sockets:
            each.close()
        raise
    host, port = sockets[0].getsockname()[:2]
    taken = Address(address.scheme, address.host if address.host else host, port)
    return TcpListener(sockets, taken, accept, ConnectionAdmission(per_address))


def _peer(name: Any) -> str:
    return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else str(name or "")
