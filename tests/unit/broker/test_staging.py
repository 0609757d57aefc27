"""Staging through the core: what is answered when, and who gets what is published."""

import pytest

import milepost
from milepost.batch import Ids
from milepost.broker.examination import examine
from milepost.errors import StoreFull
from milepost.wire import Credit, Delete, Failure, Publish, PublishedEpoch, Reply, Stage, Unstage
from tests.unit.broker.durable_rig import DurableRig
from tests.unit.broker.rig import BROKER_ID, QUOTE, quotes

PLACE = {"sink": "sink", "epoch": 1, "part": 0, "attempt": 0, "sequence": 0}


@pytest.fixture
def rig(tmp_path):
    made = DurableRig(tmp_path)
    yield made
    made.close()


def stage(rig, connection, rows, topic="quotes", schema=QUOTE, publisher=None, **place):
    """Stage rows as the shell does; the number of the request."""
    ids = Ids.single(publisher or connection.publisher.number, BROKER_ID, [next(rig._stamps) for _ in rows])
    data = milepost.encode(milepost.parse_schema(schema), rows, ids).data
    number = next(rig._requests)
    found = rig.core.topics[topic]
    said = Stage(request=number, topic=found.number, data=data, **PLACE | place)
    size = len(data) + 64
    rig.settle(examine([rig.core.put(connection, found.number, data, size, stage=said)], 1 << 20))
    assert not found.examining
    return number


def publish(rig, connection, *parts, epoch=1):
    return rig.ask(connection, Publish, sink="sink", epoch=epoch, parts=list(parts))


def code(answer):
    assert isinstance(answer, Failure), answer
    return answer.code


def test_a_stage_is_answered_when_it_is_stored(rig):
    feed = rig.durable()
    rig.auto = False
    number = stage(rig, feed, quotes(3))
    assert rig.answer(feed, number) is None
    rig.flow()
    assert rig.answer(feed, number) == Reply(request=number, value={"rows": 3, "how": "staged"})
    again = stage(rig, feed, quotes(3))
    rig.flow()
    assert rig.answer(feed, again).value["how"] == "repeated"
    assert feed.puts == 0, "it is no put, and no STORED speaks of it"


def test_what_is_published_goes_to_everybody_as_if_it_were_put(rig):
    feed, plain, desk = rig.durable(), rig.client(), rig.client()
    rig.subscribe(plain, number=4, where="price >= 1")
    rig.attach(desk)
    stage(rig, feed, quotes(2))
    stage(rig, feed, quotes(1, start=7), part=1)
    assert rig.offsets(desk) == []
    assert rig.rows(plain) == []
    topic = rig.core.topics["quotes"]
    assert (topic.rows_in, topic.batches_in, feed.rows_in) == (0, 0, 3)
    assert publish(rig, feed, (1, 0), (0, 0)) == {"repeated": False, "rows": 3}
    assert (topic.rows_in, topic.batches_in, feed.rows_in) == (3, 1, 3)
    assert rig.offsets(desk) == [0, 1, 2]
    assert [row["size"] for row in rig.rows(plain)] == [7, 1]
    assert publish(rig, feed, (1, 0), (0, 0)) == {"repeated": True, "rows": 0}
    assert rig.offsets(desk) == [0, 1, 2]
    assert rig.ask(feed, PublishedEpoch, sink="sink") == {"epoch": 1}
    assert rig.ask(feed, PublishedEpoch, sink="another") == {"epoch": None}
    totals = rig.core.statistics()["totals"]
    assert (totals["rows_staged"], totals["epochs_published"], totals["rows_in"]) == (3, 1, 3)


def test_what_is_thrown_away_is_missed_when_it_is_published(rig):
    feed = rig.durable()
    stage(rig, feed, quotes(2))
    assert rig.ask(feed, Unstage, sink="sink", epoch=1) is None
    assert code(publish(rig, feed, (0, 0))) == "staging_lost"
    assert rig.ask(feed, PublishedEpoch, sink="sink") == {"epoch": None}


def test_a_batch_that_is_wrong_is_refused_and_its_credit_comes_back(rig):
    feed = rig.durable()
    rig.declare(feed, name="live")
    for wrong, what in (
        ({"schema": "other: [n: int]", "rows": [{"n": 1}]}, "unknown_schema"),
        ({"publisher": 77}, "invalid_value"),
        ({"topic": "live"}, "not_durable"),
        ({"sink": ""}, "broker"),
        ({"sink": "s" * 256}, "limit_exceeded"),
        ({"epoch": 1 << 63}, "invalid_value"),
        ({"part": 1 << 63}, "invalid_value"),
        ({"attempt": 1 << 63}, "invalid_value"),
        ({"sequence": 4}, "staging_lost"),
    ):
        rows = wrong.pop("rows", None) or quotes(1)
        number = stage(rig, feed, rows, **wrong)
        assert code(rig.answer(feed, number)) == what
    assert feed.open
    assert feed.outstanding == feed.taken, "all of it is on its way back"
    assert code(publish(rig, feed, (0, 0))) == "staging_lost"


def test_rows_that_break_a_check_are_not_staged(rig):
    feed = rig.durable()
    strict = "c: [n: int] check (n > 0)"
    topic = rig.core.topics[rig.declare(feed, name="checked", schema=strict, durable=True) and "checked"]
    ids = Ids.single(feed.publisher.number, BROKER_ID, [5])
    data = milepost.Batch.encode(milepost.parse_schema(strict), [{"n": -1}], ids).data
    said = Stage(request=99, topic=topic.number, data=data, **PLACE)
    (result,) = examine([rig.core.put(feed, topic.number, data, 100, stage=said)], 1 << 20)
    assert result.puts[0].error.code == "check_failed"


def test_credit_comes_back_as_for_puts_and_more_than_the_window_is_refused(tmp_path):
    rig = DurableRig(tmp_path, put_window=4096)
    feed = rig.durable()
    for sequence in range(20):
        stage(rig, feed, quotes(40), sequence=sequence)
    assert sum(isinstance(each, Credit) for each in rig.said[feed]) >= 5
    rig.auto = False
    with pytest.raises(milepost.errors.ProtocolError, match="WELCOME allowed"):
        for sequence in range(20, 40):
            stage(rig, feed, quotes(40), sequence=sequence)
    rig.close()


def test_a_store_that_fails_says_so_to_each_and_breaks_nothing_else(rig):
    feed = rig.durable()
    rig.auto = False
    rig.failing = StoreFull("full")
    first, second = stage(rig, feed, quotes(1)), stage(rig, feed, quotes(1), sequence=1)
    asked = rig.request(feed, Publish, sink="sink", epoch=1, parts=[(0, 0)])
    rig.flow()
    assert [code(rig.answer(feed, number)) for number in (first, second, asked)] == ["store_full"] * 3
    rig.failing = None
    rig.auto = True
    rig.store_rows(feed, quotes(1))
    assert code(rig.answer(feed, stage(rig, feed, quotes(1), sequence=2))) == "staging_lost"
    assert rig.answer(feed, stage(rig, feed, quotes(1), attempt=1)).value["how"] == "staged"
    assert publish(rig, feed, (0, 1)) == {"repeated": False, "rows": 1}


def test_whoever_left_is_not_told_and_what_it_staged_is_there(rig):
    feed = rig.durable()
    rig.auto = False
    stage(rig, feed, quotes(1))
    rig.request(feed, Publish, sink="sink", epoch=1, parts=[(0, 0)])
    said = len(rig.said[feed])
    rig.lose(feed)
    rig.flow()
    assert len(rig.said[feed]) == said
    rig.auto = True
    again = rig.client()
    assert publish(rig, again, (0, 0)) == {"repeated": True, "rows": 0}


def test_a_request_that_cannot_be_is_refused(rig):
    feed = rig.durable()
    for parts in ([(0, 0), (0, 1)], [(-1, 0)], [(0, 1 << 63)]):
        assert code(publish(rig, feed, *parts)) == "invalid_value"
    assert code(publish(rig, feed, epoch=-1)) == "invalid_value"
    assert code(rig.ask(feed, Unstage, sink="sink", epoch=-1)) == "invalid_value"
    assert code(rig.ask(feed, PublishedEpoch, sink="\n")) == "broker"
    assert feed.open


def test_rows_for_a_topic_that_was_deleted_are_not_published(rig):
    feed = rig.durable()
    stage(rig, feed, quotes(1))
    rig.ask(feed, Delete, name="quotes")
    assert code(publish(rig, feed, (0, 0))) in ("staging_lost", "unknown_topic")


def test_a_broker_without_a_store_has_no_sinks(rig):
    client = rig.client()
    rig.core.durable.on = False
    assert code(rig.ask(client, PublishedEpoch, sink="sink")) == "not_durable"
