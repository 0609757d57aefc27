"""Acknowledgements that a commit carries, and those beside it: who waits for whom. With a real store, step by step."""

import pytest

import milepost
from milepost.errors import StoreFull
from milepost.wire import Ack, DeclareQueue, DeclareType, Enqueue, Failure, Finish, Queues, Reply
from milepost.wire.queue import NO_PRIORITY
from tests.unit.broker.durable_rig import DurableRig
from tests.unit.broker.rig import QUOTE, quotes


@pytest.fixture
def rig(tmp_path):
    made = DurableRig(tmp_path)
    made.run(made.core.queues.begin())
    feed = made.durable()
    made.ask(feed, DeclareType, text=QUOTE)
    made.ask(feed, DeclareQueue, name="orders", types=["quote"])
    made.store_rows(feed, quotes(6))
    yield made
    made.close()


def commit(rig, connection, sequence, *offsets, transaction=1, queue="orders", subscription=1):
    """A transaction of one message, which acknowledges some rows: the number of its request."""
    data = bytes(milepost.encode(milepost.parse_schema(QUOTE), quotes(1)).data)
    rig.say(connection, Enqueue(0, transaction, 1, queue, NO_PRIORITY, 0, 0, True, data))
    done = {1: [[each, each] for each in offsets]}
    ack = Ack(request=0, subscription=subscription, sequence=sequence, done=done)
    return rig.request(connection, Finish, transaction=transaction, step=2, how="commit", acks=[ack])


def waiting(rig, connection):
    (found,) = rig.ask(connection, Queues, name="orders")
    return found["statistics"]["waiting"]


def failed(rig, connection, number):
    answer = rig.answer(connection, number)
    assert isinstance(answer, Failure), answer
    return answer.code


def test_the_cursor_moves_with_the_commit_and_not_before(rig):
    desk = rig.client()
    rig.attach(desk)
    rig.auto = False
    number = commit(rig, desk, 1, 0, 1)
    assert rig.answer(desk, number) is None
    assert rig.cursor() == 0
    rig.flow()
    assert isinstance(rig.answer(desk, number), Reply)
    assert rig.cursor() == 2
    rig.auto = True
    assert waiting(rig, desk) == 1


def test_a_commit_waits_for_acknowledgements_and_they_for_it(rig):
    desk = rig.client()
    rig.attach(desk)
    rig.auto = False
    first = rig.ack(desk, 1, 0)
    second = commit(rig, desk, 2, 1)
    third = rig.ack(desk, 3, 2)
    fourth = commit(rig, desk, 4, 3, transaction=2)
    assert len(rig.writes) == 1, "the others wait"
    rig.commit()
    assert isinstance(rig.answer(desk, first), Reply)
    assert len(rig.writes) == 1
    rig.commit()
    assert isinstance(rig.answer(desk, second), Reply)
    assert rig.cursor() == 2
    assert rig.answer(desk, third) is None
    rig.commit()
    assert isinstance(rig.answer(desk, third), Reply), "commits and others take turns"
    rig.flow()
    assert isinstance(rig.answer(desk, fourth), Reply)
    assert rig.cursor() == 4
    rig.auto = True
    assert waiting(rig, desk) == 2


def test_a_commit_that_fails_leaves_the_rows_with_its_client(rig):
    desk = rig.client()
    rig.attach(desk)
    rig.auto = False
    number = commit(rig, desk, 1, 0, 1, queue="nowhere")
    beside = rig.ack(desk, 2, 2)
    rig.flow()
    assert failed(rig, desk, number) == "unknown_queue"
    assert isinstance(rig.answer(desk, beside), Reply)
    assert rig.cursor() == 0
    rig.auto = True
    rig.ack(desk, 3, 0, 1)
    assert rig.cursor() == 3
    assert rig.offsets(desk) == [0, 1, 2, 3, 4, 5], "nothing came twice"
    rig.failing = StoreFull("no room")
    number = commit(rig, desk, 4, 3, transaction=2)
    assert failed(rig, desk, number) == "store_full"
    rig.failing = None
    number = commit(rig, desk, 5, 3, transaction=3)
    assert isinstance(rig.answer(desk, number), Reply)
    assert rig.cursor() == 4
    assert waiting(rig, desk) == 1


def test_rows_that_are_not_its_own_undo_the_transaction(rig):
    desk, other = rig.client(), rig.client()
    rig.attach(desk)
    number = commit(rig, desk, 1, 0, 77)
    assert failed(rig, desk, number) == "ack_mismatch"
    number = commit(rig, other, 1, 0, transaction=2)
    assert failed(rig, other, number) == "unknown_subscription"
    assert waiting(rig, desk) == 0
    assert rig.offsets(desk) == [0, 1, 2, 3, 4, 5, 0], "what it named comes again"


def test_a_client_that_is_lost_meanwhile_finds_what_became_of_it(rig):
    desk = rig.client(instance=b"d" * 16)
    rig.attach(desk)
    rig.auto = False
    commit(rig, desk, 1, 0, 1)
    rig.lose(desk)
    again = rig.client(instance=b"d" * 16)
    number = rig.attach(again)
    rig.flow()
    assert rig.answer(again, number).value["sequence"] == 1
    assert rig.offsets(again) == [2, 3, 4, 5]
    number = commit(rig, again, 1, 0, 1)
    assert isinstance(rig.answer(again, number), Reply)
    rig.auto = True
    assert waiting(rig, again) == 1


def test_a_commit_that_waits_when_its_client_is_lost_is_not_carried_out(rig):
    desk = rig.client(instance=b"d" * 16)
    rig.attach(desk)
    rig.auto = False
    rig.ack(desk, 1, 0)
    commit(rig, desk, 2, 1)
    rig.lose(desk)
    rig.flow()
    again = rig.client(instance=b"d" * 16)
    rig.attach(again)
    rig.flow()
    assert rig.offsets(again) == [1, 2, 3, 4, 5]
    number = commit(rig, again, 2, 1)
    assert failed(rig, again, number) in ("ack_mismatch", "unknown_subscription")
    rig.auto = True
    assert waiting(rig, again) == 0
    assert rig.core.queues.figures()["held_bytes"] == 0
