"""Moves frames between two ends, by the scheme of the address: `milepost://host:port` or `inproc://name`.

::

    channel     what both ends see of a connection: `Channel` to write to, `Receiver` with its callbacks
    tcp         real sockets, by uvloop where it is installed
    inproc      two ends in one event loop, for tests; the same bytes, the same limits, no sockets

One conformance suite runs over all of them.
"""

from milepost.address import DEFAULT_PORT, Address, parse_address
from milepost.transport.channel import Channel, Listener, Receiver, connect, listen

__all__ = ["Address", "DEFAULT_PORT", "Channel", "Listener", "Receiver", "connect", "listen", "parse_address"]
