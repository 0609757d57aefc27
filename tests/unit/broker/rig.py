"""A core with clients that are written down: no sockets, no clock, no threads."""

from itertools import count, pairwise

import milepost
from milepost.batch import Ids
from milepost.broker.core import Close, Core, Deliver, Say
from milepost.broker.core.effects import Acknowledge, Compile, Later, Match
from milepost.broker.examination import examine
from milepost.broker.matcher import is_long, match
from milepost.broker.predicate_cache import PredicateCache
from milepost.config import settings
from milepost.wire import Declare, Hello, Reply, Stored, Subscribe, Tags, Unsubscribe, Welcome, read_deliver

QUOTE = "quote: [symbol: string, price: double, size: int]"
BROKER_ID = 7


class Rig:
    """A core, and what it did to each connection."""

    def __init__(self, **changes):
        self.cache = PredicateCache()
        self.core = Core(settings(**changes), BROKER_ID, draw=count(100).__next__, cache=self.cache, version="test")
        self.now = 0.0
        self.said = {}  # connection -> control messages
        self.got = {}  # connection -> deliveries, as (topic number, tags, rows)
        self.places = {}  # connection -> places of its deliveries: a log, and the offset that it has got to
        self.closed = set()
        self.elsewhere = []  # what is to be done outside of the event loop, or in another round of it
        self.at_once = True  # it is done before anything else happens
        self.taking = {}  # connection -> False when its channel takes nothing
        self._requests = count(1)
        self._stamps = count(1_000)

    def matched(self, effects):
        """Effects with what the core makes of short matches in their place, as in the shell."""
        result = []
        for effect in effects:
            if isinstance(effect, Match) and not is_long(effect) and not self._waits(effect.topic):
                result += self.matched(effect.then(match(effect)))
            else:
                result.append(effect)
        return result

    def _waits(self, topic):
        return any(isinstance(each, Match) and each.topic is topic for each in self.elsewhere)

    def run(self, effects):
        effects = self.matched(effects)
        while effects:
            more = []
            for effect in effects:
                match effect:
                    case Compile() | Match() | Later():
                        self.elsewhere.append(effect)
                    case Say(connection, message):
                        self.said.setdefault(connection, []).append(message)
                    case Acknowledge(puts):
                        for connection, put in puts.items():
                            self.said.setdefault(connection, []).append(Stored(put))
                    case Close(connection):
                        self.closed.add(connection)
                    case Deliver(parts, connections):
                        frame = b"".join(parts)
                        for connection in connections:
                            self._take(connection, frame)
                            if not self.taking.get(connection, True):
                                self.core.delivery.blocked(connection)
                            elif connection.backlog is not None:
                                more.append(connection)
            effects = [effect for connection in more for effect in self.core.delivery.served(connection)]

            while self.at_once and self.elsewhere:
                self.do_next()

    def do_next(self):
        """Do the first of what is to be done elsewhere, and tell the core."""
        match self.elsewhere.pop(0):
            case Compile(_, work, then):
                self.run(then(finished(work())))
            case Match() as effect:
                self.run(effect.then(match(effect)))
            case Later(_, then):
                self.run(then())

    def _take(self, connection, frame):
        found = read_deliver(frame[5], frame[8:])
        schemas = {schema.fingerprint: schema for schema in self.core.numbered[found.topic].schemas}
        batch = milepost.decode(found.data, milepost_registry(schemas, found.data))
        tags = found.tags
        if isinstance(tags, Tags):
            edges = tags.offsets.tolist()
            tags = [tuple(tags.subscriptions[a:b].tolist()) for a, b in pairwise(edges)]
        self.got.setdefault(connection, []).append((found.topic, tags, batch.to_pylist(), len(frame)))
        self.places.setdefault(connection, []).append(found.place)

    def say(self, connection, message):
        self.run(self.core.said(connection, message, self.now, 1_000))

    def client(self, name="", window=1 << 20, slow=None):
        connection = self.core.connected(f"test {name}", self.now)
        self.say(connection, Hello(name=name, window=window, slow=slow))
        assert isinstance(self.last(connection), Welcome), self.said[connection]
        return connection

    def ask(self, connection, request, **fields):
        """The reply's value, or the failure."""
        number = next(self._requests)
        self.say(connection, request(request=number, **fields))
        answer = self.last(connection)
        assert answer.request == number
        return answer.value if isinstance(answer, Reply) else answer

    def declare(self, connection, name="quotes", schema=QUOTE, **more):
        return self.ask(connection, Declare, name=name, schema=schema, **more)

    def subscribe(self, connection, pattern="quotes", number=1, where=None):
        return self.ask(connection, Subscribe, subscription=number, pattern=pattern, where=where)

    def unsubscribe(self, connection, number=1):
        return self.ask(connection, Unsubscribe, subscription=number)

    def batch(self, connection, rows, schema=QUOTE):
        ids = Ids.single(connection.publisher.number, BROKER_ID, [next(self._stamps) for _ in rows])
        return milepost.encode(milepost.parse_schema(schema), rows, ids)

    def put(self, connection, rows, topic="quotes", schema=QUOTE):
        """Put rows; returns the bytes of the frame."""
        return self.put_data(connection, self.batch(connection, rows, schema).data, topic)

    def put_data(self, connection, data, topic="quotes"):
        size = len(data) + 16
        put = self.core.put(connection, self.core.topics[topic].number, data, size)
        self.settle(examine([put], 1 << 20))
        return size

    def settle(self, results):
        for result in results:
            self.run(self.core.arrived(*result))

    def last(self, connection):
        return self.said[connection][-1]

    def rows(self, connection):
        """All rows that a connection got, in order."""
        return [row for _, _, rows, _ in self.got.get(connection, []) for row in rows]

    def sizes(self, connection):
        return [size for *_, size in self.got.get(connection, [])]


def finished(work):
    """What work in pieces comes to."""
    while True:
        try:
            next(work)
        except StopIteration as stop:
            return stop.value


def milepost_registry(schemas, data):
    return schemas[int.from_bytes(bytes(data[8:16]), "little")]


def quotes(count, symbol="IBM", start=0):
    return [{"symbol": symbol, "price": float(number), "size": number} for number in range(start, start + count)]
