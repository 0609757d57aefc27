"""The only way out: every message that is sent to a client passes `Delivery.send`.

::

    distribute   rows of a live topic, or rows that were just stored: to plain subscriptions
    _serve       rows that waited in a connection's backlog
    (elsewhere)  rows of a log for a durable subscription, messages of a queue, the fast path of one row

Work on every outgoing message belongs in `send`: its receivers, the credit it takes, counters. It has a place for the
routing and subscriber histories of tracking.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from milepost.batch import Batch
from milepost.broker.core.effects import Deliver, Effect, Say
from milepost.broker.core.routing.shares import shares
from milepost.broker.core.sessions.connection import Connection
from milepost.broker.core.topics.backlog import LARGE_BATCH, Backlog, Place, Waiting, too_long
from milepost.broker.core.topics.slow_consumers import overfull, tell_dropped
from milepost.broker.core.topics.topic import Topic
from milepost.errors import MilepostError, ProtocolError
from milepost.wire import Subscribe, Tags, deliver_parts
from milepost.wire.control import failure
from milepost.wire.payload import Buffer

if TYPE_CHECKING:
    from milepost.broker.core.core import Core
    from milepost.match import Matches
    from milepost.operations.steps import Group

JOINED_BYTES: Final = 16_384  # a smaller frame is written in one part


class Delivery:
    """Sends rows to connections, now or when they have room."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.turning: dict[int, Connection] = {}  # without cut-through: connections to serve at the next turn

    def send(
        self,
        connections: list[Connection],
        parts: tuple[Buffer, ...],
        size: int,
        rows: int,
        topic: Topic | None,
        ids: Batch | Group | tuple[int, int],
        *,
        answer: bool = False,
    ) -> Deliver:
        """The effect that sends one frame to some connections; counts it, and spends its credit.

        The frame has `rows` messages of a topic, or of a queue (None). `ids` has their message IDs: a batch, messages
        of a queue, or publisher and stamp of one message that was put at this broker. An `answer` takes no credit,
        since its client asked for it; peeked messages and repeated replies are answers too.
        """
        for connection in connections:
            connection.spend(0 if answer else size, size, rows)
        if topic is not None:
            count = len(connections)
            topic.rows_out += rows * count
            topic.bytes_out += size * count
        # Routing and subscriber histories: record `ids` for each of `connections` here.
        return Deliver(parts, connections, answer)

    def take_back(self, connection: Connection, size: int, rows: int, topic: Topic) -> None:
        """A frame that was counted is not written after all: its delivery could not be stored first."""
        connection.unspend(size, rows)
        topic.rows_out -= rows
        topic.bytes_out -= size
        # Histories: remove what was recorded for it here.

    # Rows as they come

    def distribute(
        self, topic: Topic, batch: Batch, matches: Matches | None, effects: list[Effect], place: Place | None = None
    ) -> list[Backlog]:
        """Send rows to the plain subscriptions of their topic; returns the backlogs that are full.

        `matches` is None when no subscription has a predicate. `place` is where stored rows are in the log.
        """
        full: list[Backlog] = []
        if matches is None:
            for tags, members in topic.audience():
                self._deliver(topic, batch, tags, members, effects, full, place)
            return full
        for key, error in matches.failed:
            self._end(topic, key, error, effects)
        for share in shares(topic, batch, matches, self._core.connections):
            here = place if place is None or share.rows is None else place._replace(rows=share.rows)
            self._deliver(topic, share.batch, share.tags, share.connections, effects, full, here)
        return full

    def _end(self, topic: Topic, key: int, error: MilepostError, effects: list[Effect]) -> None:
        """End a plain subscription whose predicate could not be evaluated: else its client would miss rows silently."""
        self._core.errors[error.code] += 1
        subscription = topic.subscriptions.get(key)
        if subscription is None:  # it ended while the batch was examined
            return
        connection = subscription.connection
        if connection.subscriptions is not None:
            connection.subscriptions.pop(subscription.number, None)
        self._core.catalogue.drop(subscription)
        effects.append(Say(connection, failure(error, subscription=subscription.number)))

    def _deliver(
        self,
        topic: Topic,
        batch: Batch,
        tags: Any,
        connections: list[Connection],
        effects: list[Effect],
        full: list[Backlog],
        place: Place | None = None,
    ) -> None:
        core = self._core
        if place is not None and core.placeless and not all(connection.places for connection in connections):
            placeless = [connection for connection in connections if not connection.places]
            self._deliver(topic, batch, tags, placeless, effects, full)
            connections = [connection for connection in connections if connection.places]
        if (len(batch.data) > LARGE_BATCH or isinstance(tags, Tags)) and too_long(batch, tags):
            for half in Waiting(topic, batch, tags, 0, place=place).halves():
                self._deliver(topic, half.batch, half.tags, connections, effects, full, half.place)
            return
        parts: tuple[Buffer, ...] = deliver_parts(topic.number, tags, batch.data, place and place.told)
        size, rows = len(parts[0]) + len(parts[1]), len(batch)
        if size < JOINED_BYTES:
            parts = (b"".join(parts),)  # once here, not for each connection
        if core.settings.cut_through:
            ready = [connection for connection in connections if connection.ready]
            if ready:
                effects.append(self.send(ready, parts, size, rows, topic, batch))
            if len(ready) == len(connections):
                return
            sent = {connection.number for connection in ready}
            connections = [connection for connection in connections if connection.number not in sent]
        memory, held, most = core.memory, -(-size // len(connections)), core.memory.queue_bytes()
        for connection in connections:
            if not connection.open:
                continue  # just closed as a slow consumer
            if connection.ready:
                self.turning[connection.number] = connection
            backlog = connection.wait(Waiting(topic, batch, tags, size, held, place))
            memory.queued(connection)
            # A single large delivery does not make a connection slow.
            if backlog.bytes > most and len(backlog.waiting) > 1:
                overfull(core, connection, topic, backlog, most, effects, full)

    # Rows that waited

    def blocked(self, connection: Connection, kept: int = 0, written: int = 0) -> None:
        """Called when the channel keeps bytes that its socket did not take; `drained` follows."""
        connection.blocked = True
        connection.ready = False
        if kept < connection.unsent + written:
            connection.moved = True
        self._core.memory.unsent(connection, kept)

    def drained(self, connection: Connection) -> list[Effect]:
        """Called when the channel has written everything."""
        connection.blocked = False
        connection.moved = True
        self._core.memory.unsent(connection, 0)
        return self._serve(connection)

    def served(self, connection: Connection) -> list[Effect]:
        """Called when the channel took a whole frame: send the next one of the backlog."""
        return self._serve(connection) if connection.backlog is not None else []

    def credited(self, connection: Connection, size: int) -> list[Effect]:
        """Handle a CREDIT: the client has taken `size` bytes of deliveries, and may be sent as many more."""
        if size < 0 or connection.credit + size > connection.window:
            raise ProtocolError(f"{size} bytes of credit are more than were delivered")
        connection.credit += size
        return self._serve(connection)

    def turn(self) -> list[Effect]:
        """Without cut-through: serve the connections that got rows since the last turn."""
        served, self.turning = self.turning, {}
        effects: list[Effect] = []
        for connection in served.values():
            effects += self._serve(connection)
        return effects

    def lost(self, connection: Connection, effects: list[Effect]) -> None:
        """Drop the backlog of a connection that is gone."""
        self.turning.pop(connection.number, None)
        if connection.backlog is not None:
            self._core.admission.release(connection.backlog, effects)
            connection.backlog = None

    def _serve(self, connection: Connection) -> list[Effect]:
        """Send one joined frame of the backlog, if there is credit; `served` or `drained` sends the next one."""
        core = self._core
        effects: list[Effect] = []
        backlog = connection.backlog
        if connection.open and not connection.blocked:
            tell_dropped(connection, effects)
        if connection.open and backlog is not None:
            if backlog.waiting and not connection.blocked and connection.credit > 0:
                self._send_next(connection, backlog, effects)
                core.memory.queued(connection)
            if backlog.bytes <= core.settings.queue_bytes // 2:
                core.admission.release(backlog, effects)
            if not backlog.waiting:
                connection.backlog = None
        connection.settle()
        if connection.ready and (connection.members or connection.catchups):
            mine = [found[0] for found in (connection.members or {}).values() if not isinstance(found, Subscribe)]
            for subscription in [*(connection.catchups or {}).values(), *mine]:
                if connection.ready:
                    core.durable.subscriptions.pump(subscription, effects)
        return effects

    def _send_next(self, connection: Connection, backlog: Backlog, effects: list[Effect]) -> None:
        item = backlog.joined(self._core.settings.join_bytes)
        while too_long(item.batch, item.tags):
            item, rest = item.halves()
            backlog.put_back(rest)
        parts = deliver_parts(item.topic.number, item.tags, item.batch.data, item.place and item.place.told)
        size = len(parts[0]) + len(parts[1])
        effects.append(self.send([connection], parts, size, len(item.batch), item.topic, item.batch))
