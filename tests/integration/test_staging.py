"""Staging over sockets: whatever breaks between staging and publishing, rows are seen once and all of them."""

import asyncio
import shutil
import signal

import pyarrow as pa
import pytest

from milepost import AsyncClient, Client, testing
from milepost.errors import (
    CheckFailed,
    Closed,
    InvalidValue,
    LimitExceeded,
    NotDurable,
    StagingLost,
    UnknownTopic,
)
from milepost.wire import Kind
from tests.integration.proxy import Proxy
from tests.integration.test_failures import EVENT, PATIENCE, Broker, run

WIDE = "event: [n: long, text: string]"


async def seen(client, topic="events"):
    """All numbers that can be read of a topic, in order."""
    logs = (await client.look(topic))["logs"]
    total = sum(each["rows"] for each in logs)
    found = []
    if total:
        replay = await client.subscribe(topic, start="earliest")
        async for batch in replay.batches():
            found += batch.column("n").tolist()
            if len(found) >= total:
                break
        await replay.unsubscribe()
    return found


def events(start, count):
    return [{"n": n} for n in range(start, start + count)]


def test_rows_are_seen_together_and_once():
    async def body():
        async with testing.broker() as broker, AsyncClient(str(broker.address)) as client:
            await client.declare_topic("events", EVENT, durable=True)
            await client.declare_topic("marks", EVENT, durable=True)
            live = await client.subscribe("events")
            desk = await client.subscribe("events", name="desk")
            assert await client.published("job") is None
            assert await client.stage("job", 0, 1, 5, "events", events(10, 3)) == 3
            assert await client.stage("job", 0, 0, 6, "events", iter(events(0, 2))) == 2
            assert await client.stage("job", 0, 0, 6, "events", {"n": [2, 3]}) == 2
            assert await client.stage("job", 0, 0, 6, "marks", events(7, 1)) == 1
            assert await client.stage("job", 0, 0, 9, "events", events(99, 1)) == 1
            assert await client.stage("job", 0, 2, 9, "events", []) == 0
            assert (await client.look("events"))["logs"] == []
            assert await client.publish("job", 0, [(0, 6), (1, 5)], {"marks": events(8, 1)}) == (False, 9)
            assert [message.n for message in await desk.get_many(7, PATIENCE)] == [0, 1, 2, 3, 10, 11, 12]
            assert [(await live.get(PATIENCE)).n for _ in range(7)] == [0, 1, 2, 3, 10, 11, 12]
            assert await seen(client, "marks") == [7, 8]
            assert await client.publish("job", 0, [(0, 6), (1, 5)], {"marks": events(8, 1)}) == (True, 0)
            assert await client.published("job") == 0
            assert await client.stage("job", 0, 0, 7, "events", events(50, 2)) == 2, "thrown away"
            assert await seen(client, "marks") == [7, 8]
            assert await seen(client) == [0, 1, 2, 3, 10, 11, 12]
            identities = set()
            replay = await client.subscribe("events", start="earliest")
            batch = await replay.next_batch()
            identities |= {str(batch.id(row)) for row in range(len(batch))}
            assert len(identities) == 7

    run(body())


def test_what_is_aborted_is_not_seen_and_can_be_done_again():
    async def body():
        async with testing.broker() as broker, AsyncClient(str(broker.address)) as client:
            await client.declare_topic("events", EVENT, durable=True)
            await client.stage("job", 3, 0, 0, "events", events(0, 5))
            await client.unstage("job", 3)
            with pytest.raises(StagingLost, match="part 0"):
                await client.publish("job", 3, [(0, 0)])
            with pytest.raises(StagingLost):
                await client.stage("job", 3, 0, 0, "events", events(0, 5))  # goes on with what is gone
            await client.stage("job", 3, 0, 1, "events", events(0, 5))
            assert (await client.publish("job", 3, [(0, 1)])).rows == 5
            assert await seen(client) == [0, 1, 2, 3, 4]

    run(body())


def test_one_client_stages_and_another_publishes():
    async def body():
        async with testing.broker() as broker, AsyncClient(str(broker.address)) as driver:
            await driver.declare_topic("events", EVENT, durable=True)

            async def task(part):
                async with AsyncClient(str(broker.address)) as client:
                    await client.stage("job", 1, part, part + 10, "events", events(part * 100, 100))

            await asyncio.gather(*(task(part) for part in range(8)))
            assert (await driver.publish("job", 1, [(part, part + 10) for part in range(8)])).rows == 800
            assert await seen(driver) == list(range(800))

    run(body())


def test_a_process_that_starts_again_under_the_same_numbers_begins_anew():
    async def body():
        async with testing.broker() as broker, AsyncClient(str(broker.address)) as driver:
            await driver.declare_topic("events", EVENT, durable=True)
            async with AsyncClient(str(broker.address)) as client:
                await client.stage("job", 1, 0, 0, "events", events(0, 7))
            async with AsyncClient(str(broker.address)) as client:
                await client.stage("job", 1, 0, 0, "events", events(0, 3))
                await client.stage("job", 1, 0, 0, "events", events(3, 3))
            await driver.publish("job", 1, [(0, 0)])
            assert await seen(driver) == list(range(6))

    run(body())


@pytest.mark.parametrize(
    ("direction", "kind"),
    [
        pytest.param("up", Kind.STAGE, id="a piece is lost"),
        pytest.param("down", Kind.REPLY, id="an answer is lost: the piece comes twice"),
        pytest.param("down", Kind.CREDIT, id="credit is lost"),
    ],
)
@pytest.mark.parametrize("name", ["feed", ""], ids=["named", "anonymous"])
def test_whatever_frame_is_lost_rows_are_staged_once(direction, kind, name):
    async def body():
        async with testing.broker(listen="127.0.0.1:0") as broker, Proxy(("127.0.0.1", broker.address.port)) as proxy:
            async with AsyncClient(proxy.address, name=name, timeout=PATIENCE) as client:
                await client.declare_topic("events", WIDE, durable=True)
                source = pa.table({"n": range(60_000), "text": ["x" * 100] * 60_000})  # some pieces
                proxy.lose(direction, kind)
                assert await client.stage("job", 1, 0, 0, "events", source) == 60_000
                assert proxy.cut.is_set()
                for lost in range(2):
                    proxy.lose(direction, kind if kind != Kind.CREDIT else Kind.REPLY)
                    assert await client.stage("job", 1, 0, 0, "events", source.slice(0, 5 + lost)) == 5 + lost
                await client.publish("job", 1, [(0, 0)])
                assert await seen(client) == [*range(60_000), *range(5), *range(6)]

    run(body())


@pytest.mark.parametrize(
    ("direction", "kind"), [("up", Kind.PUBLISH), ("down", Kind.REPLY), ("up", Kind.STAGE)], ids=str
)
def test_whatever_frame_is_lost_an_epoch_is_published_once(direction, kind):
    async def body():
        async with testing.broker(listen="127.0.0.1:0") as broker, Proxy(("127.0.0.1", broker.address.port)) as proxy:
            async with AsyncClient(proxy.address, timeout=PATIENCE) as client:
                await client.declare_topic("events", EVENT, durable=True)
                for epoch in range(3):
                    await client.stage("job", epoch, 0, 0, "events", events(10 * epoch, 5))
                    proxy.lose(direction, kind)
                    extra = {"events": events(10 * epoch + 5, 1)} if kind == Kind.STAGE else None
                    made = await client.publish("job", epoch, [(0, 0)], extra)
                    assert made.repeated == (kind == Kind.REPLY)
                    assert proxy.cut.is_set()
                for lost in (
                    ("up", Kind.UNSTAGE),
                    ("down", Kind.REPLY),
                    ("up", Kind.PUBLISHED),
                    ("down", Kind.REPLY),
                ):
                    proxy.lose(*lost)
                    await client.unstage("job", 3)
                    assert await client.published("job") == 2
                count = 6 if kind == Kind.STAGE else 5
                assert await seen(client) == [10 * epoch + n for epoch in range(3) for n in range(count)]

    run(body())


def test_a_broker_that_is_killed_between_staging_and_publishing_has_everything(tmp_path):
    async def body():
        async with Broker(tmp_path, tmp_path / "log.db") as broker:
            async with AsyncClient(broker.address, timeout=PATIENCE) as client:
                await client.declare_topic("events", EVENT, durable=True)
                await client.stage("job", 0, 0, 0, "events", events(0, 1000))
                await broker.kill()
                await broker.start()
                await client.stage("job", 0, 0, 0, "events", events(1000, 1000))
                assert (await client.publish("job", 0, [(0, 0)])).rows == 2000
                await broker.kill()
                await broker.start()
                assert (await client.publish("job", 0, [(0, 0)])).repeated
                assert await client.published("job") == 0
                assert await seen(client) == list(range(2000))

    run(body())


@pytest.mark.slow
def test_a_broker_that_is_killed_while_it_stages_and_publishes_does_it_once(tmp_path):
    """Killed after a number of answers that differs from round to round; what was under way is done again."""

    async def body():
        async with Broker(tmp_path, tmp_path / "log.db") as broker:
            async with AsyncClient(broker.address, timeout=PATIENCE) as client:
                await client.declare_topic("events", WIDE, durable=True)
                source = pa.table({"n": range(40_000), "text": ["x" * 100] * 40_000})

                async def epochs(first):
                    for epoch in range(first, first + 5):
                        await client.stage("job", epoch, 0, 0, "events", source)
                        await client.publish("job", epoch, [(0, 0)])

                for turn in range(4):
                    working = asyncio.create_task(epochs(5 * turn))
                    for _ in range(3 * turn + 1):  # a question is answered between the others' answers
                        if not working.done():
                            await client.published("job")
                    broker.signal(signal.SIGKILL)
                    await broker.wait()
                    await broker.start()
                    await working
                found = await seen(client)
                assert len(found) == 20 * 40_000
                assert found == list(range(40_000)) * 20

    run(body())


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace, which kills a process at a system call, is missing")
@pytest.mark.parametrize(("call", "when"), [("pwrite64", 1), ("pwrite64", 3), ("fdatasync", 1)])
def test_a_broker_that_dies_in_the_middle_of_publishing_does_it_once(tmp_path, call, when):
    async def body():
        async with Broker(tmp_path, tmp_path / "log.db") as broker:
            async with AsyncClient(broker.address, timeout=PATIENCE) as client:
                await client.declare_topic("events", WIDE, durable=True)
                source = pa.table({"n": range(20_000), "text": ["x" * 100] * 20_000})
                await client.stage("job", 0, 0, 0, "events", source)
                await client.stage("job", 0, 0, 0, "events", [{"n": 20_000, "text": ""}])
                strace = await asyncio.create_subprocess_exec(
                    "strace", "-f", "-p", str(broker.process.pid), "-e", f"trace={call}",
                    "-e", f"inject={call}:signal=KILL:when={when}",
                    stderr=asyncio.subprocess.PIPE,
                )  # fmt: skip
                assert b"attached" in await strace.stderr.readline()
                publishing = asyncio.create_task(client.publish("job", 0, [(0, 0)]))
                await broker.wait()
                await strace.communicate()
                assert not publishing.done()
                await broker.start()
                made = await publishing
                assert made.repeated or made.rows == 20_001
                assert await client.published("job") == 0
                assert await seen(client) == list(range(20_001))

    run(body())


def test_a_broker_of_a_cell_publishes_what_went_to_another(tmp_path, postgresql):
    async def body():
        async with Broker(tmp_path, postgresql, "one") as one, Broker(tmp_path, postgresql, "two") as two:
            async with AsyncClient(f"{one.address},{two.address}", timeout=PATIENCE) as client:
                async with AsyncClient(two.address, timeout=PATIENCE) as other:
                    await client.declare_topic("events", EVENT, durable=True)
                    await client.stage("job", 1, 0, 0, "events", events(0, 50))
                    await other.stage("job", 1, 1, 0, "events", events(50, 50))
                    both = await asyncio.gather(*(each.publish("job", 1, [(0, 0), (1, 0)]) for each in (client, other)))
                    assert sorted(both) == [(False, 100), (True, 0)]
                    await client.stage("job", 2, 0, 0, "events", events(100, 50))
                    await one.kill()
                    assert await client.stage("job", 2, 0, 0, "events", events(150, 50)) == 50
                    assert (await client.publish("job", 2, [(0, 0)])).rows == 100
                    assert sorted(await seen(other)) == list(range(200))

    run(body())


def test_what_cannot_be_is_refused_and_nothing_of_it_is_staged(monkeypatch):
    async def body():
        async with testing.broker() as broker, AsyncClient(str(broker.address)) as client:
            await client.declare_topic("events", "event: [n: long] check (n >= 0)", durable=True)
            await client.declare_topic("live", EVENT)
            for wrong, error in (
                ({"topic": "live"}, NotDurable),
                ({"topic": "nowhere"}, UnknownTopic),
                ({"topic": 5}, InvalidValue),
                ({"source": [{"n": -1}]}, CheckFailed),
                ({"source": [{"m": 1}]}, InvalidValue),
                ({"sink": ""}, Exception),
                ({"sink": "s" * 256}, LimitExceeded),
                ({"sink": None}, InvalidValue),
                ({"epoch": -1}, InvalidValue),
                ({"epoch": 1.0}, InvalidValue),
                ({"part": True}, InvalidValue),
                ({"part": (1 << 63) - 1}, InvalidValue),
                ({"attempt": 1 << 63}, InvalidValue),
            ):
                given = {"sink": "job", "epoch": 1, "part": 0, "attempt": 0, "topic": "events", "source": events(0, 1)}
                with pytest.raises(error):
                    await client.stage(**given | wrong)
            for parts in ([(0, 0), (0, 1)], [0], [(0,)], [(0, -1)]):
                with pytest.raises(InvalidValue):
                    await client.publish("job", 1, parts)
            assert await client.publish("job", 1, []) == (False, 0)
            await client.delete_topic("events")
            with pytest.raises(UnknownTopic):
                await client.stage("job", 2, 0, 0, "events", events(0, 1))
        with pytest.raises(Closed):
            await client.stage("job", 2, 0, 0, "events", events(0, 1))
        with pytest.raises(Closed):
            await client.publish("job", 2, [])

    run(body())


def test_a_message_that_fits_no_frame_is_refused_and_others_are_split():
    async def body():
        async with testing.broker(frame_bytes=65_536) as broker, AsyncClient(str(broker.address)) as client:
            await client.declare_topic("events", WIDE, durable=True)
            rows = [{"n": n, "text": "x" * 20_000} for n in range(20)]
            assert await client.stage("job", 1, 0, 0, "events", rows) == 20
            with pytest.raises(LimitExceeded, match="row 0"):
                await client.stage("job", 1, 0, 0, "events", [{"n": 0, "text": "x" * 65_536}])
            await client.publish("job", 1, [(0, 0)])
            assert await seen(client) == list(range(20))

    run(body())


def test_input_queues_keep_the_order_of_pieces():
    async def body():
        async with testing.broker(input_queues=2) as broker, AsyncClient(str(broker.address)) as client:
            await client.declare_topic("events", EVENT, durable=True)
            for epoch in range(5):
                await asyncio.gather(
                    *(client.stage("job", epoch, 0, 0, "events", events(10 * n, 10)) for n in range(20))
                )
                assert (await client.publish("job", epoch, [(0, 0)])).rows == 200
            assert await seen(client) == list(range(200)) * 5

    run(body())


def test_the_synchronous_client_has_the_same_verbs(tmp_path):
    async def body():
        async with testing.broker(listen="127.0.0.1:0") as broker:
            await asyncio.to_thread(work, str(broker.address))

    def work(address):
        with Client(address) as client:
            client.declare_topic("events", EVENT, durable=True)
            assert client.published("job") is None
            assert client.stage("job", 0, 0, 0, "events", events(0, 3)) == 3
            assert client.publish("job", 0, [(0, 0)], {"events": events(3, 1)}) == (False, 4)
            client.stage("job", 1, 0, 0, "events", events(0, 3))
            client.unstage("job", 1)
            with pytest.raises(StagingLost):
                client.publish("job", 1, [(0, 0)])
            assert client.published("job") == 0

    run(body())


def test_staging_that_is_given_up_ends_at_once_and_the_client_goes_on():
    async def body():
        async with testing.broker(listen="127.0.0.1:0") as broker, Proxy(("127.0.0.1", broker.address.port)) as proxy:
            async with AsyncClient(proxy.address, timeout=PATIENCE) as client:
                await client.declare_topic("events", EVENT, durable=True)
                staging = None

                def rows():
                    for n in range(1_000_000):
                        if n == 20_000:
                            staging.cancel()
                        yield {"n": n}

                staging = asyncio.create_task(client.stage("job", 1, 0, 0, "events", rows()))
                with pytest.raises(asyncio.CancelledError):
                    await staging
                await client.stage("job", 1, 0, 1, "events", events(0, 3))
                await client.publish("job", 1, [(0, 1)])
                assert await seen(client) == [0, 1, 2]

    run(body())
