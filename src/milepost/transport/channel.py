"""What both ends see of a connection.

A `Receiver` is called in the event loop's thread: `connected`, then `frames` with all frames that arrived at once, and
at the end `lost`, once. A `Channel` is written to. Nothing here is a coroutine: callers wait in queues of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from milepost.address import Address
from milepost.wire import Frame


@runtime_checkable
class Channel(Protocol):
    """One end of a connection, to write to."""

    peer: str  # description of the other end, for people
    fast_path: Callable[[int], bool] | None
    """Called first by channels that read into `buffer`. Returns whether it handled these bytes, which begin a frame."""

    growing: Callable[[int], None] | None
    """Called with the bytes so far of an unfinished frame, whenever a read finished no frame."""

    @property
    def buffer(self) -> bytearray:
        """The buffer that bytes between frames are read into."""

    def write(self, *parts: bytes | bytearray | memoryview) -> bool:
        """Send bytes: whole frames, in order. They are passed to the system at once as far as it takes them.

        Returns False when some bytes were buffered; `Receiver.drained` is called when the buffer is empty again. Bytes
        written after the channel was lost are dropped.
        """

    @property
    def waiting(self) -> int:
        """Bytes that the system has not taken yet."""

    def set_limit(self, limit: int) -> None:
        """Set the longest frame that may arrive from now on; `limits.HELLO_BYTES` at first."""

    @property
    def partial(self) -> int:
        """Bytes that have arrived of an unfinished frame; 0 between frames."""

    def pause(self) -> None:
        """Stop reading until `resume`: bytes that the peer sends stay in its own buffers."""

    def resume(self) -> None: ...

    def close(self) -> None:
        """Send the buffered bytes, then close; `Receiver.lost(None)` follows."""

    def abort(self) -> None:
        """Close now; buffered bytes are lost. `Receiver.lost(None)` follows."""


class Receiver(Protocol):
    """Gets the frames and the end of a connection."""

    def connected(self, channel: Channel) -> None: ...

    def frames(self, frames: list[Frame]) -> None:
        """All frames that one read completed, in order."""

    def drained(self) -> None:
        """The system has taken all written bytes."""

    def refused(self, error: Exception) -> None:
        """The bytes are no frame, or one too long. Reading has stopped; the receiver reports the error and closes."""

    def lost(self, error: Exception | None) -> None:
        """The connection is gone: None when this end closed it, or the other end closed it properly."""


class Listener(Protocol):
    """Accepts connections."""

    address: Address  # with the actual port

    @property
    def refused(self) -> int:
        """Connections that were refused, or closed to make room for others."""

    async def close(self) -> None:
        """Accept no more connections; existing ones stay."""


async def connect(address: Address, receiver: Receiver) -> Channel:
    """Connect to a listener. Raises `ConnectionLost` when there is none."""
    if address.scheme == "inproc":
        from milepost.transport import inproc

        return await inproc.connect(address, receiver)
    from milepost.transport import tcp

    return await tcp.connect(address, receiver)


async def listen(
    address: Address, accept: Callable[[], Receiver], backlog: int = 4096, per_address: int = 0
) -> Listener:
    """Accept connections at an address; `accept` makes a receiver for each.

    `per_address`: most connections from one address; 0: half of what the process's file descriptors allow.
    """
    if address.scheme == "inproc":
        from milepost.transport import inproc

        return await inproc.listen(address, accept)
    from milepost.transport import tcp

    return await tcp.listen(address, accept, backlog, per_address)
