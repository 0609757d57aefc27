"""Deliveries are counted where rows are handed out, and a row that came too often is dead: once, and nothing else."""

import pytest

from milepost.broker.core.log.member import PATIENCE
from milepost.errors import InDoubt, StoreFull, StoreUnavailable
from milepost.operations import Attach, Move, Release
from milepost.wire import DeclareType, Failure, Reply, Unsubscribe
from tests.unit.broker.durable_rig import DurableRig
from tests.unit.broker.rig import QUOTE, quotes
from tests.unit.broker.test_acknowledging import commit
from tests.unit.broker.test_durable_races import WIDER

WIDE = {"symbol": "a", "price": 1.0, "size": 1, "more": 3}
DYING = {"max_deliveries": 3, "dead_letter": "dead"}


@pytest.fixture
def rig(tmp_path):
    made = DurableRig(tmp_path)
    yield made
    made.close()


def subscription(rig):
    return rig.core.durable.subscriptions.named.get("desk")


def dead(rig):
    """How many rows the topic of the dead has."""
    return rig.core.topics["dead"].ends.get(1, 0)


def tries(rig, connection):
    """What was handed out, as offset and earlier deliveries."""
    return [
        (offset, 0 if counts is None else counts[place])
        for _, offsets, counts in rig.hands.get(connection, [])
        for place, offset in enumerate(offsets)
    ]


# A subscription that nobody is attached to, and what of it is still being stored


def test_a_row_that_is_being_buried_is_not_delivered_to_the_next_consumer(rig):
    feed, client = rig.durable(), rig.client()
    rig.attach(client, max_deliveries=1, dead_letter="dead")
    rig.declare(feed, schema=WIDER)
    rig.store_rows(feed, [WIDE], schema=WIDER)
    rig.auto = False
    rig.ack(client, 1, again=[0])
    rig.commit()
    rig.read()  # it is dead, and the topic of the dead is asked to take its version
    rig.lose(client)
    other = rig.client()
    number = rig.attach(other)
    rig.flow()
    assert isinstance(rig.answer(other, number), Reply)
    assert rig.offsets(other) == []
    assert (dead(rig), rig.cursor(), rig.core.totals["rows_dead"]) == (1, 1, 1)


@pytest.mark.parametrize("shared", [False, True])
def test_attaching_again_raises_the_epoch(tmp_path, shared):
    rig = DurableRig(tmp_path, shared=shared)
    feed, client = rig.durable(), rig.client()
    rig.attach(client)
    rig.store_rows(feed, quotes(2))
    before = subscription(rig).stored, subscription(rig).epoch
    rig.lose(client)
    assert subscription(rig) is None
    other = rig.client()
    rig.attach(other)
    assert subscription(rig).epoch > before[1]
    (late,) = rig.store.write([Move(*before, {})], 1).outcomes
    assert late.code == "served_elsewhere"
    rig.ack(other, 1, 0, 1)
    assert rig.cursor() == 2
    third = rig.client()
    epoch = subscription(rig).epoch
    rig.attach(third)
    assert subscription(rig).epoch == epoch, "a second member takes nothing away from the first"
    rig.close()


def test_a_release_that_the_store_refused_does_not_keep_the_epoch(rig):
    feed, client = rig.durable(), rig.client()
    rig.attach(client)
    rig.store_rows(feed, quotes(1))
    epoch = subscription(rig).epoch
    rig.auto = False
    rig.lose(client)
    rig.commit(1)  # how far it is
    assert [type(effect.operation) for effect in rig.writes] == [Release]
    rig.failing = StoreUnavailable("away")
    rig.commit()
    rig.failing = None
    other, third = rig.client(), rig.client()
    rig.attach(other)
    rig.attach(third)
    rig.flow()
    assert subscription(rig).epoch == epoch + 1
    rig.tick()
    rig.flow()
    assert not rig.core.durable.subscriptions.releases.pending
    with rig.store._database.reading() as session:
        owners = session.connection.exec_driver_sql("SELECT owner FROM subscriptions").fetchall()
    assert owners == [(1,)], "and the release that goes again is not that of the epoch which is served"


def test_what_was_attached_under_an_epoch_that_is_given_up_meanwhile_is_attached_again(rig):
    feed, client, other = rig.durable(), rig.client(), rig.client()
    rig.attach(client)
    rig.store_rows(feed, quotes(2))
    rig.auto = False
    rig.ack(client, 1, 0)
    (move,) = rig.writes
    rig.writes = []
    number = rig.attach(other)
    (attach,) = rig.writes
    assert isinstance(attach.operation, Attach)
    rig.writes = []
    attached = rig.store.write([attach.operation], 1).outcomes[0]
    epoch = attached.epoch
    rig.run(rig.core.durable.stored([(move.then, InDoubt("who knows"))], []))  # the broker gives it up
    rig.run(rig.core.durable.stored([(attach.then, attached)], []))
    rig.flow()
    assert isinstance(rig.answer(other, number), Reply)
    assert subscription(rig).epoch > epoch
    assert rig.offsets(other) == [0, 1]


def test_a_subscription_that_another_broker_served_meanwhile_is_read_anew(tmp_path):
    rig = DurableRig(tmp_path, shared=True)
    feed, client = rig.durable(), rig.client()
    rig.attach(client)
    rig.store_rows(feed, quotes(3))
    # Another broker of the cell took it over while this one was silent, consumed two rows, and let it go.
    with rig.store._database.write().connection as connection:
        connection.exec_driver_sql("UPDATE subscriptions SET epoch = epoch + 1, owner = NULL")
        connection.exec_driver_sql("INSERT OR REPLACE INTO cursors VALUES (1, 1, 2, x'')")
    other = rig.client()
    number = rig.attach(other)
    assert isinstance(rig.answer(other, number), Reply)
    assert rig.offsets(other) == [2], "and not what this broker remembers"
    assert isinstance(rig.last(client), Failure)
    assert rig.last(client).code == "served_elsewhere"
    rig.ack(other, 1, 2)
    assert rig.cursor() == 3
    rig.close()


def test_rows_that_wait_for_a_member_without_credit_go_to_the_next(rig):
    feed = rig.durable()
    poor, other = rig.client(window=1), rig.client()
    rig.store_rows(feed, [{"symbol": "x" * 700_000, "price": 1.0, "size": 1}] * 3)
    rig.attach(poor, prefetch=10)
    assert rig.offsets(poor) == [0], "the others were read, and wait for credit"
    rig.ack(poor, 1, 0)
    rig.auto = False
    rig.attach(other)
    rig.lose(poor)
    rig.flow()
    assert rig.offsets(other) == [1, 2]


def test_a_burial_does_not_store_what_a_failed_commit_acknowledged(rig):
    rig.run(rig.core.queues.begin())
    feed, second = rig.durable(), rig.client("second")
    rig.ask(feed, DeclareType, text=QUOTE)
    one, other = rig.client(), rig.client()
    rig.attach(one, max_deliveries=1, dead_letter="dead")
    rig.attach(other, max_deliveries=1, dead_letter="dead")
    rig.store_rows(feed, quotes(1))
    rig.store_rows(second, quotes(1))
    held = {rig.offsets(each)[0]: each for each in (one, other)}
    rig.auto = False
    rig.ack(held[1], 1, again=[1])
    rig.commit()
    commit(rig, held[0], 1, 0, queue="nowhere")
    rig.read()  # the other row is dead, and that waits for the commit
    rig.lose(one)
    rig.lose(other)
    rig.flow()
    rig.tick()
    rig.flow()
    assert (rig.cursor(), dead(rig)) == (2, 2), "each was delivered once, and neither is done"


def test_a_consumer_attaches_when_the_topic_of_the_dead_lacks_a_version(rig):
    feed, client = rig.durable(), rig.client()
    rig.attach(client, max_deliveries=1, dead_letter="dead")
    rig.declare(feed, schema=WIDER)
    rig.lose(client)
    client = rig.client()
    number = rig.attach(client, max_deliveries=1, dead_letter="dead")
    assert isinstance(rig.answer(client, number), Reply), "a burial adds it"
    rig.declare(feed, "strange", "quote: [other: int]", durable=True)
    number = rig.attach(client, 2, "another", max_deliveries=1, dead_letter="strange")
    assert rig.answer(client, number).code == "broker"


# Counting


def test_a_lone_consumer_that_dies_kills_a_message_in_the_end(rig):
    feed = rig.durable()
    rig.store_rows(feed, quotes(1))
    for earlier in range(3):
        client = rig.client()
        rig.attach(client, **DYING)
        assert tries(rig, client) == [(0, earlier)]
        assert dead(rig) == 0
        rig.lose(client)
    assert (dead(rig), rig.cursor()) == (1, 1), "without anybody who comes for it"
    assert subscription(rig) is None
    after = rig.client()
    rig.attach(after, **DYING)
    assert tries(rig, after) == []


def test_a_consumer_that_detaches_counts_as_one_that_dies(rig):
    feed = rig.durable()
    rig.store_rows(feed, quotes(1))
    client = rig.client()
    for _ in range(3):
        rig.attach(client, **DYING)
        rig.request(client, Unsubscribe, subscription=1)
    assert dead(rig) == 1


def test_rows_that_an_application_has_not_seen_are_not_counted_when_it_detaches(rig):
    feed, client = rig.durable(), rig.client()
    rig.store_rows(feed, quotes(3))
    for _ in range(2):
        rig.attach(client, **DYING)
        rig.request(client, Unsubscribe, subscription=1, seen={1: [[1, 1]]})
    number = rig.attach(client, **DYING)
    assert isinstance(rig.answer(client, number), Reply)
    assert tries(rig, client)[-1] == (0, 0), "the next is on its last delivery, and comes alone"
    rig.ack(client, 1, 0)
    assert tries(rig, client)[-1] == (1, 2)
    for wrong in ({1: [[2, 1]]}, {1: []}):
        number = rig.request(client, Unsubscribe, subscription=1, seen=wrong)
        assert rig.answer(client, number).code == "ack_mismatch"
    assert len(subscription(rig).members) == 1


def test_the_last_delivery_of_a_row_is_made_alone(rig):
    """Whoever dies three times with a hundred rows in its hands has been killed by one of them."""
    feed = rig.durable()
    rig.store_rows(feed, quotes(6))
    for expected in ([0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5], [0]):
        client = rig.client()
        rig.attach(client, **DYING)
        assert rig.offsets(client) == expected
        rig.lose(client)
    assert dead(rig) == 1
    client = rig.client()
    rig.attach(client, **DYING)
    for offset in range(1, 6):
        assert rig.offsets(client) == list(range(1, offset + 1))
        rig.ack(client, offset, offset)
    rig.store_rows(feed, quotes(3))
    assert rig.offsets(client)[5:] == [6, 7, 8], "those that are new come together"
    assert (dead(rig), rig.cursor()) == (1, 6)


def test_a_member_of_a_group_is_given_the_last_delivery_alone(rig):
    feed, second = rig.durable(), rig.client("second")
    rig.store_rows(feed, quotes(3))
    rig.store_rows(second, quotes(3))
    one, other = rig.client(), rig.client()
    rig.attach(one, max_deliveries=2, dead_letter="dead")
    rig.lose(one)
    rig.attach(other, max_deliveries=2, dead_letter="dead")
    third = rig.client()
    rig.attach(third, max_deliveries=2, dead_letter="dead")
    assert rig.offsets(other) == [0]
    assert rig.offsets(third) == [3]
    rig.lose(third)
    assert dead(rig) == 1
    assert rig.offsets(other) == [0]
    for sequence, offset in enumerate((0, 1, 2, 4, 5), 1):
        assert rig.offsets(other)[-1] == offset
        rig.ack(other, sequence, offset)
    assert rig.cursor() == 6


def test_a_consumer_that_waits_for_more_before_it_acknowledges_gets_more(rig):
    feed = rig.durable()
    rig.store_rows(feed, quotes(3))
    client = rig.client()
    rig.attach(client, max_deliveries=1, dead_letter="dead")
    for count in (1, 2, 3):
        assert rig.offsets(client) == list(range(count))
        for _ in range(PATIENCE):
            rig.tick()
    rig.ack(client, 1, 0, 1, 2)
    assert (rig.cursor(), dead(rig)) == (3, 0)


# … durably


def test_a_broker_that_is_killed_with_its_consumer_does_not_forget_the_delivery(tmp_path):
    rig = DurableRig(tmp_path)
    rig.store_rows(rig.durable(), quotes(2))
    for earlier in range(3):
        client = rig.client()
        rig.attach(client, **DYING)
        assert tries(rig, client)[0] == (0, earlier)
        rig.kill()
        rig = DurableRig(tmp_path)
    client = rig.client()
    rig.attach(client, **DYING)
    assert dead(rig) == 1
    assert tries(rig, client) == [(1, 2)]
    rig.close()


def test_a_delivery_that_may_not_be_the_first_is_stored_before_it_is_made(tmp_path):
    """However soon the broker is killed when a row is handed out: at most the first delivery of a row is forgotten."""
    rig = DurableRig(tmp_path)
    rig.store_rows(rig.durable(), quotes(1))
    delivered = 0
    for _ in range(10):
        client = rig.client()
        rig.auto = False
        rig.attach(client, **DYING)
        while not rig.hands and (rig.writes or rig.reads):
            rig.commit() if rig.writes else rig.read()
        delivered += len(rig.offsets(client))
        rig.kill()  # before what was given to the store with the delivery is written
        rig = DurableRig(tmp_path)
    assert dead(rig) == 1
    assert delivered == 4
    rig.close()


def test_a_delivery_that_cannot_be_counted_first_is_made_later_and_in_order(rig):
    feed, client = rig.durable(), rig.client()
    rig.store_rows(feed, quotes(2))
    rig.attach(client, **DYING)
    rig.auto = False
    rig.ack(client, 1, again=[0])
    rig.ack(client, 2, 1)
    rig.commit()
    rig.store_rows(feed, quotes(1))
    rig.read()  # the first is to come again, and that is to be stored first
    rig.commit(1)  # the new row
    assert rig.offsets(client) == [0, 1], "which does not overtake it"
    rig.failing = StoreFull("full")
    rig.flow()
    assert rig.offsets(client) == [0, 1]
    rig.failing = None
    rig.flow()
    rig.tick()
    rig.flow()
    assert tries(rig, client)[2:] == [(0, 1), (2, 0)]
    member = next(iter(subscription(rig).members.values()))
    assert not member.unsent
    assert member.rows == 2


def test_a_client_that_leaves_before_its_rows_are_sent_has_not_had_them(rig):
    feed, client = rig.durable(), rig.client()
    rig.store_rows(feed, quotes(1))
    rig.attach(client, **DYING)
    rig.ack(client, 1, again=[0])
    rig.ack(client, 2, again=[0])
    rig.lose(client)
    assert dead(rig) == 1
    rig.store_rows(feed, quotes(1))
    client = rig.client()
    rig.attach(client, **DYING)
    rig.ack(client, 1, again=[1])
    assert tries(rig, client)[-1] == (1, 1)
    rig.auto = False
    rig.ack(client, 2, again=[1])
    rig.commit()
    rig.read()
    credit = client.credit
    rig.request(client, Unsubscribe, subscription=1)
    rig.flow()
    assert client.credit > credit, "what was not sent is not taken from its window"
    other = rig.client()
    rig.attach(other, **DYING)
    rig.flow()
    assert tries(rig, other) == [(1, 2)]


def test_counts_are_stored_when_a_member_of_a_group_leaves(tmp_path):
    rig = DurableRig(tmp_path)
    feed = rig.durable()
    one, other = rig.client(), rig.client()
    rig.attach(one, **DYING)
    rig.attach(other, **DYING)
    rig.store_rows(feed, quotes(1))
    holder, rest = (one, other) if rig.offsets(one) else (other, one)
    rig.lose(holder)
    assert tries(rig, rest) == [(0, 1)]
    rig.kill()
    rig = DurableRig(tmp_path)
    client = rig.client()
    rig.attach(client, **DYING)
    assert tries(rig, client) == [(0, 2)]
    rig.close()


def test_a_failing_store_does_not_make_the_core_go_round_in_circles(rig):
    feed, client = rig.durable(), rig.client()
    rig.attach(client, **DYING)
    rig.auto = False
    rig.store_rows(feed, quotes(2))
    rig.commit()
    rig.failing = StoreFull("full")
    rig.flow()
    rig.lose(client)
    rig.flow()
    for _ in range(3):
        rig.tick()
        rig.flow()
    assert subscription(rig) is not None, "it is not let go before the store knows what was delivered"
    rig.failing = None
    rig.tick()
    rig.flow()
    assert subscription(rig) is None
    other = rig.client()
    rig.attach(other, **DYING)
    rig.flow()
    assert tries(rig, other) == [(0, 1), (1, 1)]
