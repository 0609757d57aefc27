"""Clients that use queues. When the lease of a disconnected client ends, its open transactions are undone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from milepost.broker.core.effects import Effect
from milepost.broker.core.sessions.connection import Connection
from milepost.queues.leases import Leases
from milepost.queues.open_transaction import HeldEnqueue, KeptReply, QueueClient

if TYPE_CHECKING:
    from milepost.broker.core.queues.transactions import QueueTransactions

# Replies kept of a client's finished transactions: after a reconnect, it asks again for those that were under way.
# The store knows the outcome of older ones.
REPLIES_KEPT: Final = 1_024
REPLY_BYTES: Final = 1 << 20

AWAY: Final = "its client was away for too long; run it again"


@dataclass(slots=True, eq=False, kw_only=True)
class HeldFrame(HeldEnqueue):
    """An ENQUEUE frame that was received and is not stored yet."""

    connection: Connection  # the connection whose credit it took
    size: int  # bytes of the frame
    looked: bool = False  # the types were read from the store again for it


class ConnectedClient(QueueClient):
    """A client object, across its connections to this broker."""

    __slots__ = ("connection", "gone", "held_bytes", "kept", "replies", "reply_bytes", "until")

    def __init__(self, instance: bytes) -> None:
        super().__init__(instance)
        self.connection: Connection | None = None  # None: it is disconnected, and may reconnect
        self.replies: dict[int, KeptReply] = {}  # the last replies of finished transactions
        self.reply_bytes = 0
        self.held_bytes = 0
        self.kept = 0  # bytes of messages in replies of its transactions
        self.gone = False  # its bytes are no longer counted
        self.until: float | None = None  # end of its lease; None: it is connected, or the next tick sets it

    def keep(self, number: int, reply: KeptReply) -> None:
        """Remember the last reply of a finished transaction."""
        self.transactions.pop(number, None)
        self.replies[number] = reply
        self.reply_bytes += reply.size
        while len(self.replies) > 1 and (len(self.replies) > REPLIES_KEPT or self.reply_bytes > REPLY_BYTES):
            self.reply_bytes -= self.replies.pop(next(iter(self.replies))).size


class ClientLeases(Leases):
    """The clients that have used queues, and their leases."""

    def __init__(self, queues: QueueTransactions, lease_s: float) -> None:
        super().__init__(queues, lease_s)
        self._queues = queues
        self.clients: Final[dict[bytes, ConnectedClient]] = {}

    def client(self, connection: Connection) -> ConnectedClient:
        """The client of a connection, with the transactions of its earlier connections."""
        client = connection.owner
        if client is None:
            client = self.clients.get(connection.instance) or ConnectedClient(connection.instance)
            self.clients[connection.instance] = connection.owner = client
            client.connection, client.until, client.came = connection, None, True
        return client

    def lost(self, connection: Connection) -> list[Effect]:
        """Called when a connection is lost; its client may reconnect within the lease."""
        client, connection.owner = connection.owner, None
        if client is None or client.connection is not connection:
            return []
        client.connection, client.held_bytes = None, 0
        return self.drop(client)

    def left(self, connection: Connection) -> list[Effect]:
        """Called when a client says goodbye: its uncommitted transactions are undone at once."""
        client = connection.owner
        if client is None or client.connection is not connection:
            return []
        return self.lost(connection) + self._forget(client)

    def _forget(self, client: ConnectedClient) -> list[Effect]:
        del self.clients[client.instance]
        self._queues.memory.forget(client)
        return self.undo_all(client, AWAY)

    def tick(self, now: float, sweeps: bool = True) -> list[Effect]:
        """Also forget clients whose lease has ended; the store is swept only once there are message types."""
        effects: list[Effect] = []
        for client in list(self.clients.values()):
            if client.connection is None:
                if client.until is None:
                    client.until = now + self._lease_s
                elif client.until <= now:
                    effects += self._forget(client)
        return effects + super().tick(now, sweeps and bool(self._queues.types))
