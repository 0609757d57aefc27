"""What waits in the store is counted when somebody asks, not more often than needed, and nobody waits long for it."""

import pytest

from milepost.broker.core import counts
from milepost.broker.core.counts import COUNT_S, PATIENCE_S, REST
from milepost.broker.core.effects import Inspect
from milepost.errors import StoreUnavailable
from milepost.operations import Lag, Lags
from milepost.operations.queues import Count
from milepost.operations.records import Counted
from milepost.wire import StatusRequest
from tests.unit.broker.test_queues_core import QueueRig


@pytest.fixture
def rig():
    return QueueRig()


def depth(waiting, oldest_us=0):
    return {"waiting": waiting, "delayed": 0, "taken": 0, "uncommitted": 0, "expired": 0, "oldest_us": oldest_us}


class Operator:
    def __init__(self, rig, number):
        self.rig = rig
        self.connection = rig.reader(bytes([number]) * 16)
        self.asked = 0

    def answer(self):
        found = self.rig.answer(self.connection, self.asked)
        return None if found is None else found.value


def ask(operator, now):
    operator.asked += 1
    operator.rig.run(operator.rig.core.said(operator.connection, StatusRequest(request=operator.asked), now, 2_000_000))


def test_one_count_serves_all_who_ask_and_is_repeated_when_it_is_old(rig):
    first, second = Operator(rig, 1), Operator(rig, 2)
    ask(first, 1.0)
    ask(second, 1.5)
    (look,) = rig.asked
    assert isinstance(look, Inspect)
    assert look.operation == Count(0, counts.LISTED)
    assert first.answer() is None
    lag = Lag("quotes", "desk", 30)
    rig.done(Counted({"a": depth(3, 500_000)}, {"a": "b", "b": None}, 1, Lags([lag], 4, 35), 1_000_000, 0.01))
    for each in (first, second):
        told = each.answer()
        assert told["queues"] == [
            {"name": "a", "waiting": 3, "delayed": 0, "taken": 0, "oldest_s": 1.5, "dead": "b", "dead_letters": 0}
        ]
        assert (told["queues_total"], told["queues_uncounted"], told["counted_us"]) == (2, 1, 1_000_000)
        assert told["lags"] == [{"topic": "quotes", "name": "desk", "rows": 30}]
        assert (told["lags_total"], told["lags_other"]) == (4, 5)
    ask(first, 1.0 + COUNT_S - 0.01)
    assert rig.asked == []
    assert first.answer() is not None
    ask(first, 1.0 + COUNT_S)
    assert rig.asked[0].operation.after == 1, "it goes on with the next queue"
    rig.done(Counted({"b": depth(7)}, {"a": "b", "b": None}, 2, Lags([], 0, 0), 3_000_000, COUNT_S))
    told = first.answer()
    assert [(each["name"], each["waiting"]) for each in told["queues"]] == [("b", 7), ("a", 3)]
    assert told["queues"][1]["dead_letters"] == 7
    ask(first, 1.0 + COUNT_S + REST * COUNT_S - 0.01)
    assert rig.asked == [], "a count that takes long is made less often"
    ask(first, 1.0 + COUNT_S + REST * COUNT_S)
    rig.done(Counted({}, {"b": None}, 2, Lags([], 0, 0), 4_000_000, 0.0))
    assert [each["name"] for each in first.answer()["queues"]] == ["b"], "what is dropped is gone"


def test_nobody_waits_long_for_a_count(rig):
    first, second, third = (Operator(rig, number) for number in (1, 2, 3))
    ask(first, 1.0)
    rig.run(rig.core.durable.tick(1.0 + PATIENCE_S - 0.01))
    assert first.answer() is None
    rig.run(rig.core.durable.tick(1.0 + PATIENCE_S))
    assert first.answer()["counted_us"] == 0
    ask(second, 1.0 + PATIENCE_S)
    assert second.answer()["queues"] == [], "one that takes long is not waited for at all"
    assert len(rig.asked) == 1
    rig.done(StoreUnavailable("away"))
    ask(third, 1.0 + COUNT_S - 0.01)
    assert rig.asked == [], "what failed is not tried at once again"
    assert third.answer() is not None


def test_figures_that_there_was_no_time_for_stay_and_so_does_their_age(rig):
    operator = Operator(rig, 1)

    def told(number, queues, lags):
        ask(operator, number * COUNT_S)
        rig.done(Counted(queues, {"a": None, "b": None}, 0, lags, number * 1_000_000, 0.0))
        found = operator.answer()
        waiting = {each["name"]: each["waiting"] for each in found["queues"]}
        lag = [each["rows"] for each in found["lags"]], found["lags_total"], found["lags_other"]
        return waiting, lag, found["counted_us"] // 1_000_000

    lags = Lags([Lag("quotes", "desk", 30)], 4, 35)
    assert told(1, {}, None) == ({}, ([], 0, 0), 0), "no time for anything"
    assert told(2, {"a": depth(3), "b": depth(1)}, lags) == ({"a": 3, "b": 1}, ([30], 4, 5), 2)
    assert told(3, {"a": depth(4), "b": depth(2)}, None) == ({"a": 4, "b": 2}, ([30], 4, 5), 2)
    assert told(4, {"b": depth(5)}, Lags([], 0, 0)) == ({"a": 4, "b": 5}, ([], 0, 0), 3)


def test_a_client_that_left_is_not_answered_and_the_others_are(rig):
    first, second = Operator(rig, 1), Operator(rig, 2)
    ask(first, 1.0)
    ask(second, 1.0)
    rig.run(rig.core.lost(first.connection))
    rig.done(Counted({}, {}, 0, Lags([], 0, 0), 5, 0.0))
    assert first.answer() is None
    assert second.answer()["counted_us"] == 5


def test_queues_and_lags_beyond_the_bound_are_added_up(rig, monkeypatch):
    monkeypatch.setattr(counts, "LISTED", 2)
    operator = Operator(rig, 1)
    ask(operator, 1.0)
    queues = {str(number): depth(number) for number in range(5)}
    lags = [Lag("t", str(number), number) for number in (9, 8)]
    rig.done(Counted(queues, dict.fromkeys(queues), 5, Lags(lags, 6, 30), 1, 0.0))
    told = operator.answer()
    assert [each["name"] for each in told["queues"]] == ["4", "3"]
    assert (told["queues_total"], told["queues_other"]) == (5, {"waiting": 3, "delayed": 0, "taken": 0})
    assert (len(told["lags"]), told["lags_total"], told["lags_other"]) == (2, 6, 13)


def test_of_one_client_a_single_request_waits_and_all_answers_come_of_one_look(rig, monkeypatch):
    """A client that asks a thousand times at once costs no more than one that asks once and reads its answers."""
    looks = []
    usual = rig.core.statistics
    monkeypatch.setattr(rig.core, "statistics", lambda time_us=0: looks.append(time_us) or usual(time_us))
    hasty, other = Operator(rig, 1), Operator(rig, 2)
    ask(hasty, 1.0)
    ask(other, 1.0)
    assert (hasty.answer(), looks) == (None, [])
    ask(hasty, 1.1)
    assert hasty.answer() is not None, "the second has what was counted before"
    assert len(looks) == 1
    rig.done(Counted({"a": depth(3)}, {"a": None}, 1, None, 1_000_000, 0.01))
    assert other.answer()["queues_total"] == 1
    assert rig.answer(hasty.connection, 1).value["queues_total"] == 1
    assert len(looks) == 2
