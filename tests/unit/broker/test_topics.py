import sys
from collections import Counter

import pytest

import milepost
from milepost.batch.header import fingerprint_of
from milepost.broker.core.topics.pattern import covers
from milepost.wire import Declare, Delete, Failure, ListTopics, TopicAnnounced

from .rig import QUOTE, Rig, quotes

WIDER = "quote: [symbol: string, price: double, size: int, venue: string?]"


@pytest.mark.parametrize(
    ("pattern", "name", "answer"),
    [
        ("orders", "orders", True),
        ("orders", "orders.eu", False),
        ("orders.*", "orders.eu", True),
        ("orders.*", "orders", False),
        ("orders.*", "orders.eu.new", False),
        ("orders.>", "orders.eu", True),
        ("orders.>", "orders.eu.new", True),
        ("orders.>", "orders", False),
        ("*.eu", "orders.eu", True),
        ("*.eu", "orders.us", False),
        (">", "anything.at.all", True),
        ("*", "orders.eu", False),
    ],
)
def test_patterns(pattern, name, answer):
    assert covers(pattern, name) is answer


def test_declaring_twice_is_declaring_once():
    rig = Rig()
    one, two = rig.client(), rig.client()
    assert rig.declare(one) == {"number": 1, "created": True}
    assert rig.declare(one) == {"number": 1, "created": False}
    assert rig.declare(two) == {"number": 1, "created": False}
    assert [type(message) for message in rig.said[two]].count(TopicAnnounced) == 1
    assert rig.ask(two, Declare, name="quotes", schema=None) == {"number": 1, "created": False}


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        ({"name": "a b", "schema": QUOTE}, "broker", "joined by dots"),
        ({"name": "a.*", "schema": QUOTE}, "broker", "joined by dots"),
        ({"name": "", "schema": QUOTE}, "broker", "joined by dots"),
        ({"name": "x" * 300, "schema": QUOTE}, "limit_exceeded", "NAME_CHARS"),
        ({"name": "x", "schema": "quote: [symbol string]"}, "schema_syntax", "line 1"),
        ({"name": "x", "schema": "q: [a: int] check (b > 1)"}, "schema", "b"),
        ({"name": "x", "schema": QUOTE, "slow": "wait"}, "broker", "throttle, drop, disconnect"),
        ({"name": "quots", "schema": None}, "unknown_topic", "did you mean 'quotes'"),
        (
            {"name": "quotes", "schema": "quote: [symbol: string, price: int, size: int]"},
            "incompatible_schema",
            "price",
        ),
    ],
)
def test_what_cannot_be_declared_says_why_and_the_connection_stays(fields, code, words):
    rig = Rig()
    connection = rig.client()
    rig.declare(connection)
    answer = rig.ask(connection, Declare, **fields)
    assert isinstance(answer, Failure)
    assert (answer.code, answer.fatal) == (code, False)
    assert words in answer.message
    assert list(rig.core.topics) == ["quotes"]
    assert rig.core.errors == {code: 1}


def test_a_new_version_is_announced_and_both_versions_are_delivered():
    rig = Rig()
    old, new, reader = rig.client(), rig.client(), rig.client()
    rig.declare(old)
    rig.subscribe(reader)
    rig.declare(new, schema=WIDER)
    topics = [message for message in rig.said[reader] if isinstance(message, TopicAnnounced)]
    assert [len(topic.schemas) for topic in topics] == [1, 2]
    rig.put(old, quotes(1))
    rig.put(new, [{**quotes(1)[0], "venue": "X"}], schema=WIDER)
    assert [row.get("venue") for row in rig.rows(reader)] == [None, "X"]
    assert rig.declare(new, schema=QUOTE)["created"] is False  # the older one is still one of the topic's


def test_an_old_version_may_be_declared_after_a_new_one():
    rig = Rig()
    new, old, reader = rig.client(), rig.client(), rig.client()
    rig.declare(new, schema=WIDER)
    rig.subscribe(reader, where="venue = 'X' or price > 1")
    assert rig.declare(old, schema=QUOTE) == {"number": 1, "created": False}
    rig.put(old, quotes(3))
    rig.put(new, [{**quotes(1)[0], "venue": "X"}], schema=WIDER)
    assert [row.get("venue") for row in rig.rows(reader)] == [None, "X"]
    told = [message for message in rig.said[reader] if isinstance(message, TopicAnnounced)][-1]
    assert told.schemas == [QUOTE, WIDER]  # the newest is the last
    assert rig.subscribe(rig.client(), where="venue is null")["topics"] == ["quotes"]


def test_extensions_of_one_base_share_a_topic_and_filters_name_fields_of_all():
    rig = Rig()
    one, other, reader = rig.client(), rig.client(), rig.client()
    lot, desk = QUOTE.replace("]", ", lot: long]"), QUOTE.replace("]", ", desk: string]")
    rig.declare(one)
    rig.declare(one, schema=lot)
    rig.subscribe(reader, where="lot > 1")
    rig.declare(other, schema=desk)
    rig.subscribe(reader, where="lot > 1 or desk = 'eu'", number=2)
    rig.subscribe(reader, where="lot is null and desk is null", number=3)
    row = quotes(1)[0]
    rig.put(one, [{**row, "lot": 2}], schema=lot)
    rig.put(other, [{**row, "desk": "eu"}], schema=desk)
    rig.put(one, [row])
    assert [tuple(sorted(marks)) for _, marks, _, _ in rig.got[reader]] == [(1, 2), (2,), (3,)]
    answer = rig.ask(one, Declare, name="quotes", schema=QUOTE.replace("]", ", lot: int]"))
    assert (answer.code, "lot: it was long and is int" in answer.message) == ("incompatible_schema", True)
    answer = rig.ask(one, Declare, name="quotes", schema="quote: [sym: string, price: double, size: int]")
    assert (answer.code, "symbol" in answer.message) == ("incompatible_schema", True)


def test_rows_of_an_old_version_cost_a_filter_little_more_than_new_ones():
    rig = Rig()
    connection, reader = rig.client(), rig.client()
    rig.declare(connection)
    rig.declare(connection, schema=WIDER)
    rig.subscribe(reader, where="venue = 'X' and price > 100")
    topic = rig.core.topics["quotes"]

    def calls(schema, rows):
        """How many functions are called for a batch that matches nothing: unlike time, the same on every machine."""
        data = rig.batch(connection, rows, schema).data
        version = topic.versions[fingerprint_of(data)]
        batch = milepost.decode(data, version.schema)
        snapshot = version.index.snapshot()
        found = Counter()
        snapshot.match(version.view(batch))  # what is made once for a schema
        sys.setprofile(lambda frame, event, _: found.update([event]))
        try:
            snapshot.match(version.view(batch))
        finally:
            sys.setprofile(None)
        return found["call"] + found["c_call"]

    new = calls(WIDER, [{**row, "venue": "Y"} for row in quotes(100)])
    old = calls(QUOTE, quotes(100))
    assert old < new + 150  # through Arrow, and comparing the schemas each time, it was 350 more


def test_a_topic_can_be_listed_and_deleted():
    rig = Rig()
    connection, other = rig.client(), rig.client()
    rig.declare(connection, "a.b")
    rig.declare(connection, "a.c", slow="drop")
    rig.subscribe(other, "a.b", number=1)
    rig.subscribe(other, "a.>", number=2)
    listed = rig.ask(connection, ListTopics, pattern="a.*")
    assert [(each["name"], each["slow"], each["subscriptions"]) for each in listed] == [
        ("a.b", "throttle", 2),
        ("a.c", "drop", 1),
    ]
    assert rig.ask(connection, ListTopics, pattern="a b").code == "broker"
    rig.put(connection, quotes(3), "a.b")
    before = rig.core.statistics()["totals"]
    assert rig.ask(connection, Delete, name="a.b") == {"subscriptions": 2}
    assert rig.core.statistics()["totals"] == before  # counters do not go back
    assert rig.ask(connection, Delete, name="a.b").code == "unknown_topic"
    assert list(other.subscriptions) == [2]
    assert rig.unsubscribe(other, 1).code == "unknown_subscription"
    rig.declare(connection, "a.b")
    rig.put(connection, quotes(1), "a.b")
    assert rig.got[other][-1][1] == (2,)  # the pattern meets the new topic
