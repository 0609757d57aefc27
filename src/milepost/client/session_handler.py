"""The client as its session sees it, kept apart so that none of this is among the client's verbs."""

from __future__ import annotations

from typing import Final

from milepost.client.connection import BrokerConnection
from milepost.client.publisher import Publisher
from milepost.client.queue_session import QueueSession
from milepost.client.session import ClientSession
from milepost.client.subscriptions import Subscriptions
from milepost.client.topic import KnownTopic
from milepost.errors import Closed, MilepostError, StateLost
from milepost.wire import Welcome


class SessionHandler:
    """Passes on what a session reports, and decides whether a broker still has the state that the client knows.

    Its methods are called in the event loop's thread.
    """

    def __init__(self, subscriptions: Subscriptions, known_broker_id: str | None) -> None:
        self._subscriptions = subscriptions
        self._known = known_broker_id
        self.session: ClientSession  # set by the client, like the publisher: both need this object first
        self.publisher: Publisher
        self.queue_session: QueueSession
        self.broker_id: str | None = None  # until it is connected
        self.used = False  # a durable subscription was made, or a transaction
        self.delivered: Final = [0, 0, 0]  # rows, batches, bytes of connections that are gone

    def welcomed(self, welcome: Welcome) -> None:
        """Called after a handshake, before the connection is in use. Raising refuses the broker."""
        known = self._known
        if known is None and self.broker_id is not None and (self.used or self.session.remembered):
            known = self.broker_id
        if known is not None and known != welcome.store_id:
            raise StateLost(
                f"the broker {welcome.broker!r} came back with other stored state: its ID is "
                f"{welcome.store_id or 'empty'!r}, and was {known!r}. Messages that it had acknowledged may be gone. "
                "Find out what was lost; a new client, without known_broker_id, goes on from here"
            )
        self.broker_id = welcome.store_id
        self.publisher.welcomed(welcome)
        self.queue_session.welcomed(welcome)

    def use(self) -> None:
        """The broker's stored state matters to this client from now on."""
        self.used = True

    def stored(self, put: int) -> None:
        """Every durable put up to this number is stored."""
        self.publisher.durable_puts.stored(put)

    def room(self) -> None:
        self.publisher.room()

    def announced(self, topic: KnownTopic) -> None:
        """Called with a new topic, or a new version of its schema."""
        self.publisher.announced(topic)

    def put_refused(self, error: MilepostError, topic: str, put: int) -> None:
        """The broker refused the batch with this number on the connection."""
        self.publisher.refuse(error, topic, put)

    def subscription_ended(self, number: int, error: MilepostError | None) -> None:
        """The broker ended a subscription with an error; None: all rows before its stop were delivered."""
        self._subscriptions.ended(number, error)

    def lost(self, connection: BrokerConnection, error: MilepostError, was_used: bool) -> MilepostError:
        """A connection is gone. Returns the error, with its consequences for this client."""
        for place, count in enumerate((connection.rows, connection.batches, connection.bytes)):
            self.delivered[place] += count
        self._subscriptions.detached(connection, error)
        return self.publisher.lost(error, was_used)

    def failed(self, error: MilepostError) -> None:
        """The session has ended: it was closed, or cannot reconnect. Called once.

        Messages that are here can still be taken, unless the client was closed on purpose.
        """
        self.publisher.stop(error)
        closed = isinstance(error, Closed)
        for subscription in list(self._subscriptions.by_number.values()):
            subscription.end(None if closed else error, keep=not closed)

    async def restore(self, connection: BrokerConnection) -> None:
        """Restore topics and subscriptions on a new connection, which has none; it is in use once this returns."""
        await self.publisher.restore(connection)
        await self._subscriptions.restore(connection, self.publisher)
