"""Durable topics with real brokers: what was stored is there, once, whatever happens to connections and brokers."""

import asyncio
import uuid
from datetime import UTC, datetime, timedelta

import pytest

import milepost
from milepost import errors, testing

SCHEMA = "s: [n: int, who: string?]"
SECONDS = 240  # for what hangs: the cores may be busy


def run(test, *, clients=1, **options):
    async def whole():
        async with asyncio.timeout(SECONDS), testing.broker(**options) as broker:
            made = [milepost.AsyncClient(broker.uri) for _ in range(clients)]
            try:
                for client in made:
                    await client.connect()
                await made[0].declare_topic("kept", SCHEMA, durable=True)
                await test(broker, *made)
            finally:
                for client in made:
                    await client.close()

    asyncio.run(whole())


def rows(values):
    return [{"n": n, "who": None} for n in values]


def numbers(messages):
    return [message.n for message in messages]


async def everything(client, topic="kept"):
    """All rows of a topic's log."""
    replay = await client.subscribe(topic, start="earliest")
    there = sum(log["next"] - log["start"] for log in (await client.look(topic))["logs"])
    found = []
    while len(found) < there:
        found += numbers(await replay.get_many(10_000))
    await replay.detach()
    return found


def cut(client):
    """Break the client's connection."""
    client._session.connection.abort()


def test_put_get_and_what_the_topic_says():
    async def test(broker, client):
        info = await client.declare_topic("kept", SCHEMA, durable=True, retain={"age_s": 60.0})
        assert (info.durable, info.created) == (True, False)
        with pytest.raises(errors.InvalidValue, match="did you mean 'age_s'"):
            await client.declare_topic("kept", SCHEMA, retain={"age": 60.0})
        for wrong in ({"age_s": -1.0}, {"bytes": 1.5}, {"hold": 1}, 60.0):
            with pytest.raises(errors.InvalidValue):
                await client.declare_topic("kept", SCHEMA, retain=wrong)
        assert len(client.broker_id) == 32
        desk = await client.subscribe("kept", "n > 1", name="desk")
        assert desk.created
        await client.put("kept", {"n": 1})
        await client.put_many("kept", rows(range(2, 5)))
        assert (await client.get("kept")).n == 2
        assert numbers(await client.get_many("kept", 10)) == [3, 4]
        assert await client.get("kept", timeout=0.01) is None
        found = await client.look("kept")
        (log,) = found["logs"]
        assert (log["start"], log["next"], log["rows"]) == (0, 4, 4)
        (told,) = found["subscriptions"]
        assert (told["name"], told["where"], told["behind"]) == ("desk", "n > 1", 0)
        assert [topic.durable for topic in await client.topics()] == [True]

    run(test)


def test_a_named_subscription_goes_on_where_it_was():
    async def test(broker, client, other):
        async with await client.subscribe("kept", name="desk") as desk:
            await client.put_many("kept", rows(range(10)))
            assert numbers(await desk.get_many(4)) == [0, 1, 2, 3]
        await client.put("kept", {"n": 10})
        again = await other.subscribe("kept", name="desk", create=False)
        assert not again.created
        assert again.position == {desk.log: 4}
        found = []
        while len(found) < 7:
            found += numbers(await again.get_many(3))
        assert found == list(range(4, 11))
        await again.unsubscribe()
        with pytest.raises(errors.UnknownSubscription):
            await client.subscribe("kept", name="desk", create=False)
        with pytest.raises(errors.UnknownSubscription):
            await client.unsubscribe(name="desk")

    run(test, clients=2)


def test_where_a_subscription_begins():
    async def test(broker, client):
        with pytest.raises(errors.InvalidValue, match="no messages yet"):
            await client.subscribe("kept", start=3)
        await client.put_many("kept", rows(range(5)))
        before = datetime.now(UTC) - timedelta(minutes=1)
        for start, expected in (("earliest", 0), (3, 3), (before, 0)):
            replay = await client.subscribe("kept", start=start)
            assert (await replay.get()).n == expected
            await replay.detach()
        new = await client.subscribe("kept", start="new")
        assert await new.get(timeout=0) is None
        await client.put("kept", {"n": 5})
        assert (await new.get()).n == 5
        on = await client.subscribe("kept", start={new.log: 4})
        assert numbers([await on.get(), await on.get()]) == [4, 5]

    run(test)


def test_acknowledged_or_again():
    async def test(broker, client):
        options = {"name": "desk", "ack": "explicit", "max_deliveries": 2, "dead_letter": "dead"}
        desk = await client.subscribe("kept", **options)
        await client.put_many("kept", rows(range(3)))
        first, second = await desk.get(), await desk.get()
        await desk.ack(second)
        await desk.nack(first)
        seen = {}
        while len(seen) < 2:
            message = await desk.get()
            seen[message.n] = desk.deliveries
            if message.n == 2:
                await desk.ack(message)
            else:
                await desk.nack(message)
        assert seen == {0: 1, 2: 0}
        dead = await client.subscribe("dead", start="earliest")
        assert (await dead.get()).n == 0
        with pytest.raises(errors.NotExpectingAck):
            await desk.ack()

    run(test)


def test_iteration_and_batches_acknowledge():
    async def test(broker, client):
        await client.put_many("kept", rows(range(10_000)))
        desk = await client.subscribe("kept", name="desk", start="earliest")
        seen = []
        async for message in desk:
            seen.append(message.n)
            if len(seen) == 5_000:
                break
        async for batch in desk.batches():
            assert len(batch.offsets) == len(batch)
            seen += batch.column("n").tolist()
            if len(seen) == 10_000:
                break
        assert seen == list(range(10_000))
        assert (await client.get("kept", timeout=0.01)) is None  # coming back for more acknowledges the last batch
        await desk.detach()
        (told,) = (await client.look("kept"))["subscriptions"]
        assert told["behind"] == 0

    run(test)


def test_several_clients_share_a_subscription():
    async def test(broker, client, one, other):
        desks = [await each.subscribe("kept", name="desk", prefetch=50) for each in (one, other)]
        await client.put_many("kept", rows(range(1_000)))
        found = []

        async def take(desk):
            while len(found) < 1_000:
                found.extend(numbers(await desk.get_many(10, timeout=0.2)))

        await asyncio.gather(*(take(desk) for desk in desks))
        assert sorted(found) == list(range(1_000))

    run(test, clients=3)


def test_a_member_that_leaves_hands_its_rows_over():
    async def test(broker, client, one, other):
        first = await one.subscribe("kept", name="desk", ack="explicit")
        await client.put_many("kept", rows(range(10)))
        got = numbers([await first.get() for _ in range(4)])
        second = await other.subscribe("kept", name="desk")
        await one.close()
        found = []
        while len(found) < 10:
            found += numbers(await second.get_many(20))
        assert (got, found) == ([0, 1, 2, 3], list(range(10)))

    run(test, clients=3)


def test_keys_and_atomic_puts():
    async def test(broker, client, other):
        await client.declare_topic("more", SCHEMA, durable=True)
        key = uuid.uuid4()
        await client.put("kept", {"n": 1}, key=key)
        with pytest.raises(errors.DuplicateMessage):
            await other.put("kept", {"n": 1}, key=key)
        async with client.atomic() as together:
            together.put("kept", {"n": 2})
            together.put_many("more", rows([3, 4]))
        await client.put("kept", {"n": 5}, wait=False)
        await client.flush()
        assert await everything(client) == [1, 2, 5]
        assert await everything(client, "more") == [3, 4]
        await client.declare_topic("live", SCHEMA)
        with pytest.raises(errors.NotDurable):
            await client.subscribe("live", name="desk")

    run(test, clients=2)


@pytest.mark.parametrize("name", ["", "feed"])
def test_puts_while_connections_break(name):
    """The connection breaks again and again, in the middle of puts: each is stored once, in the order of putting."""

    async def test(broker, client):
        async with milepost.AsyncClient(broker.uri, name=name) as feed:
            for start in range(0, 2_000, 20):
                putting = asyncio.gather(
                    feed.put_many("kept", rows(range(start, start + 10))),
                    *(feed.put("kept", {"n": n}) for n in range(start + 10, start + 20)),
                )
                if start % 60 == 0:
                    for _ in range(start // 60):
                        await asyncio.sleep(0)
                    if feed._session.connection is not None:
                        cut(feed)
                await putting
            assert feed.statistics().reconnects > 3
        found = await everything(client)
        assert sorted(found) == list(range(2_000))
        assert found == sorted(found, key=lambda n: n // 20)

    run(test)


@pytest.mark.parametrize("name", ["", "feed"])
def test_live_and_durable_puts_of_a_connection_that_breaks(name):
    """Stamps of live puts that the broker has seen say nothing about durable ones that it has not stored."""

    async def test(broker, client):
        await client.declare_topic("live", SCHEMA)
        async with milepost.AsyncClient(broker.uri, name=name) as feed:
            for n in range(100):
                putting = asyncio.gather(feed.put("kept", {"n": n}), feed.put("live", {"n": n}))
                for _ in range(n % 6):
                    await asyncio.sleep(0)
                if feed._session.connection is not None:
                    cut(feed)
                await putting
        assert await everything(client) == list(range(100))

    run(test)


def test_gets_while_connections_break():
    async def test(broker, client):
        desk = await client.subscribe("kept", name="desk", prefetch=100)
        async with milepost.AsyncClient(broker.uri) as feed:
            await feed.put_many("kept", rows(range(3_000)))
        found, turns = [], 0
        while len(found) < 3_000:
            turns += 1
            getting = asyncio.create_task(desk.get_many(20))
            if turns % 5 == 0:
                for _ in range(turns % 11):
                    await asyncio.sleep(0)
                if client._session.connection is not None:
                    cut(client)
            elif turns % 7 == 0:
                await asyncio.sleep(0)
                getting.cancel()
            try:
                found += numbers(await getting)
            except asyncio.CancelledError:
                pass
        assert found == list(range(3_000))
        assert client.statistics().reconnects > 3

    run(test)


def test_a_broker_that_restarts_has_everything(tmp_path):
    store = str(tmp_path / "milepost.db")

    async def whole():
        async with asyncio.timeout(SECONDS):
            async with testing.broker(store=store, listen="inproc://restarting") as broker:
                client = await milepost.AsyncClient(broker.uri, name="feed").connect()
                broker_id = client.broker_id
                await client.declare_topic("kept", SCHEMA, durable=True)
                desk = await client.subscribe("kept", name="desk")
                await client.put_many("kept", rows(range(10)))
                assert numbers(await desk.get_many(5)) == [0, 1, 2, 3, 4]
            putting = asyncio.create_task(client.put("kept", {"n": 10}))
            getting = asyncio.create_task(desk.get_many(1))
            await asyncio.sleep(0)
            async with testing.broker(store=store, listen="inproc://restarting"):
                await putting
                found = numbers(await getting)
                while len(found) < 6:
                    found += numbers(await desk.get_many(10))
                assert found == [5, 6, 7, 8, 9, 10]
                assert client.broker_id == broker_id
                known = milepost.AsyncClient("inproc://restarting", known_broker_id=broker_id)
                async with known:
                    assert await everything(known) == list(range(11))
                with pytest.raises(errors.StateLost, match="elsewhere"):
                    await milepost.AsyncClient("inproc://restarting", known_broker_id="elsewhere").connect()
            async with testing.broker(listen="inproc://restarting"):
                with pytest.raises(errors.StateLost):
                    await client.put("kept", {"n": 11})
                with pytest.raises(errors.StateLost):
                    await desk.get()
            await client.close()

    asyncio.run(whole())


def test_a_client_finds_the_broker_that_is_there():
    async def test(broker, client):
        both = f"inproc://nobody,{broker.uri}"
        async with milepost.AsyncClient(both) as found:
            await found.put("kept", {"n": 1})
            cut(found)
            await found.put("kept", {"n": 2})
        assert await everything(client) == [1, 2]
        with pytest.raises(errors.ConnectionLost):
            await milepost.AsyncClient("inproc://nobody,inproc://nowhere").connect()

    run(test)


def test_trimmed_rows_are_told():
    async def test(broker, client):
        desk = await client.subscribe("kept", name="desk", prefetch=1)
        for n in range(10):
            await client.put("kept", {"n": n})
        await desk.detach()
        await client.trim("kept", 6)
        again = await client.subscribe("kept", name="desk")
        assert (await again.get()).n == 6
        assert [lost[1:] for lost in again.lost] == [(0, 6)]

    run(test)


def test_a_subscription_of_another_kind_has_the_name():
    async def test(broker, client):
        await client.declare_topic("more", SCHEMA, durable=True)
        await client.subscribe("kept", "n > 1", name="desk")
        with pytest.raises(errors.SubscriptionExists):
            await client.subscribe("kept", "n > 2", name="desk")
        with pytest.raises(errors.TopicMismatch):
            await client.subscribe("more", "n > 1", name="desk")
        token = uuid.uuid4().bytes
        first = await client.subscribe("kept", name="other", token=token)
        await first.detach()
        assert (await client.subscribe("kept", name="other", token=token)).created
        with pytest.raises(errors.UnknownTopic):
            await client.subscribe("nothing", name="third")
        with pytest.raises(errors.QueryTypeError):
            await client.subscribe("kept", "m > 1", name="third")

    run(test)


def test_a_client_moves_to_another_broker_of_the_cell(postgresql):
    """Puts and gets go on at the other broker, from what both have stored."""

    async def whole():
        async with asyncio.timeout(SECONDS):
            options = {"store": postgresql}
            async with testing.broker(name="b", listen="inproc://cell-b", **options):
                async with testing.broker(name="a", listen="inproc://cell-a", **options):
                    client = await milepost.AsyncClient("inproc://cell-a,inproc://cell-b", timeout=30.0).connect()
                    broker_id = client.broker_id
                    await client.declare_topic("kept", SCHEMA, durable=True)
                    desk = await client.subscribe("kept", name="desk")
                    await client.put_many("kept", rows(range(10)))
                    assert numbers(await desk.get_many(4)) == [0, 1, 2, 3]
                    late = asyncio.create_task(client.put("kept", {"n": 10}))
                    await asyncio.sleep(0)
                await late
                await client.put("kept", {"n": 11})
                found = []
                while len(found) < 8:
                    found += numbers(await desk.get_many(10))
                assert sorted(found) == list(range(4, 12))
                assert client.broker_id == broker_id
                assert sorted(await everything(client)) == list(range(12))
                await client.close()

    asyncio.run(whole())
