"""Runs the store for the broker's shell: one thread writes, a few read, and the event loop gets the outcomes."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import milepost.queues.execution  # noqa: F401  # registers how operations on queues are carried out
from milepost.broker.core.effects import Ask, Effect, Inspect, Learn, Mend, ReadLog, Write
from milepost.broker.core.memory import SOME_KEPT
from milepost.broker.log_reader import LogReader
from milepost.errors import BrokerError, MilepostError
from milepost.operations import Entry, TopicRecord
from milepost.operations.queues import Browse, Peek
from milepost.storage import Store, Writer

if TYPE_CHECKING:
    from milepost.broker.core.sessions.connection import Connection
    from milepost.broker.server import Broker

READERS: Final = 2  # threads: one long replay leaves the other for all other reads
LOOKERS: Final = 2  # threads for looks into queues: a selection may take long, and must not hold up reads of logs
WAITERS: Final = 1  # threads for looks of waiting dequeues, which must not hold up looks of clients
CLOSING_S: Final = 5.0  # for a database server to finish at the broker's end; uncommitted puts are repeated by clients
POLL_S: Final = 0.1  # of a shared store: how soon a broker learns of other brokers' rows

log = logging.getLogger("milepost.broker")


class StoreRunner:
    """Carries out the effects that concern the store."""

    def __init__(self, broker: Broker, store: Store) -> None:
        self.store = store
        self._broker = broker
        self._loop = asyncio.get_running_loop()
        self._writer = Writer(store, time_us=broker.clock.time_us, done=self._done)
        self._readers = ThreadPoolExecutor(READERS, "milepost-read")
        self._lookers = ThreadPoolExecutor(LOOKERS, "milepost-look")
        self._waiters = ThreadPoolExecutor(WAITERS, "milepost-wait")
        # Connections that wait for answers, each with its looks that are not begun; one look at a time is under way.
        self._looking: dict[Connection, deque[Callable[[], None]]] = {}
        self._idle: set[Connection] = set()  # those of them for which no look is under way
        self._finished: deque[tuple[list[tuple[Any, Any]], list[Entry]]] = deque()
        self._polling = False
        self._pulse: dict[int, int] = {}  # log -> how often its broker has written; not this broker's
        self._known: set[int] = set()  # durable topics that this broker knew when it began to poll
        self._ended = False  # no more operations are given to the writer
        self._closed = False

    def run(self, effect: Effect) -> None:
        """Begin to carry out an effect."""
        if isinstance(effect, Write):
            if not self._ended:  # otherwise the operation is dropped, without an outcome
                self._writer.give(effect.operation, effect.then, effect.session)
        elif isinstance(effect, Mend):
            if not self._ended:
                self._writer.resume(effect.session)
        elif isinstance(effect, ReadLog):
            self._read(effect)
        elif isinstance(effect, Ask):
            self._look(effect.connection, effect.then, lambda: self._asked(effect))
        elif isinstance(effect, Inspect):
            waits = effect.connection is None and isinstance(effect.operation, Peek)
            threads = self._waiters if waits else self._lookers
            self._look(effect.connection, effect.then, lambda: self._inspected(effect), threads)
        elif isinstance(effect, Learn):
            self._answer(effect.then, self.store.topics)

    # Writing

    def _done(self, results: list[tuple[Any, Any]], entries: list[Entry]) -> None:
        """In the writing thread."""
        self._finished.append((results, entries))
        self._loop.call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        over = self._writer.over
        while self._finished:
            results, entries = self._finished.popleft()
            if over is not None:
                # Another process has taken the log, and this broker ends. Open requests get no answer: clients learn
                # the outcome on their next connection. `Fenced` would tell them that their name is used elsewhere.
                results = [(then, outcome) for then, outcome in results if outcome is not over]
            self._broker.run(self._broker.core.durable.stored(results, entries))
        self._broker.relieve()
        if over is not None:
            self._broker.fail(over)

    # Reading

    def _look(
        self,
        connection: Connection | None,
        then: Callable[[Any], list[Effect]],
        work: Callable[[], Any],
        threads: ThreadPoolExecutor | None = None,
    ) -> None:
        """Run a look for a client, one at a time, once it has read most of its earlier answers."""
        if connection is None:
            self._answer(then, work, threads)
            return
        begin = partial(self._answer, partial(self._looked, connection, then), work, threads)
        line = self._looking.get(connection)
        if line is not None:
            line.append(begin)
        elif connection.open:
            self._looking[connection] = deque()
            begin()

    def _looked(self, connection: Connection, then: Callable[[Any], list[Effect]], outcome: Any) -> list[Effect]:
        self._broker.run(then(outcome))
        self._idle.add(connection)
        self.look_on(connection)
        return []

    def look_on(self, connection: Connection) -> None:
        """Begin a client's next look, if its last one is done and it has read most of its answers."""
        if connection not in self._idle or (connection.blocked and connection.unsent > SOME_KEPT):
            return
        self._idle.discard(connection)
        line = self._looking[connection]
        if line:
            line.popleft()()
        else:
            del self._looking[connection]

    def left(self, connection: Connection) -> None:
        """Drop the looks of a client that is gone."""
        if connection in self._idle:
            self._idle.discard(connection)
            del self._looking[connection]
        elif connection in self._looking:
            self._looking[connection].clear()

    def _inspected(self, effect: Inspect) -> Any:
        operation = effect.operation
        if isinstance(operation, Peek | Browse):
            operation = replace(operation, most_bytes=self._broker.core.memory.answer_bytes())
        return self.store.inspect(operation, self._broker.clock.time_us())

    def _read(self, effect: ReadLog) -> None:
        number, name, versions, where = effect.topic.stored, effect.topic.name, effect.topic.versions, effect.where
        cache = self._broker.predicates

        def read() -> Any:
            # Compile in the reading thread: the cache may have dropped the predicate.
            predicates = {
                fingerprint: (version, None if where is None else cache.reading(where, version.read_as))
                for fingerprint, version in versions.items()
            }
            reader = LogReader(self.store, number, name, effect.log, predicates, where is not None)
            return reader.read(effect.offset, effect.stop) if effect.only is None else reader.read_only(effect.only)

        self._answer(effect.then, read)

    def _asked(self, effect: Ask) -> dict[str, Any]:
        topic = effect.topic.stored
        position = {} if effect.start is None else {"position": self.store.resolve(topic, effect.start)}
        extents = self.store.extents(topic).get(topic, {})
        return position | {
            "logs": [{"log": number, **extent._asdict()} for number, extent in extents.items()],
            "subscriptions": [
                {
                    "name": each.name,
                    "where": each.where,
                    "options": each.options,
                    "created_us": each.created_us,
                    "cursor": {number: cursor.offset for number, cursor in each.cursors.items()},
                }
                for each in self.store.subscriptions(topic)
            ],
        }

    def _answer(
        self,
        then: Callable[[Any], list[Effect]],
        work: Callable[[], Any],
        threads: ThreadPoolExecutor | None = None,
    ) -> None:
        if self._closed:
            return

        def run() -> None:
            try:
                outcome = work()
            except MilepostError as error:
                outcome = error
            except Exception as error:  # a broker fault: only this read is affected
                log.exception("reading from the store failed")
                outcome = BrokerError(f"the broker failed on reading: {type(error).__name__}; what it logged says more")
            self._loop.call_soon_threadsafe(self._answered, then, outcome)

        (threads or self._readers).submit(run)

    def _answered(self, then: Callable[[Any], list[Effect]], outcome: Any) -> None:
        if not self._closed:
            self._broker.run(self._broker.core.predicates.run(partial(then, outcome)))

    def poll(self) -> None:
        """Learn what other brokers of a shared store have written."""
        if not self._polling:
            self._polling = True
            self._known = set(self._broker.core.catalogue.stored)
            self._answer(self._polled, self._news)

    def _news(self) -> list[TopicRecord] | None:
        """In a reading thread: the topics, if another broker has written since the last poll."""
        pulse = self.store.pulse()
        pulse.pop(self.store.log, None)
        if pulse == self._pulse:
            return None
        topics = self.store.topics()
        self._pulse = pulse  # from before the topics were read: the next poll sees later writes
        return topics

    def _polled(self, outcome: Any) -> list[Effect]:
        self._polling = False
        if outcome is None or isinstance(outcome, MilepostError):
            return []  # an error is reported to requests that need the store
        core = self._broker.core
        return [*core.durable.polled(outcome, self._known), *core.queues.waiting.notify_all()]

    # Ending

    async def close(self) -> None:
        """Finish the writes, report them, and close the store; a server that does not answer is abandoned."""
        self.store.halt()
        self.store.hurry(CLOSING_S)
        self._ended = True  # writes that follow from the last ones are dropped
        await asyncio.to_thread(self._writer.close)
        self._settle()
        self._closed = True
        for threads in (self._waiters, self._lookers, self._readers):
            await asyncio.to_thread(partial(threads.shutdown, cancel_futures=True))
        await asyncio.to_thread(self.store.close)
