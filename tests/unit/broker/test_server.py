"""The shell: what only it does."""

import asyncio

import pytest

import milepost
from milepost import testing

QUOTE = "quote: [symbol: string, price: double]"


def run(test, **changes):
    async def main():
        async with asyncio.timeout(60), testing.broker(**changes) as broker:
            return await test(broker)

    return asyncio.run(main())


def test_a_reply_that_is_too_long_is_a_failure_of_its_request(monkeypatch):
    async def test(broker):
        async with milepost.AsyncClient(broker.uri) as client:
            for number in range(50):
                await client.declare_topic(f"t{number}", QUOTE)
            monkeypatch.setattr(milepost.limits, "CONTROL_BYTES", 2_000)
            with pytest.raises(milepost.errors.LimitExceeded, match="CONTROL_BYTES"):
                await client.topics()
            assert len(await client.topics("t1")) == 1

    run(test)


@pytest.mark.parametrize("queues", [0, 1, 3])
def test_input_queues_keep_each_publishers_order_and_lose_nothing(queues):
    publishers, rows = 6, 300

    async def test(broker):
        clients = [milepost.AsyncClient(broker.uri, name=f"p{number}") for number in range(publishers)]
        async with milepost.AsyncClient(broker.uri) as desk:
            await desk.declare_topic("quotes", QUOTE)
            everything = await desk.subscribe("quotes")
            some = await desk.subscribe("quotes", where="price >= 100 and symbol <> 'p2'")

            async def publish(client, name):
                async with client:
                    for number in range(rows):
                        await client.put("quotes", {"symbol": name, "price": float(number)})
                        if number % 7 == 0:
                            await client.flush()  # comes back in order with the puts, through the same worker
                    await client.flush()

            await asyncio.gather(*(publish(client, f"p{number}") for number, client in enumerate(clients)))
            seen = {}
            for _ in range(publishers * rows):
                message = await anext(everything)
                seen.setdefault(message.symbol, []).append(message.price)
            assert seen == {f"p{number}": [float(each) for each in range(rows)] for number in range(publishers)}
            wanted = [await anext(some) for _ in range((publishers - 1) * (rows - 100))]
            assert {message.symbol for message in wanted} == {"p0", "p1", "p3", "p4", "p5"}
            assert min(message.price for message in wanted) == 100
            assert broker.core.topics["quotes"].examining == 0

    run(test, input_queues=queues)


def test_subscriptions_come_and_go_while_workers_match():
    async def test(broker):
        async with milepost.AsyncClient(broker.uri) as feed, milepost.AsyncClient(broker.uri) as desk:
            await feed.declare_topic("quotes", QUOTE)
            steady = await desk.subscribe("quotes", where="symbol = 'A'")

            async def churn():
                for number in range(60):
                    sub = await desk.subscribe("quotes", where=f"price < {number % 5}")
                    await sub.unsubscribe()

            async def publish():
                for number in range(2_000):
                    await feed.put("quotes", {"symbol": "A" if number % 2 else "B", "price": float(number % 10)})
                    if number % 50 == 0:
                        await feed.flush()
                await feed.flush()

            await asyncio.gather(churn(), publish())
            got = [(await anext(steady)).symbol for _ in range(1_000)]
            assert got == ["A"] * 1_000

    run(test, input_queues=2)


def test_stopping_sends_what_is_under_way_and_says_goodbye():
    async def main():
        async with testing.broker() as broker:
            client = milepost.AsyncClient(broker.uri, reconnect=False)
            await client.connect()
            await client.declare_topic("quotes", QUOTE)
            sub = await client.subscribe("quotes")
            await client.put("quotes", {"symbol": "A", "price": 1.0})
            await client.flush()
        assert (await anext(sub)).symbol == "A"
        assert not broker.core.connections
        with pytest.raises(milepost.errors.MilepostError):
            await client.flush()
        await client.close()

    asyncio.run(main())


def test_nobody_is_silent_because_the_broker_stood_still():
    """What clients said meanwhile is read before anybody counts as gone."""
    clock = testing.FakeClock()

    async def test(broker):
        async with milepost.AsyncClient(broker.uri) as client:
            await client.flush()
            clock._now += 1_000.0  # no timer was called in all that time
            broker._scan()
            await client.flush()
            assert broker.statistics()["errors"] == {}
            clock.advance(1_000.0)
            assert broker.statistics()["errors"] == {"timed_out": 1}, "and this time nothing was said for so long"

    run(test, clock=clock, heartbeat_s=30.0)


@pytest.mark.parametrize("queues", [0, 2])
def test_when_nothing_is_under_way_nothing_is_held(queues):
    async def test(broker):
        memory = broker.core.memory
        async with milepost.AsyncClient(broker.uri) as client, milepost.AsyncClient(broker.uri) as other:
            await client.declare_topic("live", QUOTE)
            await client.declare_topic("kept", QUOTE, durable=True)
            everything, desk = await other.subscribe("live"), await other.subscribe("kept", name="desk")
            rows = [{"symbol": "A" * 1_000, "price": 1.0} for _ in range(500)]
            for topic, sub in (("live", everything), ("kept", desk)):
                await client.put_many(topic, rows)
                for _ in rows:
                    await anext(sub)
                await client.put(topic, rows[0])
                await anext(sub)
            with pytest.raises(milepost.errors.QueryError):
                await other.subscribe("live", where="nothing = 1")
            await client.declare_type("note: [text: string]")
            await client.declare_queue("notes", ["note"])
            async with client.transaction() as tx:
                await tx.enqueue("notes", [{"text": "x" * 10_000}] * 50, "note")
            assert len(await other.peek("notes", count=50)) == 50
            assert len([each async for each in other.browse("notes")]) == 50
            async with other.transaction() as tx:
                assert len(await tx.dequeue("notes", count=20)) == 20
                assert memory.held > 200_000, "the answer is kept, in case the connection breaks"
            await other.topics()
            await other.status()
            replay = await other.subscribe("kept", start="earliest")
            for _ in range(501):
                await anext(replay)
            await replay.unsubscribe()
            await other.flush()
            await client.flush()
            assert memory.held == sum(each.held for each in broker.core.connections.values())
            assert all(not each.asking for each in broker.core.connections.values())
            assert memory.held < 100_000, "acknowledgements on their way"
        while broker.core.connections:
            await asyncio.sleep(0)
        assert memory.held == 0

    run(test, input_queues=queues)


def test_more_requests_than_may_be_under_way_wait_for_their_turn():
    """Those that are read, and those that come in messages: each is answered."""

    async def test(broker):
        async with milepost.AsyncClient(broker.uri) as client:
            await client.declare_type("note: [text: string]")
            await client.declare_queue("notes", ["note"])
            async with client.transaction() as tx:
                await tx.enqueue("notes", [{"text": "x"}] * 3, "note")
            found = await asyncio.gather(*(client.peek("notes", count=3) for _ in range(300)))
            assert [len(each) for each in found] == [3] * 300
            found = await asyncio.gather(*(client.topics() for _ in range(300)))
            assert len(found) == 300
            assert broker.core.memory.held == 0

    run(test, put_window=4096)


def test_a_frame_gets_through_although_memory_stays_short():
    """Somebody else holds nearly all of it, and does not let go."""
    clock = testing.FakeClock()

    async def test(broker):
        async with milepost.AsyncClient(broker.uri) as other, milepost.AsyncClient(broker.uri) as feed:
            await feed.declare_topic("quotes", QUOTE)
            sub = await other.subscribe("quotes")
            broker.core.memory.held += 1 << 30
            putting = asyncio.ensure_future(feed.put("quotes", {"symbol": "A" * 3_000_000, "price": 1.0}))
            while not broker.halted:
                await asyncio.sleep(0)
            clock.advance(1.0)
            await putting
            assert len((await anext(sub)).symbol) == 3_000_000
            assert not broker.halted
            broker.core.memory.held -= 1 << 30

    run(test, clock=clock, memory_bytes=1 << 20, listen="milepost://127.0.0.1:0")


def test_who_waits_for_memory_for_too_long_hears_why():
    clock = testing.FakeClock()

    async def test(broker):
        async with milepost.AsyncClient(broker.uri, reconnect=False) as feed:
            await feed.declare_topic("quotes", QUOTE)
            memory = broker.core.memory
            memory._passing = memory._passes  # others are let through
            memory.held += 1 << 30
            await feed.put("quotes", {"symbol": "A" * 3_000_000, "price": 1.0})
            while not broker.halted:
                await asyncio.sleep(0)
            clock.advance(40.0)
            with pytest.raises(milepost.errors.MilepostError, match="memory_bytes"):
                await feed.flush()
            assert broker.statistics()["errors"] == {"overloaded": 1}
        while broker.halted:
            await asyncio.sleep(0)

    run(test, clock=clock, memory_bytes=1 << 20, listen="milepost://127.0.0.1:0", frame_s=30.0)
