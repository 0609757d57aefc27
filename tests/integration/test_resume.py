"""Plain subscriptions to durable topics go on where they were, whatever happens to the connection meanwhile."""

import asyncio
import logging
import queue
import random
import threading
from contextlib import asynccontextmanager

import pytest

import milepost
from milepost import testing
from milepost.wire import Kind
from tests.integration.proxy import Proxy
from tests.integration.test_failures import Broker

SCHEMA = "s: [n: int, who: string?]"
SECONDS = 240  # for what hangs: the cores may be busy


def rows(values):
    return [{"n": n, "who": None} for n in values]


def run(body):
    async def limited():
        async with asyncio.timeout(SECONDS):
            await body

    asyncio.run(limited())


@asynccontextmanager
async def setting(**options):
    """A broker, a publisher that is always connected, and the way of a subscriber that can be blocked."""
    async with testing.broker(listen="milepost://127.0.0.1:0", **options) as broker:
        async with Proxy((broker.address.host, broker.address.port)) as way, milepost.AsyncClient(broker.uri) as feed:
            await feed.declare_topic("kept", SCHEMA, durable=True)
            yield feed, way


async def taken(subscription, count):
    found = []
    while len(found) < count:
        message = await subscription.get()
        assert message is not None, f"it ended after {found}"
        found.append(message.n)
    return found


async def taken_up_to(subscription, last):
    """The numbers of all messages up to one, which is the last that is put."""
    found = []
    async for message in subscription:
        found.append(message.n)
        if message.n == last:
            await subscription.unsubscribe()  # what it holds would be missing in the window of others
            return found
    raise AssertionError(f"it ended after {found}")


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request):
    """Settings of a broker on each kind of store."""
    return {} if request.param == "sqlite" else {"store": request.getfixturevalue("postgresql")}


@pytest.mark.parametrize("where", [None, "n % 2 = 0"])
def test_rows_that_are_put_while_the_connection_is_away_arrive_once_and_in_order(store, where):
    async def body():
        async with setting(**store) as (feed, way), milepost.AsyncClient(way.address, timeout=60.0) as desk:
            kept = await desk.subscribe("kept", where)
            await feed.put_many("kept", rows(range(10)))
            expected = [n for n in range(60) if where is None or n % 2 == 0]
            found = await taken(kept, sum(n < 10 for n in expected))
            for start in (10, 30):
                way.block()
                for n in range(start, start + 10):  # one by one, and a batch
                    await feed.put("kept", {"n": n, "who": None})
                await feed.put_many("kept", rows(range(start + 10, start + 20)))
                way.unblock()
            await feed.put_many("kept", rows(range(50, 60)))
            found += await taken(kept, len(expected) - len(found))
            await feed.put("kept", {"n": 1000, "who": None})
            assert found + await taken_up_to(kept, 1000) == [*expected, 1000]
            assert (kept.dropped, kept.lost) == (0, [])

    run(body())


def test_rows_that_wait_in_the_broker_when_the_connection_breaks_arrive():
    """A client that has no room is sent nothing: what waits for it is not lost with the connection."""

    async def body():
        async with setting() as (feed, way), milepost.AsyncClient(way.address, window=2_048, timeout=60.0) as desk:
            kept = await desk.subscribe("kept")
            for n in range(300):
                await feed.put("kept", {"n": n, "who": "a name that makes the row longer"})
            way.sever()
            await feed.put_many("kept", rows(range(300, 400)))
            assert await taken_up_to(kept, 399) == list(range(400))
            assert desk.statistics().rows_delivered == 400

    run(body())


@pytest.mark.parametrize("taking", ["get", "loop", "batches", "callback", "batch callback", "async callback"])
def test_whichever_way_messages_are_taken(taking):
    async def body():
        async with setting() as (feed, way), milepost.AsyncClient(way.address, timeout=60.0) as desk:
            found, done = [], asyncio.Event()

            def take(*messages):
                found.extend(message.n for message in messages)
                if found[-1] == 29:
                    done.set()

            async def take_async(message):
                await asyncio.sleep(0)
                take(message)

            def take_batch(batch):
                take(*batch)

            options = {
                "callback": {"callback": take},
                "async callback": {"callback": take_async},
                "batch callback": {"callback": take_batch, "batches": True},
            }.get(taking, {})
            kept = await desk.subscribe("kept", **options)

            async def reader():
                if taking == "get":
                    while not done.is_set():
                        take(await kept.get())
                elif taking == "loop":
                    async for message in kept:
                        take(message)
                        if done.is_set():
                            return
                elif taking == "batches":
                    async for batch in kept.batches():
                        take_batch(batch)
                        if done.is_set():
                            return

            async with asyncio.TaskGroup() as group:
                group.create_task(reader())
                for start in (0, 10, 20):
                    if start:
                        way.block()
                    for n in range(start, start + 5):
                        await feed.put("kept", {"n": n, "who": None})
                    await feed.put_many("kept", rows(range(start + 5, start + 10)))
                    way.unblock()
                await done.wait()
            assert found == list(range(30))

    run(body())


def test_the_synchronous_client_resumes_too():
    started, commands = queue.Queue(), queue.Queue()

    async def serve():
        async with asyncio.timeout(SECONDS), setting() as (feed, way):
            started.put(way.address)
            for start in (0, 10):
                assert await asyncio.to_thread(commands.get) == "put"
                if start:
                    way.block()
                await feed.put_many("kept", rows(range(start, start + 10)))
                way.unblock()
            assert await asyncio.to_thread(commands.get) == "end"

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        with milepost.Client(started.get(timeout=SECONDS), timeout=60.0) as client, client.subscribe("kept") as kept:
            commands.put("put")
            assert [kept.get().n for _ in range(10)] == list(range(10))
            commands.put("put")
            found = []
            for message in kept:
                found.append(message.n)
                if message.n == 19:
                    break
            assert found == list(range(10, 20))
            assert kept.lost == []
    finally:
        commands.put("end")
        thread.join()


def test_a_broker_that_is_killed_while_rows_are_on_their_way(tmp_path):
    async def body():
        async with Broker(tmp_path, tmp_path / "log.db") as broker, Proxy(("127.0.0.1", broker.port)) as way:
            async with (
                milepost.AsyncClient(broker.address, name="feed", timeout=60.0) as feed,
                milepost.AsyncClient(way.address, timeout=60.0) as desk,
            ):
                await feed.declare_topic("kept", SCHEMA, durable=True)
                kept = await desk.subscribe("kept", "n % 3 != 1")
                await feed.put_many("kept", rows(range(30)))
                await taken(kept, 20)
                way.block()
                await feed.put_many("kept", rows(range(30, 60)))  # only the log has these
                await broker.kill()
                await broker.start()
                await feed.put_many("kept", rows(range(60, 90)))
                way.unblock()
                assert await taken_up_to(kept, 89) == [n for n in range(30, 90) if n % 3 != 1]

    run(body())


def test_a_pattern_resumes_each_of_its_topics():
    """Durable topics from their positions, one that was made meanwhile from its beginning, live ones from now on."""

    async def body():
        async with setting() as (feed, way), milepost.AsyncClient(way.address, timeout=60.0) as desk:
            await feed.declare_topic("orders.eu", SCHEMA, durable=True)
            await feed.declare_topic("orders.us", SCHEMA, durable=True)
            await feed.declare_topic("orders.live", SCHEMA)
            await feed.declare_topic("orders.other", "s: [text: string]", durable=True)
            await feed.put_many("orders.us", rows([1, 2]))
            every = await desk.subscribe("orders.>", "n >= 0")
            assert every.skipped.keys() == {"orders.other"}
            await feed.put_many("orders.eu", rows([10]))
            await feed.put_many("orders.live", rows([20]))
            assert sorted(await taken(every, 2)) == [10, 20]
            way.block()
            await feed.put_many("orders.eu", rows([11, 12]))
            await feed.put_many("orders.us", rows([3]))
            await feed.put_many("orders.live", rows([21]))
            await feed.declare_topic("orders.new", SCHEMA, durable=True)
            await feed.put_many("orders.new", rows([30, 31]))
            await feed.flush()
            way.unblock()
            assert sorted(await taken(every, 5)) == [3, 11, 12, 30, 31]
            for name, n in (("eu", 13), ("us", 4), ("new", 32), ("live", 22)):
                await feed.put(f"orders.{name}", {"n": n, "who": None})
            await feed.flush()
            assert sorted(await taken(every, 4)) == [4, 13, 22, 32]
            assert every.topics == {"orders.eu", "orders.us", "orders.new", "orders.live"}

    run(body())


def test_several_subscriptions_of_a_client_that_share_rows():
    async def body():
        async with setting() as (feed, way), milepost.AsyncClient(way.address, timeout=60.0) as desk:
            every, odd, same = [await desk.subscribe("kept", where) for where in (None, "n % 2 = 1", None)]
            await feed.put_many("kept", rows(range(10)))
            way.block()
            await feed.put_many("kept", rows(range(10, 20)))
            late = asyncio.create_task(desk.subscribe("kept", "n >= 15"))
            way.unblock()
            newest = await late
            await feed.put_many("kept", rows(range(20, 31)))
            assert await taken_up_to(every, 30) == await taken_up_to(same, 30) == list(range(31))
            assert await taken_up_to(odd, 29) == list(range(1, 31, 2))
            assert (await taken_up_to(newest, 30))[-11:] == list(range(20, 31))

    run(body())


@pytest.mark.parametrize("everything", [True, False])
def test_rows_that_were_removed_meanwhile_are_told(caplog, everything):
    async def body():
        async with setting() as (feed, way), milepost.AsyncClient(way.address, timeout=60.0) as desk:
            kept = await desk.subscribe("kept")
            await feed.put_many("kept", rows(range(10)))
            await taken(kept, 10)
            (log,) = [each["log"] for each in (await feed.look("kept"))["logs"]]
            way.block()
            await feed.put_many("kept", rows(range(10, 20)))
            await feed.trim("kept", {log: 20 if everything else 15})
            way.unblock()
            while not desk.statistics().connected:
                await asyncio.sleep(0)
            await feed.put("kept", {"n": 20, "who": None})
            assert await taken_up_to(kept, 20) == [*([] if everything else range(15, 20)), 20]
            assert kept.lost == [(log, 10, 20 if everything else 15)]
            assert kept.dropped == desk.statistics().rows_dropped == (10 if everything else 5)

    with caplog.at_level(logging.WARNING, "milepost.client"):
        run(body())
    assert any("were removed" in record.message and "kept" in record.message for record in caplog.records)


def test_a_topic_that_was_deleted_and_made_again_is_another_one():
    async def body():
        async with setting() as (feed, way), milepost.AsyncClient(way.address, timeout=60.0) as desk:
            kept = await desk.subscribe("kept")
            await feed.put_many("kept", rows(range(10)))
            await taken(kept, 10)
            way.block()
            await feed.delete_topic("kept")
            await feed.declare_topic("kept", SCHEMA, durable=True)
            await feed.put_many("kept", rows([100, 101]))
            way.unblock()
            assert await taken(kept, 2) == [100, 101]

    run(body())


def test_dropping_goes_on_from_where_it_was():
    """What was dropped is counted, what was put while the connection was away arrives, and nothing comes twice."""

    async def body():
        async with setting(queue_bytes=4_096) as (feed, way):
            async with milepost.AsyncClient(way.address, window=2_048, slow="drop", timeout=60.0) as desk:
                kept = await desk.subscribe("kept")
                for n in range(500):
                    await feed.put("kept", {"n": n, "who": None})
                found = await taken(kept, 5)
                while not kept.dropped:
                    found += await taken(kept, 1)
                way.block()
                await feed.put_many("kept", rows(range(500, 600)))
                way.unblock()
                found += await taken_up_to(kept, 599)
                assert found == sorted(set(found))
                assert found[-100:] == list(range(500, 600))
                assert len(found) + kept.dropped >= 600  # one that was counted may still have come out of the log

    run(body())


def test_a_client_that_moves_to_another_broker_of_the_cell(postgresql):
    """What was put while it was on its way arrives, through whichever broker it was put."""

    async def body():
        cell = {"store": postgresql}
        async with testing.broker(name="b", listen="milepost://127.0.0.1:0", **cell) as second:
            async with testing.broker(name="a", listen="milepost://127.0.0.1:0", **cell) as first:
                async with (
                    Proxy((first.address.host, first.address.port)) as way,
                    Proxy((second.address.host, second.address.port)) as other_way,
                    milepost.AsyncClient(first.uri) as here,
                    milepost.AsyncClient(second.uri) as there,
                ):
                    await here.declare_topic("kept", SCHEMA, durable=True)
                    other_way.block()
                    addresses = f"{way.address},127.0.0.1:{other_way.port}"
                    async with milepost.AsyncClient(addresses, timeout=60.0) as desk:
                        kept = await desk.subscribe("kept")
                        await here.put_many("kept", rows(range(10)))
                        assert await taken(kept, 10) == list(range(10))
                        way.block()
                        await here.put_many("kept", rows(range(10, 20)))
                        await there.put_many("kept", rows(range(20, 30)))
                        await way.__aexit__()  # the first is gone for good
                        other_way.unblock()
                        assert sorted(await taken(kept, 20)) == list(range(10, 30))
                        await there.put_many("kept", rows(range(30, 40)))
                        assert await taken(kept, 10) == list(range(30, 40))

    run(body())


def test_connections_that_break_at_any_frame_lose_and_double_nothing(store):
    """The seed says at which frames; the publisher does not wait for the subscriber."""
    seed = random.randrange(1 << 32)
    print("seed", seed)
    draw = random.Random(seed)
    cuts = [Kind.DELIVER, Kind.HAND, Kind.REPLY, Kind.TOPIC, Kind.WELCOME]
    total = 2_000

    async def body():
        async with setting(**store) as (feed, way):
            async with milepost.AsyncClient(way.address, window=draw.choice([2_048, 1 << 20]), timeout=60.0) as desk:
                every = await desk.subscribe("kept")
                some = await desk.subscribe("*", "n % 7 = 0")

                async def publish():
                    n = 0
                    while n < total:
                        if draw.random() < 0.1:
                            way.lose("down", draw.choice(cuts)) if draw.random() < 0.7 else way.sever()
                        step = min(draw.choice([1, 1, 1, 5, 50]), total - n)
                        await feed.put_many("kept", rows(range(n, n + step)))
                        n += step
                    way.cuts.clear()

                async with asyncio.TaskGroup() as group:
                    group.create_task(publish())
                    whole = group.create_task(taken_up_to(every, total - 1))
                    part = group.create_task(taken_up_to(some, (total - 1) // 7 * 7))
                assert whole.result() == list(range(total))
                assert part.result() == list(range(0, total, 7))
                assert desk.statistics().reconnects > 0

    run(body())


def test_a_predicate_that_nothing_satisfies_is_not_left_behind():
    """A client hears now and then how far its topics are: not all of a long log is looked through for it again."""

    async def body():
        async with setting(heartbeat_s=0.2) as (feed, way), milepost.AsyncClient(way.address, timeout=60.0) as desk:
            none = await desk.subscribe("kept", "n < 0")
            await feed.put_many("kept", rows(range(100)))
            (log,) = (await feed.look("kept"))["logs"]
            while desk._session.connection.by_name["kept"].reached.get(log["log"]) != 100:
                await asyncio.sleep(0.01)
            way.block()
            await feed.trim("kept", {log["log"]: 100})
            way.unblock()
            await feed.put("kept", {"n": -1, "who": None})
            assert await taken(none, 1) == [-1]
            assert (none.lost, none.dropped) == ([], 0)

    run(body())


def test_stored_state_that_was_lost_is_told_to_a_plain_subscription():
    async def body():
        desk = milepost.AsyncClient("inproc://resume-lost")
        async with testing.broker(listen="inproc://resume-lost") as broker, milepost.AsyncClient(broker.uri) as feed:
            await feed.declare_topic("kept", SCHEMA, durable=True)
            await desk.connect()
            kept = await desk.subscribe("kept")
        async with testing.broker(listen="inproc://resume-lost"):
            with pytest.raises(milepost.errors.StateLost):
                await kept.get()
        await desk.close()

    run(body())
