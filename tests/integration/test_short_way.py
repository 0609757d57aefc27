"""Messages that come alone take the short way through the broker, and nobody can tell but by the clock."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import milepost
from milepost import testing
from milepost.batch import Batch, Ids
from milepost.broker.fast_path import ENOUGH
from milepost.query import parse_schema
from milepost.wire import Hello, encode_control, put_parts
from tests.integration.test_bad_input import Stranger

pytest.importorskip("milepost.batch.native")  # compiled now, if it was not before

QUOTE = parse_schema("quote: [symbol: string, price: double, at: timestamp?]")


class World:
    """A broker with a publisher on a raw socket, whose messages are taken one by one, and a subscriber."""

    def __init__(self, broker: Any, stranger: Stranger, desk: Any, sub: Any) -> None:
        self.broker, self.stranger, self.desk, self.sub = broker, stranger, desk, sub
        self.core = broker.core
        self.topic = self.core.topics["quotes"]
        self.stamp = 0

    @property
    def connection(self) -> Any:
        return next(each for each in self.core.connections.values() if each.name == "stranger")

    def row(self, symbol: str, price: float = 1.0, **ids: int) -> bytes:
        self.stamp = ids.pop("stamp", self.stamp + 1)
        made = Ids.one(ids.get("publisher", self.connection.publisher.number), self.core.broker_id, self.stamp)
        return bytes(Batch.encode(QUOTE, [{"symbol": symbol, "price": price}], made).data)

    async def put(self, data: bytes) -> None:
        await self.stranger.send(b"".join(put_parts(self.topic.number, data)))

    async def one(self, symbol: str, **ids: int) -> None:
        """Put a message, and wait until the subscriber has it: the next one comes alone again."""
        await self.put(self.row(symbol, **ids))
        assert (await self.sub.get(timeout=60)).symbol == symbol

    async def earned(self) -> Any:
        """Go on until the broker has made the short way."""
        for number in range(ENOUGH):
            await self.one(f"early {number}")
        await self.broker._fast_path._loading
        while self.connection.channel.fast_path is None:
            await self.one("later")
        return self.connection.channel.fast_path


def in_a_world(test: Any, **changes: Any) -> None:
    async def main() -> None:
        async with (
            asyncio.timeout(120),
            testing.broker(listen="milepost://127.0.0.1:0", **changes) as broker,
            milepost.AsyncClient(broker.uri) as desk,
        ):
            await desk.declare_topic("quotes", QUOTE)
            sub = await desk.subscribe("quotes")
            stranger = await Stranger.at(broker)
            await stranger.send(encode_control(Hello(window=1 << 20, name="stranger")))
            await stranger.next()
            await test(World(broker, stranger, desk, sub))
            stranger.close()

    asyncio.run(main())


def test_what_is_counted_is_the_same() -> None:
    async def test(world: World) -> None:
        await world.earned()
        topic, connection = world.topic, world.connection
        receiver = next(each for each in world.core.connections.values() if each.ready and each.rows_out)

        def figures() -> list[int]:
            own = [topic.rows_in, topic.rows_out, topic.bytes_in, topic.bytes_out, topic.batches_in, connection.puts]
            own += [connection.rows_in, connection.bytes_in, connection.outstanding, connection.taken]
            return [*own, receiver.rows_out, receiver.bytes_out, receiver.frames_out]

        ways = []
        for fast_path in (connection.channel.fast_path, None):
            connection.channel.fast_path = fast_path
            before = figures()
            for number in range(5):
                await world.one(f"counted {number}")
            ways.append([after - was for was, after in zip(before, figures(), strict=True)])
        assert ways[0] == ways[1]
        assert topic.examining == 0

    in_a_world(test)


def test_it_is_taken() -> None:
    async def test(world: World) -> None:
        way = await world.earned()
        taken: list[bool] = []
        world.connection.channel.fast_path = lambda count: taken.append(way(count)) or taken[-1]
        for number in range(20):
            await world.one(f"number {number}")
        assert taken == [True] * 20

    in_a_world(test)


@pytest.mark.parametrize("what", ["checksum", "stamp", "publisher", "topic"])
def test_what_is_wrong_is_refused_as_ever(what: str) -> None:
    async def test(world: World) -> None:
        await world.earned()
        if what == "checksum":
            data = bytearray(world.row("broken"))
            data[0] ^= 1
            await world.put(bytes(data))
        elif what == "stamp":
            await world.put(world.row("again", stamp=world.stamp))
        elif what == "publisher":
            await world.put(world.row("forged", publisher=world.connection.publisher.number + 1))
        else:
            await world.stranger.send(b"".join(put_parts(world.topic.number + 1, world.row("lost"))))
        told = await world.stranger.next()
        assert (told.code, told.fatal) == (
            {"checksum": "malformed_batch", "topic": "unknown_topic"}.get(what, "invalid_value"),
            False,
        )
        await world.one("right", stamp=world.stamp + 5)

    in_a_world(test)


def test_others_who_want_some_get_just_those() -> None:
    async def test(world: World) -> None:
        await world.earned()
        async with milepost.AsyncClient(world.broker.uri) as choosy:
            some = await choosy.subscribe("quotes", where="price > 5")
            await world.put(world.row("cheap", 1.0))
            await world.put(world.row("dear", 9.0))
            assert (await some.get(timeout=60)).symbol == "dear"
            assert [(await world.sub.get(timeout=60)).symbol for _ in range(2)] == ["cheap", "dear"]
        async with milepost.AsyncClient(world.broker.uri) as second:
            await second.subscribe("unrelated.>")
            also = await second.subscribe("quotes")  # with another mark: two frames are needed
            await world.one("both")
            assert (await also.get(timeout=60)).symbol == "both"
        await world.one("alone again")

    in_a_world(test)


def test_many_at_once_and_pieces_of_frames_arrive_in_order() -> None:
    async def test(world: World) -> None:
        await world.earned()
        frames = b"".join(b"".join(put_parts(world.topic.number, world.row(str(n)))) for n in range(300))
        for start in range(0, len(frames), 777):
            await world.stranger.send(frames[start : start + 777])
        assert [(await world.sub.get(timeout=60)).symbol for _ in range(300)] == [str(n) for n in range(300)]
        await world.one("done")

    in_a_world(test)


def test_a_deleted_topic_is_gone() -> None:
    async def test(world: World) -> None:
        await world.earned()
        await world.desk.delete_topic("quotes")
        await world.put(world.row("nowhere"))
        assert (await world.stranger.next()).code == "unknown_topic"

    in_a_world(test)


def test_credit_comes_back() -> None:
    """The window of puts is small, and a client that counts its bytes is never refused, nor left without credit."""

    async def test(world: World) -> None:
        await world.earned()
        for number in range(200):
            await world.one(f"number {number}")
        assert world.connection.outstanding < 4096

    in_a_world(test, put_window=4096)


def test_without_cut_through_there_is_none() -> None:
    async def test(world: World) -> None:
        for number in range(ENOUGH):
            await world.one(f"early {number}")
        await world.broker._fast_path._loading
        for number in range(3):
            await world.one(f"later {number}")
        assert world.connection.channel.fast_path is None

    in_a_world(test, cut_through=False)
