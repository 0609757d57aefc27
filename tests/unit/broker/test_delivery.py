import pytest

from milepost import limits
from milepost.wire import Dropped, Failure

from .rig import QUOTE, Rig, quotes


def test_a_connection_that_wants_all_rows_gets_the_publishers_bytes_untouched():
    rig = Rig()
    feed, one, two = rig.client(), rig.client(), rig.client()
    rig.declare(feed)
    rig.subscribe(one)
    rig.subscribe(two)
    sent = []
    for rows in (quotes(1), quotes(5)):
        batch = rig.batch(feed, rows)
        sent.append(batch.data)
        effects_before = len(rig.got.get(one, []))
        rig.put_data(feed, batch.data)
        assert len(rig.got[one]) == effects_before + 1
    assert rig.rows(one) == rig.rows(two) == quotes(1) + quotes(5)
    assert rig.sizes(one) == [len(data) + 24 for data in sent]


def test_several_subscriptions_deliver_a_row_once_with_all_marks():
    rig = Rig()
    feed, reader = rig.client(), rig.client()
    rig.declare(feed)
    rig.subscribe(reader, number=4)
    rig.subscribe(reader, ">", number=9)
    rig.put(feed, quotes(2))
    assert [(marks, rows) for _, marks, rows, _ in rig.got[reader]] == [((4, 9), quotes(2))]
    rig.unsubscribe(reader, 4)
    rig.put(feed, quotes(1))
    assert rig.got[reader][-1][1] == (9,)
    rig.unsubscribe(reader, 9)
    rig.put(feed, quotes(1))
    assert len(rig.got[reader]) == 2


@pytest.mark.parametrize("rows", [1, 3])
def test_predicates_select_rows_and_mark_them(rows):
    rig = Rig()
    feed, cheap, dear, both = rig.client(), rig.client(), rig.client(), rig.client()
    rig.declare(feed)
    rig.subscribe(cheap, where="price < 2")
    rig.subscribe(dear, where="price >= 2")
    rig.subscribe(both, number=1)
    rig.subscribe(both, number=2, where="price < 1")
    rig.subscribe(both, number=3, where="symbol = 'IBM'")
    rig.put(feed, quotes(rows))
    rig.put(feed, quotes(rows, start=5))
    assert rig.rows(cheap) == quotes(min(rows, 2))
    assert rig.rows(dear) == quotes(rows)[2:] + quotes(rows, start=5)
    assert rig.rows(both) == quotes(rows) + quotes(rows, start=5)
    first = rig.got[both][0][1]
    marks = [first] if rows == 1 else first
    assert [set(each) for each in marks] == [{1, 2, 3}] + [{1, 3}] * (rows - 1)
    assert set(rig.got[both][1][1]) == {1, 3}
    figures = {(each["client"], each["where"]): each["rows_out"] for each in rig.core.statistics()["subscriptions"]}
    assert figures[both.peer, "symbol = 'IBM'"] == 2 * rows
    assert figures[both.peer, None] == 2 * rows
    assert figures[both.peer, "price < 1"] == 1


def test_a_predicate_that_does_not_fit_is_refused_with_its_place():
    rig = Rig()
    feed, reader = rig.client(), rig.client()
    rig.declare(feed)
    for number in range(1_000):
        answer = rig.subscribe(reader, number=number, where="pice > 1")
        assert isinstance(answer, Failure)
        assert answer.code == "query_type"
        assert "did you mean 'price'" in answer.message
        assert "^" in answer.message
    assert rig.cache.compiled == 1  # the same typo is looked at once
    assert rig.core.errors == {"query_type": 1_000}
    assert not rig.core.topics["quotes"].subscriptions
    rig.put(feed, quotes(1))
    assert reader not in rig.got


def test_a_pattern_takes_the_topics_that_its_predicate_fits():
    rig = Rig()
    feed, reader = rig.client(), rig.client()
    rig.declare(feed, "a.quotes")
    rig.declare(feed, "a.other", schema="o: [x: int]")
    found = rig.subscribe(reader, "a.*", where="price > 1")
    assert found["topics"] == ["a.quotes"]
    assert list(found["skipped"]) == ["a.other"]
    rig.declare(feed, "a.more")
    rig.put(feed, quotes(4), "a.more")
    assert rig.rows(reader) == quotes(4)[2:]


def test_a_pattern_is_told_of_later_topics_that_it_does_not_get(monkeypatch):
    monkeypatch.setattr(limits, "WILDCARD_TOPICS", 2)
    rig = Rig()
    feed, reader = rig.client(), rig.client()
    rig.subscribe(reader, "a.*", where="price > 1")
    rig.subscribe(reader, "*.b", where="x = 1", number=2)
    for name, schema in [("a.b", "o: [x: int]"), ("a.1", QUOTE), ("a.2", QUOTE), ("a.3", QUOTE)]:
        rig.declare(feed, name, schema=schema)
    told = [each.skipped for each in rig.said[reader] if isinstance(each, Dropped)]
    assert [(*each, *each[1]) for each in told] == [(1, "a.b"), (1, "a.3")]
    assert "no 'price'" in told[0][1]["a.b"]
    assert "WILDCARD_TOPICS = 2" in told[1][1]["a.3"]


def test_old_rows_are_matched_as_the_newest_schema_reads_them():
    wider = "quote: [symbol: string, price: double, size: int, venue: string?]"
    rig = Rig()
    feed, reader = rig.client(), rig.client()
    rig.declare(feed)
    rig.subscribe(reader, number=1, where="price > 0")
    rig.declare(feed, schema=wider)
    rig.subscribe(reader, number=2, where="venue is null")
    rig.put(feed, quotes(2))
    rig.put(feed, [{**row, "venue": "X"} for row in quotes(2)], schema=wider)
    found = [(marks if isinstance(marks, tuple) else [tuple(sorted(each)) for each in marks], len(rows))
             for _, marks, rows, _ in rig.got[reader]]  # fmt: skip
    assert found == [([(2,), (1, 2)], 2), ((1,), 1)]


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (lambda data: data[:-3], "malformed_batch"),
        (lambda data: data[:20] + b"\xff" + data[21:], "malformed_batch"),
        (lambda data: data[:8] + bytes(8) + data[16:], "unknown_schema"),
    ],
)
def test_a_batch_that_contradicts_its_schema_is_refused_alone(spoil, code):
    rig = Rig(put_window=1024)
    feed, reader = rig.client(), rig.client()
    rig.declare(feed)
    rig.subscribe(reader)
    rig.put(feed, quotes(1))
    rig.put_data(feed, spoil(rig.batch(feed, quotes(1, start=1)).data))
    failure = next(message for message in rig.said[feed] if isinstance(message, Failure))
    assert (failure.code, failure.put, failure.topic, failure.fatal) == (code, 2, "quotes", False)
    rig.put(feed, quotes(1, start=2))
    assert rig.rows(reader) == [*quotes(1), *quotes(1, start=2)]
    assert rig.core.errors == {code: 1}
    assert rig.core.statistics()["totals"]["batches_refused"] == 1


def test_rules_of_a_schema_and_message_ids_are_enforced():
    ruled = "quote: [symbol: string, price: double, size: int] check (price >= 0)"
    rig = Rig()
    feed, other, reader = rig.client(), rig.client(), rig.client()
    rig.declare(feed, "ruled", schema=ruled)
    rig.declare(feed)
    rig.subscribe(reader, ">")
    from milepost.batch import Batch, Ids
    from milepost.query import parse_schema

    raw = Batch.encode(
        parse_schema(ruled), [{"symbol": "A", "price": -1.0, "size": 1}], Ids.single(feed.publisher.number, 7, [5])
    )
    rig.put_data(feed, raw.data, "ruled")
    assert rig.last(feed).code == "check_failed"
    plain = Batch.encode(parse_schema("quote: [symbol: string, price: double, size: int]"), quotes(2))
    for ids in (None, Ids.single(other.publisher.number, 7, [1, 2]), Ids.single(feed.publisher.number, 8, [1, 2])):
        rig.put_data(feed, Batch.encode(plain.schema, quotes(2), ids).data)
        assert rig.last(feed).code == "invalid_value"
    rig.put_data(feed, Batch.encode(plain.schema, quotes(2), Ids.single(feed.publisher.number, 7, [9, 9])).data)
    assert "increase" in rig.last(feed).message
    good = Batch.encode(plain.schema, quotes(2), Ids.single(feed.publisher.number, 7, [1 << 40, 1 << 41])).data
    rig.put_data(feed, good)
    rig.put_data(feed, good)
    assert "above the last" in rig.last(feed).message
    assert rig.rows(reader) == quotes(2)


def test_small_batches_of_many_publishers_join_before_they_are_matched():
    from milepost.broker.examination import examine

    rig = Rig()
    feeds = [rig.client() for _ in range(20)]
    reader = rig.client()
    rig.declare(feeds[0])
    rig.subscribe(reader)
    rig.subscribe(reader, number=2, where="size >= 10")
    topic = rig.core.topics["quotes"]
    puts = []
    for number, feed in enumerate(feeds):
        data = rig.batch(feed, quotes(1, start=number)).data
        if number == 7:
            data = data[:-1]
        puts.append(rig.core.put(feed, topic.number, data, len(data)))
    rig.settle(examine(puts, 1 << 20))
    assert len(rig.got[reader]) == 1
    expected = [row for row in quotes(20) if row["size"] != 7]
    assert rig.rows(reader) == expected
    assert rig.last(feeds[7]).code == "malformed_batch"
    assert topic.examining == 0


@pytest.mark.parametrize("where", [None, "size >= 0"])
def test_of_joined_puts_those_with_wrong_stamps_are_refused_and_the_others_delivered(where):
    from milepost.broker.examination import examine

    rig = Rig()
    feeds = [rig.client() for _ in range(10)]
    reader = rig.client()
    rig.declare(feeds[0])
    rig.subscribe(reader, where=where)
    topic = rig.core.topics["quotes"]
    feeds[3].publisher.last_stamp = 1 << 50  # what it puts is not above its last stamp
    datas = [rig.batch(feed, quotes(2, start=10 * number)).data for number, feed in enumerate(feeds)]
    puts = [rig.core.put(feed, topic.number, data, len(data)) for feed, data in zip(feeds, datas, strict=True)]
    results = examine(puts, 1 << 20)
    assert len(results) == 1
    rig.settle(results)
    assert rig.rows(reader) == [row for number in range(10) if number != 3 for row in quotes(2, start=10 * number)]
    assert "above the last" in rig.last(feeds[3]).message
    assert topic.rows_in == 18
    assert topic.examining == 0
    assert all(feed.outstanding == feed.taken for feed in feeds)
