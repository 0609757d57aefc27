"""Bounded reads and holds with real brokers: a range comes whole and once, or somebody is told."""

import asyncio
import queue
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import milepost
from milepost import errors, testing
from milepost.wire import Kind
from tests.integration.proxy import Proxy

SCHEMA = "s: [n: int, who: string?]"
PATIENCE = 240.0  # seconds, for what hangs: nothing here waits for time to pass, and the cores may be busy


def run(test, *, clients=1, window=1 << 20, **options):
    async def whole():
        async with asyncio.timeout(PATIENCE), testing.broker(**options) as broker:
            made = [milepost.AsyncClient(broker.uri, window=window) for _ in range(clients)]
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
    return [{"n": n, "who": "x" * (n % 7) or None} for n in values]


async def fill(client, *sizes):
    """Entries of these sizes, one put each: row n is at offset n. The number of the log."""
    end = 0
    for size in sizes:
        await client.put_many("kept", rows(range(end, end + size)))
        end += size
    ((log,),) = [[each["log"] for each in (await client.look("kept"))["logs"]]]
    return log


async def had(reading):
    """The rows of a read, each of which is where it says it is."""
    found = []
    async for batch in reading:
        assert len(batch)
        assert batch.offsets.tolist() == batch.column("n").tolist()
        found += batch.offsets.tolist()
    return found


def streams(broker):
    return broker.core.durable.subscriptions._serving


def test_a_range_and_nothing_else():
    async def test(broker, client):
        log = await fill(client, 1, 10, 1, 1, 500, 3)
        for start, stop in ((0, 516), (0, 1), (1, 11), (5, 400), (12, 13), (515, 516), (7, 7), (516, 516)):
            assert await had(client.read("kept", {log: start}, {log: stop})) == list(range(start, stop))
        assert await had(client.read("kept", {}, {log: 3})) == [0, 1, 2]
        assert await had(client.read("kept", {log: 5}, {})) == []
        wanted = [n for n in range(5, 400) if n % 50 == 0]
        assert await had(client.read("kept", {log: 5}, {log: 400}, "n % 50 = 0")) == wanted
        assert await had(client.read("kept", {}, {log: 516}, "n < 0")) == []
        assert not streams(broker)
        assert not client._subscriptions.by_number

    run(test)


def test_what_cannot_be_read():
    async def test(broker, client):
        log = await fill(client, 10)
        await client.declare_topic("live", SCHEMA)
        cases = (
            (errors.BrokerError, f"log {log}: that ends at 10", ("kept", {}, {log: 11})),
            (errors.BrokerError, "that ends at 0", ("kept", {}, {log + 5: 1})),
            (errors.InvalidValue, "stops before it", ("kept", {log: 4}, {log: 3})),
            (errors.InvalidValue, "takes positions", ("kept", 0, {log: 3})),
            (errors.InvalidValue, "from 0 on", ("kept", {}, {log: -3})),
            (errors.NotDurable, "live", ("live", {}, {log: 3})),
            (errors.UnknownTopic, "none", ("none", {}, {log: 3})),
            (errors.QueryTypeError, "m", ("kept", {}, {log: 3}, "m > 1")),
            (errors.QuerySyntaxError, "expected", ("kept", {}, {log: 3}, "n >")),
        )
        for kind, why, given_ in cases:
            with pytest.raises(kind, match=why):
                await had(client.read(*given_))
        assert not client._subscriptions.by_number

    run(test)


def test_rows_that_are_gone():
    async def test(broker, client):
        log = await fill(client, 10, 10, 10)
        await client.trim("kept", {log: 15})
        with pytest.raises(errors.RowsGone, match=f"offsets 3 to 14 of log {log} of topic 'kept'") as told:
            await had(client.read("kept", {log: 3}, {log: 20}))
        assert not told.value.retriable
        assert await had(client.read("kept", {log: 15}, {log: 20})) == list(range(15, 20))

    run(test)


def test_rows_that_go_in_the_middle_of_a_read():
    async def whole():
        async with asyncio.timeout(PATIENCE), testing.broker() as broker:
            async with milepost.AsyncClient(broker.uri) as client, milepost.AsyncClient(broker.uri, window=1) as slow:
                await client.declare_topic("kept", SCHEMA, durable=True)
                for first in range(0, 20_000, 1_000):  # far more than is read ahead
                    await client.put_many("kept", [{"n": n, "who": "x" * 1_000} for n in range(first, first + 1_000)])
                reading = slow.read("kept", {}, {1: 20_000})
                found = (await anext(reading)).offsets.tolist()
                await client.trim("kept", {1: 20_000})
                with pytest.raises(errors.RowsGone, match="to 19999 of log 1 of topic 'kept'"):
                    async for batch in reading:
                        found += batch.offsets.tolist()
                assert found == list(range(len(found)))
                assert not streams(broker)

    asyncio.run(whole())


def test_a_topic_that_is_deleted_and_a_client_that_is_closed_end_a_read_with_an_error():
    async def test(broker, client, other):
        log = await fill(client, *[3_000] * 5)
        reading = client.read("kept", {}, {log: 15_000})
        await anext(reading)
        await client.delete_topic("kept")
        with pytest.raises((errors.Closed, errors.UnknownTopic)):
            await had(reading)
        await client.declare_topic("kept", SCHEMA, durable=True)
        log = await fill(client, *[3_000] * 5)
        reading = other.read("kept", {}, {log: 15_000})
        await anext(reading)
        await other.close()
        with pytest.raises(errors.Closed):
            await had(reading)
        again = other.read("kept", {}, {log: 10})
        with pytest.raises(errors.Closed):
            await anext(again)

    run(test, clients=2, window=1)


def test_leaving_early_leaves_nothing_at_the_broker():
    async def whole():
        async with asyncio.timeout(PATIENCE), testing.broker() as broker:
            async with milepost.AsyncClient(broker.uri, window=1) as client:
                await client.declare_topic("kept", SCHEMA, durable=True)
                log = await fill(client, *[3_000] * 10)
                reading = client.read("kept", {}, {log: 30_000})
                await anext(reading)
                assert len(streams(broker)) == 1
                await reading.aclose()
                assert not streams(broker)
                assert not client._subscriptions.by_number
                assert len(await had(client.read("kept", {}, {log: 30_000}))) == 30_000, "its credit came back"

    asyncio.run(whole())


@pytest.mark.parametrize("kind", [Kind.SUBSCRIBE, Kind.REPLY, Kind.HAND, Kind.CREDIT, Kind.ENDED])
@pytest.mark.parametrize("where", [None, "n % 3 = 1"])
def test_a_read_goes_on_whatever_frame_is_lost(kind, where):
    async def whole():
        async with asyncio.timeout(PATIENCE), testing.broker(listen="127.0.0.1:0") as broker:
            async with Proxy(("127.0.0.1", broker.address.port)) as proxy:
                async with milepost.AsyncClient(proxy.address, window=100_000, timeout=PATIENCE) as client:
                    await client.declare_topic("kept", SCHEMA, durable=True)
                    log = await fill(client, *[2_000] * 30)
                    direction = "up" if kind in (Kind.SUBSCRIBE, Kind.CREDIT) else "down"
                    proxy.lose(direction, kind)
                    found = []
                    async for batch in client.read("kept", {log: 7}, {log: 59_990}, where):
                        found += batch.offsets.tolist()
                        if kind == Kind.HAND and len(found) > 20_000 and not proxy.cuts and len(proxy.seen) < 10_000:
                            proxy.seen += [None] * 10_000  # once
                            proxy.lose("down", Kind.HAND)
                    assert found == [n for n in range(7, 59_990) if where is None or n % 3 == 1]
                    assert proxy.cut.is_set()

    asyncio.run(whole())


class Shared:
    """One broker and one client for all examples of a property."""

    def __init__(self):
        self.runner = asyncio.Runner()
        self.context = testing.broker()

    def __enter__(self):
        broker = self.runner.run(self.context.__aenter__())
        self.client = self.runner.run(milepost.AsyncClient(broker.uri, window=20_000).connect())
        return self

    def __exit__(self, *_):
        self.runner.run(self.client.close())
        self.runner.run(self.context.__aexit__(None, None, None))
        self.runner.close()

    def run(self, work):
        return self.runner.run(asyncio.wait_for(work, PATIENCE))


WHERE = {
    None: lambda n: True,
    "n % 3 = 0": lambda n: n % 3 == 0,
    "n > 40 and n < 60": lambda n: 40 < n < 60,
    "n = 17": lambda n: n == 17,
    "who is null": lambda n: n % 7 == 0,
    "n < 0": lambda n: False,
}
SIZES = st.lists(st.one_of(st.just(1), st.integers(1, 40), st.sampled_from([400, 2_000])), min_size=1, max_size=15)


def test_a_read_is_the_same_filter_over_what_was_put():
    with Shared() as shared:

        @settings(max_examples=25)
        @given(sizes=SIZES, data=st.data())
        def check(sizes, data):
            # All is drawn first: an example that is given up in the middle must not leave its rows to the next one.
            reads = []
            for _ in range(4):
                start = data.draw(st.integers(0, sum(sizes)))
                stop = data.draw(st.integers(start, sum(sizes)))
                reads.append((start, stop, data.draw(st.sampled_from(list(WHERE)))))
            shared.run(shared.client.declare_topic("kept", SCHEMA, durable=True))
            try:
                log = shared.run(fill(shared.client, *sizes))
                for start, stop, where in reads:
                    found = shared.run(had(shared.client.read("kept", {log: start}, {log: stop}, where)))
                    assert found == [n for n in range(start, stop) if WHERE[where](n)]
            finally:
                shared.run(shared.client.delete_topic("kept"))

        check()


def test_a_read_goes_on_beside_a_subscription_to_the_same_topic():
    async def test(broker, client):
        await client.subscribe("kept", name="desk", prefetch=10)  # what waits here is of the same window
        log = await fill(client, *[3_000] * 5)
        reading = client.read("kept", {}, {log: 15_000})
        first = await anext(reading)
        assert len(client._subscriptions.by_number) == 2
        assert (await client.get("kept")).n == 0
        assert len(first) + len(await had(reading)) == 15_000
        await client.unsubscribe("kept")

    run(test, window=50_000)


def test_rows_of_an_older_schema_are_read_too():
    async def test(broker, client):
        log = await fill(client, 5, 5)
        await client.declare_topic("kept", "s: [n: int, who: string?, more: int?]", durable=True)
        await client.put_many("kept", [{"n": n, "more": n} for n in range(10, 15)])
        assert await had(client.read("kept", {log: 3}, {log: 13})) == list(range(3, 13))
        assert await had(client.read("kept", {log: 3}, {log: 13}, "more > 10")) == [11, 12]

    run(test)


def test_the_logs_of_other_brokers_of_a_cell(postgresql):
    async def whole():
        async with asyncio.timeout(PATIENCE):
            options = {"store": postgresql, "lease_s": 5.0}
            one = testing.broker(name="a", listen="inproc://read-a", **options)
            two = testing.broker(name="b", listen="inproc://read-b", **options)
            async with one, two:
                async with (
                    milepost.AsyncClient("inproc://read-a") as here,
                    milepost.AsyncClient("inproc://read-b") as there,
                ):
                    await here.declare_topic("kept", SCHEMA, durable=True)
                    await here.put_many("kept", rows(range(100)))
                    await there.put_many("kept", rows(range(1_000, 1_050)))
                    logs = {each["log"]: each["next"] for each in (await here.look("kept"))["logs"]}
                    assert sorted(logs.values()) == [50, 100]
                    mine = next(log for log, end in logs.items() if end == 100)
                    (other,) = logs.keys() - {mine}
                    found = {log: [] for log in logs}
                    async for batch in here.read("kept", {mine: 10}, {mine: 90, other: 40}):
                        found[batch.log] += batch.column("n").tolist()
                    assert found == {mine: list(range(10, 90)), other: list(range(1_000, 1_040))}
                    async for batch in here.read("kept", {}, {other: 50}, "n > 1048"):
                        assert (batch.log, batch.column("n").tolist()) == (other, [1_049])
                    assert await here.hold("kept", "lane", {other: 20}) == {mine: 0, other: 20}
                    assert await there.hold("kept", "lane", {mine: 5}) == {mine: 5, other: 20}

    asyncio.run(whole())


# Holds


async def maintained(broker):
    """All the upkeep there is, in the thread that does it."""
    keeper, loop = broker._store, asyncio.get_running_loop()
    done = loop.create_future()

    def work():
        while keeper.store.maintain(broker.clock.time_us()):
            pass
        loop.call_soon_threadsafe(done.set_result, None)

    keeper._writer.call(work)
    await done


def test_a_hold_keeps_rows_past_their_time_until_it_moves():
    clock = testing.FakeClock()

    async def test(broker, client):
        await client.declare_topic("kept", SCHEMA, retain={"age_s": 10.0})
        log = await fill(client, 10, 10, 10)
        assert await client.hold("kept", "lane") == {log: 0}
        clock.advance(100)
        await maintained(broker)
        assert await had(client.read("kept", {}, {log: 30})) == list(range(30))
        assert await client.hold("kept", "lane", {log: 20}) == {log: 20}
        await maintained(broker)
        with pytest.raises(errors.RowsGone, match="offsets 0 to 19"):
            await had(client.read("kept", {}, {log: 30}))
        assert await had(client.read("kept", {log: 20}, {log: 30})) == list(range(20, 30))
        await client.unsubscribe(name="lane")
        await maintained(broker)
        assert (await client.look("kept"))["logs"][0]["start"] == 30

    run(test, clock=clock, heartbeat_s=1_000.0)


def test_a_hold_is_looked_at_and_is_no_subscription():
    async def test(broker, client):
        log = await fill(client, 10)
        await client.hold("kept", "lane", {log: 4})
        await client.subscribe("kept", name="desk")
        told = {each["name"]: each for each in (await client.look("kept"))["subscriptions"]}
        assert (told["lane"]["hold"], told["lane"]["behind"], told["lane"]["cursor"]) == (True, 6, {log: 4})
        assert not told["desk"]["hold"]
        with pytest.raises(errors.SubscriptionExists, match="is a hold"):
            await client.subscribe("kept", name="lane")
        with pytest.raises(errors.SubscriptionExists, match="no hold"):
            await client.hold("kept", "desk")
        with pytest.raises(errors.BrokerError, match="ends at 10"):
            await client.hold("kept", "lane", {log: 11})
        with pytest.raises(errors.InvalidValue):
            await client.hold("kept", "lane", {log: -1})
        with pytest.raises(errors.BrokerError, match="has a name"):
            await client.hold("kept", "", {log: 1})
        await client.declare_topic("live", SCHEMA)
        with pytest.raises(errors.NotDurable):
            await client.hold("live", "other")
        await client.unsubscribe(name="lane")
        with pytest.raises(errors.UnknownSubscription):
            await client.unsubscribe(name="lane")
        assert await client.hold("kept", "lane") == {log: 0}

    run(test)


# The synchronous client


@pytest.fixture
def address():
    """The address of a broker in another thread, while the test runs."""
    started = queue.Queue()

    async def serve():
        async with testing.broker(listen="milepost://127.0.0.1:0") as broker:
            started.put((broker.uri, asyncio.get_running_loop(), broker))
            await broker.serve()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    uri, loop, broker = started.get(timeout=60)
    yield uri
    loop.call_soon_threadsafe(broker.finish)
    thread.join()


def test_a_plain_loop(address):
    with milepost.Client(address, window=50_000) as client:
        client.declare_topic("kept", SCHEMA, durable=True)
        for first in range(0, 20_000, 1_000):
            client.put_many("kept", rows(range(first, first + 1_000)))
        assert client.hold("kept", "lane") == {1: 0}
        found = [offset for batch in client.read("kept", {1: 5}, {1: 19_000}) for offset in batch.offsets.tolist()]
        assert found == list(range(5, 19_000))
        tables = [batch.to_arrow() for batch in client.read("kept", {}, {1: 20_000}, "n % 1000 = 1")]
        assert [n for table in tables for n in table.column("n").to_pylist()] == list(range(1, 20_000, 1_000))
        for batch in client.read("kept", {}, {1: 20_000}):
            assert batch.log == 1
            break
        assert not client.asynchronous._subscriptions.by_number
        with pytest.raises(errors.BrokerError, match="ends at 20000"):
            next(client.read("kept", {}, {1: 20_001}))
        left = client.read("kept", {}, {1: 20_000})
        next(left)
    left.close()  # the client is closed already, and nothing is left to be done
