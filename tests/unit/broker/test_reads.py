"""Bounded reads and holds in the core, with commits and reads exactly where a test wants them."""

from types import SimpleNamespace

import numpy as np
import pytest

from milepost.broker.core.log.portion import Portion
from milepost.broker.core.log.reach import Reach
from milepost.broker.core.log.subscription import LogSubscription
from milepost.errors import StoreUnavailable
from milepost.operations import Trim as TrimOperation
from milepost.wire import Credit, Dropped, Ended, Failure, Look, RetentionHold, Subscribe, Unsubscribe
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


def read(rig, client, start, stop, number=1, **more):
    fields = {"subscription": number, "pattern": "quotes", "durable": True, "start": {"position": start}, "stop": stop}
    return rig.request(client, Subscribe, **(fields | more))


def ends(rig, client):
    return [each for each in rig.said[client] if isinstance(each, Ended)]


def code(answer):
    assert isinstance(answer, Failure), answer
    return answer.code


def nothing_is_left(rig, client):
    streams = rig.core.durable.subscriptions
    return (
        not client.members
        and not client.keys
        and not streams._serving
        and not rig.core.topics["quotes"].log_subscriptions
    )


@pytest.mark.parametrize(("start", "stop"), [(0, 20), (0, 5), (3, 17), (5, 10), (7, 8), (19, 20)])
def test_a_range_is_handed_out_whole_and_then_it_ends(rig, feed, start, stop):
    client = rig.client()
    number = read(rig, client, {1: start}, {1: stop})
    assert rig.answer(client, number).value["position"] == {1: start}
    assert rig.offsets(client) == list(range(start, stop))
    assert ends(rig, client) == [Ended(1)]
    assert nothing_is_left(rig, client)


@pytest.mark.parametrize(("start", "stop"), [({1: 4}, {1: 4}), ({}, {}), ({1: 20}, {1: 20}), ({}, {7: 0})])
def test_an_empty_range_ends_at_once(rig, feed, start, stop):
    client = rig.client()
    number = read(rig, client, start, stop)
    assert rig.answer(client, number).value["position"] == {log: start.get(log, 0) for log in stop}
    assert rig.offsets(client) == []
    assert ends(rig, client) == [Ended(1)]
    assert nothing_is_left(rig, client)


def test_a_read_says_that_it_ended_though_none_of_its_last_rows_match(rig, feed):
    client = rig.client()
    some = [offset for offset in range(20) if offset % 5 == 1]  # the sizes of each entry are 0 to 4
    read(rig, client, {}, {1: 20}, where="size = 1")
    assert rig.offsets(client) == some
    read(rig, client, {}, {1: 20}, number=2, where="size > 100")
    assert ends(rig, client) == [Ended(1), Ended(2)]
    assert nothing_is_left(rig, client)


def test_rows_that_come_while_a_read_goes_on_are_not_its_own(rig, feed):
    client = rig.client()
    rig.auto = False
    read(rig, client, {1: 10}, {1: 20})
    rig.read()  # where it begins
    rig.store_rows(feed, quotes(5))
    rig.flow()
    assert rig.offsets(client) == list(range(10, 20))
    assert ends(rig, client) == [Ended(1)]


def test_a_read_waits_for_credit_and_is_read_ahead_for(rig, feed):
    client = rig.client(window=1)
    read(rig, client, {}, {1: 20})
    assert rig.offsets(client) == list(range(20))  # one frame may always go
    rig.say(client, Credit(1 - client.credit))
    read(rig, client, {}, {1: 10}, number=2)
    read(rig, client, {}, {1: 10}, number=3)
    assert ends(rig, client) == [Ended(1), Ended(2)]
    (subscription,) = rig.core.durable.subscriptions._serving.values()
    assert sum(len(each.offsets) for each in subscription.pending) == 10, "what comes next is here already"
    rig.say(client, Credit(1 - client.credit))
    assert ends(rig, client)[-1] == Ended(3)
    assert len(rig.offsets(client)) == 40


@pytest.mark.parametrize(
    ("start", "stop", "why"),
    [
        ({}, {1: 21}, "log 1: that ends at 20"),
        ({}, {2: 1}, "log 2: that ends at 0"),
        ({1: 6}, {1: 5}, "no range"),
        ({1: -1}, {1: 5}, "position"),
        ({}, {1: -5}, "position is"),
    ],
)
def test_ranges_that_cannot_be(rig, feed, start, stop, why):
    client = rig.client()
    answer = rig.answer(client, read(rig, client, start, stop))
    assert code(answer) == "broker"
    assert why in answer.message
    assert nothing_is_left(rig, client)


def test_only_a_replay_from_a_position_has_a_stop(rig, feed):
    client = rig.client()
    assert "a name goes on" in rig.answer(client, read(rig, client, {}, {1: 5}, name="desk")).message
    fields = {"subscription": 1, "pattern": "quotes", "stop": {1: 5}}
    for more in ({"durable": True, "start": "earliest"}, {"start": "new"}, {}):
        answer = rig.answer(client, rig.request(client, Subscribe, **fields, **more))
        assert "starts at a position" in answer.message


def test_rows_that_are_gone_are_told_with_topic_log_and_offsets(rig, feed):
    client = rig.client()
    rig.store.write([TrimOperation(rig.core.topics["quotes"].stored, {1: 7})], 2)
    answer = rig.answer(client, read(rig, client, {1: 2}, {1: 15}))
    assert code(answer) == "rows_gone"
    assert "offsets 2 to 6 of log 1 of topic 'quotes'" in answer.message
    answer = rig.answer(client, read(rig, client, {1: 2}, {1: 5}))
    assert "offsets 2 to 4 of log 1" in answer.message
    read(rig, client, {1: 7}, {1: 9}, number=2)
    read(rig, client, {1: 3}, {1: 3}, number=3)
    assert rig.offsets(client) == [7, 8]
    assert ends(rig, client) == [Ended(2), Ended(3)]


def test_rows_that_go_while_they_are_read_end_the_read_behind_what_was_handed_out(rig, feed):
    client = rig.client()
    rig.auto = False
    read(rig, client, {}, {1: 20})
    rig.read()
    rig.store.write([TrimOperation(rig.core.topics["quotes"].stored, {1: 12})], 2)
    rig.flow()
    assert rig.offsets(client) == []
    (told,) = [each for each in rig.said[client] if isinstance(each, Failure)]
    assert (told.code, told.subscription) == ("rows_gone", 1)
    assert "offsets 0 to 11 of log 1" in told.message
    assert not [each for each in rig.said[client] if isinstance(each, Dropped)]
    assert not ends(rig, client)
    assert nothing_is_left(rig, client)


def test_a_store_that_is_away_delays_a_read(rig, feed):
    client = rig.client()
    rig.auto = False
    read(rig, client, {}, {1: 20})
    rig.read()
    (effect,), rig.reads = rig.reads, []
    rig.run(effect.then(StoreUnavailable("away")))
    assert not rig.reads
    rig.tick()
    rig.flow()
    assert rig.offsets(client) == list(range(20))
    assert ends(rig, client) == [Ended(1)]


def test_a_client_that_leaves_leaves_nothing(rig, feed):
    client, other = rig.client(), rig.client()
    rig.auto = False
    for each in (client, other):
        read(rig, each, {}, {1: 20})
    rig.read()
    rig.request(client, Unsubscribe, subscription=1)
    rig.lose(other)
    rig.flow()
    assert rig.offsets(client) == rig.offsets(other) == []
    assert not ends(rig, client)
    assert nothing_is_left(rig, client)


# Several logs, each of which may have to wait for another


def stream_of(stop, starts=None):
    topic = SimpleNamespace(ends={1: 100, 2: 100, 3: 100})
    starts = starts or {}
    reaches = {log: Reach(starts.get(log, 0)) for log in (stop or topic.ends)}
    return LogSubscription(topic, "", None, reaches, stop)


def found(log, start, end, after=None):
    return Portion(log, start, end, None, np.zeros(0, np.uint64), after)


@pytest.mark.parametrize("stop", [None, {1: 10, 2: 10, 3: 10}])
def test_what_a_log_waits_for_may_wait_itself(stop):
    subscription = stream_of(stop)
    assert subscription.behind() == 1
    assert not subscription.take(found(1, 0, 10, after=(2, 10)))
    assert subscription.behind() == 2
    assert not subscription.take(found(2, 0, 10, after=(3, 10)))
    assert subscription.behind() == 3, "and not the second one again and again"
    assert subscription.take(found(3, 0, 10))
    assert subscription.behind() == 2
    assert subscription.take(found(2, 0, 10, after=(3, 10)))
    assert subscription.behind() == 1
    assert subscription.take(found(1, 0, 10, after=(2, 10)))


def test_a_read_waits_for_its_own_rows_only():
    subscription = stream_of({1: 10})
    assert subscription.take(found(1, 0, 5, after=(2, 50)))  # log 2 is not read at all
    assert set(subscription.reaches) == {1}
    subscription = stream_of({1: 10, 2: 20})
    assert not subscription.take(found(1, 0, 5, after=(2, 50)))
    assert subscription.behind() == 2
    assert subscription.take(found(2, 0, 20))
    assert subscription.behind() == 1
    assert subscription.take(found(1, 0, 10, after=(2, 50)))
    assert subscription.behind() is None
    assert subscription.over


# Holds


def test_a_hold_is_made_moved_looked_at_and_removed(rig, feed):
    client = rig.client()

    def hold(**fields):
        answer = rig.answer(client, rig.request(client, RetentionHold, topic="quotes", name="lane", **fields))
        return answer if isinstance(answer, Failure) else answer.value

    assert hold() == {"position": {1: 0}}
    assert hold(position={1: 12}) == {"position": {1: 12}}
    assert hold(position={1: 3}) == {"position": {1: 12}}
    assert rig.cursor("lane") == 12
    assert code(hold(position={1: 21})) == "broker"
    assert code(hold(position={-1: 1})) == "broker"
    assert code(rig.answer(client, rig.attach(client, name="lane"))) == "subscription_exists"
    assert nothing_is_left(rig, client)
    rig.attach(client, name="desk")
    for fields in ({"name": "desk"}, {"name": "x" * 10_000}, {"name": ""}, {"name": "a\nb"}, {"topic": "none"}):
        request = {"topic": "quotes", "name": "lane"} | fields
        assert isinstance(rig.answer(client, rig.request(client, RetentionHold, **request)), Failure)
    rig.request(client, Unsubscribe, name="lane")
    assert [each.name for each in rig.store.subscriptions(rig.core.topics["quotes"].stored)] == ["desk"]
    assert isinstance(rig.answer(client, rig.request(client, Look, topic="live")), Failure)
