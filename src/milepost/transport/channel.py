"""What both ends see of a connection.

A `Receiver` is told, in the event loop's thread: `connected`, then `frames` for everything that arrived at once, and in
the end `lost`, once. A `Channel` is written to. Nothing here is a coroutine: what must wait, waits in its own room.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from milepost.address import Address
from milepost.wire import Frame


@runtime_checkable
class Channel(Protocol):
    """One end of a connection, to write to."""

    peer: str  # who is at the other end, for people
    fast_path: Callable[[int], bool] | None
    """Called first by channels that read into `buffer`: whether these bytes, the start of a frame, were handled."""

    growing: Callable[[int], None] | None
    """Told how many bytes of an unfinished frame are here, whenever some came and finished none."""

    @property
    def buffer(self) -> bytearray:
        """Where bytes between frames are read to."""

    def write(self, *parts: bytes | bytearray | memoryview) -> bool:
        """Send bytes: whole frames, in order. They are handed to the system at once as far as it takes them.

        False when something had to be kept; then `Receiver.drained` is called when nothing is kept any more. Bytes
        written after the channel was lost are dropped.
        """

    @property
    def waiting(self) -> int:
        """Bytes that the system has not taken yet."""

    def set_limit(self, limit: int) -> None:
        """The longest frame that may arrive from now on; `limits.HELLO_BYTES` at first."""

    @property
    def partial(self) -> int:
        """Bytes of a frame that are here while its end is not; 0 between frames."""

    def pause(self) -> None:
        """Read no more until `resume`: what the peer sends stays in its own buffers."""

    def resume(self) -> None: ...

    def close(self) -> None:
        """Send what is kept, then close; `Receiver.lost(None)` follows."""

    def abort(self) -> None:
        """Close now; what is kept is lost. `Receiver.lost(None)` follows."""


class Receiver(Protocol):
    """Gets the frames and the end of a connection."""

    def connected(self, channel: Channel) -> None: ...

    def frames(self, frames: list[Frame]) -> None:
        """All frames that one read completed, in order."""

    def drained(self) -> None:
        """The system has taken everything that was written."""

    def refused(self, error: Exception) -> None:
        """What arrived is no frame, or one too long. No more will be read; the receiver says so and closes."""

    def lost(self, error: Exception | None) -> None:
        """The connection is gone: None when this end closed it or the other one did so in good order."""


class Listener(Protocol):
    """Takes connections."""

    address: Address  # with the port that was really taken

    @property
    def refused(self) -> int:
        """Connections that were not taken, or had to make room for others."""

    async def close(self) -> None:
        """Take no more connections; those that exist stay."""


async def connect(address: Address, receiver: Receiver) -> Channel:
    """Connect to a listener; `ConnectionLost` when nothing listens there."""
    if address.scheme == "inproc":
        from milepost.transport import inproc

        return await inproc.connect(address, receiver)
    from milepost.transport import tcp

    return await tcp.connect(address, receiver)


async def listen(
    address: Address, accept: Callable[[], Receiver], backlog: int = 4096, per_address: int = 0
) -> Listener:
    """Take connections at an address; `accept` makes a receiver for each.

    `per_address`: most connections from one address; 0: half of what the process's file descriptors allow.
    """
    if address.scheme == "inproc":
        from milepost.transport import inproc

        return await inproc.listen(address, accept)
    from milepost.transport import tcp

    return await tcp.listen(address, accept, backlog, per_address)
