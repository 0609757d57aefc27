"""The store as the broker's shell holds it: one thread writes, a few read, and the event loop hears what came of it."""

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
    from milepost.broker.core.topics.topic import Topic
    from milepost.broker.server import Broker

READERS: Final = 2  # threads: one long replay leaves the other to everybody else
LOOKERS: Final = 2  # threads for looks into queues, whose selections may take long: logs are read beside them
WAITERS: Final = 1  # threads for looks of dequeues that wait: clients that only look are not held up by them
CLOSING_S: Final = 5.0  # that a database server has at the broker's end; what it has not committed is put again
POLL_S: Final = 0.1  # of a store that brokers share: how soon each hears of the others' rows

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
        # Those who wait for answers, each with what it asked and is not looked up yet: one at a time is on its way.
        self._looking: dict[Connection, deque[Callable[[], None]]] = {}
        self._idle: set[Connection] = set()  # of these, those for whom nothing is looked up now
        self._finished: deque[tuple[list[tuple[Any, Any]], list[Entry]]] = deque()
        self._polling = False
        self._pulse: dict[int, int] = {}  # how often the other brokers have written
        self._known: set[int] = set()  # durable topics that this broker knew when it asked for all
        self._ended = False  # nothing is written any more
        self._closed = False

    def run(self, effect: Effect) -> None:
        """Begin what an effect asks for."""
        if isinstance(effect, Write):
            if not self._ended:  # otherwise nothing is written any more, and nobody is told anything
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
                # Another process has the log, and this broker ends. What that leaves open is not answered: clients
                # find out on their next connection. To them, `Fenced` would mean that one of their own name came.
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
        """Look something up for a client, when it has read most of the answers before: one at a time."""
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
        """A client has its last answer, or has read some: go on with what it asked next."""
        if connection not in self._idle or (connection.blocked and connection.unsent > SOME_KEPT):
            return
        self._idle.discard(connection)
        line = self._looking[connection]
        if line:
            line.popleft()()
        else:
            del self._looking[connection]

    def left(self, connection: Connection) -> None:
        """A client is gone: nobody waits for its answers."""
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
            # In the reading thread, since a text may have to be compiled again.
            predicates = {
                fingerprint: (version, None if where is None else cache.reading(where, version.read_as))
                for fingerprint, version in versions.items()
            }
            reader = LogReader(self.store, number, name, effect.log, predicates, where is not None)
            return reader.read(effect.offset, effect.stop) if effect.only is None else reader.read_only(effect.only)

        self._answer(effect.then, read)

    def _asked(self, effect: Ask) -> dict[str, Any]:
        topic, store = effect.topic, self.store
        if effect.start is not None:
            return {"position": store.resolve(topic.stored, effect.start)} | self._told(topic)
        return self._told(topic)

    def _told(self, topic: Topic) -> dict[str, Any]:
        extents = self.store.extents(topic.stored)
        return {
            "logs": [{"log": number, **extent._asdict()} for number, extent in extents.get(topic.stored, {}).items()],
            "subscriptions": [
                {
                    "name": each.name,
                    "where": each.where,
                    "options": each.options,
                    "created_us": each.created_us,
                    "cursor": {number: cursor.offset for number, cursor in each.cursors.items()},
                }
                for each in self.store.subscriptions(topic.stored)
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
            except Exception as error:  # a fault of ours: one reader suffers, and everybody else goes on
                log.exception("reading from the store failed")
                outcome = BrokerError(f"the broker failed on reading: {type(error).__name__}; what it logged says more")
            self._loop.call_soon_threadsafe(self._answered, then, outcome)

        (threads or self._readers).submit(run)

    def _answered(self, then: Callable[[Any], list[Effect]], outcome: Any) -> None:
        if not self._closed:
            self._broker.run(self._broker.core.attempts.run(partial(then, outcome)))

    def poll(self) -> None:
        """Hear what other brokers of a shared store have done."""
        if not self._polling:
            self._polling = True
            self._known = set(self._broker.core.catalogue.stored)
            self._answer(self._polled, self._news)

    def _news(self) -> list[TopicRecord] | None:
        """In a reading thread: the topics, if another broker has written anything since the last time."""
        pulse = self.store.pulse()
        pulse.pop(self.store.log, None)
        if pulse == self._pulse:
            return None
        topics = self.store.topics()
        self._pulse = pulse  # of before they were read: what came meanwhile is seen next time
        return topics

    def _polled(self, outcome: Any) -> list[Effect]:
        self._polling = False
        if outcome is None or isinstance(outcome, MilepostError):
            return []  # whoever wants something of it is told
        core = self._broker.core
        return [*core.durable.polled(outcome, self._known), *core.queues.waiting.notify_all()]

    # Ending

    async def close(self) -> None:
        """Write what was given, tell of it, and close the store; a server that does not answer is left."""
        self.store.halt()
        self.store.hurry(CLOSING_S)
        self._ended = True  # what follows from what is still written is not
        await asyncio.to_thread(self._writer.close)
        self._settle()
        self._closed = True
        for threads in (self._waiters, self._lookers, self._readers):
            await asyncio.to_thread(partial(threads.shutdown, cancel_futures=True))
        await asyncio.to_thread(self.store.close)
