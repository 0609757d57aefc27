"""What reviews found, each with its test."""

import asyncio

import pytest

import milepost
from milepost import limits, testing
from milepost.broker.core.topics.topic import Topic
from milepost.broker.examination import examine
from milepost.errors import ProtocolError
from milepost.wire import (
    Credit,
    Declare,
    Delete,
    Dropped,
    Failure,
    FrameReader,
    Hello,
    Kind,
    ListTopics,
    Ping,
    decode_control,
    encode_control,
)

from .rig import Rig, quotes

EMPTIES = "e: [k: int, xs: *({a: [] | b: int})*]"


def empties(key):
    return [{"k": key, "xs": [{"a": {}}] * 40_000}]


def test_batches_that_are_right_and_too_much_together_are_delivered_one_by_one():
    rig = Rig()
    feed, reader = rig.client(), rig.client(window=1 << 24)
    rig.declare(feed, "e", EMPTIES)
    rig.declare(feed)
    for number in range(1, 5):
        rig.subscribe(reader, "e", number)
    rig.subscribe(reader, "quotes", 9)
    topics = rig.core.topics
    puts = []
    for topic, rows, schema in [("e", empties(1), EMPTIES), ("e", empties(2), EMPTIES), ("quotes", quotes(1), None)]:
        data = rig.batch(feed, rows, schema or "quote: [symbol: string, price: double, size: int]").data
        puts.append(rig.core.put(feed, topics[topic].number, data, len(data)))
    rig.settle(examine(puts, 1 << 20))
    assert [row.get("k", "quote") for row in rig.rows(reader)] == [1, 2, "quote"]
    assert topics["e"].examining == 0


def test_deliveries_that_cannot_join_wait_and_leave_one_by_one():
    rig = Rig()
    feed, reader = rig.client(), rig.client(window=1024)
    rig.declare(feed, "e", EMPTIES)
    rig.subscribe(reader, "e")
    for key in range(3):
        rig.put(feed, empties(key), "e", EMPTIES)
    while reader.backlog is not None:
        rig.say(reader, Credit(1024 - reader.credit))
    assert [row["k"] for row in rig.rows(reader)] == [0, 1, 2]


def test_what_came_before_an_error_counts_towards_the_mark():
    async def main():
        async with testing.broker() as broker:
            from milepost.transport import connect, parse_address

            class Ear:
                def __init__(self):
                    self.heard = asyncio.Queue()

                def connected(self, channel):
                    channel.set_limit(limits.FRAME_BYTES)

                def frames(self, frames):
                    for frame in frames:
                        self.heard.put_nowait(decode_control(frame.kind, frame.body))

                def drained(self): ...
                def refused(self, error): ...
                def lost(self, error): ...

            from milepost.batch import Ids
            from milepost.wire import put_parts

            schema = milepost.parse_schema("q: [a: int]")
            ear = Ear()
            channel = await connect(parse_address(broker.uri), ear)
            channel.write(encode_control(Hello(name="feed", window=1024)))
            welcome = await ear.heard.get()
            channel.write(encode_control(Declare(request=1, name="q", schema=str(schema))))
            topic = await ear.heard.get()
            batch = milepost.encode(schema, [{"a": 1}], Ids.single(welcome.publisher, welcome.broker_id, [77]))
            channel.write(b"".join(put_parts(topic.number, batch.data)) + encode_control(welcome))
            again = Ear()
            while "feed" not in broker.core.publishers._away:
                await asyncio.sleep(0)
            other = await connect(parse_address(broker.uri), again)
            other.write(encode_control(Hello(name="feed", window=1024)))
            assert (await again.heard.get()).last == 77

    asyncio.run(main())


def test_a_deleted_topic_ends_its_subscriptions_with_a_word():
    rig = Rig()
    feed, reader = rig.client(), rig.client()
    rig.declare(feed)
    rig.subscribe(reader, number=5)
    rig.ask(feed, Delete, name="quotes")
    told = rig.last(reader)
    assert isinstance(told, Failure)
    assert (told.code, told.subscription, told.fatal) == ("unknown_topic", 5, False)

    async def main():
        async with (
            testing.broker() as broker,
            milepost.AsyncClient(broker.uri) as one,
            milepost.AsyncClient(broker.uri) as two,
        ):
            await one.declare_topic("q", "q: [a: int]")
            sub = await two.subscribe("q")
            await one.put("q", {"a": 1})
            await one.flush()
            await one.delete_topic("q")
            assert (await anext(sub)).a == 1
            with pytest.raises(milepost.errors.UnknownTopic, match="deleted"):
                await anext(sub)

    asyncio.run(main())


def test_a_delivery_longer_than_a_frame_is_split(monkeypatch):
    rig = Rig(delivery_window=1 << 22)
    feed, reader, late = rig.client(), rig.client(window=1 << 22), rig.client(window=1 << 22)
    rig.declare(feed)
    for number in range(1, 13):
        rig.subscribe(reader, number=number, where=f"size >= {number}")
    rig.subscribe(late)
    rig.taking[late] = False
    rig.put(feed, quotes(1))
    monkeypatch.setattr(limits, "FRAME_BYTES", 20_000)
    for start in (0, 300):
        rig.put(feed, quotes(300, start=start))
    assert rig.rows(reader) == [row for row in quotes(600) if row["size"] >= 1]
    assert max(rig.sizes(reader)) <= 20_008
    assert all(
        [set(marks) == set(range(1, min(12, row["size"]) + 1)) for row, marks in zip(rows, each, strict=True)]
        for _, each, rows, _ in rig.got[reader]
        if isinstance(each, list)
    )
    rig.taking[late] = True
    rig.run(rig.core.delivery.drained(late))
    assert rig.rows(late) == quotes(1) + quotes(600)
    assert max(rig.sizes(late)) <= 20_008


@pytest.mark.parametrize("policy", ["drop", "disconnect"])
def test_one_large_delivery_does_not_make_a_client_slow(policy):
    rig = Rig(queue_bytes=4096, cut_through=False)
    feed, reader = rig.client(), rig.client()
    rig.declare(feed, slow=policy)
    rig.subscribe(reader)
    for start in (0, 300):
        rig.put(feed, quotes(300, start=start))
        rig.run(rig.core.delivery.turn())
    assert rig.rows(reader) == quotes(600)
    assert reader.open


def test_drops_are_told_even_when_nothing_is_left_to_deliver():
    rig = Rig(queue_bytes=1024)
    feed, reader = rig.client(), rig.client()
    rig.declare(feed, slow="drop")
    rig.subscribe(reader)
    rig.taking[reader] = False
    rig.put(feed, quotes(1))
    for start in (0, 100):
        rig.put(feed, quotes(100, start=start))
    assert reader.dropped_rows > 0
    rig.taking[reader] = True
    rig.run(rig.core.delivery.drained(reader))
    assert sum(message.rows[1] for message in rig.said[reader] if isinstance(message, Dropped)) == reader.dropped_rows
    assert reader.backlog is None


def test_credit_comes_back_when_a_queue_empties_by_dropping():
    rig = Rig(queue_bytes=1024, put_window=65_536)
    feed, reader = rig.client(), rig.client()
    rig.declare(feed, slow="throttle")
    rig.subscribe(reader)
    rig.taking[reader] = False
    for start in range(4):
        rig.put(feed, quotes(20, start=start))
    assert reader.backlog.holds
    rig.declare(feed, slow="drop")
    rig.put(feed, quotes(100))
    rig.put(feed, quotes(1))
    rig.taking[reader] = True
    rig.run(rig.core.delivery.drained(reader))
    while reader.backlog is not None:
        rig.run(rig.core.delivery.served(reader))
    assert feed.taken == feed.outstanding  # nothing is held any more


def test_numbers_of_publishers_who_are_away_are_not_given_to_others():
    rig = Rig()
    named = rig.client("named")
    number = named.publisher.number
    rig.run(rig.core.lost(named))
    draws = iter([number, number, 999])
    rig.core.publishers._draw = lambda: next(draws)
    assert rig.client().publisher.number == 999
    assert rig.client("named").publisher.number == number


def test_a_long_frame_on_a_slow_line_is_waited_for_and_a_drip_is_not():
    rig = Rig(heartbeat_s=30, frame_s=30)
    slow, drip = rig.client("slow"), rig.client("drip")
    here = {slow: 0, drip: 0}
    for now in range(30, 330, 30):
        here[slow] += 100_000
        here[drip] += 30
        rig.run(rig.core.liveness.scan(float(now), lambda connection: here[connection]))
    assert rig.closed == {drip}
    assert slow.open


def test_puts_that_do_not_wait_for_credit_are_refused():
    rig = Rig(queue_bytes=4096, put_window=4096)
    feed, reader = rig.client(), rig.client(window=100)
    rig.declare(feed, slow="throttle")
    rig.subscribe(reader)
    number = 0
    while feed.outstanding < 4096:
        rig.put(feed, quotes(1, start=number))
        number += 1
    with pytest.raises(ProtocolError, match="under way"):
        rig.put(feed, quotes(1))
    assert reader.backlog.bytes < 3 * 4096


@pytest.mark.slow
def test_who_asks_and_does_not_read_is_not_listened_to():
    async def main():
        async with (
            testing.broker(listen="milepost://127.0.0.1:0") as broker,
            milepost.AsyncClient(broker.uri) as client,
        ):
            for number in range(300):
                await client.declare_topic(f"t{number}", "q: [" + ", ".join(f"a{i}: int" for i in range(50)) + "]")
            address = broker.address
            reader, writer = await asyncio.open_connection(address.host, address.port)
            requests = b"".join(encode_control(ListTopics(request=number)) for number in range(2_000))
            writer.write(encode_control(Hello(window=1024)) + requests + encode_control(Ping(1)))
            while not any(each.paused for each in broker.core.connections.values()):
                await asyncio.sleep(0)
            stuck = next(each for each in broker.core.connections.values() if each.paused)
            assert stuck.channel.waiting < 4 << 20
            assert len(await client.topics("t1")) == 1  # everybody else is served
            frames, replies = FrameReader(limit=limits.FRAME_BYTES), 0
            while True:  # it reads after all, and gets every answer, in order
                for frame in frames.feed(await reader.read(1 << 20)):
                    replies += frame.kind == Kind.REPLY
                    if frame.kind == Kind.PONG:
                        assert replies == 2_000
                        writer.close()
                        return

    async def bounded():
        async with asyncio.timeout(60):
            await main()

    asyncio.run(bounded())


def test_a_wrong_predicate_said_again_and_again_keeps_no_tracebacks():
    rig = Rig()
    reader = rig.client()
    rig.declare(reader)
    for number in range(200):
        assert rig.subscribe(reader, number=number, where="pric > 1").code == "query_type"
    (kept,) = rig.cache._kept.values()
    depth, trace = 0, kept.__traceback__
    while trace is not None:
        depth, trace = depth + 1, trace.tb_next
    assert depth < 10


def test_figures_of_topics_beyond_those_listed_are_added_up(monkeypatch):
    from milepost.broker.core import statistics

    monkeypatch.setattr(statistics, "LISTED", 2)
    rig = Rig()
    feed = rig.client()
    for name in "abcd":
        rig.declare(feed, name)
        rig.put(feed, quotes(2), name)
    figures = rig.core.statistics()
    assert (figures["topics_total"], len(figures["topics"])) == (4, 2)
    assert figures["topics_other"]["rows_in"] == 4
    assert figures["totals"]["rows_in"] == 8
    assert figures["totals"]["rows_out"] == 0


def test_rows_that_are_dropped_are_not_counted_as_delivered():
    rig = Rig(queue_bytes=4096)
    feed, reader = rig.client(), rig.client(window=300)
    rig.declare(feed, slow="drop")
    rig.subscribe(reader)
    for number in range(200):
        rig.put(feed, quotes(1, start=number))
    while reader.backlog is not None:
        rig.say(reader, Credit(300 - reader.credit))
    topic: Topic = rig.core.topics["quotes"]
    assert topic.rows_out == len(rig.rows(reader)) < 200


def test_nothing_of_a_wildcard_is_kept_for_topics_that_are_gone():
    rig = Rig()
    feed, reader = rig.client(), rig.client()
    rig.subscribe(reader, ">")
    for _ in range(20):
        rig.declare(feed)
        rig.ask(feed, Delete, name="quotes")
    (subscription,) = reader.subscriptions.values()
    assert (subscription.keys, subscription.since, reader.keys) == ({}, {}, 0)
