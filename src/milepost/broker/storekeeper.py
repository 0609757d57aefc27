"""The store as the broker's shell holds it: one thread writes, a few read, and the event loop hears what came of it."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from milepost.broker.core.effects import Ask, Effect, Inspect, Learn, Mend, Read, Store
from milepost.broker.reading import Reader
from milepost.errors import BrokerError, MilepostError
from milepost.storage import Store as Database
from milepost.storage import Writer
from milepost.storage.operations import Entry, TopicRecord

if TYPE_CHECKING:
    from milepost.broker.core.topic import Topic
    from milepost.broker.server import Broker

READERS: Final = 2  # threads: one long replay leaves the other to everybody else
POLL_S: Final = 0.1  # of a store that brokers share: how soon each hears of the others' rows

log = logging.getLogger("milepost.broker")


class Storekeeper:
    """Carries out the effects that concern the store."""

    def __init__(self, broker: Broker, store: Database) -> None:
        self.store = store
        self._broker = broker
        self._loop = asyncio.get_running_loop()
        self._writer = Writer(store, time_us=broker.clock.time_us, done=self._done)
        self._readers = ThreadPoolExecutor(READERS, "milepost-read")
        self._finished: deque[tuple[list[tuple[Any, Any]], list[Entry]]] = deque()
        self._polling = False
        self._pulse: dict[int, int] = {}  # how often the other brokers have written
        self._known: set[int] = set()  # durable topics that this broker knew when it asked for all
        self._ended = False  # nothing is written any more
        self._closed = False

    def run(self, effect: Effect) -> None:
        """Begin what an effect asks for."""
        if isinstance(effect, Store):
            if not self._ended:  # otherwise nothing is written any more, and nobody is told anything
                self._writer.give(effect.operation, effect.then, effect.session)
        elif isinstance(effect, Mend):
            if not self._ended:
                self._writer.resume(effect.session)
        elif isinstance(effect, Read):
            self._read(effect)
        elif isinstance(effect, Ask):
            self._answer(effect.then, lambda: self._asked(effect))
        elif isinstance(effect, Inspect):
            self._answer(effect.then, lambda: self.store.inspect(effect.operation, self._broker.clock.time_us()))
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
            self._broker.run(self._broker.core.stored(results, entries))
        if over is not None:
            self._broker.fail(over)

    # Reading

    def _read(self, effect: Read) -> None:
        topic = effect.topic
        versions = {
            fingerprint: (version, topic.predicate(effect.where, version) if effect.where is not None else None)
            for fingerprint, version in topic.versions.items()
        }
        reader = Reader(self.store, topic.stored, topic.name, effect.log, versions, effect.where is not None)
        if effect.only is not None:
            only = effect.only
            self._answer(effect.then, lambda: reader.read_only(only))
        else:
            self._answer(effect.then, lambda: reader.read(effect.offset, effect.stop))

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

    def _answer(self, then: Callable[[Any], list[Effect]], work: Callable[[], Any]) -> None:
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

        self._readers.submit(run)

    def _answered(self, then: Callable[[Any], list[Effect]], outcome: Any) -> None:
        if not self._closed:
            self._broker.run(then(outcome))

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
        return [*core.keeper.polled(outcome, self._known), *core.queues.waiting.stirred()]

    # Ending

    async def close(self) -> None:
        """Write what was given, tell of it, and close the store."""
        self._ended = True  # what follows from what is still written is not
        await asyncio.to_thread(self._writer.close)
        self._settle()
        self._closed = True
        await asyncio.to_thread(self._readers.shutdown)
        await asyncio.to_thread(self.store.close)
