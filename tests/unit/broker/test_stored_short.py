"""Puts of one row for a durable topic take a short way to the store, and nobody can tell but by the clock."""

import asyncio

import pytest

import milepost
from milepost import testing
from milepost.batch import Batch, Ids
from milepost.broker.fast_path import ENOUGH, StoredFast
from milepost.errors import StoreFull
from milepost.query import parse_schema
from milepost.wire import Failure, Hello, Ping, Pong, Stored, encode_control, put_parts
from tests.integration.test_bad_input import Stranger

pytest.importorskip("milepost.batch.native")  # compiled now, if it was not before

QUOTE = parse_schema("quote: [symbol: string, price: double, at: timestamp?]")


class Feed:
    """A publisher on a raw socket, whose messages are taken one by one."""

    def __init__(self, broker, stranger, name):
        self.broker, self.stranger, self.core = broker, stranger, broker.core
        self.topic = self.core.topics["quotes"]
        self.connection = next(each for each in self.core.connections.values() if each.name == name)
        self.stamp = self.puts = 0

    @classmethod
    async def at(cls, broker, name="feed"):
        stranger = await Stranger.at(broker)
        await stranger.send(encode_control(Hello(window=1 << 20, name=name)))
        await stranger.next()
        return cls(broker, stranger, name)

    def row(self, symbol, stamp=None, publisher=None):
        self.stamp = self.stamp + 1 if stamp is None else stamp
        made = Ids.one(publisher or self.connection.publisher.number, self.core.broker_id, self.stamp)
        return bytes(Batch.encode(QUOTE, [{"symbol": symbol, "price": 1.0}], made).data)

    async def put(self, data, topic=None):
        self.puts += 1
        await self.stranger.send(b"".join(put_parts(topic or self.topic.number, data)))

    async def one(self, symbol, **ids):
        """Put a message, and wait until it is stored: the next one comes alone again."""
        await self.put(self.row(symbol, **ids))
        assert await self.stranger.next() == Stored(self.puts)

    async def earned(self):
        """Go on until the broker has made the short way."""
        for number in range(ENOUGH):
            await self.one(f"early {number}")
        if self.broker._fast_path._loading is not None:
            await self.broker._fast_path._loading
        while self.connection.channel.fast_path is None:
            await self.one("later")
        assert isinstance(self.connection.channel.fast_path, StoredFast)
        return self.connection.channel.fast_path


def in_a_world(test, **changes):
    async def main():
        async with (
            asyncio.timeout(60),
            testing.broker(listen="milepost://127.0.0.1:0", **changes) as broker,
            milepost.AsyncClient(broker.uri) as desk,
        ):
            await desk.declare_topic("quotes", QUOTE, durable=True)
            feed = await Feed.at(broker)
            await test(feed, desk)
            feed.stranger.close()

    asyncio.run(main())


async def stored(desk):
    """All that the topic has."""
    total = sum(log["rows"] for log in (await desk.look("quotes"))["logs"])
    sub = await desk.subscribe("quotes", start="earliest")
    found = []
    while len(found) < total:
        found += await sub.get_many(total - len(found))
    await sub.detach()
    return found


def test_it_is_taken_and_counts_the_same():
    async def test(feed, desk):
        way = await feed.earned()
        taken = []

        def watched(count):
            taken.append(way(count))
            return taken[-1]

        topic, connection = feed.topic, feed.connection

        def figures():
            own = [topic.rows_in, topic.bytes_in, topic.batches_in, connection.puts, connection.rows_in]
            return [*own, connection.bytes_in, connection.outstanding, connection.taken]

        ways = []
        for fast_path in (watched, lambda count: False):
            connection.channel.fast_path = fast_path
            before = figures()
            for number in range(5):
                await feed.one(f"counted {number}")
            ways.append([after - was for was, after in zip(before, figures(), strict=True)])
        assert taken == [True] * 5
        assert ways[0] == ways[1]
        assert topic.examining == 0

    in_a_world(test)


def test_everything_is_there_once_and_in_order():
    async def test(feed, desk):
        await feed.earned()
        before = feed.stamp
        other = await Feed.at(feed.broker, "other")
        await other.earned()
        for number in range(30):
            await asyncio.gather(feed.one(f"one {number}"), other.one(f"two {number}"))
        await feed.one("again", stamp=before)  # it is stored already, and so it is said again that it is
        found = await stored(desk)
        assert [message.symbol for message in found if message.symbol.startswith("one")] == [
            f"one {number}" for number in range(30)
        ]
        assert [message.symbol for message in found if message.symbol.startswith("two")] == [
            f"two {number}" for number in range(30)
        ]
        assert "again" not in {message.symbol for message in found}
        assert len({message.id for message in found}) == len(found)
        other.stranger.close()

    in_a_world(test)


@pytest.mark.parametrize("what", ["checksum", "publisher", "topic", "stamp"])
def test_what_is_wrong_is_refused_as_ever(what):
    async def test(feed, desk):
        await feed.earned()
        if what == "checksum":
            data = bytearray(feed.row("broken"))
            data[0] ^= 1
            await feed.put(bytes(data))
        elif what == "publisher":
            await feed.put(feed.row("forged", publisher=feed.connection.publisher.number + 1))
        elif what == "stamp":
            await feed.put(feed.row("late", stamp=1 << 63))
            feed.stamp = 1 << 20
        else:
            await feed.put(feed.row("lost"), feed.topic.number + 1)
        told = await feed.stranger.next()
        codes = {"checksum": "malformed_batch", "topic": "unknown_topic"}
        assert (told.code, told.fatal, told.put) == (codes.get(what, "invalid_value"), False, feed.puts)
        await feed.one("right", stamp=(1 << 20) + 5)

    in_a_world(test)


def test_many_at_once_and_pieces_of_frames_arrive_in_order():
    async def test(feed, desk):
        await feed.earned()
        await feed.one("mark")
        frames = b"".join(b"".join(put_parts(feed.topic.number, feed.row(str(n)))) for n in range(300))
        for start in range(0, len(frames), 777):
            await feed.stranger.send(frames[start : start + 777])
        feed.puts += 300
        while await feed.stranger.next() != Stored(feed.puts):
            pass
        found = [message.symbol for message in await stored(desk)]
        assert found[found.index("mark") + 1 :] == [str(number) for number in range(300)]

    in_a_world(test)


def test_who_puts_many_rows_at_once_has_none():
    async def test(feed, desk):
        for _ in range(2 * ENOUGH):
            stamps = [feed.stamp + 1, feed.stamp + 2]
            feed.stamp += 2
            ids = Ids.single(feed.connection.publisher.number, feed.core.broker_id, stamps)
            await feed.put(bytes(Batch.encode(QUOTE, [{"symbol": "x", "price": 1.0}] * 2, ids).data))
            assert await feed.stranger.next() == Stored(feed.puts)
        assert feed.broker._fast_path._loading is None
        assert feed.connection.channel.fast_path is None

    in_a_world(test)


def test_a_question_behind_a_put_is_answered_behind_it():
    async def test(feed, desk):
        await feed.earned()
        await feed.put(feed.row("first"))
        await feed.stranger.send(encode_control(Ping(5)))
        said = [await feed.stranger.next() for _ in range(2)]
        assert sorted(type(each).__name__ for each in said) == ["Pong", "Stored"]
        assert Stored(feed.puts) in said
        assert any(isinstance(each, Pong) for each in said)

    in_a_world(test)


def test_a_deleted_topic_is_gone():
    async def test(feed, desk):
        await feed.earned()
        await desk.delete_topic("quotes")
        await feed.put(feed.row("nowhere"))
        while not isinstance(told := await feed.stranger.next(), Failure):
            pass
        assert told.code == "unknown_topic"

    in_a_world(test)


def test_after_a_failure_nothing_overtakes():
    """What follows a row that was not stored is not stored either, until the client says that it knows."""

    async def test(feed, desk):
        await feed.earned()
        store = feed.broker._store.store
        writing, full = store.write, [StoreFull("the disk is full")]
        store.write = lambda operations, time_us: (
            (_ for _ in ()).throw(full.pop()) if full else writing(operations, time_us)
        )
        await feed.put(feed.row("first"))
        assert (await feed.stranger.next()).code == "store_full"
        await feed.put(feed.row("second"))
        assert (await feed.stranger.next()).code == "store_full"
        assert not {"first", "second"} & {message.symbol for message in await stored(desk)}

    in_a_world(test)


def test_credit_comes_back():
    async def test(feed, desk):
        await feed.earned()
        for number in range(200):
            await feed.put(feed.row(f"number {number}"))
            while not isinstance(await feed.stranger.next(), Stored):
                pass
        assert feed.connection.outstanding < 4096

    in_a_world(test, put_window=4096)
