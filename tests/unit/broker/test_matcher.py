"""Rows that were stored are matched at once or in a thread, and those of a topic come back in order."""

from queue import SimpleQueue

import pytest

import milepost
from milepost.broker.core.effects import Match
from milepost.broker.core.predicates import Predicates
from milepost.broker.core.topics.topic import Topic
from milepost.broker.matcher import Matcher, is_long
from milepost.broker.predicate_cache import PredicateCache
from milepost.broker.scheduler import Scheduler
from milepost.errors import MilepostError
from tests.unit.broker.rig import QUOTE, quotes

SCHEMA = milepost.parse_schema(QUOTE)
INDEXED = ["size >= 0"]
ROWS = quotes(50)
UNINDEXED = [f"size * 2 <> {-number - 1}" for number in range(200)]


class Shell:
    """Has the matcher run effects, and notes their outcomes in order."""

    def __init__(self):
        self.calls = SimpleQueue()  # from the thread
        self.thread = Scheduler("test-match", self.calls.put)
        self.matcher = Matcher(self.thread, lambda effects: None)
        self.seen = []

    def topic(self, name):
        return Topic(1, name, SCHEMA, "throttle", Predicates(PredicateCache()))

    def match(self, topic, name, texts, rows=ROWS, schema=SCHEMA):
        (version,) = topic.versions.values()
        index = index_of(texts)
        batch = milepost.encode(schema, rows)
        effect = Match(topic, version, batch, index.snapshot(), None, lambda outcome: self.then(name, outcome))
        self.matcher.run(effect)
        return effect

    def then(self, name, outcome):
        self.seen.append((name, outcome))
        return []

    def take(self):
        self.calls.get(timeout=60)()

    @property
    def names(self):
        return [name for name, _ in self.seen]


def index_of(texts):
    from milepost.match import Index

    index = Index(SCHEMA)
    for key, text in enumerate(texts):
        index.add(key, milepost.compile(text, SCHEMA))
    return index


@pytest.fixture
def shell():
    shell = Shell()
    yield shell
    shell.thread.close()


def test_a_short_match_is_done_before_the_call_returns(shell):
    effect = shell.match(shell.topic("a"), "short", INDEXED)
    assert not is_long(effect)
    [(name, (plain, durable))] = shell.seen
    assert (name, len(plain.keys), durable) == ("short", 50, None)
    assert not len(shell.thread)


def test_matches_of_a_topic_come_in_order_and_other_topics_do_not_wait(shell):
    one, other = shell.topic("one"), shell.topic("other")
    assert is_long(shell.match(one, "long", UNINDEXED))
    shell.match(one, "behind it", INDEXED)
    shell.match(other, "beside it", INDEXED)
    assert shell.names == ["beside it"]
    shell.take()
    shell.match(one, "behind both", INDEXED)  # one is still on its way back
    assert shell.names == ["beside it", "long"]
    shell.take()
    shell.take()
    assert shell.names == ["beside it", "long", "behind it", "behind both"]
    shell.match(one, "at once again", INDEXED)
    assert shell.names[-1] == "at once again"


def test_a_match_that_fails_is_an_outcome_too(shell):
    other = milepost.parse_schema("other: [n: int]")
    shell.match(shell.topic("a"), "wrong", INDEXED, [{"n": 1}], other)
    [(_, outcome)] = shell.seen
    assert isinstance(outcome, MilepostError)
