"""The bytes of deliveries that a client holds, over all its connections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from milepost.wire import Credit

if TYPE_CHECKING:
    from milepost.client.connection import BrokerConnection


class DeliveryWindow:
    """Bounds the delivered bytes that the application has not taken, including those of lost connections.

    Each connection begins with the unused part of the window, and gets credit for all deliveries that are taken,
    whichever connection brought them. So a client that reconnects often holds no more bytes than one connection may.
    """

    __slots__ = ("_connection", "_taken", "allowed", "held", "size")

    def __init__(self, size: int) -> None:
        self.size = size  # bytes
        self.allowed = size  # bytes; what the broker allows
        self.held = 0  # bytes that were delivered and not yet taken
        self._taken = 0  # bytes that were taken and not yet credited
        self._connection: BrokerConnection | None = None

    def begin(self, connection: BrokerConnection) -> int:
        """Begin a new connection. Returns the bytes in use, for its HELLO."""
        self._connection = connection
        self._taken = 0
        return self.held

    def consumed(self, size: int) -> None:
        """The application has taken a delivery of `size` bytes. Credit is sent in large amounts: it costs a frame."""
        self.held -= size
        self._taken += size
        if 2 * self._taken >= self.allowed:
            self.give_back()

    def give_back(self) -> None:
        """Send credit for the bytes taken, if there is a connection."""
        connection = self._connection
        if self._taken and connection is not None and connection.alive:
            connection.say(Credit(self._taken))
            self._taken = 0


class DeliveryCredit:
    """The bytes of a delivery, credited to the broker when all its subscriptions have taken it."""

    __slots__ = ("_holders", "_size", "_window")

    def __init__(self, window: DeliveryWindow, size: int, holders: int) -> None:
        self._window = window
        self._size = size
        self._holders = holders

    def release(self) -> None:
        """Called when a subscription has taken the delivery."""
        self._holders -= 1
        if not self._holders:
            self._window.consumed(self._size)
