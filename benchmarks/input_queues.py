"""`make bench NAME=input_queues`: the effect of `input_queues`.

A broker without its sockets: it checks, matches and shares out. Eight publishers, batches of 1,000 rows, one subscriber
connection that takes everything at once; subscriptions as in `make bench NAME=match`. With 0 queues one
thread does everything. With n queues, n other threads check and match, and the first thread only shares out. The gain
of two threads over one shows how much of the work runs without the GIL.
"""

from __future__ import annotations

import time
from queue import SimpleQueue
from typing import Any

import numpy as np

from benchmarks.match import SCHEMA, TREE, conjunctions, uniform
from benchmarks.report import Report
from milepost.batch import Batch, Ids
from milepost.broker.core import Connection, Core
from milepost.broker.core.put import Put
from milepost.broker.core.sessions.connection import PlainSubscription
from milepost.broker.examination import Examined, examine
from milepost.broker.predicate_cache import PredicateCache
from milepost.broker.workers import Workers
from milepost.config import settings
from milepost.kernels import warm
from milepost.query import Predicate
from milepost.wire import Declare, Hello, Subscribe

ROWS = 1_000
PUBLISHERS = 8
SUBSCRIPTIONS, QUICK_SUBSCRIPTIONS = (0, 10_000, 1_000_000), (0, 10_000)
QUEUES = (0, 1, 2)
SECONDS, QUICK_SECONDS = 4.0, 0.7


class Rig:
    """A core with publishers and one subscriber."""

    def __init__(self, subscriptions: int) -> None:
        numbers = iter(range(1, 1_000_000))
        self.core = Core(settings(queue_bytes=1 << 29), 7, numbers.__next__, PredicateCache())
        self.publishers = [self._client() for _ in range(PUBLISHERS)]
        self.reader = self._client()
        self._say(self.reader, Declare(request=1, name="events", schema=str(SCHEMA)))
        self.topic = self.core.topics["events"]
        if subscriptions:
            self._subscribe(subscriptions)
        else:
            self._say(self.reader, Subscribe(request=2, subscription=1, pattern="events"))
        rng = np.random.default_rng(1)
        columns = [
            {f"a{i}": rng.integers(0, 1_000, ROWS).astype(np.int32) for i in range(10)} for _ in range(PUBLISHERS)
        ]
        self.data = [
            Batch.encode(SCHEMA, part, Ids.single(publisher.publisher.number, 7, np.arange(1, ROWS + 1))).data
            for part, publisher in zip(columns, self.publishers, strict=True)
        ]

    def _client(self) -> Connection:
        connection = self.core.connected("here", 0.0)
        self._say(connection, Hello(window=1 << 24))
        return connection

    def _say(self, connection: Connection, message: Any) -> None:
        self.core.said(connection, message, 0.0, 0)

    def _subscribe(self, count: int) -> None:
        """Add the predicates to the topic directly: parsing a million texts is not measured here."""
        index = self.topic.versions[SCHEMA.fingerprint].index
        for number, node in enumerate(conjunctions(np.random.default_rng(2), count, uniform)):
            key = self.topic._take_key()
            index.add(key, Predicate("", SCHEMA, TREE, node))
            self.topic.subscriptions[key] = PlainSubscription(self.reader, number, "events", "", {}, {})
            self.topic.owners[key], self.topic.tags[key] = self.reader.number, number
        index.settle()

    def arrive(self, number: int) -> Put:
        """A batch of one publisher, as it came off the wire."""
        publisher = self.publishers[number % PUBLISHERS]
        data = self.data[number % PUBLISHERS]
        return self.core.put(publisher, self.topic.number, data, len(data))

    def share(self, result: Examined) -> None:
        for put in result.puts:
            put.connection.publisher.last_stamp = 0  # the same bytes come again
        self.core.arrived(*result)
        assert result.puts[0].error is None
        self.reader.credit = self.reader.window
        self.reader.ready = True

    def rate(self, queues: int, seconds: float) -> float:
        """Rows a second."""
        if not queues:
            return self._alone(seconds)
        finished: SimpleQueue[Any] = SimpleQueue()
        workers: Workers[Put, Any] = Workers(queues, lambda jobs: examine(jobs, 0), finished.put)
        given = done = 0
        start = time.perf_counter()
        while (now := time.perf_counter()) - start < seconds or done < given:
            while now - start < seconds and given - done < 2 * PUBLISHERS:
                workers.give(given % queues, self.arrive(given))
                given += 1
            for result in finished.get():
                self.share(result)
                done += 1
        elapsed = time.perf_counter() - start
        workers.close(60.0)
        return done * ROWS / elapsed

    def _alone(self, seconds: float) -> float:
        start = time.perf_counter()
        done = 0
        while time.perf_counter() - start < seconds:
            self.share(examine([self.arrive(done)], 0)[0])
            done += 1
        return done * ROWS / (time.perf_counter() - start)


def run(quick: bool) -> None:
    report = Report("input_queues", quick)
    warm()
    figures: dict[str, dict[str, float]] = {}
    for count in QUICK_SUBSCRIPTIONS if quick else SUBSCRIPTIONS:
        report.say(f"{count:,} subscriptions")
        rig = Rig(count)
        rig.rate(0, 0.2)
        figures[str(count)] = {str(n): rig.rate(n, QUICK_SECONDS if quick else SECONDS) for n in QUEUES}
    report.figures["rows_per_s"] = figures
    report.figures["gain"] = {count: row["2"] / row["0"] for count, row in figures.items()}
    rows = [(f"{int(count):,}", *row.values(), row["2"] / row["0"]) for count, row in figures.items()]
    report.table(
        "Rows a second, by input queues",
        ("subscriptions", *(f"{n} queues" for n in QUEUES), "2 over 0"),
        rows,
        "0 subscriptions with a predicate: one connection that wants everything",
    )
    report.finish()
