"""The events, each a method that returns effects.

Who calls: the shell, from one thread. `now` is its monotonic clock in seconds, `time_us` its wall clock. An error of
one client is said to that client and counted; no event raises.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from milepost.batch import Batch
from milepost.broker.core.attempts import Attempts
from milepost.broker.core.effects import Close, Deliver, Effect, Mend, Say
from milepost.broker.core.log.catchups import CatchUps
from milepost.broker.core.log.retention_holds import move_hold
from milepost.broker.core.log.staging import Staging
from milepost.broker.core.log.topics import Checked, DurableTopics, Refused, Row
from milepost.broker.core.memory import MemoryAccount
from milepost.broker.core.queues.administration import administer
from milepost.broker.core.queues.transactions import QueueTransactions
from milepost.broker.core.routing.shares import shares
from milepost.broker.core.sessions.connection import Connection
from milepost.broker.core.sessions.liveness import Bytes, Liveness
from milepost.broker.core.sessions.publishers import Publishers
from milepost.broker.core.statistics import described, statistics
from milepost.broker.core.topics.backlog import LARGE_BATCH, Backlog, CreditHold, Place, Waiting, too_long
from milepost.broker.core.topics.catalogue import Catalogue
from milepost.broker.core.topics.pattern import require_pattern
from milepost.broker.core.topics.slow_consumers import overfull, tell_dropped
from milepost.broker.core.topics.topic import Topic
from milepost.config import Settings
from milepost.errors import (
    BrokerError,
    MilepostError,
    NotDurable,
    ProtocolError,
    TimedOut,
    UnknownTopic,
)
from milepost.queues.requests import ADMINISTRATION
from milepost.storage.operations import Entry
from milepost.wire import (
    Ack,
    Bye,
    Control,
    Credit,
    Declare,
    Delete,
    Dequeue,
    Enqueue,
    Finish,
    Hello,
    ListTopics,
    Look,
    Ping,
    Pong,
    Positions,
    Publish,
    PublishedEpoch,
    Reply,
    Resume,
    StatusRequest,
    Subscribe,
    Tags,
    Trim,
    Unstage,
    Unsubscribe,
    deliver_parts,
)
from milepost.wire import RetentionHold as HoldRequest
from milepost.wire.control import failure
from milepost.wire.payload import Buffer

if TYPE_CHECKING:
    from milepost.match import Matches

JOINED_BYTES: Final = 16_384  # of a frame: a smaller one is written in one part
REQUESTS: Final = (
    Declare, Delete, Subscribe, Unsubscribe, Positions, ListTopics, StatusRequest, Ack, Trim, Look, HoldRequest,
    Publish, Unstage,
    PublishedEpoch, Dequeue, Finish, *ADMINISTRATION,
)  # fmt: skip


_UNSENT: Final[Bytes] = attrgetter("unsent")


class Source(NamedTuple):
    """Where rows of a batch came from: the frame's bytes go back to the publisher as credit."""

    connection: Connection
    size: int  # bytes
    rows: int


class Core:
    """A broker without its sockets."""

    def __init__(self, settings: Settings, broker_id: int, draw: Callable[[], int], version: str = "") -> None:
        """`draw` gives random 32-bit numbers, for publishers."""
        self.settings = settings
        self.broker_id = broker_id
        self.version = version
        self.connections: dict[int, Connection] = {}
        self.catalogue = Catalogue(self.connections)
        self.attempts = Attempts(self.catalogue.predicates)
        self.topics = self.catalogue.topics
        self.numbered = self.catalogue.numbered
        self.errors: Counter[str] = Counter()
        self.totals: Counter[str] = Counter()
        self.about: Callable[[], dict[str, Any]] = dict  # what the shell adds to the figures
        self.forwards_changed: Callable[[], None] = lambda: None  # the shell hears that a queue goes elsewhere now
        self.memory = MemoryAccount(self, settings.memory_bytes)
        self.liveness = Liveness(self)
        self.publishers = Publishers(self, draw)
        self._numbers = 0
        self._free: list[int] = []  # numbers of connections that are gone: those in use stay dense, for counting
        self.greeting: dict[int, Connection] = {}  # connected, and no HELLO yet
        self.durable = DurableTopics(self)
        self.catchups = CatchUps(self)
        self.placeless = 0  # connections whose clients do not read the places of rows
        self.moves = 0  # how often the log of some durable topic has grown
        self.staging = Staging(self)
        self.queues = QueueTransactions(self)
        self.store_id = ""  # changes only when stored state was lost; empty: nothing is stored
        self._turn: dict[int, Connection] = {}  # without cut-through: connections to be served at the next turn

    # Connections

    def connected(self, peer: str, now: float) -> Connection:
        """Somebody connected. They have `handshake_s` to say HELLO."""
        if self._free:
            number = self._free.pop()
        else:
            self._numbers += 1
            number = self._numbers
        connection = Connection(number, peer, now)
        self.connections[connection.number] = connection
        self.greeting[connection.number] = connection
        self.totals["connections_accepted"] += 1
        return connection

    def lost(self, connection: Connection) -> list[Effect]:
        """The connection is gone, whoever ended it."""
        if not connection.open:
            return []
        connection.open = connection.ready = False
        self.greeting.pop(connection.number, None)
        self._turn.pop(connection.number, None)
        self.placeless -= connection.greeted and not connection.places
        self.catchups.left(connection)
        effects = self.catalogue.forget(connection, self._forgotten)
        effects += self.durable.subscriptions.left(connection) if connection.members or connection.atomic else []
        effects += self.queues.leases.lost(connection) if connection.owner is not None else []
        if connection.outbox is not None:
            self.release(connection.outbox, effects)
            connection.outbox = None
        effects += self.memory.left(connection)
        if connection.publisher.enrolled:
            effects.append(Mend(connection))  # nothing more of it will come: no failure of it need be remembered
        if connection.publisher.number:
            self.publishers.leave(connection)
        return effects

    def _forgotten(self, connection: Connection) -> None:
        del self.connections[connection.number]
        self._free.append(connection.number)

    def refused(self, connection: Connection, error: MilepostError) -> list[Effect]:
        """What a client sent cannot be understood, or it may not stay: say why, and close."""
        self.errors[error.code] += 1
        if not connection.open:
            return []
        return [Say(connection, failure(error, fatal=True)), Close(connection), *self.lost(connection)]

    def said(self, connection: Connection, message: Control | Enqueue, now: float, time_us: int) -> list[Effect]:
        """A control frame came in. Those that ask something come in order with the puts before them."""
        if not connection.open:
            return []
        connection.heard = now
        try:
            if not connection.greeted:
                if not isinstance(message, Hello):
                    raise ProtocolError(f"a connection begins with a HELLO, not with {type(message).__name__.upper()}")
                if connection.publisher.number:
                    raise ProtocolError("a second HELLO")
                return self.publishers.hello(connection, message, time_us)
            match message:
                case Credit():
                    return self._credit(connection, message.bytes)
                case Ping():
                    return [Say(connection, Pong(message.number, time_us))]
                case Pong():
                    return []
                case Bye():
                    return [*self.queues.leases.left(connection), Close(connection), *self.lost(connection)]
                case Resume():
                    return [Mend(connection)]
                case Enqueue():
                    return self.queues.enqueue(connection, message)
                case _ if isinstance(message, REQUESTS):
                    return self._asked(connection, message, time_us)
                case _:
                    raise ProtocolError(f"a client does not send {type(message).__name__.upper()}")
        except MilepostError as error:
            return self.refused(connection, error)

    # Requests

    def _asked(self, connection: Connection, request: Any, time_us: int, *, again: bool = False) -> list[Effect]:
        return self.attempts.run(partial(self._answer, connection, request, time_us, again), connection)

    def _answer(self, connection: Connection, request: Any, time_us: int, again: bool) -> list[Effect]:
        effects: list[Effect] = []
        if isinstance(request, Subscribe) and request.resume is not None and self.durable.shared and not again:
            # How far the logs of other brokers are is known a little late: what they had must not be missed.
            return self.durable.learn(partial(self._learned, connection, request, time_us))
        try:
            later = self._asked_store(connection, request)
            if later is not None:
                return later  # and the reply comes with what the store answers
            match request:
                case Declare():
                    value: Any = self.catalogue.declare(connection, request, effects)
                case Delete():
                    value = self.catalogue.delete(request, effects)
                case Subscribe():
                    self.catchups.require(request)
                    then = partial(self.catchups.subscribed, connection, request)
                    return self.catalogue.subscribe(connection, request, then)
                case Unsubscribe():
                    self.catchups.left(connection, request.subscription)
                    return self.catalogue.unsubscribe(connection, request)
                case Positions():
                    value = self.catchups.positions(connection)
                case StatusRequest():
                    return self.durable.counts.report(connection, request.request, time_us)
                case _:
                    require_pattern(request.pattern)
                    value = [described(topic) for topic in self.catalogue.covered(request.pattern)]
            reply = Reply(request=request.request, value=value)
        except MilepostError as error:
            if isinstance(error, UnknownTopic) and self.durable.shared and not again:
                # Another broker may have made it a moment ago, and its client come here since.
                return self.durable.learn(partial(self._learned, connection, request, time_us))
            self.errors[error.code] += 1
            return [*effects, Say(connection, failure(error, request=request.request))]
        return [*effects, Say(connection, reply)]

    def _learned(self, connection: Connection, request: Any, time_us: int, outcome: Any) -> list[Effect]:
        if isinstance(outcome, MilepostError) and isinstance(request, Subscribe) and request.resume is not None:
            return self.durable.failed(connection, request.request, outcome)
        return self._asked(connection, request, time_us, again=True) if connection.open else []

    def _asked_store(self, connection: Connection, request: Any) -> list[Effect] | None:
        """Requests about what is durable; None for the others."""
        durable = self.durable
        match request:
            case Declare():
                topic = self.topics.get(request.name)
                if request.durable or (topic is not None and topic.stored and request.schema is not None):
                    return durable.declare(connection, request)
                if request.retain is not None:
                    raise NotDurable(f"topic {request.name[:80]!r} is live, and keeps nothing; declare it durable")
            case Delete():
                topic = self.topics.get(request.name)
                if topic is not None and topic.stored:
                    return durable.delete(connection, request, topic)
            case Subscribe() if request.durable or request.name or request.stop is not None:
                return durable.subscriptions.subscribe(connection, request)
            case Subscribe() if request.subscription in (connection.members or {}):
                raise BrokerError(f"subscription {request.subscription} is there already; unsubscribe first")
            case Unsubscribe() if request.name or request.subscription in (connection.members or {}):
                return durable.subscriptions.unsubscribe(connection, request)
            case Ack():
                return durable.subscriptions.acknowledge(connection, request)
            case Trim():
                return durable.trim(connection, request)
            case Look():
                return durable.look(connection, request)
            case HoldRequest():
                return move_hold(durable, connection, request)
            case Publish() | Unstage() | PublishedEpoch():
                return self.staging.asked(connection, request)
            case Dequeue(peek=False) | Finish():
                return self.queues.asked(connection, request, connection.heard)
            case _ if isinstance(request, (Dequeue, *ADMINISTRATION)):
                return administer(self, connection, request)
        return None

    def append(self, checked: Checked) -> list[Effect]:
        """A batch for a durable topic was checked: store it."""
        return self.durable.append(checked)

    def stored(self, results: list[tuple[Callable[[Any], list[Effect]], Any]], entries: list[Entry]) -> list[Effect]:
        """The store has committed some operations, or failed: continuations, each with what came of it."""
        return self.durable.stored(results, entries)

    # Batches

    def put(self, connection: Connection, number: int, size: int, *, staged: bool = False) -> Topic | None:
        """A PUT frame came in, or a STAGE: the topic it is for, or None. `ProtocolError` for one without credit.

        Rows are to be checked and matched, and then to `arrived`; without a topic, `misput` has the effects.
        """
        if connection.outstanding >= self.settings.put_window:
            raise ProtocolError(
                f"a put came while {connection.outstanding} bytes of puts were under way; WELCOME allowed "
                f"{self.settings.put_window}, and CREDIT says when there may be more"
            )
        connection.outstanding += size
        self.memory.held += size
        connection.puts += not staged
        connection.bytes_in += size
        topic = self.numbered.get(number)
        if topic is not None:
            topic.examining += 1
        return topic

    def misput(
        self,
        source: Source | Row,
        put: int,
        topic: Topic | None,
        error: MilepostError,
        *,
        more: bool = False,
        examined: bool = False,
    ) -> list[Effect]:
        """A batch cannot be taken: its publisher is told, and gets its credit back. The connection stays.

        `more`: the next batch belongs together with it. `examined`: its topic knows that it is no longer looked at.
        """
        if not examined and (more or source.connection.atomic is not None) and source.connection.open:
            if topic is not None:
                topic.examined()
            assert isinstance(source, Source)
            return self.durable.refuse_atomic(Refused(topic, source, put, error), more)
        self.errors[error.code] += 1
        self.totals["batches_refused"] += 1
        if topic is not None and not examined:
            topic.examined()
        connection = source.connection
        if not connection.open:
            return []
        name = topic.name if topic is not None else ""
        effects: list[Effect] = [Say(connection, failure(error, put=put, topic=name))]
        self._give_back(connection, source.size, effects)
        return effects

    def arrived(self, topic: Topic, batch: Batch, sources: list[Source], matches: Matches | None) -> list[Effect]:
        """Checked and matched rows, of one publisher or joined from several: deliver them."""
        topic.rows_in += len(batch)
        topic.batches_in += len(sources)
        for source in sources:
            topic.examined()
            topic.bytes_in += source.size
            source.connection.rows_in += source.rows
        effects: list[Effect] = []
        full: list[Backlog] = []
        if topic.number in self.numbered:  # it may have been deleted while the batch was being matched
            self._distribute(topic, batch, matches, effects, full)
        self.give_back(sources, full, effects)
        return effects

    def passed(
        self, connection: Connection, topic: Topic, size: int, frame: bytes, members: list[Connection]
    ) -> list[Effect]:
        """What `put` and `arrived` come to for one row that is right, in `size` bytes, for these, who are all ready."""
        connection.puts += 1
        connection.rows_in += 1
        connection.bytes_in += size
        connection.outstanding += size
        self.memory.held += size
        topic.rows_in += 1
        topic.batches_in += 1
        topic.bytes_in += size
        length = len(frame)
        for member in members:
            member.spend(length, 1)
        topic.rows_out += len(members)
        topic.bytes_out += length * len(members)
        effects: list[Effect] = [Deliver((frame,), members)]
        self._give_back(connection, size, effects)
        return effects

    def distribute(self, topic: Topic, entry: Entry, matches: Matches | None, effects: list[Effect]) -> list[Backlog]:
        """Deliver rows that are stored to plain subscribers; the queues that are full."""
        full: list[Backlog] = []
        place = Place(entry.log, entry.first, entry.first + len(entry.batch))
        self._distribute(topic, entry.batch, matches, effects, full, place)
        return full

    def _distribute(
        self,
        topic: Topic,
        batch: Batch,
        matches: Matches | None,
        effects: list[Effect],
        full: list[Backlog],
        place: Place | None = None,
    ) -> None:
        if matches is None:
            for tags, members in topic.audience():
                self._deliver(topic, batch, tags, members, effects, full, place)
            return
        for key, error in matches.failed:
            self._end(topic, key, error, effects)
        for share in shares(topic, batch, matches, self.connections):
            here = place if place is None or share.rows is None else place._replace(rows=share.rows)
            self._deliver(topic, share.batch, share.tags, share.connections, effects, full, here)

    def _end(self, topic: Topic, key: int, error: MilepostError, effects: list[Effect]) -> None:
        """End a plain subscription whose predicate could not be evaluated: else it would miss rows and not know it."""
        self.errors[error.code] += 1
        subscription = topic.subscriptions.get(key)
        if subscription is None:  # it ended while the batch was examined
            return
        connection = subscription.connection
        if connection.subscriptions is not None:
            connection.subscriptions.pop(subscription.number, None)
        self.catalogue.drop(subscription)
        effects.append(Say(connection, failure(error, subscription=subscription.number)))

    def give_back(self, sources: Sequence[Source | Row], full: list[Backlog], effects: list[Effect]) -> None:
        """Batches are dealt with: their bytes go back as credit, unless somebody whom they were for is full."""
        for source in sources:
            if full:
                self._hold(source, full)
            elif source.connection.open:
                self._give_back(source.connection, source.size, effects)

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
        if place is not None and self.placeless and not all(connection.places for connection in connections):
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
            parts = (b"".join(parts),)  # once, and not for each connection
        if self.settings.cut_through:
            ready = [connection for connection in connections if connection.ready]
            if ready:
                for connection in ready:
                    connection.spend(size, rows)
                topic.rows_out += rows * len(ready)
                topic.bytes_out += size * len(ready)
                effects.append(Deliver(parts, ready))
            if len(ready) == len(connections):
                return
            sent = {connection.number for connection in ready}
            connections = [connection for connection in connections if connection.number not in sent]
        memory, held, most = self.memory, -(-size // len(connections)), self.memory.queue_bytes()
        for connection in connections:
            if not connection.open:
                continue  # closed a moment ago, for being slow
            if connection.ready:
                self._turn[connection.number] = connection
            outbox = connection.wait(Waiting(topic, batch, tags, size, held, place))
            memory.queued(connection)
            # One delivery alone is not a queue: whoever is given more than fits at once is not slow for that.
            if outbox.bytes > most and len(outbox.waiting) > 1:
                overfull(self, connection, topic, outbox, most, effects, full)

    # Flow

    def blocked(self, connection: Connection, kept: int = 0, written: int = 0) -> None:
        """The channel keeps bytes that its socket did not take, after so many were written; `drained` follows."""
        connection.blocked = True
        connection.ready = False
        if kept < connection.unsent + written:
            connection.moved = True
        self.memory.unsent(connection, kept)

    def drained(self, connection: Connection) -> list[Effect]:
        """The channel keeps nothing any more."""
        connection.blocked = False
        connection.moved = True
        self.memory.unsent(connection, 0)
        return self._serve(connection)

    def turn(self) -> list[Effect]:
        """Without cut-through: serve what was queued since the last turn."""
        served, self._turn = self._turn, {}
        effects: list[Effect] = []
        for connection in served.values():
            effects += self._serve(connection)
        return effects

    @property
    def turning(self) -> bool:
        """Whether `turn` has something to do."""
        return bool(self._turn)

    def _credit(self, connection: Connection, size: int) -> list[Effect]:
        if size < 0 or connection.credit + size > connection.window:
            raise ProtocolError(f"{size} bytes of credit are more than were delivered")
        connection.credit += size
        return self._serve(connection)

    def _serve(self, connection: Connection) -> list[Effect]:
        """Send one joined frame of what is waiting, if that can be taken; `served` or `drained` asks for the next."""
        effects: list[Effect] = []
        outbox = connection.outbox
        if connection.open and not connection.blocked:
            tell_dropped(connection, effects)
        if connection.open and outbox is not None:
            if outbox.waiting and not connection.blocked and connection.credit > 0:
                self._send_next(connection, outbox, effects)
                self.memory.queued(connection)
            if outbox.bytes <= self.settings.queue_bytes // 2:
                self.release(outbox, effects)
            if not outbox.waiting:
                connection.outbox = None
        connection.settle()
        if connection.ready and (connection.members or connection.catchups):
            mine = [found[0] for found in (connection.members or {}).values() if not isinstance(found, Subscribe)]
            for subscription in [*(connection.catchups or {}).values(), *mine]:
                if connection.ready:
                    self.durable.subscriptions.pump(subscription, effects)
        return effects

    def _send_next(self, connection: Connection, outbox: Backlog, effects: list[Effect]) -> None:
        item = outbox.joined(self.settings.join_bytes)
        while too_long(item.batch, item.tags):
            item, rest = item.halves()
            outbox.put_back(rest)
        parts = deliver_parts(item.topic.number, item.tags, item.batch.data, item.place and item.place.told)
        size, rows = len(parts[0]) + len(parts[1]), len(item.batch)
        connection.spend(size, rows)
        item.topic.rows_out += rows
        item.topic.bytes_out += size
        effects.append(Deliver(parts, [connection]))

    def served(self, connection: Connection) -> list[Effect]:
        """The channel took a frame of the queue whole: there may be more."""
        return self._serve(connection) if connection.outbox is not None else []

    def _hold(self, source: Source | Row, full: list[Backlog]) -> None:
        """Keep a publisher's credit back until those connections have room: it throttles itself."""
        hold = CreditHold(source.connection, source.size, len(full))
        self.totals["puts_throttled"] += 1
        for outbox in full:
            outbox.holds.append(hold)

    def release(self, outbox: Backlog, effects: list[Effect]) -> None:
        holds, outbox.holds = outbox.holds, []
        for hold in holds:
            hold.outboxes -= 1
            if not hold.outboxes and hold.publisher.open:
                self._give_back(hold.publisher, hold.size, effects)

    def _give_back(self, connection: Connection, size: int, effects: list[Effect]) -> None:
        connection.taken += size
        self.memory.held -= size
        if connection.taken >= self.settings.put_window // 2:
            effects.append(Say(connection, Credit(connection.taken)))
            connection.outstanding -= connection.taken
            connection.taken = 0

    # Time

    def tick(self, now: float) -> list[Effect]:
        """Once a second or so: those who connected and say nothing."""
        effects: list[Effect] = []
        for connection in list(self.greeting.values()):
            if now - connection.heard <= self.settings.handshake_s:
                break  # the others came later
            effects += self.refused(
                connection, TimedOut(f"no complete HELLO within {self.settings.handshake_s:g} s of connecting")
            )
        return effects + self.durable.tick(now) + self.queues.leases.tick(now) if self.durable.on else effects

    def scan(self, now: float, partial: Bytes, waiting: Bytes = _UNSENT) -> list[Effect]:
        """Several times a heartbeat: see `Liveness`."""
        return self.liveness.scan(now, partial, waiting)

    # Figures

    def statistics(self, time_us: int = 0) -> dict[str, Any]:
        """What there is to know, as plain values; metrics, `milepost top` and tests read it from here."""
        return self.about() | statistics(self, time_us)
