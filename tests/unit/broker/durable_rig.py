"""A core with a real store and no threads: commits and reads happen when the test says so, so that races are exact."""

import os
from pathlib import Path

import milepost
import milepost.queues.execution  # noqa: F401  # registers how operations on queues are carried out
from milepost.batch import Ids
from milepost.broker.core import Deliver
from milepost.broker.core.effects import Ask, Inspect, Mend, ReadLog, Write
from milepost.broker.examination import examine
from milepost.broker.log_reader import LogReader
from milepost.errors import MilepostError
from milepost.storage import open_store
from milepost.wire import Ack, Hello, Kind, Subscribe, read_hand
from tests.unit.broker.rig import BROKER_ID, QUOTE, Rig

STEPS = 100  # commits and reads until nothing is under way; more is a loop


class DurableRig(Rig):
    """`hands`: what each connection was handed, as (subscription, offsets, tries). `auto`: the store works at once."""

    def __init__(self, folder, draw=None, shared=False, **changes):
        super().__init__(**changes)
        if draw is not None:
            self.core.publishers._draw = draw
        self.store = open_store(
            str(Path(folder) / "rig.db"), broker="rig", broker_id=BROKER_ID, time_us=1, lease_s=5, remember_s=1000
        )
        self.core.store_id, self.core.broker_id = self.store.id, self.store.broker_id
        self.core.durable.on, self.core.durable.shared, self.core.durable.log = True, shared, self.store.log
        self.writes, self.reads, self.hands = [], [], {}
        self.broken = {}
        self.failing = None  # an error that every write meets
        self.auto = True
        self.run(self.core.durable.restore(self.store.topics()))

    def close(self):
        self.store.close()

    def kill(self):
        """End as a process does that is killed: nothing more is written."""
        self.store._drop()
        self.store._database.close()

    def run(self, effects):
        rest = []
        for effect in self.matched(effects):
            if isinstance(effect, Write | Mend):
                self.writes.append(effect)
            elif isinstance(effect, ReadLog | Ask | Inspect):
                self.reads.append(effect)
            elif isinstance(effect, Deliver) and effect.parts[0][4] == Kind.HAND:
                frame = b"".join(effect.parts)
                hand = read_hand(frame[5], frame[8:])
                tries = None if hand.tries is None else hand.tries.tolist()
                for connection in effect.connections:
                    self.hands.setdefault(connection, []).append((hand.subscription, hand.offsets.tolist(), tries))
            else:
                rest.append(effect)
        super().run(rest)
        if self.auto:
            self.flow()

    def commit(self, most=None, doubt=None):
        """Write all that waits, as the writing thread does; or so many, the first ones. `doubt`: and nobody knows."""
        waiting, self.writes = self.writes[:most], self.writes[len(self.writes) if most is None else most :]
        results, chosen = [], []
        for effect in waiting:
            if isinstance(effect, Mend):
                self.broken.pop(effect.session, None)
                continue
            error = self.broken.get(effect.session) or self.failing
            if error is not None and effect.session is not None:
                self.broken[effect.session] = error
            if error is None:
                chosen.append((len(results), effect.operation))
            results.append((effect.then, error))
        entries = []
        if chosen:
            committed = self.store.write([operation for _, operation in chosen], 1)
            for (place, _), outcome in zip(chosen, committed.outcomes, strict=True):
                results[place] = results[place][0], doubt or outcome
            entries = committed.entries
            if doubt is not None:
                self.broken |= {each.session: doubt for each in waiting if getattr(each, "session", None) is not None}
        self.run(self.core.durable.stored(results, entries))

    def read(self):
        """Answer all reads that wait."""
        waiting, self.reads = self.reads, []
        for effect in waiting:
            self.run(effect.then(self._found(effect)))

    def _found(self, effect):
        try:
            if isinstance(effect, Inspect):
                return self.store.inspect(effect.operation, 1)
            topic = effect.topic
            if isinstance(effect, Ask):
                extents = self.store.extents(topic.stored).get(topic.stored, {})
                logs = [{"log": log, **extent._asdict()} for log, extent in extents.items()]
                return {"position": self.store.resolve(topic.stored, effect.start), "logs": logs, "subscriptions": []}
            versions = {
                number: (version, None if effect.where is None else topic.predicate(effect.where, version))
                for number, version in topic.versions.items()
            }
            reader = LogReader(self.store, topic.stored, topic.name, effect.log, versions, effect.where is not None)
            if effect.only is not None:
                return reader.read_only(effect.only)
            return reader.read(effect.offset, effect.stop)
        except MilepostError as error:
            return error

    def flow(self):
        """Commit and read until nothing is under way."""
        auto, self.auto = self.auto, False
        for _ in range(STEPS):
            if self.writes:
                self.commit()
            elif self.reads:
                self.read()
            else:
                break
        else:
            raise AssertionError("the core goes round in circles")
        self.auto = auto

    def tick(self):
        self.run(self.core.tick(self.now))

    def client(self, name="", instance=None, resume=False, window=1 << 20, **more):
        connection = self.core.connected(f"test {name}", self.now)
        instance = os.urandom(16) if instance is None else instance
        self.say(connection, Hello(name=name, window=window, instance=instance, resume=resume, **more))
        return connection

    def lose(self, connection):
        self.run(self.core.lost(connection))

    def request(self, connection, kind, **fields):
        """Ask, and do not wait: the request's number."""
        number = next(self._requests)
        self.say(connection, kind(request=number, **fields))
        return number

    def answer(self, connection, number):
        return next((each for each in self.said.get(connection, []) if getattr(each, "request", 0) == number), None)

    def attach(self, connection, number=1, name="desk", pattern="quotes", start="earliest", **more):
        fields = {"subscription": number, "pattern": pattern, "durable": True, "name": name, "start": start} | more
        return self.request(connection, Subscribe, **fields)

    def ack(self, connection, sequence, *offsets, number=1, again=()):
        return self.request(
            connection,
            Ack,
            subscription=number,
            sequence=sequence,
            done={1: [[each, each] for each in offsets]} if offsets else {},
            again={1: [[each, each] for each in again]} if again else {},
        )

    def durable(self, name="feed"):
        """A publisher, and the durable topic `quotes`."""
        publisher = self.client(name)
        self.declare(publisher, durable=True)
        return publisher

    def store_rows(self, connection, rows, topic="quotes", key=b"", more=False, schema=QUOTE, stamps=None):
        stamps = stamps or [next(self._stamps) for _ in rows]
        ids = Ids.single(connection.publisher.number, BROKER_ID, stamps)
        data = milepost.encode(milepost.parse_schema(schema), rows, ids).data
        size = len(data) + 16
        put = self.core.put(connection, self.core.topics[topic].number, data, size, key, more)
        self.settle(examine([put], 1 << 20))

    def offsets(self, connection):
        return [offset for _, offsets, _ in self.hands.get(connection, []) for offset in offsets]

    def cursor(self, name="desk"):
        stored = self.core.topics["quotes"].stored
        found = next(each for each in self.store.subscriptions(stored) if each.name == name)
        return found.cursors[1].offset if 1 in found.cursors else 0
