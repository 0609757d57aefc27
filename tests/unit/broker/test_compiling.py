"""What needs compiling is put off until it is compiled: nothing has changed by then, and nothing is overtaken."""

from random import Random

import pytest

import milepost
from milepost.broker import predicate_cache as caching
from milepost.broker.core.effects import Compile, Later, Match
from milepost.broker.core.predicates import Predicates, Uncompiled
from milepost.broker.core.topics.catalogue import COVERED_AT_ONCE, FORGOTTEN_AT_ONCE
from milepost.broker.predicate_cache import PredicateCache
from milepost.errors import BrokerError, QueryError
from milepost.operations import Extent
from milepost.query.shape import SHAPES
from milepost.wire import Declare, Delete, Failure, Reply, Subscribe, Unsubscribe

from .durable_rig import DurableRig
from .rig import QUOTE, Rig, finished, quotes

WIDER = "quote: [symbol: string, price: double, size: int, more: int?]"
WIDEST = "quote: [symbol: string, price: double, size: int, more: int?, most: int?]"


def later(rig):
    rig.at_once = False
    return rig


def ask(rig, connection, kind, **fields):
    number = next(rig._requests)
    rig.say(connection, kind(request=number, **fields))
    return number


def answer(rig, connection, number):
    found = [each for each in rig.said[connection] if isinstance(each, Reply | Failure) and each.request == number]
    assert len(found) <= 1
    return found[0] if found else None


def fresh(number=0):
    """A predicate of a shape that nobody asked for before."""
    fresh.count += 1
    return f"size + 0 <> {number}" + " and size <> 0" * fresh.count


fresh.count = 0


def test_a_subscription_is_there_from_its_reply_on_and_not_before():
    rig = later(Rig())
    feed, desk = rig.client(), rig.client()
    rig.declare(feed)
    number = ask(rig, desk, Subscribe, subscription=1, pattern="quotes", where=fresh())
    assert answer(rig, desk, number) is None
    assert desk.busy
    assert [type(each) for each in rig.elsewhere] == [Compile]
    rig.put(feed, quotes(3, start=1))
    assert rig.rows(desk) == []
    rig.do_next()
    assert isinstance(answer(rig, desk, number), Reply)
    assert not desk.busy
    rig.put(feed, quotes(3, start=1))
    assert rig.rows(desk) == quotes(3, start=1)


def test_what_is_known_or_short_is_not_put_off():
    rig = later(Rig())
    desk = rig.client()
    rig.declare(desk)
    text = fresh()
    ask(rig, desk, Subscribe, subscription=1, pattern="quotes", where=text)
    rig.do_next()
    rig.subscribe(desk, number=2, where=text)
    rig.subscribe(desk, number=3, where=text.replace("<> 0", "<> 17"))
    rig.subscribe(desk, number=4)
    assert not rig.elsewhere


def test_an_error_is_told_when_it_is_found():
    rig = later(Rig())
    desk = rig.client()
    rig.declare(desk)
    number = ask(rig, desk, Subscribe, subscription=1, pattern="quotes", where="nosuch > 3 and size = 8")
    rig.do_next()
    assert "nosuch" in answer(rig, desk, number).message
    assert not rig.core.topics["quotes"].subscriptions
    assert not desk.subscriptions


@pytest.mark.parametrize("gone", ["client", "topic"])
def test_what_goes_away_while_its_predicate_is_compiled(gone):
    rig = later(Rig())
    feed, desk = rig.client(), rig.client()
    rig.declare(feed)
    number = ask(rig, desk, Subscribe, subscription=1, pattern="quotes", where=fresh())
    if gone == "client":
        rig.run(rig.core.lost(desk))
    else:
        rig.ask(feed, Delete, name="quotes")
    rig.do_next()
    if gone == "client":
        assert answer(rig, desk, number) is None
        assert not rig.core.topics["quotes"].subscriptions
    else:
        assert "no topic" in answer(rig, desk, number).message
    assert not rig.elsewhere


def test_a_version_that_comes_while_a_predicate_is_compiled():
    rig = later(Rig())
    feed, desk = rig.client(), rig.client()
    rig.declare(feed)
    number = ask(rig, desk, Subscribe, subscription=1, pattern="quotes", where=fresh())
    rig.declare(feed, schema=WIDER)
    while rig.elsewhere:
        rig.do_next()
    assert isinstance(answer(rig, desk, number), Reply)
    rig.put(feed, [row | {"more": 1} for row in quotes(2, start=1)], schema=WIDER)
    rig.put(feed, quotes(2, start=1), schema=QUOTE)
    assert [row["size"] for row in rig.rows(desk)] == [1, 2, 1, 2]


def test_a_pattern_gets_its_topics_some_at_a_time():
    rig = later(Rig())
    feed, desk = rig.client(), rig.client()
    count = 3 * COVERED_AT_ONCE + 1
    for each in range(count):
        rig.declare(feed, f"t.{each}")
    number = ask(rig, desk, Subscribe, subscription=1, pattern="t.*")
    steps = 0
    while rig.elsewhere:
        assert [type(each) for each in rig.elsewhere] == [Later]
        assert desk.busy
        assert answer(rig, desk, number) is None
        if steps == 1:
            rig.declare(feed, "t.new")  # which is covered as any later one
            rig.ask(feed, Delete, name="t.0")
            rig.ask(feed, Delete, name=f"t.{count - 1}")
        rig.do_next()
        steps += 1
    assert steps == 3
    value = answer(rig, desk, number).value
    assert sorted(value["topics"]) == sorted([f"t.{each}" for each in range(1, count - 1)] + ["t.new"])
    for name in value["topics"]:
        rig.put(feed, quotes(1), name)
    assert len(rig.rows(desk)) == count - 1
    rig.unsubscribe(desk)
    assert not any(len(topic) for topic in rig.core.topics.values())


def test_a_client_that_leaves_while_it_gets_its_topics():
    rig = later(Rig())
    feed, desk = rig.client(), rig.client()
    for each in range(3 * COVERED_AT_ONCE):
        rig.declare(feed, f"t.{each}")
    ask(rig, desk, Subscribe, subscription=1, pattern="t.*")
    rig.do_next()
    rig.run(rig.core.lost(desk))
    while rig.elsewhere:
        rig.do_next()
    assert not any(len(topic) for topic in rig.core.topics.values())


def test_a_topic_is_there_when_the_predicates_of_its_patterns_are_compiled():
    rig = later(Rig())
    feed, desk = rig.client(), rig.client()
    wheres = [fresh(number) for number in range(3)]
    for number, where in enumerate(wheres):
        rig.subscribe(desk, "t.*", number, where)
    first = ask(rig, feed, Declare, name="t.a", schema=QUOTE)
    second = ask(rig, rig.client(), Declare, name="t.a", schema=QUOTE)
    assert "t.a" not in rig.core.topics
    assert second
    while rig.elsewhere:
        rig.do_next()
    assert answer(rig, feed, first).value["created"]
    assert len(rig.core.topics["t.a"].subscriptions) == 3
    rig.put(feed, quotes(1, start=5), "t.a")
    assert [sorted(marks) for _, marks, _, _ in rig.got[desk]] == [[0, 1, 2]]


def test_versions_are_rebuilt_elsewhere_whatever_comes_and_goes_meanwhile():
    """Against a topic that had both versions before any subscription."""
    for seed in range(8):
        rng = Random(seed)
        rig = later(Rig())
        feed, desk, twin = rig.client(), rig.client(), rig.client()
        rig.declare(feed)
        rig.declare(feed, "twin", QUOTE)
        rig.declare(feed, "twin", WIDER)
        wheres = [f"size % {number + 2} = {rng.randrange(2)}" + " and price >= 0" * 20 for number in range(40)]
        there = set()

        def change(number, rig=rig, desk=desk, twin=twin, there=there, wheres=wheres):
            for connection, topic in ((desk, "quotes"), (twin, "twin")):
                if number in there:
                    rig.unsubscribe(connection, number)
                else:
                    rig.at_once = False
                    before = list(rig.elsewhere)
                    rig.elsewhere.clear()
                    ask(rig, connection, Subscribe, subscription=number, pattern=topic, where=wheres[number])
                    while rig.elsewhere:
                        rig.do_next()
                    rig.elsewhere += before
            there.symmetric_difference_update({number})

        for number in range(30):
            change(number)
        declared = ask(rig, feed, Declare, name="quotes", schema=WIDER)
        [effect] = rig.elsewhere
        work = effect.work()
        outcome = None
        while outcome is None:
            for _ in range(rng.randrange(8)):
                try:
                    next(work)
                except StopIteration as stop:
                    outcome = stop.value
                    break
            for _ in range(rng.randrange(3)):
                change(rng.randrange(40))
        assert answer(rig, feed, declared) is None
        rig.elsewhere.clear()
        rig.run(effect.then(outcome))
        while rig.elsewhere:
            rig.do_next()
        assert isinstance(answer(rig, feed, declared), Reply), seed
        rows = [row | {"more": 1} for row in quotes(30)]
        for name in ("quotes", "twin"):
            rig.put(feed, rows, name, WIDER)
            rig.put(feed, quotes(30), name)
        seen = [
            [
                (row["size"], sorted(mark))
                for _, marks, part, _ in rig.got.get(each, [])
                for row, mark in pairs(part, marks)
            ]
            for each in (desk, twin)
        ]
        assert seen[0] == seen[1], seed


def pairs(rows, marks):
    return zip(rows, [marks] * len(rows) if isinstance(marks, tuple) else marks, strict=True)


def test_two_new_versions_at_once():
    rig = later(Rig())
    feed, desk, other = rig.client(), rig.client(), rig.client()
    rig.declare(feed)
    for number in range(60):
        ask(
            rig,
            desk,
            Subscribe,
            subscription=number,
            pattern="quotes",
            where=f"size >= {number}" + " and size >= 0" * 9,
        )
        while rig.elsewhere:
            rig.do_next()
    one = ask(rig, feed, Declare, name="quotes", schema=WIDER)
    two = ask(rig, other, Declare, name="quotes", schema=WIDEST)
    same = ask(rig, rig.client(), Declare, name="quotes", schema=WIDER)
    assert len(rig.elsewhere) == 3
    while rig.elsewhere:
        rig.do_next()
    assert isinstance(answer(rig, feed, one), Reply)
    assert isinstance(answer(rig, other, two), Reply)
    assert same
    topic = rig.core.topics["quotes"]
    assert [str(schema) for schema in topic.schemas] == [QUOTE, WIDER, WIDEST]
    assert [len(version.index) for version in topic.versions.values()] == [60, 60, 60]
    assert not topic._rebuilds


def rebuilding(subscriptions):
    """A rig, a client that has declared a new version of a topic, and the rebuild that this waits for."""
    rig = later(Rig())
    feed, desk = rig.client(), rig.client()
    rig.declare(feed)
    for number in range(subscriptions):
        subscribe_long(rig, desk, number)
    declared = ask(rig, feed, Declare, name="quotes", schema=WIDER)
    [effect] = rig.elsewhere
    rig.elsewhere.clear()
    return rig, feed, desk, declared, effect


def subscribe_long(rig, connection, number):
    where = f"size >= {number}" + " and size >= 0" * 9
    ask(rig, connection, Subscribe, subscription=number, pattern="quotes", where=where)
    while rig.elsewhere:
        rig.do_next()


def test_many_subscriptions_that_come_during_a_rebuild_are_another_round_of_it():
    rig, feed, desk, declared, effect = rebuilding(60)
    for number in range(60, 120):
        subscribe_long(rig, desk, number)
    outcome = finished(effect.work())
    rig.run(effect.then(outcome))
    assert answer(rig, feed, declared) is None
    [again] = rig.elsewhere
    assert isinstance(again, Compile)
    rig.do_next()
    assert isinstance(answer(rig, feed, declared), Reply)
    assert [len(version.index) for version in rig.core.topics["quotes"].versions.values()] == [120, 120]


def test_a_rebuild_that_fails_is_made_on_the_spot_while_others_work_on_it():
    rig, feed, _, declared, effect = rebuilding(60)
    other = rig.client()
    same = ask(rig, other, Declare, name="quotes", schema=WIDER)
    [helper] = rig.elsewhere
    rig.elsewhere.clear()
    work = helper.work()
    next(work)
    rig.run(effect.then(BrokerError("the broker failed")))
    assert isinstance(answer(rig, feed, declared), Reply)
    outcome = finished(work)
    rig.run(helper.then(outcome))
    assert isinstance(answer(rig, other, same), Reply)
    topic = rig.core.topics["quotes"]
    assert [len(version.index) for version in topic.versions.values()] == [60, 60]
    assert not topic._rebuilds


def test_a_rebuild_that_nobody_waits_for_is_forgotten():
    rig = later(Rig())
    feed, desk = rig.client(), rig.client()
    rig.declare(feed)
    for number in range(60):
        ask(
            rig,
            desk,
            Subscribe,
            subscription=number,
            pattern="quotes",
            where=f"size >= {number}" + " and size >= 0" * 9,
        )
        while rig.elsewhere:
            rig.do_next()
    ask(rig, feed, Declare, name="quotes", schema=WIDER)
    rig.run(rig.core.lost(feed))
    while rig.elsewhere:
        rig.do_next()
    topic = rig.core.topics["quotes"]
    assert not topic._rebuilds
    assert len(topic.schemas) == 1
    rig.declare(desk, schema=QUOTE)


def test_a_long_schema_is_parsed_elsewhere():
    rig = later(Rig())
    feed = rig.client()
    wide = "wide: [" + ", ".join(f"field_{number}: int" for number in range(200)) + "]"
    number = ask(rig, feed, Declare, name="wide", schema=wide)
    assert "wide" not in rig.core.topics
    rig.do_next()
    assert answer(rig, feed, number).value["created"]
    number = ask(rig, feed, Declare, name="wrong", schema=wide.replace("int", "nosuch"))
    rig.do_next()
    assert "nosuch" in answer(rig, feed, number).message


def test_rows_of_a_log_that_are_matched_elsewhere_stay_in_order(tmp_path):
    rig = later(DurableRig(tmp_path))
    feed, desk, named = rig.client(), rig.client(), rig.client()
    ask(rig, feed, Declare, name="kept", schema=QUOTE, durable=True)
    for number in range(60):
        where = f"size * 2 <> {-number - 1}"
        ask(rig, desk, Subscribe, subscription=number, pattern="kept", where=where)
        ask(rig, named, Subscribe, subscription=number, pattern="kept", where=where, name=f"n{number}", durable=True)
        while rig.elsewhere:
            rig.do_next()
    everything = rig.client()
    ask(rig, everything, Subscribe, subscription=1, pattern="kept")
    for start in range(0, 40, 10):
        rig.store_rows(feed, quotes(10, start=start), "kept")
    waiting = [each for each in rig.elsewhere if isinstance(each, Match)]
    assert len(waiting) == 4
    assert rig.rows(everything) == []
    before = feed.taken
    rig.run(rig.core.lost(everything))
    late = rig.client()
    ask(rig, late, Subscribe, subscription=7, pattern="kept", where="size * 2 <> -5")
    while rig.elsewhere:
        rig.do_next()
    assert [row["size"] for row in rig.rows(desk)] == list(range(40))
    assert rig.rows(late) == []  # all that was put before it
    assert feed.taken > before
    handed = {}
    for subscription, offsets, _ in rig.hands[named]:
        handed.setdefault(subscription, []).extend(offsets)
    assert handed == {number: list(range(40)) for number in range(60)}
    rig.close()


def test_a_durable_subscription_that_takes_the_place_of_one_that_left(tmp_path):
    """It has the key of the one that rows are being matched for, and must not get that one's rows."""
    rig = later(DurableRig(tmp_path))
    feed, first, second = rig.client(), rig.client(), rig.client()
    ask(rig, feed, Declare, name="kept", schema=QUOTE, durable=True)
    for number in range(60):
        where = f"size * 2 = {2 * number}"
        ask(rig, first, Subscribe, subscription=number, pattern="kept", where=where, name=f"n{number}", durable=True)
        while rig.elsewhere:
            rig.do_next()
    rig.store_rows(feed, quotes(60), "kept")
    [waiting] = rig.elsewhere
    rig.elsewhere.clear()
    ask(rig, first, Unsubscribe, subscription=3)
    ask(rig, second, Subscribe, subscription=1, pattern="kept", where="size * 2 = 100", name="new", durable=True)
    while rig.elsewhere:
        rig.do_next()
    rig.elsewhere.append(waiting)
    while rig.elsewhere:
        rig.do_next()
    rig.flow()
    assert rig.hands.get(second, []) == []  # it began behind them
    assert {number for number, _, _ in rig.hands[first]} == set(range(60)) - {3}
    rig.close()


def test_a_stored_predicate_is_compiled_before_its_subscription_is_served(tmp_path):
    rig = DurableRig(tmp_path)
    feed, desk = rig.client(), rig.client()
    rig.declare(feed, "kept", durable=True)
    ask(rig, desk, Subscribe, subscription=1, pattern="kept", where=fresh(), name="n", durable=True)
    rig.lose(desk)
    rig.cache._kept.clear()
    SHAPES._shapes.clear()  # as after a restart
    desk = later(rig).client()
    number = ask(rig, desk, Subscribe, subscription=1, pattern="kept", where=None, name="n", durable=True, create=False)
    assert [type(each) for each in rig.elsewhere] == [Compile]
    assert rig.answer(desk, number) is None
    rig.do_next()
    assert isinstance(rig.answer(desk, number), Reply)
    rig.store_rows(feed, quotes(3, start=0), "kept")
    assert rig.offsets(desk) == [1, 2]
    rig.close()


def test_what_other_brokers_did_waits_only_for_what_it_needs(tmp_path):
    rig = DurableRig(tmp_path, shared=True)
    feed, desk = rig.client(), rig.client()
    for name in ("kept", "beside"):
        rig.declare(feed, name, durable=True)
    for number in range(60):
        rig.subscribe(desk, "kept", number, where=f"size >= {number}" + " and size >= 0" * 9)
    kept, beside = (next(each for each in rig.store.topics() if each.name == name) for name in ("kept", "beside"))
    widened = kept._replace(schemas=(*kept.schemas, WIDER), extents={9: Extent(0, 5, 0, 0, 0)}, slow="drop")
    grown = beside._replace(extents={9: Extent(0, 7, 0, 0, 0)})
    fresh_one = kept._replace(topic=77, name="other", schemas=(WIDEST,))
    later(rig)

    def hear(records, known):
        rig.run(rig.core.predicates.run(lambda: rig.core.durable.polled(records, known)))

    known = {kept.topic, beside.topic}
    hear([widened, grown, fresh_one], known)
    topics = rig.core.topics
    assert topics["beside"].ends[9] == 7
    assert "other" in topics
    assert 9 not in topics["kept"].ends
    assert len(rig.elsewhere) == 1
    newer = widened._replace(extents={9: Extent(0, 6, 0, 0, 0)}, slow="throttle")
    hear([newer, grown, fresh_one], known)
    assert len(rig.elsewhere) == 1
    rig.do_next()
    assert (topics["kept"].ends[9], topics["kept"].slow, len(topics["kept"].schemas)) == (6, "throttle", 2)
    assert not rig.core.durable._restoring
    widest = newer._replace(schemas=(*newer.schemas, WIDEST))
    hear([widest, grown], {*known, 77})
    assert "other" not in topics
    hear([grown], known)  # and now it is gone altogether
    rig.do_next()
    assert set(topics) == {"beside"}
    assert not rig.elsewhere
    rig.close()


# Leaving


def test_a_client_with_many_subscriptions_leaves_some_at_a_time():
    rig = Rig()
    feed, desk, other = rig.client(), rig.client(), rig.client()
    rig.declare(feed)
    rig.declare(feed, "t.1")
    count = 2 * FORGOTTEN_AT_ONCE
    rig.subscribe(desk, "t.*", count)
    for number in range(count):
        rig.subscribe(desk, "quotes", number, where=f"size = {number % 10}")
    rig.subscribe(other, "quotes", 1, where="size = 3")
    later(rig).run(rig.core.lost(desk))
    steps = 0
    while rig.elsewhere:
        assert rig.client().number != desk.number
        rig.put(feed, quotes(10))
        rig.put(feed, quotes(1), "t.1")
        rig.declare(feed, f"t.new{steps}")  # which its pattern does not cover any more
        here = [each for each in rig.core.connections.values() if each.open]
        assert rig.core.statistics()["connections"]["open"] == len(here)
        rig.do_next()
        steps += 1
    assert steps >= 2
    assert rig.got.get(desk) is None
    assert [row["size"] for row in rig.rows(other)] == [3] * steps
    assert [len(topic) for topic in rig.core.topics.values()] == [1] + [0] * (steps + 1)
    assert desk.number not in rig.core.connections
    assert rig.client().number == desk.number


def test_a_topic_is_deleted_while_its_subscriber_leaves():
    rig = later(Rig())
    feed, desk = rig.client(), rig.client()
    rig.declare(feed)
    for number in range(2 * FORGOTTEN_AT_ONCE):
        rig.subscribe(desk, "quotes", number)
    rig.run(rig.core.lost(desk))
    said = len(rig.said[desk])
    rig.ask(feed, Delete, name="quotes")
    while rig.elsewhere:
        rig.do_next()
    assert len(rig.said[desk]) == said
    assert desk.number not in rig.core.connections


def test_a_pattern_leaves_its_topics_some_at_a_time():
    rig = Rig()
    feed, desk = rig.client(), rig.client()
    count = 2 * FORGOTTEN_AT_ONCE + 1
    for each in range(count):
        rig.declare(feed, f"t.{each}")
    rig.subscribe(desk, "t.*")
    later(rig)
    number = ask(rig, desk, Unsubscribe, subscription=1)
    while rig.elsewhere:
        assert desk.busy
        assert answer(rig, desk, number) is None
        rig.do_next()
    assert isinstance(answer(rig, desk, number), Reply)
    assert not desk.busy
    assert not any(len(topic) for topic in rig.core.topics.values())
    assert desk.keys == 0
    later(rig).subscribe(desk, "t.1")


# The cache


def schema():
    return milepost.parse_schema(QUOTE)


def test_one_text_and_schema_is_compiled_once():
    cache = PredicateCache()
    kept = Predicates(cache)
    text = fresh()
    work = cache.compiling([(text, schema()), (text, schema()), ("nosuch = 1", schema())])
    results = finished(work)
    assert cache.compiled == 2
    assert isinstance(results["nosuch = 1", schema().fingerprint], QueryError)
    kept.results = {}
    kept.require([(text, schema()), ("nosuch = 1", schema())])
    kept.results = None
    assert kept.compile(text, schema()) is kept.compile(text, schema())
    assert cache.compiled == 2


def test_the_cache_is_bounded(monkeypatch):
    monkeypatch.setattr(caching, "KEPT_CHARS", 2_000)
    kept = PredicateCache()
    for number in range(100):
        kept.compile(f"size = {number}", schema())
    assert len(kept._kept) < 20
    kept.compile("size = 1" + " or size = 2" * 500, schema())
    assert len(kept._kept) <= 1


def test_what_an_attempt_has_does_not_depend_on_the_cache(monkeypatch):
    monkeypatch.setattr(caching, "KEPT_CHARS", 0)
    cache = PredicateCache()
    kept = Predicates(cache)
    text = fresh()
    kept.results = {}
    with pytest.raises(Uncompiled) as missing:
        kept.require([(text, schema())])
    results = kept.results = finished(missing.value.work())
    kept.require([(text, schema())])
    assert kept.compile(text, schema()) is results[text, schema().fingerprint]
    assert cache.compiled == 1


def test_outside_of_an_attempt_everything_is_compiled_on_the_spot():
    kept = Predicates(PredicateCache())
    kept.require([(fresh(), schema())])
    assert kept.schema("w: [" + ", ".join(f"f{n}: int" for n in range(300)) + "]").name == "w"
