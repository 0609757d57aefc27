"""Races between clients, commits and reads, each exactly as it would have to happen."""

import pytest

from milepost.errors import StoreFull, StoreUnavailable
from milepost.operations import DropTopic, MakeTopic, Retention
from milepost.wire import Declare, Delete, Failure, Reply, Stored, Trim, Unsubscribe
from tests.unit.broker.durable_rig import DurableRig
from tests.unit.broker.rig import QUOTE, quotes

WIDER = "quote: [symbol: string, price: double, size: int, more: int?]"
OTHER = "quote: [symbol: string, price: double, size: int, more: string?]"


@pytest.fixture
def rig(tmp_path):
    made = DurableRig(tmp_path)
    yield made
    made.close()


def code(answer):
    assert isinstance(answer, Failure), answer
    return answer.code


def test_whoever_attaches_while_the_last_member_leaves_gets_what_is_left(rig):
    feed = rig.durable()
    first, second = rig.client(), rig.client()
    rig.attach(first)
    rig.store_rows(feed, quotes(3))
    rig.auto = False
    rig.attach(second)
    rig.ack(first, 1, 0, 1)
    rig.lose(first)
    rig.flow()
    assert rig.offsets(second) == [2], "and not what the first had acknowledged"
    rig.ack(second, 1, 2)
    rig.flow()
    assert rig.cursor() == 3
    rig.lose(second)
    rig.flow()
    assert not rig.core.durable.subscriptions.named


def test_a_client_that_came_back_acknowledges_on_its_new_connection_only(rig):
    feed = rig.durable()
    old = rig.client(instance=b"1" * 16)
    rig.attach(old)
    rig.store_rows(feed, quotes(1))
    new = rig.client(instance=b"1" * 16, resume=True)
    number = rig.attach(new, create=False)
    assert rig.answer(new, number).value["sequence"] == 0
    rig.ack(old, 1, 0)
    assert rig.cursor() == 0, "the new one was told that this did not count"
    assert rig.offsets(new) == [0]


def test_an_anonymous_publishers_number_is_never_anothers(tmp_path):
    numbers = iter([100, 200, 200, 300, 400, 500])
    rig = DurableRig(tmp_path, draw=lambda: next(numbers))
    rig.durable()
    one = rig.client(instance=b"x" * 16)
    rig.store_rows(one, quotes(1), stamps=[5000])
    rig.lose(one)
    other = rig.client(instance=b"y" * 16)
    assert other.publisher.number != one.publisher.number
    rig.close()


def test_one_client_is_attached_to_a_name_once(rig):
    rig.durable()
    client = rig.client()
    rig.auto = False
    rig.attach(client, 1)
    second = rig.attach(client, 2)
    rig.flow()
    assert code(rig.answer(client, second)) == "subscription_exists"


def test_a_number_that_is_used_again_before_the_store_has_answered(rig):
    feed = rig.durable()
    client = rig.client()
    rig.auto = False
    rig.attach(client)
    rig.request(client, Unsubscribe, subscription=1)
    rig.attach(client)
    rig.flow()
    rig.auto = True
    assert len(rig.core.durable.subscriptions.named["desk"].members) == 1
    rig.store_rows(feed, quotes(2))
    rig.lose(client)
    other = rig.client()
    rig.attach(other)
    assert rig.offsets(other) == [0, 1]


def test_rows_of_an_acknowledgement_that_failed_go_on_to_the_others(rig):
    feed = rig.durable()
    one, other = rig.client(), rig.client()
    rig.attach(one)
    rig.attach(other)
    rig.store_rows(feed, quotes(1))
    holder, waiting = (one, other) if rig.offsets(one) else (other, one)
    rig.auto = False
    rig.ack(holder, 1, 0)
    rig.lose(holder)
    rig.failing = StoreFull("full")
    rig.commit()
    rig.failing = None
    rig.flow()
    assert rig.offsets(waiting) == [0]


def test_a_member_that_is_full_holds_up_its_own_publishers_only(rig):
    feed, second = rig.durable(), rig.client("second")
    one, other = rig.client(), rig.client()
    rig.attach(one, prefetch=1)
    rig.attach(other, prefetch=1)
    rig.store_rows(feed, quotes(2))
    rig.store_rows(second, quotes(2, "Z"))
    got = sorted(rig.offsets(one) + rig.offsets(other))
    assert got == [0, 2]
    holder = one if rig.offsets(one) == [0] else other
    rig.ack(holder, 1, 0)
    assert rig.offsets(holder) == [0, 1]


def test_a_member_that_joins_a_busy_group_gets_its_share(rig):
    feeds = [rig.durable(), rig.client("second"), rig.client("third")]
    first, late = rig.client(), rig.client()
    rig.attach(first, prefetch=50)
    sequence = 0

    def work():
        """Every publisher puts, and the first member acknowledges, but never all that it has."""
        nonlocal sequence
        for feed in feeds:
            rig.store_rows(feed, quotes(2))
        done = [offset for offset in rig.offsets(first) if offset not in acknowledged][:-6]
        sequence += 1
        rig.ack(first, sequence, *done)
        acknowledged.update(done)

    acknowledged = set()
    for _ in range(3):
        work()
    rig.attach(late, prefetch=50)
    for _ in range(10):
        work()
    assert rig.offsets(late)


def test_rows_that_were_handed_over_while_an_acknowledgement_was_under_way(rig):
    feed, second = rig.durable(), rig.client("second")
    one, other = rig.client(), rig.client()
    rig.attach(one)
    rig.attach(other)
    for number in range(3):
        rig.store_rows(feed if number != 1 else second, quotes(1))
    held = {tuple(rig.offsets(each)): each for each in (one, other)}
    assert set(held) == {(0, 2), (1,)}
    rig.lose(held[1,])
    assert rig.offsets(held[0, 2]) == [0, 2, 1]
    rig.ack(held[0, 2], 1, 0, 2)
    assert rig.cursor() == 1, "the row in between was not meant"


def test_the_same_row_cannot_be_named_twice(rig):
    from milepost.wire import Ack

    feed = rig.durable()
    client = rig.client()
    rig.attach(client)
    rig.store_rows(feed, quotes(5))
    for done, again in [([[0, 2], [1, 3]], []), ([[2, 3], [0, 1]], []), ([[0, 1]], [[1, 2]]), ([[3, 1]], [])]:
        number = rig.request(client, Ack, subscription=1, sequence=1, done={1: done}, again={1: again} if again else {})
        assert code(rig.answer(client, number)) == "ack_mismatch"
    assert rig.cursor() == 0
    for done, sequence in [
        ({1: [[0]]}, 1),
        ({1: [[0, 1 << 63]]}, 1),
        ({1 << 40: [[0, 0]]}, 1),
        ({1: [[0, 0]]}, 1 << 63),
    ]:
        number = rig.request(client, Ack, subscription=1, sequence=sequence, done=done)
        assert code(rig.answer(client, number)) == "ack_mismatch"


def test_two_changes_of_a_schema_at_once(rig, tmp_path):
    feed = rig.durable()
    one, other = rig.client(), rig.client()
    rig.auto = False
    first = rig.request(one, Declare, name="quotes", schema=WIDER)
    second = rig.request(other, Declare, name="quotes", schema=OTHER)
    third = rig.request(feed, Declare, name="quotes", schema=WIDER)
    rig.store_rows(feed, quotes(1))
    rig.flow()
    assert isinstance(rig.answer(one, first), Reply)
    assert code(rig.answer(other, second)) == "incompatible_schema"
    assert isinstance(rig.answer(feed, third), Reply)
    assert any(isinstance(each, Stored) for each in rig.said[feed]), "whoever else was in that commit is told"
    assert len(rig.store.topics()[0].schemas) == len(rig.core.topics["quotes"].schemas) == 2
    rig.close()
    again = DurableRig(tmp_path)
    assert len(again.core.topics["quotes"].schemas) == 2
    again.close()


def test_dead_rows_of_every_version_find_their_place(rig):
    feed = rig.durable()
    client = rig.client()
    rig.attach(client, max_deliveries=1, dead_letter="dead")
    rig.declare(feed, schema=WIDER)
    rig.store_rows(feed, quotes(1))
    rig.store_rows(feed, [{"symbol": "a", "price": 1.0, "size": 1, "more": 3}], schema=WIDER)
    rig.ack(client, 1, again=[0])
    rig.ack(client, 2, again=[1])
    assert rig.core.totals["rows_dead"] == 2
    assert rig.cursor() == 2
    reader = rig.client()
    rig.attach(reader, name="", pattern="dead")
    assert rig.offsets(reader) == [0, 1]


def test_a_topic_for_dead_rows_that_was_deleted_is_made_again(rig):
    feed = rig.durable()
    client = rig.client()
    rig.attach(client, max_deliveries=1, dead_letter="dead")
    rig.store_rows(feed, quotes(1))
    rig.request(feed, Delete, name="dead")
    assert "dead" not in rig.core.topics
    rig.ack(client, 1, again=[0])
    assert rig.cursor() == 1
    assert rig.core.topics["dead"].ends == {1: 1}


def test_dead_rows_that_cannot_be_stored_now_are_later(rig):
    feed = rig.durable()
    client = rig.client()
    rig.attach(client, max_deliveries=1, dead_letter="dead")
    rig.store_rows(feed, quotes(2))
    rig.auto = False
    rig.ack(client, 1, again=[0])
    rig.commit()
    rig.read()
    rig.failing = StoreFull("full")
    rig.commit()
    rig.failing = None
    rig.flow()
    rig.tick()
    rig.flow()
    assert rig.core.topics["dead"].ends == {1: 1}
    rig.ack(client, 2, 1)
    rig.flow()
    assert rig.cursor() == 2


def test_a_topic_that_another_broker_deleted_is_gone_here_too(rig):
    feed = rig.durable()
    client = rig.client()
    rig.attach(client)
    rig.store_rows(feed, quotes(3))
    stored = rig.core.topics["quotes"].stored
    rig.store.write([DropTopic(stored)], 1)
    made = rig.store.write([MakeTopic("quotes", (QUOTE,), "throttle", Retention())], 1).outcomes[0]
    rig.run(rig.core.durable.polled(rig.store.topics(), {stored}))
    assert code(rig.last(client)) == "unknown_topic"
    assert rig.core.topics["quotes"].stored == made.topic.topic
    rig.store_rows(feed, quotes(1))
    assert isinstance(rig.last(feed), Stored)


def test_a_log_that_ends_earlier_than_was_said_is_not_read_in_circles(rig):
    feed = rig.durable()
    rig.store_rows(feed, quotes(3))
    rig.core.topics["quotes"].ends[1] = 10
    client = rig.client()
    rig.attach(client, name="")
    assert rig.offsets(client) == [0, 1, 2]


def test_a_subscription_is_released_however_often_that_fails(tmp_path):
    rig = DurableRig(tmp_path, shared=True)
    feed = rig.durable()
    client = rig.client()
    rig.attach(client)
    rig.store_rows(feed, quotes(2))
    rig.auto = False
    rig.ack(client, 1, 0)
    rig.failing = StoreUnavailable("away")
    rig.lose(client)
    rig.commit()
    rig.flow()
    rig.failing = None
    rig.tick()
    rig.flow()
    assert not rig.core.durable.subscriptions.releases.pending
    with rig.store._database.reading() as session:
        owners = session.connection.exec_driver_sql("SELECT owner FROM subscriptions").fetchall()
    assert owners == [(None,)]
    rig.close()


def test_numbers_that_no_database_takes_are_refused_before_it_is_asked(rig):
    feed = rig.durable()
    rig.store_rows(feed, quotes(1))
    for before in ({(1 << 64) - 1: 0}, {2: 0}, {1: 5}, {1: -1}):
        number = rig.request(feed, Trim, topic="quotes", before=before)
        assert code(rig.answer(feed, number)) == "broker"
    client = rig.client()
    number = rig.attach(client, where="symbol = '\0'")
    assert isinstance(rig.answer(client, number), Failure)
    number = rig.attach(client, name="", start={"position": dict.fromkeys(range(2_000), 0)})
    assert code(rig.answer(client, number)) == "broker"


def test_too_much_that_is_done_above_a_row_that_is_not(rig, monkeypatch):
    monkeypatch.setattr("milepost.broker.core.log.subscription.LATE_ROWS", 5)
    feed = rig.durable()
    client = rig.client()
    rig.attach(client)
    sequence = 0
    rig.store_rows(feed, quotes(1))
    for offset in range(1, 20):
        rig.store_rows(feed, quotes(1))
        if offset in rig.offsets(client):
            sequence += 1
            rig.ack(client, sequence, offset)
    assert len(rig.offsets(client)) < 10
    rig.ack(client, sequence + 1, 0)
    assert rig.offsets(client)[-1] == 19
