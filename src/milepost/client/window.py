"""The bytes of deliveries that a client holds, over all its connections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from milepost.wire import Credit

if TYPE_CHECKING:
    from milepost.client.connection import BrokerConnection


class DeliveryWindow:
    """Bounds what brokers may send before it is taken. Deliveries of a lost connection that wait here still count.

    Each connection begins with what is left of the window, and is given credit for whatever is taken, no matter on
    which connection it came. So many reconnections hold no more bytes than one connection does.
    """

    __slots__ = ("_connection", "_taken", "allowed", "held", "size")

    def __init__(self, size: int) -> None:
        self.size = size  # bytes
        self.allowed = size  # bytes; what the broker allows
        self.held = 0  # bytes that were delivered and not yet taken
        self._taken = 0  # bytes that were taken and are not yet given back
        self._connection: BrokerConnection | None = None

    def begin(self, connection: BrokerConnection) -> int:
        """A new connection is about to introduce itself: the bytes that are in use."""
        self._connection = connection
        self._taken = 0
        return self.held

    def consumed(self, size: int) -> None:
        """The application has taken a delivery of `size` bytes. Credit goes back in large pieces: it costs a frame."""
        self.held -= size
        self._taken += size
        if 2 * self._taken >= self.allowed:
            self.give_back()

    def give_back(self) -> None:
        """Give credit for what was taken, if there is a connection to give it to."""
        connection = self._connection
        if self._taken and connection is not None and connection.alive:
            connection.say(Credit(self._taken))
            self._taken = 0


class DeliveryCredit:
    """The bytes of a delivery: they go back to the broker as credit when all its subscriptions have taken it."""

    __slots__ = ("_holders", "_size", "_window")

    def __init__(self, window: DeliveryWindow, size: int, holders: int) -> None:
        self._window = window
        self._size = size
        self._holders = holders

    def release(self) -> None:
        """A subscription has taken it."""
        self._holders -= 1
        if not self._holders:
            self._window.consumed(self._size)
