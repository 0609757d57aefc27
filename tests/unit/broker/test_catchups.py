"""Plain subscriptions that come back: what they missed comes out of the log, and then they are delivered to."""

from functools import partial

import pytest

from milepost import limits
from milepost.broker import log_reader as reading
from milepost.operations import Trim as TrimOperation
from milepost.wire import CaughtUp, Credit, Dropped, Failure, Positions, Subscribe, Unsubscribe
from tests.unit.broker.durable_rig import DurableRig
from tests.unit.broker.rig import quotes


@pytest.fixture
def rig(tmp_path):
    made = DurableRig(tmp_path)
    yield made
    made.close()


@pytest.fixture
def feed(rig):
    """A publisher, and twenty rows in four entries."""
    made = rig.durable()
    for _ in range(4):
        rig.store_rows(made, quotes(5))
    return made


def resume(rig, client, position, number=1, pattern="quotes", where=None):
    """Come back, with what was had of the log of the topic `quotes`; the request's number."""
    stored = rig.core.topics["quotes"].stored
    given = {} if position is None else {stored: {1: position}}
    return rig.request(client, Subscribe, subscription=number, pattern=pattern, where=where, resume=given)


def caught_up(rig, client):
    return [each for each in rig.said[client] if isinstance(each, CaughtUp)]


def nothing_is_left(rig, client):
    return not client.catchups and not rig.core.catchups.open and not rig.core.topics["quotes"].log_subscriptions


@pytest.mark.parametrize("position", [0, 3, 15, 19])
def test_missed_rows_are_handed_out_and_the_next_ones_delivered(rig, feed, position):
    client = rig.client(places=True)
    number = resume(rig, client, position)
    stored = rig.core.topics["quotes"].stored
    assert rig.answer(client, number).value["behind"] == {"quotes": stored}
    assert rig.offsets(client) == list(range(position, 20))
    assert caught_up(rig, client) == [CaughtUp(1, stored, {1: 20})]
    assert nothing_is_left(rig, client)
    rig.store_rows(feed, quotes(3))
    assert rig.rows(client) == quotes(3)
    assert rig.places[client] == [(1, 23)]
    assert client.keys == 1


def test_a_predicate_that_is_compiled_no_more_does_not_run_a_read_twice(rig, feed):
    client = rig.client(places=True)
    rig.auto = False
    resume(rig, client, 15, where=f"size >= 0 or symbol in ({', '.join(repr(f'S{n}') for n in range(200))})")
    rig.auto = True
    while rig.reads:
        waiting, rig.reads = rig.reads, []
        for effect in waiting:
            found = rig._found(effect)
            rig.cache._kept.clear()  # others have used up its room
            rig.run(rig.core.predicates.run(partial(effect.then, found)))
    assert rig.offsets(client) == list(range(15, 20))
    assert rig.core.memory.reads == 0
    assert len(caught_up(rig, client)) == 1
    assert nothing_is_left(rig, client)


def test_who_has_missed_nothing_is_delivered_to_at_once(rig, feed):
    client = rig.client()
    number = resume(rig, client, 20)
    assert rig.answer(client, number).value["behind"] == {}
    assert rig.answer(client, number).value["positions"] == {rig.core.topics["quotes"].stored: {1: 20}}
    assert (rig.offsets(client), caught_up(rig, client), rig.reads) == ([], [], [])
    rig.store_rows(feed, quotes(1))
    assert rig.rows(client) == quotes(1)


def test_rows_that_are_read_before_the_core_hears_of_their_commit_come_once(rig, feed):
    client = rig.client()
    rig.auto = False
    resume(rig, client, 10)
    rig.store_rows(feed, quotes(5))
    operations, then = [each.operation for each in rig.writes], [each.then for each in rig.writes]
    rig.writes.clear()
    committed = rig.store.write(operations, 1)  # in the writing thread, whose word is still on its way
    rig.read()
    assert rig.offsets(client) == list(range(10, 25))
    assert caught_up(rig, client) == []
    rig.run(rig.core.durable.stored(list(zip(then, committed.outcomes, strict=True)), committed.entries))
    assert len(caught_up(rig, client)) == 1
    assert (rig.offsets(client), rig.rows(client)) == (list(range(10, 25)), [])
    assert nothing_is_left(rig, client)


def test_rows_that_come_while_it_reads_are_not_missed(rig, feed):
    client = rig.client()
    rig.auto = False
    resume(rig, client, 10)
    rig.store_rows(feed, quotes(5))
    rig.commit()
    rig.flow()
    rig.store_rows(feed, quotes(2))
    rig.flow()
    assert rig.offsets(client) == list(range(10, 25))
    assert rig.rows(client) == quotes(2)


def test_without_credit_it_stays_behind_and_goes_on_with_it(rig, feed):
    client = rig.client(window=400, held=400)
    resume(rig, client, 0)
    assert (rig.offsets(client), caught_up(rig, client)) == ([], [])
    for _ in range(50):
        if not caught_up(rig, client):
            rig.say(client, Credit(400 - client.credit))
    assert rig.offsets(client) == list(range(20))
    assert len(rig.hands[client]) > 1, "frames that fit into the window"
    assert nothing_is_left(rig, client)


def test_of_many_topics_one_is_read_at_a_time_and_all_have_their_turn(rig):
    feed, client = rig.client("feed"), rig.client()
    for name in "abc":
        rig.declare(feed, f"many.{name}", durable=True)
        rig.store_rows(feed, quotes(5), f"many.{name}")
    rig.auto = False
    rig.request(client, Subscribe, subscription=1, pattern="many.>", resume={})
    order = []
    for _ in range(3):
        assert len(rig.reads) == 1
        order.append(rig.reads[0].topic.name)
        rig.read()
    assert sorted(order) == ["many.a", "many.b", "many.c"]
    rig.flow()
    assert len(caught_up(rig, client)) == 3
    assert not rig.core.catchups.open
    assert client.keys == 3


def test_a_busy_topic_does_not_keep_the_turn(rig, feed, monkeypatch):
    monkeypatch.setattr(reading, "READ_BYTES", 1)  # one entry at a time
    monkeypatch.setattr(reading, "ENOUGH_BYTES", 1)
    client = rig.client()
    rig.declare(feed, "quiet", durable=True)
    rig.store_rows(feed, quotes(5), "quiet")
    rig.auto = False
    resume(rig, client, 0, 1)
    rig.request(client, Subscribe, subscription=2, pattern="quiet", resume={})
    for _ in range(6):  # there is always more
        rig.store_rows(feed, quotes(5))
        rig.commit()
        rig.read()
    assert [each.subscription for each in caught_up(rig, client)] == [2]


def test_topics_that_a_pattern_has_missed_whole_and_topics_that_do_not_fit(rig, feed):
    rig.declare(feed, "other", "o: [text: string]", durable=True)
    client = rig.client()
    number = resume(rig, client, None, pattern="*", where="size >= 3")
    value = rig.answer(client, number).value
    assert value["behind"].keys() == {"quotes"}
    assert value["skipped"].keys() == {"other"}
    assert rig.offsets(client) == [3, 4, 8, 9, 13, 14, 18, 19]


def test_rows_that_are_gone_are_told(rig, feed):
    client = rig.client()
    rig.store.write([TrimOperation(rig.core.topics["quotes"].stored, {1: 15})], 1)
    resume(rig, client, 10)
    assert rig.offsets(client) == [15, 16, 17, 18, 19]
    assert [each for each in rig.said[client] if isinstance(each, Dropped)] == [Dropped({1: 5}, [[1, 1, 10, 15]])]


def test_a_position_behind_the_end_of_the_log_is_refused(rig, feed):
    client = rig.client()
    answer = rig.answer(client, resume(rig, client, 21))
    assert isinstance(answer, Failure)
    assert "no offset 21" in answer.message
    assert not client.subscriptions
    for wrong in ({1: -1}, {-1: 1}):
        stored = rig.core.topics["quotes"].stored
        number = rig.request(client, Subscribe, subscription=1, pattern="quotes", resume={stored: wrong})
        assert isinstance(rig.answer(client, number), Failure)


@pytest.mark.parametrize("how", ["unsubscribe", "lost", "delete"])
def test_whatever_ends_it_leaves_nothing_behind(rig, feed, how):
    client = rig.client()
    rig.auto = False
    resume(rig, client, 0)
    quotes_topic = rig.core.topics["quotes"]
    if how == "unsubscribe":
        rig.request(client, Unsubscribe, subscription=1)
    elif how == "lost":
        rig.lose(client)
    else:
        rig.run(rig.core.durable._deleted(feed, Unsubscribe(request=9), quotes_topic, None))
        assert [each.code for each in rig.said[client] if isinstance(each, Failure)] == ["unknown_topic"]
    rig.flow()
    assert not client.catchups
    assert not rig.core.catchups.open
    assert not quotes_topic.log_subscriptions
    assert client.keys == 0
    assert rig.offsets(client) == []


def test_clients_that_read_places_and_those_that_do_not(rig, feed):
    old, new = rig.client(), rig.client(places=True)
    for client in (old, new):
        rig.subscribe(client)
    rig.store_rows(feed, quotes(2))
    assert rig.rows(old) == rig.rows(new) == quotes(2)
    assert (rig.places[old], rig.places[new]) == ([None], [(1, 22)])
    rig.lose(old)
    assert rig.core.placeless == 1  # the publisher


@pytest.mark.parametrize("where", [None, "size % 2 = 0"])
def test_a_delivery_that_is_split_says_how_far_each_part_is(rig, feed, monkeypatch, where):
    at_once, late = rig.client(places=True), rig.client(places=True)
    for client in (at_once, late):
        for number in range(1, 9):
            rig.subscribe(
                client, number=number, where=f"size >= {75 + 25 * number}" + (f" and {where}" if where else "")
            )
    rig.taking[late] = False
    rig.store_rows(feed, quotes(1, start=300))  # at offset 20
    monkeypatch.setattr(limits, "FRAME_BYTES", 2_000)
    for start in (100, 200):
        rig.store_rows(feed, quotes(100, start=start))  # a row of size 100 is at offset 21
    rig.taking[late] = True
    rig.run(rig.core.delivery.drained(late))
    wanted = [row for row in quotes(1, start=300) + quotes(200, start=100) if where is None or row["size"] % 2 == 0]
    offsets = [20, *(row["size"] - 79 for row in wanted[1:])]
    for client in (at_once, late):
        assert rig.rows(client) == wanted
        places = [offset for _, offset in rig.places[client]]
        assert len(places) > 4
        assert places[-1] == 221
        had = 0  # a client that is cut off behind any of them has had just the rows before that offset
        for (_, _, rows, _), place in zip(rig.got[client], places, strict=True):
            had += len(rows)
            assert had == sum(offset < place for offset in offsets)


def test_positions_move_though_nothing_matches_and_not_past_what_waits(rig, feed):
    client = rig.client(places=True)
    rig.subscribe(client, where="size = 1000")
    stored = rig.core.topics["quotes"].stored
    rig.store_rows(feed, quotes(5))
    assert rig.ask(client, Positions) == {stored: {1: 25}}
    assert rig.ask(client, Positions) == {}
    rig.taking[client] = False
    rig.store_rows(feed, [quotes(1, start=1000)[0]])
    rig.store_rows(feed, [quotes(1, start=1000)[0]])
    assert rig.ask(client, Positions) == {}
    rig.taking[client] = True
    rig.run(rig.core.delivery.drained(client))
    assert rig.ask(client, Positions) == {stored: {1: 27}}


def test_a_topic_of_which_nothing_was_written(rig):
    feed, client = rig.durable(), rig.client()
    number = resume(rig, client, 0)
    assert rig.answer(client, number).value["behind"] == {}
    rig.store_rows(feed, quotes(1))
    assert rig.rows(client) == quotes(1)
