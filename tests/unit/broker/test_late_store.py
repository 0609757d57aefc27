"""Consumers come, go, die, acknowledge and send back while the store answers late, fails, or is killed with the broker.

Whatever the order: a row is acknowledged or dead, never both, and comes no more then; it is dead when it was delivered
so often, and not before.
"""

import shutil
import tempfile
from collections import Counter

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import milepost
from milepost.batch import Batch
from milepost.batch.header import fingerprint_of
from milepost.errors import InDoubt, StoreFull
from milepost.wire import Declare, DeclareQueue, DeclareType, Failure, Reply, Resume, Unsubscribe
from tests.unit.broker.durable_rig import DurableRig
from tests.unit.broker.rig import QUOTE
from tests.unit.broker.test_acknowledging import commit

VERSIONS = [f"{QUOTE[:-1]}{''.join(f', more{number}: int?' for number in range(count))}]" for count in range(6)]
SCHEMAS = {schema.fingerprint: schema for schema in map(milepost.parse_schema, VERSIONS)}


class Consumer:
    """A client as it sees itself."""

    def __init__(self, rig, prefetch, most):
        self.rig = rig
        self.connection = rig.client()
        self.attached = rig.attach(self.connection, prefetch=prefetch, max_deliveries=most, dead_letter="dead")
        self.sequence = 0
        self.transactions = 0
        self.held = []  # offsets that it has and has done nothing about
        self.taken = 0  # hands that were looked at
        self.asked = {}  # request -> offsets that it acknowledges

    def look(self):
        """Take what has come: offsets; and how acknowledgements went: offsets that are done, and in doubt."""
        came, done = [], []
        hands = self.rig.hands.get(self.connection, [])
        for _, offsets, _ in hands[self.taken :]:
            came += offsets
        self.taken = len(hands)
        self.held += came
        for request, offsets in list(self.asked.items()):
            answer = self.rig.answer(self.connection, request)
            if isinstance(answer, Reply):
                done += offsets
            elif isinstance(answer, Failure) and answer.code in ("store_full", "unknown_queue"):
                self.held += offsets  # they are still its own
            if answer is not None:
                del self.asked[request]
        return came, done


class LateStore(RuleBasedStateMachine):
    @initialize(most=st.sampled_from([1, 1, 2, 3]))
    def begin(self, most):
        self.folder = tempfile.mkdtemp()
        self.most = most
        self.rig = None
        self.ids = 0
        self.kills = 0
        self.doubts = 0  # a broker that does not know what is stored forgets, as one that was killed
        self.deliveries = Counter()
        self.unseen = Counter()  # of these, those that no application saw, as its client said
        self.done = set()
        self.perhaps = set()  # acknowledged, and nobody knows
        self.start()
        self.rig.auto = True
        feed = self.feeds[0]
        self.rig.declare(feed, durable=True)
        self.rig.ask(feed, DeclareType, text=QUOTE)
        self.rig.ask(feed, DeclareQueue, name="orders", types=["quote"])
        self.rig.auto = False

    def start(self):
        self.rig = DurableRig(self.folder)
        self.rig.run(self.rig.core.queues.begin())
        self.feeds = [self.rig.client("one"), self.rig.client("two")]
        self.rig.auto = False
        self.consumers = []

    def feed(self, which):
        if not self.feeds[which].open:
            self.rig.failing = None
            self.feeds[which] = self.rig.client(("one", "two")[which])
            self.rig.flow()  # it is welcome when the store has found it
        return self.feeds[which]

    @rule()
    def widen(self):
        """The topic of the dead has yet to hear of it."""
        version = len(self.rig.core.topics["quotes"].schemas)
        if version < len(VERSIONS):
            self.rig.request(self.feed(0), Declare, name="quotes", schema=VERSIONS[version])

    @rule(count=st.integers(1, 3), which=st.integers(0, 1))
    def put(self, count, which):
        connection = self.feed(which)
        self.rig.say(connection, Resume())
        rows = [{"symbol": "x", "price": 1.0, "size": self.ids + number} for number in range(count)]
        self.ids += count
        version = len(self.rig.core.topics["quotes"].schemas) - 1
        self.rig.store_rows(connection, rows, schema=VERSIONS[version])

    @rule(prefetch=st.integers(1, 5))
    def attach(self, prefetch):
        if len(self.consumers) < 3:
            self.consumers.append(Consumer(self.rig, prefetch, self.most))

    @rule(which=st.integers(0, 2))
    def lose(self, which):
        if which < len(self.consumers):
            consumer = self.consumers.pop(which)
            self.look(consumer)
            self.perhaps.update(offset for offsets in consumer.asked.values() for offset in offsets)
            self.rig.lose(consumer.connection)

    @rule(which=st.integers(0, 2), data=st.data())
    def detach(self, which, data):
        if which >= len(self.consumers):
            return
        consumer = self.consumers[which]
        self.look(consumer)
        if not isinstance(self.rig.answer(consumer.connection, consumer.attached), Reply):
            return
        seen = sorted(data.draw(st.sets(st.sampled_from(consumer.held)))) if consumer.held else []
        self.unseen.update(offset for offset in consumer.held if offset not in seen)
        self.perhaps.update(offset for offsets in consumer.asked.values() for offset in offsets)
        ranges = {1: [[offset, offset] for offset in seen]} if seen else {}
        self.rig.request(consumer.connection, Unsubscribe, subscription=1, seen=ranges)
        self.consumers.remove(consumer)
        self.rig.lose(consumer.connection)

    @rule(which=st.integers(0, 2), how=st.sampled_from(["ack", "nack", "commit", "failing commit"]), data=st.data())
    def acknowledge(self, which, how, data):
        if which >= len(self.consumers):
            return
        consumer = self.consumers[which]
        self.look(consumer)
        if not consumer.held or not consumer.connection.open:
            return
        some = sorted(data.draw(st.sets(st.sampled_from(consumer.held), min_size=1)))
        consumer.held = [offset for offset in consumer.held if offset not in some]
        consumer.sequence += 1
        if how == "nack":
            self.rig.ack(consumer.connection, consumer.sequence, again=some)
            return
        if how == "ack":
            number = self.rig.ack(consumer.connection, consumer.sequence, *some)
        else:
            consumer.transactions += 1
            queue = "orders" if how == "commit" else "nowhere"
            number = commit(
                self.rig, consumer.connection, consumer.sequence, *some, transaction=consumer.transactions, queue=queue
            )
        consumer.asked[number] = some

    @rule(most=st.integers(1, 4))
    def write_some(self, most):
        self.rig.commit(most)

    @rule(most=st.integers(1, 4))
    def write_and_not_know(self, most):
        self.doubts += 1
        self.rig.commit(most, doubt=InDoubt("the connection is gone"))

    @rule()
    def read(self):
        self.rig.read()

    @rule(which=st.integers(0, 2))
    def send_back_and_leave(self, which):
        """What it has may die by that, and is read again when it is gone."""
        if which < len(self.consumers):
            consumer = self.consumers[which]
            self.look(consumer)
            if consumer.held and consumer.connection.open:
                consumer.sequence += 1
                self.rig.ack(consumer.connection, consumer.sequence, again=sorted(consumer.held))
                consumer.held = []
                self.rig.commit(1)
                self.rig.read()
            self.lose(which)

    @rule(full=st.booleans())
    def fail(self, full):
        self.rig.failing = StoreFull("full") if full else None

    @rule()
    def tick(self):
        self.rig.now += 1
        self.rig.tick()

    @rule()
    def flow(self):
        self.rig.flow()

    @rule()
    def kill(self):
        self.kills += 1
        for consumer in self.consumers:
            self.look(consumer)
            self.perhaps.update(offset for offsets in consumer.asked.values() for offset in offsets)
        self.rig.kill()
        self.start()

    def look(self, consumer):
        came, done = consumer.look()
        self.done.update(done)
        for offset in came:
            assert offset not in self.done, f"{offset} was acknowledged, and comes again"
            self.deliveries[offset] += 1
            most = self.most + self.unseen[offset] + (1 if self.kills or self.doubts else 0)
            assert self.deliveries[offset] <= most, f"{offset} comes too often"

    @invariant()
    def nothing_comes_that_should_not(self):
        for consumer in getattr(self, "consumers", []):
            self.look(consumer)
        self.consumers = [each for each in getattr(self, "consumers", []) if each.connection.open or self.gone(each)]

    def gone(self, consumer):
        """The broker has closed its connection."""
        self.perhaps.update(offset for offsets in consumer.asked.values() for offset in offsets)
        return False

    def rows(self, topic):
        """The IDs of a topic's rows, in the order of their offsets."""
        found = []
        for entry in self.rig.store.read(self.rig.core.topics[topic].stored, 1, 0):
            found += Batch.trusted(entry.data, SCHEMAS[fingerprint_of(entry.data)]).column("size").tolist()
        return found

    def teardown(self):
        if not hasattr(self, "rig"):
            return
        try:
            self.finish()
        finally:
            self.rig.close()
            shutil.rmtree(self.folder)

    def finish(self):
        self.rig.failing = None
        while self.consumers:
            self.lose(0)
        for _ in range(3):
            self.rig.flow()
            self.tick()
        self.rig.flow()
        assert not self.rig.core.durable.subscriptions.named, "nobody is there, and everything is stored"
        assert not self.rig.core.durable.subscriptions.releases.pending
        consumer = Consumer(self.rig, 5, self.most)
        self.consumers.append(consumer)
        for _ in range(3 * self.ids + 3):
            self.rig.flow()
            self.look(consumer)
            if consumer.held:
                consumer.sequence += 1
                number = self.rig.ack(consumer.connection, consumer.sequence, *sorted(consumer.held))
                consumer.asked[number], consumer.held = consumer.held, []
        rows = self.rows("quotes")
        assert self.rig.cursor() == len(rows)
        dead = [rows.index(number) for number in (self.rows("dead") if "dead" in self.rig.core.topics else [])]
        assert len(set(dead)) == len(dead), "a row is dead once"
        assert not self.done & set(dead), "what is acknowledged is not dead"
        assert self.done | set(dead) | self.perhaps >= set(range(len(rows))), "nothing is lost"
        for offset in dead:
            assert self.deliveries[offset] >= self.most - self.kills, "nor is it dead too soon"


TestLateStore = LateStore.TestCase
TestLateStore.settings = hypothesis_settings(stateful_step_count=40, max_examples=20)  # each opens several databases
TestLateStore.pytestmark = [pytest.mark.slow]
