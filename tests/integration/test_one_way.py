"""Every message passes one admission on its way in, and one delivery on its way out, whatever way it takes."""

import asyncio
from contextlib import asynccontextmanager

import pytest

import milepost
from milepost import testing
from milepost.broker.fast_path import ENOUGH
from milepost.errors import MilepostError, NotAuthenticated

QUOTE = "quote: [symbol: string, size: int]"
NOTE = "note: [n: int]"


class Watched:
    """A broker whose admission and delivery count the messages that pass them."""

    def __init__(self, broker):
        self.admitted, self.sent, self.refusing = 0, 0, False
        self.connections = broker.core.connections
        admission, delivery = broker.core.admission, broker.core.delivery
        admit, send = admission.admit, delivery.send

        def counted_admit(connection, target, first, last, rows):
            if self.refusing:
                raise NotAuthenticated("this client may not put here")
            admit(connection, target, first, last, rows)
            self.admitted += 1 if rows is None else len(rows)

        def counted_send(connections, parts, size, rows, topic, ids, **how):
            self.sent += rows * len(connections)
            return send(connections, parts, size, rows, topic, ids, **how)

        admission.admit, delivery.send = counted_admit, counted_send


@asynccontextmanager
async def watched(tmp_path, **changes):
    async with (
        asyncio.timeout(120),
        testing.broker(listen="milepost://127.0.0.1:0", store=str(tmp_path / "s.db"), **changes) as broker,
        milepost.AsyncClient(broker.uri, name="feed") as feed,
        milepost.AsyncClient(broker.uri) as desk,
    ):
        yield Watched(broker), feed, desk


def rows(count, start=0):
    return [{"symbol": "A", "size": number} for number in range(start, start + count)]


@pytest.mark.parametrize("queues", [0, 2])
@pytest.mark.parametrize("durable", [False, True], ids=["live", "durable"])
def test_rows_of_topics(tmp_path, durable, queues):
    async def main():
        async with watched(tmp_path, input_queues=queues) as (seen, feed, desk):
            await feed.declare_topic("quotes", QUOTE, durable=durable)
            plain = await desk.subscribe("quotes")
            some = await desk.subscribe("quotes", where="size < 10")
            await feed.put_many("quotes", rows(20))
            for number in range(20, 20 + 3 * ENOUGH):  # one by one: the fast path, once it is earned
                await feed.put("quotes", rows(1, number)[0])
                while (await plain.get(timeout=60)).size < number:
                    pass
            for _ in range(10):
                await some.get(timeout=60)
            assert seen.admitted == 20 + 3 * ENOUGH
            assert seen.sent == 20 + 3 * ENOUGH  # a row that two subscriptions of one client want is sent once
            replay = await desk.subscribe("quotes", start="earliest") if durable else None
            if replay is not None:
                for number in range(20 + 3 * ENOUGH):
                    assert (await replay.get(timeout=60)).size == number
                assert seen.sent == 2 * (20 + 3 * ENOUGH)

    asyncio.run(main())


@pytest.mark.parametrize("durable", [False, True], ids=["live", "durable"])
def test_rows_that_take_the_fast_path(tmp_path, durable):
    async def main():
        async with watched(tmp_path) as (seen, feed, desk):
            await feed.declare_topic("quotes", QUOTE, durable=durable)
            sub = await desk.subscribe("quotes")
            connection = next(each for each in seen.connections.values() if each.name == "feed")
            number = 0
            while connection.channel.fast_path is None or number % ENOUGH:
                await feed.put("quotes", rows(1, number)[0])
                assert (await sub.get(timeout=60)).size == number
                number += 1
            before = number
            for number in range(before, before + 5):
                await feed.put("quotes", rows(1, number)[0])
                assert (await sub.get(timeout=60)).size == number
            assert (seen.admitted, seen.sent) == (before + 5, before + 5)
            seen.refusing = True
            with pytest.raises(MilepostError, match="may not put here"):
                await feed.put("quotes", rows(1, 0)[0])
                await feed.flush()

    asyncio.run(main())


def test_durable_puts_of_every_kind(tmp_path):
    async def main():
        async with watched(tmp_path) as (seen, feed, _):
            for name in ("quotes", "trades"):
                await feed.declare_topic(name, QUOTE, durable=True)
            await feed.put("quotes", rows(1)[0], key=b"1" * 16)
            async with feed.atomic() as put:
                put.put_many("quotes", rows(2))
                put.put_many("trades", rows(3))
            await feed.stage("sink", 1, 0, 0, "quotes", rows(4))
            assert seen.admitted == 1 + 2 + 3 + 4
            seen.refusing = True
            with pytest.raises(MilepostError, match="may not put here"):
                await feed.put("quotes", rows(1)[0], key=b"2" * 16)
            with pytest.raises(MilepostError, match="may not put here"):
                async with feed.atomic() as put:
                    put.put_many("quotes", rows(2))
                    put.put_many("trades", rows(3))
            with pytest.raises(MilepostError, match="may not put here"):
                await feed.stage("sink", 1, 1, 0, "quotes", rows(4))
            assert sum(each["next"] for each in (await feed.look("trades"))["logs"]) == 3

    asyncio.run(main())


def test_rows_of_a_log_and_messages_of_a_queue(tmp_path):
    async def main():
        async with watched(tmp_path) as (seen, feed, desk):
            await feed.declare_topic("quotes", QUOTE, durable=True)
            await feed.put_many("quotes", rows(30))
            assert (seen.admitted, seen.sent) == (30, 0)
            async with await desk.subscribe("quotes", name="desk", start="earliest") as named:
                for number in range(30):
                    assert (await named.get(timeout=60)).size == number
            assert seen.sent == 30
            await feed.declare_type(NOTE)
            await feed.declare_queue("notes", types=["note"])
            async with feed.transaction() as tx:
                await tx.enqueue("notes", [{"n": number} for number in range(7)], "note")
            assert seen.admitted == 37
            async with desk.transaction() as tx:
                assert len(await tx.dequeue("notes", count=7)) == 7
            assert seen.sent == 37

    asyncio.run(main())


@pytest.mark.parametrize("durable", [False, True], ids=["live", "durable"])
def test_what_admission_refuses_is_refused_on_every_way(tmp_path, durable):
    async def main():
        async with watched(tmp_path) as (seen, feed, desk):
            await feed.declare_topic("quotes", QUOTE, durable=durable)
            sub = await desk.subscribe("quotes")
            for number in range(3 * ENOUGH):
                await feed.put("quotes", rows(1, number)[0])
                assert (await sub.get(timeout=60)).size == number
            seen.refusing = True
            for some in (1, 5):
                with pytest.raises(MilepostError, match="may not put here"):
                    await feed.put_many("quotes", rows(some, 100))
                    await feed.flush()
            seen.refusing = False
            await feed.put("quotes", rows(1, 200)[0])
            assert (await sub.get(timeout=60)).size == 200

    asyncio.run(main())
