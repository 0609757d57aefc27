"""A small broker that stores, and can be told to lose connections: a peer for clients of durable topics.

It speaks the wire frames by hand and keeps what real brokers keep (rows, high waters, cursors, sequences), in the
simplest way that is right: one log, one row after the other, no groups, no time.
"""

import asyncio
import itertools

import numpy as np
import pytest

from milepost import transport
from milepost.batch import Batch
from milepost.client import AsyncClient, session
from milepost.client.backoff import Backoff
from milepost.query import parse_schema
from milepost.transport import parse_address
from milepost.wire import (
    MORE,
    Ack,
    Credit,
    Declare,
    Failure,
    Hello,
    Kind,
    Look,
    Ping,
    Pong,
    Reply,
    Resume,
    Stored,
    Subscribe,
    TopicAnnounced,
    Trim,
    Unsubscribe,
    Welcome,
    decode_control,
    encode_control,
    hand_parts,
    read_key,
    read_put,
)

SCHEMA = parse_schema("s: [n: int]")
LOG = 3
TOPICS = {"kept": 7, "other": 8, "live": 9}
_names = itertools.count(1)


class Store:
    """What outlives connections."""

    def __init__(self):
        self.id = "store-1"
        self.broker_id = 1
        self.rows = {"kept": [], "other": []}  # (stamp, n), in the order of the log
        self.publishers = {}  # by instance: [number, high water]
        self.keys = set()
        self.cursors = {}  # by name: (topic, set of consumed offsets)
        self.sequences = {}  # by name and instance
        self.tries = {}
        self.removed = {}  # names of subscriptions, by the token that removed them
        self.requests = []  # control frames, of all connections
        self.connections = []
        self.batches = []  # rows of each PUT that arrived
        # For each PUT without a channel and each ACK: "", "before", "after" or "store". With "doubt before" or
        # "doubt after" the connection is not cut, but closed by a broker that cannot tell what became of a commit.
        self.faults = iter(())
        self.unwilling = None  # a kind of request: the first one ends its connection, in doubt
        self.deaf = False  # answers no HELLO
        self.gone = set()  # topics that are not there any more
        self.paused = False  # answers no PUT
        self.busy = False  # gives no credit
        self.news = asyncio.Event()
        self.welcome = {}
        self.schema = SCHEMA  # of every topic

    def accept(self):
        self.connections.append(Peer(self))
        return self.connections[-1]

    @property
    def peer(self):
        return self.connections[-1]

    def values(self, topic="kept"):
        return [n for _, n in self.rows[topic]]

    def put(self, topic, values):
        """Rows of another publisher."""
        self.rows[topic] += [(0, n) for n in values]
        for peer in self.connections:
            peer.pump()

    async def until(self, condition):
        while not condition():
            self.news.clear()
            await self.news.wait()

    def heard(self, kind):
        return [said for said in self.requests if isinstance(said, kind)]


class Peer:
    """One connection."""

    def __init__(self, store):
        self.store = store
        self.channel = None
        self.puts = 0
        self.outstanding = self.window = 0  # bytes of puts that were not given back, and how many there may be
        self.linked = []
        self.broken = False  # a put failed, and RESUME has not come
        self.subscriptions = {}  # number: (name, topic, handed out: set of offsets)
        self.cursors = {}  # of replays, by number
        self.hello = None

    def connected(self, channel):
        channel.set_limit(1 << 24)
        self.channel = channel

    def say(self, *messages):
        for message in messages:
            self.channel.write(encode_control(message))

    def cut(self):
        channel, self.channel = self.channel, None
        self.subscriptions.clear()
        if channel is not None:
            channel.abort()
            for peer in self.store.connections:
                peer.pump()  # what this client had is for the others

    def send_away(self):
        """As a broker whose store is in doubt."""
        if self.channel is not None:
            self.say(Failure(code="in_doubt", message="nobody knows", fatal=True))
            channel, self.channel = self.channel, None
            self.subscriptions.clear()
            channel.close()
            for peer in self.store.connections:
                peer.pump()

    def failed(self, fault, when):
        """Whether a fault is one of before or after the commit, and then the connection is gone."""
        if fault == when:
            self.cut()
        elif fault == f"doubt {when}":
            self.send_away()
        return self.channel is None

    def frames(self, frames):
        for kind, flags, body in frames:
            if self.channel is None:
                return
            if kind == Kind.PUT:
                self.put(flags, body)
            else:
                said = decode_control(kind, body)
                self.store.requests.append(said)
                self.hear(said)
        if not self.store.busy:
            self.credit()
        self.store.news.set()

    def drained(self): ...
    def refused(self, error): ...

    def lost(self, error):
        self.channel = None
        self.subscriptions.clear()

    def hear(self, said):
        store = self.store
        if store.unwilling is not None and isinstance(said, store.unwilling):
            store.unwilling = None
            self.send_away()
            return
        match said:
            case Hello():
                if store.deaf:
                    return
                self.hello = said
                known = store.publishers.get(said.instance) if said.resume else None
                self.known = known or [len(store.publishers) + 100 + len(store.connections), 0]
                welcome = Welcome(**{
                    "broker": "peer", "broker_id": store.broker_id, "publisher": self.known[0],
                    "high_water": self.known[1], "time_us": 0, "window": 1 << 20, "heartbeat_s": 60.0,
                    "store_id": store.id,
                } | store.welcome)  # fmt: skip
                self.window = welcome.window
                self.say(welcome)
            case Declare():
                number = None if said.name in store.gone else TOPICS.get(said.name)
                if number is None:
                    self.say(Failure(code="unknown_topic", message=f"no topic {said.name!r}", request=said.request))
                    return
                self.say(self.topic(said.name), Reply(request=said.request, value={"number": number, "created": True}))
            case Ping():
                self.say(Pong(said.number))
            case Resume():
                self.broken = False
            case Subscribe():
                self.subscribe(said)
            case Unsubscribe():
                self.unsubscribe(said)
            case Ack():
                self.ack(said)
            case Look():
                logs = [{"log": LOG, "start": 0, "next": len(store.rows[said.topic])}]
                self.say(Reply(request=said.request, value={"logs": logs, "subscriptions": []}))
            case Trim():
                self.say(Reply(request=said.request, value={"rows": said.before[LOG]}))

    def topic(self, name):
        return TopicAnnounced(number=TOPICS[name], name=name, schemas=[str(self.store.schema)], durable=name != "live")

    # Puts

    def credit(self):
        if self.outstanding and self.channel is not None:
            self.say(Credit(self.outstanding))
            self.outstanding = 0

    def put(self, flags, body):
        if self.outstanding >= self.window:
            self.say(Failure(code="protocol", message="a put without credit", fatal=True))
            self.channel.close()
            self.channel = None
            return
        self.puts += 1
        self.outstanding += len(body) + 8
        key, body = read_key(flags, body)
        number, data = read_put(body)
        name = next(name for name, each in TOPICS.items() if each == number)
        batch = Batch.decode(data, self.store.schema)
        self.store.batches.append([row.n for row in batch])
        self.linked.append((name, batch))
        if flags & MORE:
            return
        parts, self.linked = self.linked, []
        if name == "live":
            return
        fault = "store" if self.broken else next(self.store.faults, "")
        if self.failed(fault, "before"):
            return
        if fault == "store":
            self.broken = True
            self.say(Failure(code="store_full", message="the disk is full", put=self.puts, topic=name))
            return
        if key and key in self.store.keys:
            self.say(Failure(code="duplicate_message", message="stored already", put=self.puts, topic=name))
            return
        self.commit(parts, key)
        if not self.failed(fault, "after") and not self.store.paused:
            self.say(Stored(self.puts))
        for peer in self.store.connections:
            peer.pump()

    def commit(self, parts, key):
        known = self.store.publishers.setdefault(self.hello.instance, self.known)
        if key:
            self.store.keys.add(key)
        for name, batch in parts:
            assert {run.publisher for run in batch.ids.runs} == {known[0]}
            assert {run.broker for run in batch.ids.runs} == {self.store.broker_id}
            for row, stamp in zip(batch, batch.ids.stamps.tolist(), strict=True):
                if stamp > known[1]:
                    known[1] = stamp
                    self.store.rows[name].append((stamp, row.n))

    # Subscriptions

    def subscribe(self, said):
        store = self.store
        if not said.durable:
            self.say(
                self.topic(said.pattern),
                Reply(request=said.request, value={"topics": [said.pattern], "skipped": {}}),
            )
            return
        log = store.rows[said.pattern]
        begin = {"earliest": 0, "new": len(log), None: len(log)}
        start = said.start["position"].get(LOG, 0) if isinstance(said.start, dict) else begin[said.start]
        created = False
        if said.name:
            if said.name not in store.cursors:
                if not said.create:
                    why = f"no subscription {said.name!r}"
                    self.say(Failure(code="unknown_subscription", message=why, request=said.request))
                    return
                store.cursors[said.name] = (said.pattern, set(range(start)))
                created = True
        else:
            self.cursors[said.subscription] = start
        self.subscriptions[said.subscription] = (said.name, said.pattern, set())
        sequence = store.sequences.get((said.name, self.hello.instance), 0)
        value = {"created": created, "position": {LOG: start}, "sequence": sequence}
        self.say(self.topic(said.pattern), Reply(request=said.request, value=value))
        self.pump()

    def unsubscribe(self, said):
        self.subscriptions.pop(said.subscription, None)
        if said.name:
            if self.store.cursors.pop(said.name, None) is None and said.token not in self.store.removed:
                why = f"no subscription {said.name!r}"
                self.say(Failure(code="unknown_subscription", message=why, request=said.request))
                return
            self.store.removed[said.token] = said.name
        fault = next(self.store.faults, "") if said.name else ""
        if fault:
            self.cut()
            return
        self.say(Reply(request=said.request, value=True))

    def pump(self):
        """Hand out what is there and nobody has."""
        for number, (name, topic, handed) in list(self.subscriptions.items()):
            log = self.store.rows[topic]
            if name:
                consumed = self.store.cursors[name][1]
                others = {
                    offset
                    for peer in self.store.connections
                    for other, _, theirs in peer.subscriptions.values()
                    if other == name
                    for offset in theirs
                }
                offsets = [offset for offset in range(len(log)) if offset not in consumed | others]
                handed.update(offsets)
            else:
                offsets = list(range(self.cursors[number], len(log)))
                self.cursors[number] = len(log)
            if offsets:
                self.hand(number, topic, offsets, name)

    def hand(self, number, topic, offsets, name=""):
        rows = [{"n": self.store.rows[topic][offset][1]} for offset in offsets]
        tries = np.array([self.store.tries.get((name, offset), 0) for offset in offsets], np.uint32)
        for offset in offsets:
            self.store.tries[name, offset] = self.store.tries.get((name, offset), 0) + 1
        data = Batch.encode(SCHEMA, rows).data
        told = tries if tries.any() else None
        self.channel.write(*hand_parts(TOPICS[topic], number, LOG, np.array(offsets, np.uint64), told, data))

    def ack(self, said):
        name, _, handed = self.subscriptions[said.subscription]
        fault = next(self.store.faults, "")
        if self.failed(fault, "before"):
            return
        if fault == "store":
            self.say(Failure(code="store_full", message="the disk is full", request=said.request))
            return
        member = name, self.hello.instance
        if said.sequence > self.store.sequences.get(member, 0):
            done, again = _named(said.done), _named(said.again)
            if done is None or again is None or done & again or not done | again <= handed:
                self.say(Failure(code="ack_mismatch", message="not yours", request=said.request))
                return
            self.store.sequences[member] = said.sequence
            self.store.cursors[name][1].update(done)
            handed -= done | again
        if self.failed(fault, "after"):
            return
        self.say(Reply(request=said.request, value={"sequence": said.sequence}))
        self.pump()


def _named(told):
    """The offsets of an acknowledgement; None when its ranges do not ascend, or lie over one another."""
    found = told.get(LOG, [])
    if any(first > last for first, last in found) or any(a[1] >= b[0] for a, b in itertools.pairwise(found)):
        return None
    return {offset for first, last in found for offset in range(first, last + 1)}


class Eager(Backoff):
    """Does not wait, and remembers how long it would have."""

    bounds = ()

    def next(self):
        Eager.bounds += (self.bound,)
        super().next()
        return 0.0


def with_store(test, *, options=None, clients=1, eager=False):
    """Run a test with a store and clients of it; `eager` ones connect again without delay."""

    async def whole():
        async with asyncio.timeout(120):
            address = f"inproc://storing-{next(_names)}"
            store = Store()
            listener = await transport.listen(parse_address(address), store.accept)
            made = [AsyncClient(address, **(options or {})) for _ in range(clients)]
            try:
                for client in made:
                    await client.connect()
                await test(store, *made)
            finally:
                for client in made:
                    await client.close(drain=False)
                await listener.close()

    with pytest.MonkeyPatch.context() as patch:
        if eager:
            Eager.bounds = ()
            patch.setattr(session, "Backoff", Eager)
        asyncio.run(whole())


def rows(values):
    return [{"n": n} for n in values]
