"""Which connections a listener accepts: no address may use all of them, and some file descriptors stay reserved.

A process without free descriptors cannot even open its own files. So connections leave a reserve, for the store, the
logs and other files of the process. Descriptors are numbered from the lowest free one, so the number of a new one
tells how many are in use, in the whole process.

When there is no room, a connection without a handshake is closed for a new one: so clients that only connect, again
and again, keep no other client out.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import resource
from collections import Counter
from typing import Final

from milepost.errors import Overloaded
from milepost.transport.channel import Channel

RESERVED: Final = 64  # descriptors that connections leave to the rest of the process: stores open some twenty
RESERVED_PART: Final = 4  # of few descriptors, a quarter
LOGGED_S: Final = 10.0  # seconds between two log lines about refused connections

log = logging.getLogger("milepost.transport")


class ConnectionAdmission:
    """The connections of one listener."""

    def __init__(self, per_address: int = 0) -> None:
        """`per_address`: most connections of one address; 0: half of what the descriptors allow."""
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if limit == resource.RLIM_INFINITY:
            limit = 1 << 30
        self._most = limit - min(RESERVED, limit // RESERVED_PART)
        self._per_address = per_address or max(1, self._most // 2)
        self._addresses: Counter[str] = Counter()  # connections by address
        self._strangers: dict[Channel, str] = {}  # before the handshake, oldest first, with their addresses
        self._known: dict[Channel, str] = {}
        self._unlogged = 0
        self._why = ""
        self._flushing: asyncio.TimerHandle | None = None
        self.refused = 0

    def require(self, descriptor: int, host: str) -> str:
        """The address that a new connection counts for. Raises `Overloaded` when it cannot be accepted."""
        address = _address(host)
        why = ""
        if self._addresses.get(address, 0) >= self._per_address and not self._make_room(address):
            why = f"{address} has {self._per_address} connections, the most of one address (connections_per_address)"
        elif descriptor >= self._most and not self._make_room(None):
            why = f"only the reserve of file descriptors is left, those from {self._most} on (ulimit -n)"
        if not why:
            return address
        self.tell(why)
        raise Overloaded(f"this broker takes no more connections now: {why}; try again later")

    def _make_room(self, address: str | None) -> bool:
        """Close the oldest connection without a handshake, of an address or of all."""
        for stranger, where in self._strangers.items():
            if address is None or where == address:
                self.left(stranger)
                stranger.abort()
                self.tell("connections that had not shaken hands made room for others")
                return True
        return False

    def came(self, stranger: Channel, address: str) -> None:
        self._addresses[address] += 1
        self._strangers[stranger] = address

    def greeted(self, stranger: Channel) -> None:
        """Called after the handshake."""
        address = self._strangers.pop(stranger, None)
        if address is not None:
            self._known[stranger] = address

    def left(self, stranger: Channel) -> None:
        """Called when a connection is gone; repeated calls have no effect."""
        address = self._strangers.pop(stranger, None) or self._known.pop(stranger, None)
        if address is not None:
            self._addresses[address] -= 1
            if not self._addresses[address]:
                del self._addresses[address]

    # The log

    def tell(self, why: str) -> None:
        """Log a refused or closed connection: the first at once, those that follow soon in one line."""
        self.refused += 1
        self._unlogged += 1
        self._why = why
        if self._flushing is None:
            self._write()

    def _write(self) -> None:
        self._flushing = None
        if self._unlogged:
            log.warning("%d connections were not taken or closed: %s", self._unlogged, self._why)
            self._unlogged = 0
            self._flushing = asyncio.get_running_loop().call_later(LOGGED_S, self._write)

    def close(self) -> None:
        """Log the refusals that are not logged yet."""
        if self._flushing is not None:
            self._flushing.cancel()
            self._write()
            if self._flushing is not None:
                self._flushing.cancel()


def _address(host: str) -> str:
    """The unit that counts as one address: for IPv6, the network that one machine usually has to itself."""
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if found.version == 4:
        return host
    assert isinstance(found, ipaddress.IPv6Address)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, 64), strict=False))
