"""Everything that can go wrong between a put and a get, one at a time: lost frames, crashes, pauses, lost state."""

import asyncio
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

import milepost
from milepost import AsyncClient, testing
from milepost.errors import (
    CorruptLog,
    NotDurable,
    QueryError,
    StateLost,
    StoreUnavailable,
    TimedOut,
    UnknownSubscription,
    UnknownTopic,
)
from milepost.wire import Kind
from soak.processes import free_port
from tests.integration.proxy import Proxy

EVENT = "event: [n: long]"
PATIENCE = 60.0  # seconds, for what hangs: nothing here waits for time to pass
WHOLE_S = 600.0  # the same for a test: on busy cores a broker takes seconds to start, and some are started ten times


class Broker:
    """A broker in a process of its own, which can be killed, paused and started again."""

    def __init__(self, folder, store, name="milepost", heartbeat_s=30.0):
        self.folder = folder
        self.port = free_port()
        self.name = name
        self.file = folder / f"{name}.toml"
        self.settings = (
            f'[broker]\nname = "{name}"\nstore = "{store}"\nhttp = ""\nzmq = ""\n'
            f"heartbeat_s = {heartbeat_s}\nlease_s = 3.0\n"
        )
        self.process = None

    @property
    def address(self):
        return f"milepost://127.0.0.1:{self.port}"

    async def start(self):
        self.file.write_text(self.settings)
        where = f"127.0.0.1:{self.port}"
        command = [sys.executable, "-m", "milepost.cli", "up", "--listen", where, "--config", str(self.file)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        line = await asyncio.to_thread(self.process.stdout.readline)
        if b"listens on" not in line:
            raise AssertionError(self.process.stderr.read().decode())
        self.port = int(line.split(b"listens on ")[1].split(b",")[0].split(b";")[0].rsplit(b":", 1)[1])

    def signal(self, number):
        os.killpg(self.process.pid, number)

    async def wait(self):
        await asyncio.to_thread(self.process.wait)
        self.process.stdout.close()
        self.process.stderr.close()

    async def kill(self):
        if self.process is not None and self.process.poll() is None:
            self.signal(signal.SIGKILL)
        await self.wait()

    async def __aenter__(self):
        await self.start()
        return self

    async def __aexit__(self, *_):
        await self.kill()


async def received(client, count, topic="events"):
    """The numbers of `count` messages, each taken by a `get` of its own; and that nothing else is there."""
    found = []
    while len(found) < count:
        message = await client.get(topic, timeout=PATIENCE)
        assert message is not None, f"{len(found)} of {count} came"
        found.append(message.n)
    return found


async def nothing_more(client, topic="events"):
    """A last message comes right behind: nothing was between."""
    await client.put(topic, {"n": -1})
    message = await client.get(topic, timeout=PATIENCE)
    assert message.n == -1


def run(body):
    async def limited():
        async with asyncio.timeout(WHOLE_S):
            await body

    asyncio.run(limited())


# Lost frames. The proxy breaks the connection where a frame would have passed, and the client connects again.


@pytest.mark.parametrize(
    ("direction", "kind"),
    [
        pytest.param("up", Kind.PUT, id="the put is lost"),
        pytest.param("down", Kind.STORED, id="its acknowledgement is lost: the post comes twice"),
        pytest.param("down", Kind.HAND, id="the reply to get is lost"),
        pytest.param("up", Kind.ACK, id="the acknowledgement of a get is lost"),
        pytest.param("down", Kind.REPLY, id="the reply to an acknowledgement is lost"),
    ],
)
@pytest.mark.parametrize("name", ["feed", ""], ids=["named", "anonymous"])
def test_whatever_frame_is_lost_a_message_arrives_once(direction, kind, name):
    async def body():
        async with testing.broker(listen="127.0.0.1:0") as broker, Proxy(("127.0.0.1", broker.address.port)) as proxy:
            async with AsyncClient(proxy.address, name=name, timeout=PATIENCE) as client:
                await client.declare_topic("events", EVENT, durable=True)
                await client.subscribe("events", name="desk", prefetch=1)
                await client.put("events", {"n": 0})
                assert await received(client, 1) == [0]
                proxy.lose(direction, kind)
                await client.put("events", {"n": 1})
                assert await received(client, 1) == [1]
                await client.put_many("events", [{"n": n} for n in range(2, 10)])
                assert await received(client, 8) == list(range(2, 10))
                assert proxy.cut.is_set()
                await nothing_more(client)

    run(body())


@pytest.mark.parametrize("lost", [Kind.SUBSCRIBE, Kind.REPLY])
def test_a_subscribe_that_is_repeated_has_the_effect_it_had(lost):
    async def body():
        async with testing.broker(listen="127.0.0.1:0") as broker, Proxy(("127.0.0.1", broker.address.port)) as proxy:
            async with AsyncClient(proxy.address, name="desk", timeout=PATIENCE) as client:
                async with AsyncClient(str(broker.address)) as other:
                    await other.declare_topic("events", EVENT, durable=True)
                    await other.put("events", {"n": 0})
                    proxy.lose("up" if lost == Kind.SUBSCRIBE else "down", lost)
                    await client.subscribe("events", name="desk")
                    await other.put("events", {"n": 1})
                    assert await received(client, 1) == [1], "it begins where it began the first time"
                    proxy.lose("down", Kind.REPLY)
                    await client.unsubscribe("events")
                    with pytest.raises(UnknownSubscription):
                        await client.subscribe("events", name="desk", create=False)

    run(body())


def test_several_topics_at_once_are_stored_once_whatever_is_lost():
    async def body():
        async with testing.broker(listen="127.0.0.1:0") as broker, Proxy(("127.0.0.1", broker.address.port)) as proxy:
            async with AsyncClient(proxy.address, name="feed", timeout=PATIENCE) as client:
                for topic in ("a", "b"):
                    await client.declare_topic(topic, EVENT, durable=True)
                    await client.subscribe(topic, name=topic)
                for number, (direction, kind) in enumerate([("up", Kind.PUT), ("down", Kind.STORED)]):
                    proxy.lose(direction, kind)
                    async with client.atomic() as together:
                        together.put("a", {"n": number})
                        together.put_many("b", [{"n": number}, {"n": number + 10}])
                assert await received(client, 2, "a") == [0, 1]
                assert await received(client, 4, "b") == [0, 10, 1, 11]
                await nothing_more(client, "a")
                await nothing_more(client, "b")

    run(body())


# Crashes


def test_a_broker_that_is_killed_comes_back_with_everything(tmp_path):
    async def body():
        async with Broker(tmp_path, tmp_path / "log.db") as broker:
            async with AsyncClient(broker.address, name="feed", timeout=PATIENCE) as client:
                await client.declare_topic("events", EVENT, durable=True)
                await client.subscribe("events", name="desk")
                await client.put_many("events", [{"n": n} for n in range(100)])
                assert await received(client, 10) == list(range(10))
                await broker.kill()
                await broker.start()
                await client.put("events", {"n": 100})
                assert await received(client, 91) == list(range(10, 101))
                await nothing_more(client)

    run(body())


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace, which kills a process at a system call, is missing")
@pytest.mark.parametrize("call", ["fdatasync", "pwrite64"])
def test_a_broker_that_dies_while_saving_loses_nothing(tmp_path, call):
    """What the seed of this design loses: here, what was acknowledged is there, and what was not is put again, once."""

    async def body():
        async with Broker(tmp_path, tmp_path / "log.db") as broker:
            async with AsyncClient(broker.address, name="feed", timeout=PATIENCE) as client:
                await client.declare_topic("events", EVENT, durable=True)
                await client.subscribe("events", name="desk")
                total = 0
                for when in (1, 2, 3, 4):
                    strace = await asyncio.create_subprocess_exec(
                        "strace", "-f", "-p", str(broker.process.pid), "-e", f"trace={call}",
                        "-e", f"inject={call}:signal=KILL:when={when}",
                        stderr=asyncio.subprocess.PIPE,
                    )  # fmt: skip
                    assert b"attached" in await strace.stderr.readline()
                    putting = [client.put_many("events", [{"n": total + n} for n in range(20)])]
                    putting += [client.put("events", {"n": 1000 + total + n}) for n in range(20)]
                    together = asyncio.gather(*putting)
                    dead = asyncio.create_task(broker.wait())
                    while not dead.done():
                        extra = asyncio.create_task(client.put("events", {"n": -2}))
                        await asyncio.wait([dead, extra], return_when="FIRST_COMPLETED")
                    await strace.communicate()
                    await broker.start()
                    await asyncio.gather(together, extra)
                    total += 20
                await client.put("events", {"n": -3})
                found = []
                while (message := await client.get("events", timeout=PATIENCE)).n != -3:
                    found.append(message.n)
                assert [n for n in found if 0 <= n < 1000] == list(range(total)), "each once, in order"
                assert sorted(n for n in found if n >= 1000) == list(range(1000, 1000 + total)), "each once"

    run(body())


def test_a_publisher_that_is_killed_and_starts_again_goes_on_where_it_was(tmp_path):
    """Two processes of one name, one after the other: the second is told how far the first had got."""

    async def body():
        async with testing.broker(listen="127.0.0.1:0", store=str(tmp_path / "log.db")) as broker:
            program = (
                "import sys, asyncio, milepost\n"
                "async def main():\n"
                "    async with milepost.AsyncClient(sys.argv[1], name='feed') as client:\n"
                "        await client.put_many('events', [{'n': n} for n in range(5)])\n"
                "        print('stored', flush=True)\n"
                "        await client.put_many('events', ({'n': n} for n in range(5, 10_000_000)))\n"
                "asyncio.run(main())\n"
            )
            async with AsyncClient(str(broker.address)) as client:
                await client.declare_topic("events", EVENT, durable=True)
                subscription = await client.subscribe("events", name="desk")
                process = await asyncio.create_subprocess_exec(
                    sys.executable, "-c", program, str(broker.address), stdout=asyncio.subprocess.PIPE
                )
                assert await process.stdout.readline() == b"stored\n"
                process.kill()
                await process.wait()
                async with AsyncClient(str(broker.address), name="feed") as second:
                    await second.put("events", {"n": -1})
                    found = []
                    async for message in subscription:
                        found.append(message.n)
                        if message.n == -1:
                            break
                assert found[:5] == list(range(5))
                assert found[:-1] == list(range(len(found) - 1)), "no hole, and nothing twice"

    run(body())


def test_state_that_is_lost_is_an_error_the_application_sees(tmp_path):
    async def body():
        async with Broker(tmp_path, tmp_path / "log.db") as broker:
            async with AsyncClient(broker.address, name="feed", timeout=PATIENCE) as client:
                await client.declare_topic("events", EVENT, durable=True)
                await client.put("events", {"n": 1})
                before = client.broker_id
                await broker.kill()
                for file in tmp_path.glob("log.db*"):
                    file.unlink()
                await broker.start()
                with pytest.raises(StateLost, match="broker"):
                    await client.put("events", {"n": 2})
            async with AsyncClient(broker.address) as another:
                assert another.broker_id not in ("", before)
            with pytest.raises(StateLost):
                await AsyncClient(broker.address, known_broker_id=before).connect()
            await broker.kill()
            await broker.start()
            async with AsyncClient(broker.address) as third:
                assert third.broker_id == another.broker_id, "it changes only when state was lost"

    run(body())


# Several brokers on one PostgreSQL


def test_a_paused_broker_that_resumes_its_commit_stores_nothing_twice(tmp_path, postgresql):
    """The client has moved to another broker of the same database meanwhile, and put everything there again."""
    import psycopg

    async def body():
        first = Broker(tmp_path, postgresql, "first", heartbeat_s=1.5)  # three of them: gone, and not only slow
        second = Broker(tmp_path, postgresql, "second")
        async with first, second:
            # A paused broker takes connections, and says nothing: the client gives it these seconds.
            async with AsyncClient(f"{first.address},{second.address}", name="feed", timeout=5.0) as client:
                await client.declare_topic("events", EVENT, durable=True)
                await client.put_many("events", [{"n": n} for n in range(10)])
                with psycopg.connect(postgresql) as lock:
                    # Whoever holds the row of the first broker's log holds its transactions up, right after they began.
                    lock.execute("SELECT * FROM milepost.logs WHERE name = 'first' FOR UPDATE")
                    putting = asyncio.create_task(client.put_many("events", [{"n": n} for n in range(10, 20)]))
                    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                    with psycopg.connect(postgresql, autocommit=True) as watch:
                        while watch.execute(waiting).fetchone()[0] == 0:
                            await asyncio.sleep(0)
                    first.signal(signal.SIGSTOP)
                await putting  # through the second broker
                await client.put("events", {"n": 20})
                first.signal(signal.SIGCONT)
                async with AsyncClient(second.address, timeout=PATIENCE) as reader:
                    await reader.subscribe("events", name="desk", start="earliest")
                    assert await received(reader, 21) == list(range(21))
                async with AsyncClient(first.address, name="other", timeout=PATIENCE) as writer:
                    await writer.put("events", {"n": 21})  # the first one is alive, and has finished what it was at
                async with AsyncClient(second.address, timeout=PATIENCE) as reader:
                    await reader.subscribe("events", name="desk", create=False)
                    assert await received(reader, 1) == [21]
                    await nothing_more(reader)

    run(body())


def test_a_database_that_goes_away_comes_back_with_everything(tmp_path, postgresql, postgresql_server):
    async def body():
        async with Broker(tmp_path, postgresql) as broker:
            async with AsyncClient(broker.address, name="feed", timeout=PATIENCE) as client:
                await client.declare_topic("events", EVENT, durable=True)
                await client.subscribe("events", name="desk")
                await client.put_many("events", [{"n": n} for n in range(10)])
                assert await received(client, 5) == list(range(5))
                await asyncio.to_thread(postgresql_server.stop)
                try:
                    putting = asyncio.create_task(client.put("events", {"n": 10}))
                    with pytest.raises((StoreUnavailable, TimedOut)):
                        await asyncio.create_task(AsyncClient(broker.address, name="late", timeout=1.0).connect())
                finally:
                    await asyncio.to_thread(postgresql_server.start)
                try:
                    await putting
                except StoreUnavailable:  # it took longer than the broker waits: the application puts it again
                    await client.put("events", {"n": 10})
                assert await received(client, 6) == list(range(5, 11))
                await nothing_more(client)

    run(body())


# A log that is damaged


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(
            "UPDATE entries SET data = CAST(substr(data, 1, 40) || X'FF' || substr(data, 42) AS BLOB)", id="changed"
        ),
        pytest.param("UPDATE entries SET data = substr(data, 1, 40)", id="cut off"),
        pytest.param("DELETE FROM entries", id="missing"),
        pytest.param("UPDATE entries SET rows = 3", id="another length"),
    ],
)  # fmt: skip
def test_a_damaged_log_is_reported_and_nothing_is_skipped_in_silence(tmp_path, damage):
    async def body():
        store = tmp_path / "log.db"
        async with testing.broker(store=str(store)) as broker, AsyncClient(broker.uri) as client:
            for topic in ("events", "others"):
                await client.declare_topic(topic, EVENT, durable=True)
                for start in (0, 10, 20):
                    await client.put_many(topic, [{"n": n} for n in range(start, start + 10)])
        with closing(sqlite3.connect(store)) as database:
            (number,) = database.execute("SELECT number FROM topics WHERE name = 'events'").fetchone()
            assert database.execute(f"{damage} WHERE first = 10 AND topic = {number}").rowcount == 1
            database.commit()
        async with testing.broker(store=str(store)) as broker, AsyncClient(broker.uri) as client:
            await client.subscribe("events", name="desk", start="earliest")
            await client.subscribe("others", name="other", start="earliest")
            assert await received(client, 30, "others") == list(range(30)), "other topics are not concerned"
            found = []
            with pytest.raises(CorruptLog, match=r"offset 10.*trim") as raised:
                while True:
                    found += [message.n for message in await client.get_many("events", 100, timeout=PATIENCE)]
            assert not raised.value.retriable
            assert found == list(range(10)), "what is before the damage, and nothing behind it"
            await client.put("events", {"n": 30})
            await client.trim("events", {1: 20})
            subscription = await client.subscribe("events", name="desk")
            assert await received(client, 11) == list(range(20, 31))
            assert sum(after - first for _, first, after in subscription.lost) == 10, "and it was told"

    run(body())


# Bad input


def test_what_cannot_be_says_which_and_what_to_do():
    async def body():
        async with testing.broker() as broker, AsyncClient(broker.uri, name="feed") as client:
            with pytest.raises(UnknownTopic, match="nowhere"):
                await client.subscribe("nowhere", name="desk")
            await client.declare_topic("live", EVENT)
            with pytest.raises(NotDurable, match="live"):
                await client.subscribe("live", name="desk")
            await client.declare_topic("events", EVENT, durable=True)
            with pytest.raises(QueryError):
                await client.subscribe("events", "m > 1", name="desk")
            with pytest.raises(UnknownSubscription, match="desk"):
                await client.subscribe("events", name="desk", create=False)
            with pytest.raises(milepost.errors.BrokerError, match="offset 5"):
                await client.subscribe("events", name="desk", start={1: 5})
            with pytest.raises(milepost.errors.InvalidValue):
                await client.put("events", {"n": "many"})
            await client.put("events", {"n": 1})
            subscription = await client.subscribe("events", name="desk", start="earliest", ack="explicit")
            message = await subscription.get(timeout=PATIENCE)
            assert message.n == 1
        async with testing.broker(store="") as broker, AsyncClient(broker.uri) as client:
            with pytest.raises(NotDurable, match="--store"):
                await client.declare_topic("events", EVENT, durable=True)

    run(body())
