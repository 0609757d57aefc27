"""The fast path of pings: an idle client pings twice a heartbeat, always with the same bytes.

Thousands of idle clients cost a broker little else. Their pings find no code or data in the processor's caches, so the
cost of one is the amount of Python that it runs. Here a ping is compared with the client's last one, and answered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from milepost.wire import Ping, Pong, encode_control

if TYPE_CHECKING:
    from milepost.broker.peer import Peer
    from milepost.broker.server import Broker


class PingPath:
    """Answers the pings of one client that have the same number as one that took the normal path."""

    __slots__ = ("_broker", "_frame", "_number", "_peer", "_shared")

    def __init__(self, broker: Broker, peer: Peer, ping: Ping, shared: memoryview) -> None:
        self._broker = broker
        self._peer = peer
        self._number = ping.number
        self._frame = encode_control(ping)
        self._shared = shared

    def __call__(self, count: int) -> bool:
        """Answer the first `count` bytes of the buffer, if they are such a ping and the connection is not held up."""
        peer, broker = self._peer, self._broker
        connection = peer.connection
        if (
            self._shared[:count] != self._frame
            or connection is None
            or not connection.open
            or connection.paused
            or connection.blocked
            or peer.jobs
        ):
            return False
        broker.catch_up()
        clock = broker.clock
        connection.heard = clock.monotonic()
        pong, channel = encode_control(Pong(self._number, clock.time_us())), connection.channel
        if not channel.write(pong):
            broker.core.delivery.blocked(connection, channel.waiting, len(pong))
        return True
