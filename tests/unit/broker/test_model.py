"""Whatever happens, a connection gets exactly the rows that its subscriptions ask for, in order, each once."""

from hypothesis import given
from hypothesis import strategies as st

import milepost
from milepost.wire import Credit

from .rig import QUOTE, Rig

WHERES = [None, None, "price > 1", "price <= 1", "symbol = 'A'", "symbol like 'B%' or size = 2", "size in (1, 3)"]
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "symbol": st.sampled_from(["A", "B", "BB"]),
            "price": st.sampled_from([0.0, 1.0, 2.0]),
            "size": st.integers(0, 4),
        }
    ),
    min_size=1,
    max_size=6,
)
CLIENT = st.integers(0, 1)
PUT = st.tuples(st.just("put"), st.integers(0, 1), ROWS, st.sampled_from(["a", "a", "b"]))
SUBSCRIBE = st.tuples(
    st.just("subscribe"), CLIENT, st.integers(1, 4), st.sampled_from(["a", "b", "*"]), st.sampled_from(WHERES)
)
STEPS = st.lists(
    st.one_of(
        PUT,
        PUT,
        SUBSCRIBE,
        SUBSCRIBE,
        st.tuples(st.just("unsubscribe"), CLIENT, st.integers(1, 4)),
        st.tuples(st.just("credit"), CLIENT),
        st.tuples(st.just("block"), CLIENT),
        st.tuples(st.just("drain"), CLIENT),
        st.tuples(st.just("leave"), CLIENT),
    ),
    min_size=10,
    max_size=50,
)


class Model:
    """A rig, and what everybody should have got."""

    def __init__(self, cut_through):
        self.rig = Rig(cut_through=cut_through, join_bytes=1024)
        self.feeds = [self.rig.client() for _ in range(2)]
        for name in "ab":
            self.rig.declare(self.feeds[0], name)
        self.clients = [self.rig.client(window=200) for _ in range(2)]
        self.wanted = {client: {} for client in self.clients}
        self.expected = {client: [] for client in self.clients}
        self.schema = milepost.parse_schema(QUOTE)

    def put(self, feed, rows, topic):
        self.rig.put(self.feeds[feed], rows, topic)
        for client, wanted in self.wanted.items():
            for row in rows:
                marks = {
                    number
                    for number, (pattern, where) in wanted.items()
                    if pattern in (topic, "*") and (where is None or milepost.compile(where, self.schema).test(row))
                }
                if marks:
                    self.expected[client].append((row, marks))

    def subscribe(self, client, number, pattern, where):
        connection = self.clients[client]
        if connection.open and number not in self.wanted[connection]:
            self.rig.subscribe(connection, pattern, number, where)
            self.wanted[connection][number] = (pattern, where)

    def unsubscribe(self, client, number):
        connection = self.clients[client]
        if self.wanted.get(connection, {}).pop(number, None):
            self.rig.unsubscribe(connection, number)

    def credit(self, client):
        connection = self.clients[client]
        if connection.open:
            self.rig.say(connection, Credit(connection.window - connection.credit))

    def block(self, client):
        self.rig.taking[self.clients[client]] = False

    def drain(self, client):
        connection = self.clients[client]
        self.rig.taking[connection] = True
        if connection.open and connection.blocked:
            self.rig.run(self.rig.core.delivery.drained(connection))

    def leave(self, client):
        """Somebody goes, and somebody else comes in their place, perhaps under the same number."""
        gone = self.clients[client]
        self.rig.run(self.rig.core.lost(gone))
        self.wanted.pop(gone, None)
        self.expected.pop(gone, None)
        fresh = self.clients[client] = self.rig.client(window=200)
        self.wanted[fresh], self.expected[fresh] = {}, []

    def finish(self):
        for client in range(2):
            self.drain(client)
        while self.rig.core.delivery.turning or any(client.backlog for client in self.clients):
            self.rig.run(self.rig.core.delivery.turn())
            for client in range(2):
                self.credit(client)

    def got(self, client):
        found = []
        for _, marks, rows, _ in self.rig.got.get(client, []):
            each = marks if isinstance(marks, list) else [marks] * len(rows)
            found += [(row, set(mark)) for row, mark in zip(rows, each, strict=True)]
        return found


@given(STEPS, st.booleans())
def test_everybody_gets_exactly_what_they_asked_for(steps, cut_through):
    model = Model(cut_through)
    for name, *arguments in steps:
        getattr(model, name)(*arguments)
    model.finish()
    for client in model.clients:
        assert model.got(client) == model.expected[client]
    assert not model.rig.core.errors
    assert model.rig.core.statistics()["backlogs"] == {"connections": 0, "rows": 0, "bytes": 0}
