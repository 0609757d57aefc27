"""Clients that do not keep up: they hear of it, what they missed is counted, and what they hold is bounded."""

import asyncio
import queue
import threading

import pytest

import milepost
from milepost import errors, testing
from tests.integration.proxy import Proxy

SCHEMA = "s: [n: int, text: string?]"
SECONDS = 240  # for what hangs: the cores may be busy
WINDOW = 4_096
LIMITS = {"queue_bytes": 16_384, "delivery_window": WINDOW}


def rows(values):
    return [{"n": n, "text": None} for n in values]


def run(body):
    async def limited():
        async with asyncio.timeout(SECONDS):
            await body

    asyncio.run(limited())


async def overfill(feed, disconnected):
    """Put single batches until the broker has sent somebody away; how many rows were put."""
    count = 0
    while not disconnected():
        await feed.put_many("topic", rows(range(count, count + 100)))
        await feed.flush()
        count += 100
    return count


def sent_away(broker):
    """Whether the broker has disconnected somebody for being slow."""
    return lambda: broker.core.errors["slow_consumer"] > 0


@pytest.mark.parametrize("durable", [False, True], ids=["live", "durable"])
@pytest.mark.parametrize("taking", ["loop", "get", "batches", "callback", "async callback"])
def test_the_application_hears_that_it_was_disconnected_and_what_it_missed(taking, durable):
    async def body():
        async with testing.broker(**LIMITS) as broker, milepost.AsyncClient(broker.uri) as feed:
            await feed.declare_topic("topic", SCHEMA, slow="disconnect", durable=durable)
            await feed.declare_topic("other", SCHEMA, durable=True)
            async with milepost.AsyncClient(broker.uri, window=WINDOW) as desk:
                found, go_on = [], asyncio.Event()

                def take(message):
                    found.append(message.n)

                async def take_slowly(message):
                    await go_on.wait()
                    take(message)

                class Stuck:
                    def __await__(self):
                        return go_on.wait().__await__()

                def take_and_wait(message):
                    take(message)
                    return Stuck()

                callback = {"callback": take_and_wait, "async callback": take_slowly}.get(taking)
                slow = await desk.subscribe("topic", callback=callback)
                named = await desk.subscribe("other", name="named")
                count = await overfill(feed, sent_away(broker))
                go_on.set()
                if callback is not None:
                    while not slow.ended or len(found) + slow.dropped < count:
                        await asyncio.sleep(0)
                    with pytest.raises(errors.SlowConsumer):
                        await slow.unsubscribe()
                else:
                    with pytest.raises(errors.SlowConsumer, match="rows in"):
                        if taking == "loop":
                            async for message in slow:
                                take(message)
                        elif taking == "get":
                            while True:
                                take(await slow.get())
                        else:
                            async for batch in slow.batches():
                                found.extend(batch.column("n").tolist())
                assert found == list(range(len(found)))
                assert slow.dropped > 0
                assert len(found) + slow.dropped == count == len(found) + desk.statistics().rows_dropped
                assert isinstance(slow.error, errors.SlowConsumer)
                # The rest of the client goes on, and may subscribe again.
                await feed.put("other", {"n": 7, "text": None})
                assert (await named.get()).n == 7
                again = await desk.subscribe("topic")
                await desk.put("topic", {"n": -1, "text": None})
                assert (await again.get()).n == -1
                assert broker.core.errors["slow_consumer"] == 1

    run(body())


def test_subscriptions_that_share_rows_all_hear_and_count():
    async def body():
        async with testing.broker(**LIMITS) as broker, milepost.AsyncClient(broker.uri) as feed:
            await feed.declare_topic("topic", SCHEMA)
            async with milepost.AsyncClient(broker.uri, window=WINDOW, slow="disconnect") as desk:
                every = await desk.subscribe("topic")
                even = await desk.subscribe("topic", "n % 2 = 0")
                count = await overfill(feed, sent_away(broker))
                for subscription, wanted in ((every, count), (even, count // 2)):
                    found = 0
                    with pytest.raises(errors.SlowConsumer):
                        async for _ in subscription:
                            found += 1
                    assert found + subscription.dropped == wanted
                with pytest.raises(errors.SlowConsumer):  # and so does who asks by name
                    await desk.get("topic")

    run(body())


def test_the_synchronous_client_hears_it_too():
    started, commands = queue.Queue(), queue.Queue()

    async def serve():
        async with testing.broker(listen="milepost://127.0.0.1:0", **LIMITS) as broker:
            async with asyncio.timeout(SECONDS), milepost.AsyncClient(broker.uri) as feed:
                await feed.declare_topic("topic", SCHEMA, slow="disconnect")
                started.put(broker.uri)
                await asyncio.to_thread(commands.get)
                started.put(await overfill(feed, sent_away(broker)))
                await asyncio.to_thread(commands.get)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        with milepost.Client(started.get(timeout=SECONDS), window=WINDOW) as client:
            slow = client.subscribe("topic")
            commands.put("fill")
            count = started.get(timeout=SECONDS)
            found = 0
            with pytest.raises(errors.SlowConsumer):
                for _ in slow:
                    found += 1
            assert found + slow.dropped == count
            assert client.topics()
    finally:
        commands.put("fill")
        commands.put("end")
        thread.join()


def test_what_is_given_up_unread_is_room_again():
    async def body():
        async with testing.broker(**LIMITS) as broker, milepost.AsyncClient(broker.uri) as feed:
            await feed.declare_topic("topic", SCHEMA)
            async with milepost.AsyncClient(broker.uri, window=WINDOW, slow="disconnect") as desk:
                unread = await desk.subscribe("topic")
                await overfill(feed, sent_away(broker))
                while not unread.ended:
                    await asyncio.sleep(0)
                assert desk.statistics().bytes_queued > 0
                with pytest.raises(errors.SlowConsumer):
                    await unread.unsubscribe()
                assert desk.statistics().bytes_queued == 0
                again = await desk.subscribe("topic")
                await feed.put("topic", {"n": -1, "text": None})
                assert (await again.get()).n == -1

    run(body())


@pytest.mark.parametrize("durable", [False, True], ids=["live", "durable"])
@pytest.mark.parametrize("slow", ["throttle", "drop"])
def test_windows_do_not_add_up_over_connections(slow, durable):
    """Whatever waits in the client counts against its window, whichever connection brought it."""

    async def body():
        async with testing.broker(listen="milepost://127.0.0.1:0", **LIMITS) as broker:
            where = (broker.address.host, broker.address.port)
            async with Proxy(where) as way, milepost.AsyncClient(broker.uri) as feed:
                await feed.declare_topic("topic", SCHEMA, durable=durable)
                async with milepost.AsyncClient(way.address, window=WINDOW, slow=slow, timeout=60.0) as desk:
                    unread = await desk.subscribe("topic")
                    largest = 0
                    for turn in range(20):
                        for n in range(20 * turn, 20 * turn + 20):
                            await feed.put("topic", {"n": n, "text": "x" * 100})
                        await feed.flush()
                        await desk.flush()  # behind all that was sent to it
                        largest = max(largest, sum(len(each.batch.data) for each in unread._queue))
                        way.sever()
                        while desk.statistics().reconnects <= turn:
                            await asyncio.sleep(0)
                    assert largest <= 2 * WINDOW, "the window, and the frame that overshoots it"
                    # What was taken is room again, on the connection that is there now.
                    await feed.put("topic", {"n": 400, "text": None})
                    found = []
                    async for message in unread:
                        found.append(message.n)
                        if message.n == 400:
                            break
                    assert found == sorted(set(found))
                    if durable and slow == "throttle":
                        assert found == list(range(401))

    run(body())
