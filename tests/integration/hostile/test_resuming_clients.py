"""Clients that claim to have missed everything, again and again, and read nothing of it."""

import asyncio

import milepost
from milepost import errors, testing
from milepost.wire import Subscribe

SCHEMA = "s: [n: int, text: string?]"
SECONDS = 240  # for what hangs: the cores may be busy
TOPICS = 30
TEXT = "x" * 60_000


def test_a_client_that_resumes_everything_from_the_beginning_is_read_for_one_piece_at_a_time():
    """30 topics with a megabyte each, asked for by several subscriptions: the broker holds no more than a piece."""

    async def body():
        async with asyncio.timeout(SECONDS), testing.broker() as broker, milepost.AsyncClient(broker.uri) as feed:
            for number in range(TOPICS):
                await feed.declare_topic(f"all.t{number}", SCHEMA, durable=True)
                await feed.put_many(f"all.t{number}", [{"n": n, "text": TEXT} for n in range(16)])
            async with milepost.AsyncClient(broker.uri, window=1_000) as greedy:
                await greedy.subscribe("all.t0", "n < 0")
                connection = greedy._session.connection
                connection._window._connection = None  # it gives no credit
                asked = [
                    connection.request(
                        lambda request, number=number: Subscribe(
                            request=request, subscription=number, pattern="all.>", resume={}
                        )
                    )
                    for number in range(100, 110)
                ]
                await asyncio.gather(*asked)
                largest = done = 0
                async with milepost.AsyncClient(broker.uri) as other:
                    mine = await other.subscribe("all.t1", "n = -1")
                    for _ in range(50):
                        await other.put("all.t1", {"n": -1, "text": None})
                        done += (await mine.get()).n == -1
                        streams = list(broker.core.catchups.open.values())
                        assert sum(stream.reading for stream in streams) <= 1
                        held = sum(len(portion.batch.data) for stream in streams for portion in stream.pending)
                        largest = max(largest, held)
                assert done == 50
                assert largest <= 8 << 20, f"{largest} bytes of {TOPICS * 10} topics and subscriptions are held"
            assert not broker.core.catchups.open

    asyncio.run(body())


def test_positions_that_cannot_be_are_refused_and_the_connection_stays():
    async def body():
        async with asyncio.timeout(SECONDS), testing.broker() as broker, milepost.AsyncClient(broker.uri) as client:
            await client.declare_topic("kept", SCHEMA, durable=True)
            await client.put("kept", {"n": 1, "text": None})
            connection = client._session.connection
            stored = broker.core.topics["kept"].stored
            for position in ({1: 2}, {1: 1 << 62}, {1: -1}, {-1: 0}, {1 << 40: 0}, dict.fromkeys(range(2_000), 0)):
                try:
                    await connection.ask(
                        lambda request, position=position: Subscribe(
                            request=request, subscription=9, pattern="kept", resume={stored: position}
                        )
                    )
                except errors.BrokerError:
                    continue
                raise AssertionError(f"{str(position)[:60]} was taken")
            assert not broker.core.catchups.open
            kept = await client.subscribe("kept")
            await client.put("kept", {"n": 2, "text": None})
            assert (await kept.get()).n == 2

    asyncio.run(body())
