"""The events of the core, each a method that returns effects.

The shell calls them, from one thread. `now` is its monotonic clock in seconds, `time_us` its wall clock. An error of
one client is sent to that client and counted; no event raises.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from milepost.batch import Batch
from milepost.batch.header import fingerprint_of
from milepost.broker.core.admission import Admission
from milepost.broker.core.delivery import Delivery
from milepost.broker.core.effects import Close, Effect, Mend, Say
from milepost.broker.core.log.catchups import CatchUps
from milepost.broker.core.log.staging import Staging
from milepost.broker.core.log.topics import DurableTopics
from milepost.broker.core.memory import MemoryAccount
from milepost.broker.core.predicates import Cache
from milepost.broker.core.put import Put, RowPut
from milepost.broker.core.queues.transactions import QueueTransactions
from milepost.broker.core.sessions.connection import Connection
from milepost.broker.core.sessions.liveness import Liveness
from milepost.broker.core.sessions.publishers import Publishers
from milepost.broker.core.statistics import described, statistics
from milepost.broker.core.topics.backlog import Backlog
from milepost.broker.core.topics.catalogue import Catalogue
from milepost.broker.core.topics.pattern import require_pattern
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
    Stage,
    StatusRequest,
    Subscribe,
    Trim,
    Unstage,
    Unsubscribe,
)
from milepost.wire import RetentionHold as HoldRequest
from milepost.wire.control import failure

if TYPE_CHECKING:
    from milepost.match import Matches

REQUESTS: Final = (
    Declare, Delete, Subscribe, Unsubscribe, Positions, ListTopics, StatusRequest, Trim, Look, HoldRequest, Publish,
    Unstage, PublishedEpoch, *ADMINISTRATION,
)  # fmt: skip


class Core:
    """A broker without its sockets."""

    def __init__(
        self, settings: Settings, broker_id: int, draw: Callable[[], int], cache: Cache, version: str = ""
    ) -> None:
        """`draw` returns random 32-bit numbers, for publishers; `cache` has compiled predicates."""
        self.settings = settings
        self.broker_id = broker_id
        self.version = version
        self.connections: dict[int, Connection] = {}
        self.catalogue = Catalogue(self.connections, cache)
        self.predicates = self.catalogue.predicates
        self.topics = self.catalogue.topics
        self.numbered = self.catalogue.numbered
        self.errors: Counter[str] = Counter()
        self.totals: Counter[str] = Counter()
        self.about: Callable[[], dict[str, Any]] = dict  # figures of the shell
        self.transfers_changed: Callable[[], None] = lambda: None  # called when a transfer was set or deleted
        self.memory = MemoryAccount(self, settings.memory_bytes)
        self.liveness = Liveness(self)
        self.admission = Admission(self)
        self.delivery = Delivery(self)
        self.publishers = Publishers(self, draw)
        self._numbers = 0
        self._free: list[int] = []  # numbers of closed connections: reused, so that numbers stay dense for counting
        self.greeting: dict[int, Connection] = {}  # connections without a HELLO so far
        self.durable = DurableTopics(self)
        self.catchups = CatchUps(self)
        self.placeless = 0  # connections whose clients do not read places
        self.moves = 0  # how often the log of some durable topic has grown
        self.staging = Staging(self)
        self.queues = QueueTransactions(self)
        self.store_id = ""  # changes only when stored state was lost; empty: there is no store

    # Connections

    def connected(self, peer: str, now: float) -> Connection:
        """Called when a client has connected. It has `handshake_s` to send a HELLO."""
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
        """Called when a connection has ended, whether the client or the broker closed it."""
        if not connection.open:
            return []
        connection.open = connection.ready = False
        self.greeting.pop(connection.number, None)
        self.placeless -= connection.greeted and not connection.places
        self.catchups.left(connection)
        effects = self.catalogue.forget(connection, self._forgotten)
        effects += self.durable.subscriptions.left(connection) if connection.members or connection.atomic else []
        effects += self.queues.leases.lost(connection) if connection.owner is not None else []
        self.delivery.lost(connection, effects)
        effects += self.memory.left(connection)
        if connection.publisher.enrolled:
            effects.append(Mend(connection))  # it sends no more puts: its failure need not be remembered
        if connection.publisher.number:
            self.publishers.leave(connection)
        return effects

    def _forgotten(self, connection: Connection) -> None:
        del self.connections[connection.number]
        self._free.append(connection.number)

    def refused(self, connection: Connection, error: MilepostError) -> list[Effect]:
        """Send a client a fatal error, and close its connection."""
        self.errors[error.code] += 1
        if not connection.open:
            return []
        return [Say(connection, failure(error, fatal=True)), Close(connection), *self.lost(connection)]

    def said(self, connection: Connection, message: Control | Enqueue, now: float, time_us: int) -> list[Effect]:
        """Handle a control frame. Requests come in order with the puts before them."""
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
                    return self.delivery.credited(connection, message.bytes)
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
                case Ack() | Dequeue() | Finish():  # they need no compilation
                    return self._answer(connection, message, time_us)
                case _ if isinstance(message, REQUESTS):
                    return self._asked(connection, message, time_us)
                case _:
                    raise ProtocolError(f"a client does not send {type(message).__name__.upper()}")
        except MilepostError as error:
            return self.refused(connection, error)

    # Requests

    def _asked(self, connection: Connection, request: Any, time_us: int, *, again: bool = False) -> list[Effect]:
        return self.predicates.run(partial(self._answer, connection, request, time_us, again), connection)

    def _answer(self, connection: Connection, request: Any, time_us: int, again: bool = False) -> list[Effect]:
        durable, effects = self.durable, list[Effect]()
        try:
            match request:
                case Ack():
                    return durable.subscriptions.acks.acknowledge(connection, request)
                case Dequeue(peek=False) | Finish():
                    return self.queues.asked(connection, request, connection.heard)
                case Declare():
                    topic = self.topics.get(request.name)
                    if request.durable or (topic is not None and topic.stored and request.schema is not None):
                        return durable.declare(connection, request)
                    if request.retain is not None:
                        raise NotDurable(f"topic {request.name[:80]!r} is live, and keeps nothing; declare it durable")
                    value: Any = self.catalogue.declare(connection, request, effects)
                case Delete():
                    topic = self.topics.get(request.name)
                    if topic is not None and topic.stored:
                        return durable.delete(connection, request, topic)
                    value = self.catalogue.delete(request, effects)
                case Subscribe() if request.durable or request.name or request.stop is not None:
                    return durable.subscriptions.subscribe(connection, request)
                case Subscribe():
                    if request.subscription in (connection.members or {}):
                        raise BrokerError(f"subscription {request.subscription} is there already; unsubscribe first")
                    if request.resume is not None and durable.shared and not again:
                        # This broker may not know the current ends of other brokers' logs: no row may be missed.
                        return durable.learn(partial(self._learned, connection, request, time_us))
                    self.catchups.require(request)
                    then = partial(self.catchups.subscribed, connection, request)
                    return self.catalogue.subscribe(connection, request, then)
                case Unsubscribe() if request.name or request.subscription in (connection.members or {}):
                    return durable.subscriptions.unsubscribe(connection, request)
                case Unsubscribe():
                    self.catchups.left(connection, request.subscription)
                    return self.catalogue.unsubscribe(connection, request)
                case Positions():
                    value = self.catchups.positions(connection)
                case StatusRequest():
                    return durable.counts.report(connection, request.request, time_us)
                case ListTopics():
                    require_pattern(request.pattern)
                    value = [described(topic) for topic in self.catalogue.covered(request.pattern)]
                case Trim():
                    return durable.trim(connection, request)
                case Look():
                    return durable.look(connection, request)
                case HoldRequest():
                    return durable.hold(connection, request)
                case Publish() | Unstage() | PublishedEpoch():
                    return self.staging.asked(connection, request)
                case _:
                    return self.queues.administer(connection, request)
        except MilepostError as error:
            if isinstance(error, UnknownTopic) and durable.shared and not again:
                # Another broker may have just made it, and its client may have reconnected here since.
                return durable.learn(partial(self._learned, connection, request, time_us))
            value = error
        return effects + self.reply(connection, request.request, value)

    def _learned(self, connection: Connection, request: Any, time_us: int, outcome: Any) -> list[Effect]:
        if isinstance(outcome, MilepostError) and isinstance(request, Subscribe) and request.resume is not None:
            return self.reply(connection, request.request, outcome)
        return self._asked(connection, request, time_us, again=True) if connection.open else []

    def reply(self, connection: Connection, request: int, value: Any) -> list[Effect]:
        """Answer a request with a value or an error, if its client is still connected."""
        if isinstance(value, MilepostError):
            self.errors[value.code] += 1
            return [Say(connection, failure(value, request=request))] if connection.open else []
        return [Say(connection, Reply(request=request, value=value))] if connection.open else []

    # Rows

    def put(
        self, connection: Connection, number: int, data: Any, size: int, key: bytes = b"", more: bool = False,
        stage: Stage | None = None,
    ) -> Put:  # fmt: skip
        """Make the put of a PUT or STAGE frame; raises `ProtocolError` when there was no credit for it.

        The shell examines the put, and then gives it to `arrived`.
        """
        self.admission.accept(connection, size)
        connection.puts += stage is None
        put = Put(connection, data, size, key, more, stage)
        topic = self.numbered.get(number)
        if topic is None:
            put.error = UnknownTopic(f"no topic has the number {number} here, or no longer; declare the topic again")
            return put
        put.topic = topic
        topic.examining += 1
        try:
            if stage is not None:
                self.staging.require(topic, stage)
            elif not topic.stored and (key or more):
                raise NotDurable(
                    f"topic {topic.name!r} is live: keys, and puts to several topics at once, are for durable ones"
                )
        except MilepostError as error:
            put.error = error
        version = put.version = topic.versions.get(fingerprint_of(data))
        if version is not None and topic.subscriptions and not topic.stored:  # stored rows are matched later
            put.snapshot = version.index.snapshot()
        return put

    def arrived(self, puts: list[Put], batch: Batch | None, matches: Matches | None) -> list[Effect]:
        """Take examined puts: one, or several of a live topic whose rows are joined in `batch` and matched."""
        effects: list[Effect] = []
        for put in puts:
            if put.topic is not None:
                put.topic.examined()
        if sum(map(self.admission.admit_put, puts)) < len(puts):
            if len(puts) > 1:
                batch, matches = _without_refused(puts, batch, matches)
            for put in puts:
                if put.error is not None:
                    effects += self.refuse(put, put.error)
            puts = [put for put in puts if put.error is None]
            if not puts:
                return effects
        first = puts[0]
        topic = first.topic
        assert batch is not None
        if first.stage is not None:
            return effects + self.staging.stage(first, first.stage)
        if topic.stored:
            return effects + self.durable.append(first)
        topic.rows_in += len(batch)
        topic.batches_in += len(puts)
        for put in puts:
            topic.bytes_in += put.size
            put.connection.rows_in += len(put.batch)
        full: list[Backlog] = []
        if topic.number in self.numbered:  # it may have been deleted while the batch was being matched
            full = self.delivery.distribute(topic, batch, matches, effects)
        self.admission.give_back(puts, full, effects)
        return effects

    def refuse(self, put: Put, error: MilepostError) -> list[Effect]:
        """Tell a client that a put is refused, and give its credit back. The connection stays open."""
        connection = put.connection
        if put.stage is None and (put.more or connection.atomic is not None) and connection.open:
            put.error = error
            return self.durable.append(put)  # all parts of an atomic put are refused together, after the last
        return self.tell_refused(put, error)

    def tell_refused(self, put: Put | RowPut, error: MilepostError) -> list[Effect]:
        """As `refuse`, for a put that is not part of an atomic one, or whose parts have all arrived."""
        self.errors[error.code] += 1
        self.totals["batches_refused"] += 1
        connection, topic = put.connection, put.topic
        if not connection.open:
            return []
        if isinstance(put, Put) and put.stage is not None:
            told = failure(error, request=put.stage.request)
        else:
            told = failure(error, put=put.number, topic=topic.name if topic is not None else "")
        effects: list[Effect] = [Say(connection, told)]
        self.admission.give_credit(connection, put.size, effects)
        return effects

    def passed(
        self, connection: Connection, topic: Topic, size: int, stamp: int, frame: bytes, members: list[Connection]
    ) -> list[Effect]:
        """The fast path of `put` and `arrived`, for one valid row that goes to these connections, all ready.

        Raises if the row is refused, before anything is changed.
        """
        self.admission.admit(connection, topic, stamp, stamp, None)
        self.admission.accept(connection, size)
        ids = connection.publisher.number, stamp
        connection.puts += 1
        connection.rows_in += 1
        topic.rows_in += 1
        topic.batches_in += 1
        topic.bytes_in += size
        effects: list[Effect] = [self.delivery.send(members, (frame,), len(frame), 1, topic, ids)]
        self.admission.give_credit(connection, size, effects)
        return effects

    # Time

    def tick(self, now: float) -> list[Effect]:
        """Called about once a second: close connections without a HELLO, and tick durable topics and leases."""
        effects: list[Effect] = []
        for connection in list(self.greeting.values()):
            if now - connection.heard <= self.settings.handshake_s:
                break  # later connections have more time left
            effects += self.refused(
                connection, TimedOut(f"no complete HELLO within {self.settings.handshake_s:g} s of connecting")
            )
        return effects + self.durable.tick(now) + self.queues.leases.tick(now) if self.durable.on else effects

    # Figures

    def statistics(self, time_us: int = 0) -> dict[str, Any]:
        """All figures as plain values; metrics, `milepost top` and tests read them from here."""
        return self.about() | statistics(self, time_us)


def _without_refused(puts: list[Put], batch: Batch | None, matches: Matches | None) -> tuple[Batch, Matches | None]:
    """The rows of joined puts, without those of refused puts."""
    assert batch is not None
    keep = np.repeat([put.error is None for put in puts], [len(put.batch) for put in puts])
    rows = np.flatnonzero(keep)
    return batch.take(rows), None if matches is None else matches.take(rows)
