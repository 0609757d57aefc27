"""One end of a connection, as the broker's shell holds it: frames in, to the right place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from milepost.errors import BrokerError, MilepostError, ProtocolError
from milepost.transport import Link
from milepost.wire import Frame, Kind, decode_control, read_put

if TYPE_CHECKING:
    from milepost.broker.core import Connection
    from milepost.broker.server import Broker

_PUT: Final = int(Kind.PUT)
_CREDIT: Final = int(Kind.CREDIT)


class Peer:
    """A `Receiver` for one connection."""

    __slots__ = ("_broker", "connection", "jobs")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.connection: Connection | None = None
        self.jobs = 0  # things that this connection's worker has not finished

    def connected(self, link: Link) -> None:
        connection = self._broker.core.connected(link.peer, self._broker.clock.monotonic())
        connection.link = link
        self.connection = connection

    def frames(self, frames: list[Frame]) -> None:
        connection = self.connection
        broker = self._broker
        if connection is None:
            return
        connection.heard = broker.clock.monotonic()
        try:
            for frame in frames:
                if not connection.open:
                    return
                if frame.kind == _PUT:
                    if not connection.greeted:
                        raise ProtocolError("a connection begins with a HELLO, not with PUT")
                    number, data = read_put(frame.body)
                    broker.put(self, connection, number, data, len(frame.body) + 8)
                else:
                    message = decode_control(frame.kind, frame.body)
                    if frame.kind == _CREDIT:  # it answers what was delivered, and need not wait for puts
                        broker.said(connection, message)
                    else:
                        broker.asked(self, connection, message)
        except MilepostError as error:
            broker.refuse(connection, error)

    def drained(self) -> None:
        if self.connection is not None:
            self._broker.run(self._broker.core.drained(self.connection))

    def refused(self, error: Exception) -> None:
        if self.connection is not None:
            self._broker.refuse(self.connection, error if isinstance(error, MilepostError) else BrokerError(str(error)))

    def lost(self, error: Exception | None) -> None:
        if self.connection is not None:
            connection, self.connection = self.connection, None
            self._broker.gone(connection)
