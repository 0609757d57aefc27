"""Rows that a client hands on to clients of its own: stored, kept over restarts, taken over. Step by step."""

import pytest

from milepost import limits
from milepost.broker.core.log import subscriptions as streams
from milepost.errors import StoreFull
from milepost.wire import Ack, Failure, Finish, Reply
from tests.unit.broker.durable_rig import DurableRig
from tests.unit.broker.rig import quotes


class Rig(DurableRig):
    def hand_on(self, connection, sequence, *offsets, done=()):
        return self.request(
            connection, Ack, subscription=1, sequence=sequence, handed={1: [[each, each] for each in offsets]},
            done={1: [[each, each] for each in done]} if done else {},
        )  # fmt: skip

    def gateway(self, **more):
        """A client that hands on, and what it was told when it attached."""
        connection = self.client()
        number = self.attach(connection, hands=True, prefetch=more.pop("prefetch", 16), **more)
        self.flow()
        return connection, self.answer(connection, number)

    def failure(self, connection, number):
        answer = self.answer(connection, number)
        assert isinstance(answer, Failure), answer
        return answer.code


@pytest.fixture
def begin(tmp_path):
    """A rig on the store of the one before, which was killed: it never came to an end in order."""
    made = []

    def begin():
        if made:
            made[-1].close()  # which writes nothing
        made.append(Rig(tmp_path))
        return made[-1]

    yield begin
    made[-1].close()


@pytest.fixture
def rig(begin):
    made = begin()
    made.feed, made.other = made.durable("feed"), made.client("other")
    made.declare(made.other, durable=True)
    made.store_rows(made.feed, quotes(2))
    return made


def feeds(rig):
    return rig.durable("feed"), rig.durable("other")


def test_what_was_handed_on_is_its_clients_after_a_kill(rig, begin):
    desk, told = rig.gateway()
    assert (told.value["handed"], told.value["acknowledged"]) == ({}, {})
    assert isinstance(rig.answer(desk, rig.hand_on(desk, 1, 0)), Reply)
    rig = begin()
    desk, told = rig.gateway()
    assert told.value["handed"] == {1: [0]}
    assert rig.offsets(desk) == [1], "the row itself is not sent again"
    assert isinstance(rig.answer(desk, rig.ack(desk, 1, 0)), Reply)
    assert rig.cursor() == 1
    rig = begin()
    desk, told = rig.gateway()
    assert (told.value["handed"], told.value["acknowledged"]) == ({}, {1: 0})


def test_rows_that_are_done_above_one_that_was_handed_on_before_a_kill_are_not_forgotten(rig, begin):
    desk, _ = rig.gateway()
    rig.hand_on(desk, 1, 0, done=[1])
    rig = begin()
    _, other = feeds(rig)
    rig.store_rows(other, quotes(9_000))
    native = rig.client()
    rig.attach(native, prefetch=10_000)
    assert rig.offsets(native) == list(range(2, 9_002))
    number = rig.request(native, Ack, subscription=1, sequence=1, done={1: [[2, 9_001]]})
    assert isinstance(rig.answer(native, number), Reply)
    rig.store_rows(other, quotes(2))
    rig.ack(native, 2, 9_002)
    assert rig.cursor() == 0
    rig = begin()
    desk, told = rig.gateway(prefetch=10_000)
    assert told.value["handed"] == {1: [0]}
    assert rig.offsets(desk) == [9_003]
    rig.ack(desk, 1, 0, 9_003)
    assert rig.cursor() == 9_004


def test_what_was_handed_on_before_a_kill_is_anybodys_after_five_minutes(rig, begin):
    desk, _ = rig.gateway()
    rig.hand_on(desk, 1, 0)
    rig = begin()
    native = rig.client()
    rig.attach(native)
    rig.tick()
    rig.now += streams.RESERVED_S - 1
    rig.tick()
    assert rig.offsets(native) == []
    rig.now += 1
    rig.tick()
    assert rig.offsets(native) == [0, 1]
    assert rig.hands[native][0][2][0] == 1, "it was delivered before"
    desk, told = rig.gateway()
    assert told.value["handed"] == {}
    assert rig.failure(desk, rig.ack(desk, 1, 0)) == "ack_mismatch"


def test_a_reservation_ends_when_the_last_other_client_leaves(rig, begin):
    """One that comes for a moment, again and again, would otherwise never see the row."""
    desk, _ = rig.gateway()
    rig.hand_on(desk, 1, 0)
    rig = begin()
    native = rig.client()
    rig.attach(native)
    assert rig.offsets(native) == [], "rows of its publisher wait for it"
    rig.lose(native)
    native = rig.client()
    rig.attach(native)
    assert rig.offsets(native) == [0, 1]


def test_a_client_that_hands_on_has_the_reserved_rows_of_a_broker_that_others_came_to_first(rig, begin):
    desk, _ = rig.gateway()
    rig.hand_on(desk, 1, 0)
    rig = begin()
    native = rig.client()
    rig.attach(native)
    assert rig.offsets(native) == []
    desk, told = rig.gateway()
    assert told.value["handed"] == {1: [0]}
    assert rig.offsets(native) == []
    assert rig.offsets(desk) == [1], "rows of a publisher stay together"


def test_a_store_that_fails_has_nothing_handed_on(rig):
    desk, _ = rig.gateway()
    rig.failing = StoreFull("full")
    assert rig.failure(desk, rig.hand_on(desk, 1, 0)) == "store_full"
    rig.failing = None
    rig.lose(desk)
    desk, told = rig.gateway()
    assert told.value["handed"] == {}
    assert rig.offsets(desk) == [0, 1]
    assert isinstance(rig.answer(desk, rig.hand_on(desk, 1, 0)), Reply)
    rig.failing = StoreFull("full")
    assert rig.failure(desk, rig.ack(desk, 2, 0)) == "store_full"
    rig.failing = None
    rig.lose(desk)
    desk, told = rig.gateway()
    assert (told.value["handed"], told.value["acknowledged"]) == ({1: [0]}, {})


def test_one_request_acknowledges_a_row_and_hands_on_the_next(rig):
    desk, _ = rig.gateway()
    rig.hand_on(desk, 1, 0)
    rig.hand_on(desk, 2, 1, done=[0])
    rig.lose(desk)
    desk, told = rig.gateway()
    assert (told.value["handed"], told.value["acknowledged"]) == ({1: [1]}, {1: 0})


def test_what_cannot_be_handed_on(rig, monkeypatch):
    desk, _ = rig.gateway(prefetch=1)
    assert rig.failure(desk, rig.hand_on(desk, 1, 1)) == "ack_mismatch"
    assert rig.failure(desk, rig.hand_on(desk, 1, 0, done=[0])) == "ack_mismatch"
    monkeypatch.setattr(limits, "HANDED_ROWS", 0)
    assert rig.failure(desk, rig.hand_on(desk, 1, 0)) == "limit_exceeded"
    monkeypatch.undo()
    assert isinstance(rig.answer(desk, rig.hand_on(desk, 1, 0)), Reply), "it came again"


def test_what_was_delivered_too_often_is_dead_although_it_was_handed_on(rig, begin):
    terms = {"max_deliveries": 2, "dead_letter": "dead"}
    for _ in range(2):
        desk, told = rig.gateway(**terms)
        rig.hand_on(desk, 1, 0)
        rig.lose(desk)
    rig = begin()
    desk, told = rig.gateway(**terms)
    assert told.value["handed"] == {}
    assert rig.failure(desk, rig.ack(desk, 1, 0)) == "ack_mismatch"
    (extent,) = rig.store.extents(rig.core.topics["dead"].stored)[rig.core.topics["dead"].stored].values()
    assert extent.rows >= 1
    assert 0 not in rig.offsets(desk)


def test_a_commit_hands_nothing_on(tmp_path):
    rig = Rig(tmp_path)
    rig.run(rig.core.queues.begin())
    rig.store_rows(rig.durable(), quotes(1))
    desk, _ = rig.gateway()
    ack = Ack(request=0, subscription=1, sequence=1, handed={1: [[0, 0]]})
    number = rig.request(desk, Finish, transaction=1, step=1, how="commit", acks=[ack])
    assert rig.failure(desk, number) == "ack_mismatch"
    rig.close()


def test_a_subscription_is_found_by_name_although_its_topic_is_new_to_the_broker(rig):
    rig.attach(rig.client())
    topic = rig.core.topics["quotes"]
    for connection in list(rig.core.connections.values()):
        rig.lose(connection)
    rig.run(rig.core.durable.polled([], {topic.stored}))  # as if it had never heard of it
    assert "quotes" not in rig.core.topics
    desk = rig.client()
    number = rig.attach(desk, pattern="", create=False)
    assert rig.answer(desk, number).value["topics"] == ["quotes"]
    assert rig.offsets(desk) == [0, 1]


def test_a_subscription_is_found_by_its_name_alone(rig):
    desk = rig.client()
    assert rig.failure(desk, rig.attach(desk, pattern="", create=False)) == "unknown_subscription"
    assert rig.failure(desk, rig.attach(desk, pattern="")) == "unknown_topic"
    assert rig.failure(desk, rig.attach(desk, pattern="", name="", create=False)) == "unknown_topic"
    rig.attach(rig.client())
    for _ in range(2):
        number = rig.attach(desk, pattern="", create=False)
        assert rig.answer(desk, number).value["topics"] == ["quotes"]
        rig.lose(desk)
        desk = rig.client()


def test_a_hand_out_that_survives_a_kill_is_one_delivery(rig, begin):
    """What a gateway has handed on before it is killed with the broker is still in the same hands."""
    dying = {"max_deliveries": 3, "dead_letter": "dead"}
    for _ in range(2):
        desk, told = rig.gateway(**dying)
        rig.hand_on(desk, 1, *({0, 1} & set(rig.offsets(desk))))
        rig = begin()
    desk, told = rig.gateway(**dying)
    assert told.value["handed"] == {1: [0, 1]}
    rig.request(desk, Ack, subscription=1, sequence=9, again={1: [[0, 0], [1, 1]]})
    tries = [counts for _, _, counts in rig.hands[desk]]
    assert tries == [[1, 1]], "that it was sent back is the first delivery that came to nothing"
