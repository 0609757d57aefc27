"""Queues without a broker: what a client on a database shares with brokers and others there, and what it has not."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from contextlib import AsyncExitStack

import psycopg
import pytest

from milepost import AsyncClient, Client, testing
from milepost.client.queue_session import QueueSession
from milepost.errors import ConfigError, InvalidValue, TransactionAborted
from milepost.transport import parse_address
from tests.integration.test_failures import PATIENCE, run
from tests.integration.test_queues import QUOTE, drain, fill, quote, sizes

pytestmark = pytest.mark.xdist_group("postgresql")


def on(url, body, clients=2, broker=False):
    """Run `body(*clients)`; with `broker`, the last of them is a client of one on the same database."""

    async def whole():
        async with AsyncExitStack() as stack:
            addresses = [url] * clients
            if broker:
                running = await stack.enter_async_context(testing.broker(listen="127.0.0.1:0", store=url))
                addresses[-1] = str(running.address)
            made = [await stack.enter_async_context(AsyncClient(each, timeout=PATIENCE)) for each in addresses]
            await made[0].declare_type(QUOTE)
            await made[0].declare_queue("quotes", ["quote"])
            await body(*made)

    run(whole())


async def claimed(url, count):
    """Wait until so many hold a log: a server notices when it can that somebody's connection has ended."""
    claims = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND database = " \
        "(SELECT oid FROM pg_database WHERE datname = current_database())"  # fmt: skip
    async with (
        asyncio.timeout(PATIENCE),
        await psycopg.AsyncConnection.connect(url, autocommit=True) as server,
    ):
        while await (await server.execute(claims)).fetchone() != (count,):
            pass


def test_a_broker_and_clients_without_one_share_a_queue(postgresql):
    async def body(here, there, client):
        await fill(here, 1, 2)
        await fill(client, 3)
        async with there.transaction() as mine, client.transaction() as theirs:
            assert sizes(await mine.dequeue("quotes", count=2)) == [1, 2]
            assert sizes(await theirs.dequeue("quotes", count=2)) == [3]
        assert await drain(client) == []

    on(postgresql, body, clients=3, broker=True)


@pytest.mark.parametrize("waits", [0, 1], ids=["without a broker", "at a broker"])
def test_whoever_waits_hears_of_what_comes_on_the_other_way(postgresql, waits):
    async def body(*clients):
        async def next_one():
            async with clients[waits].transaction() as tx:
                return sizes(await tx.dequeue("quotes", timeout=None))

        task = asyncio.create_task(next_one())
        await clients[waits].types()  # behind the dequeue, which finds nothing
        await fill(clients[1 - waits], 7)
        assert await task == [7]

    on(postgresql, body, broker=True)


def test_one_who_waits_in_a_transaction_that_another_task_aborts_takes_nothing(postgresql):
    async def body(client, other):
        tx = client.transaction()
        task = asyncio.create_task(tx.dequeue("quotes", timeout=None))
        await client.types()  # behind the dequeue, which finds nothing
        await tx.abort()
        with pytest.raises(TransactionAborted):
            await task
        await fill(other, 1)
        assert await drain(other) == [1], "nobody has it who was told that he has not"

    on(postgresql, body)


def test_what_is_due_is_for_the_database_to_say(postgresql):
    async def body(client, other):
        for each in (client, other):
            member = each._session.connection._store
            member.time_us._ahead_us += 3_600_000_000  # the clock of this machine jumps
            await member._set_clock()
        async with client.transaction() as tx:
            await tx.enqueue("quotes", quote(1), delay=600)
            await tx.enqueue("quotes", quote(2), expires=600)
        assert await drain(other) == [2]

    on(postgresql, body)


class Member:
    """A broker of a cell, or a client without one, whose own regular writes are stopped; one dequeue waits at it."""

    @classmethod
    async def joined(cls, stack, url, name, brokered):
        self = cls()
        self.broker = None
        if brokered:
            self.clock = testing.FakeClock()
            running = testing.broker(store=url, name=name, clock=self.clock, lease_s=86_400, heartbeat_s=86_400)
            self.broker = await stack.enter_async_context(running)
        self.client = await stack.enter_async_context(AsyncClient(self.broker.uri if brokered else url))
        return self

    async def wait(self):
        async def next_one():
            async with self.client.transaction() as tx:
                return sizes(await tx.dequeue("quotes", timeout=None))

        self.task = asyncio.create_task(next_one())
        while not len(self.waiting):
            await self.client.types()
        if self.broker is None:
            self.member._timer.cancel()
            self.member._writer._timer.cancel()

    @property
    def member(self):
        return self.client._session.connection._store

    @property
    def waiting(self):
        return (self.member.machine if self.broker is None else self.broker.core.queues).waiting

    async def look(self):
        """Hear what others have written, and see what follows to its end."""
        if self.broker is None:
            await self.member._listen()
        else:
            self.clock.advance(0.1)
        while any(line.tried for line in self.waiting._lines.values()) or (self.broker and self.broker._store._polling):
            await self.client.types()


@pytest.mark.parametrize("kinds", [(True, True), (True, False), (False, False)], ids=["brokers", "both", "clients"])
def test_members_of_a_cell_that_wait_in_vain_do_not_wake_each_other(postgresql, kinds):
    async def commits(server):
        return (await (await server.execute("SELECT sum(commits) FROM milepost.logs")).fetchone())[0]

    async def whole():
        async with (
            AsyncExitStack() as stack,
            asyncio.timeout(PATIENCE),
            await psycopg.AsyncConnection.connect(postgresql, autocommit=True) as server,
        ):
            members = [await Member.joined(stack, postgresql, f"m{place}", each) for place, each in enumerate(kinds)]
            first, second = members
            await first.client.declare_type(QUOTE)
            await first.client.declare_queue("quotes", ["quote"])
            for member in members:
                await member.wait()
            for rounds in (15, 25):  # the first sweep of each broker is in the first second, the next one after five
                before = await commits(server)
                for _ in range(rounds):
                    for member in members:
                        await member.look()
            assert await commits(server) == before, "they write for each other to look at"
            await fill(first.client, 1, 2)
            while not all(member.task.done() for member in members):
                for member in members:
                    if not member.task.done():
                        await member.look()
            assert sorted([*first.task.result(), *second.task.result()]) == [1, 2]

    run(whole())


def test_a_catalogue_that_somebody_else_changes_is_seen(postgresql):
    async def body(here, there):
        await fill(there, 1)
        assert await drain(here) == [1]
        await here.delete_queue("quotes")
        await here.declare_queue("quotes", ["quote"], level="ordered", direction="asc")
        await fill(there, 2, 3)
        assert await drain(here) == [2, 3]

    on(postgresql, body)


def test_what_a_killed_process_had_taken_is_there_for_the_next(postgresql):
    holding = (
        "import asyncio, sys, milepost\n"
        "async def main():\n"
        "    async with milepost.AsyncClient(sys.argv[1]) as client:\n"
        "        tx = client.transaction()\n"
        "        await tx.enqueue('quotes', {'symbol': 'A', 'price': 1.0, 'size': 9})\n"
        "        print(len(await tx.dequeue('quotes', count=2)), flush=True)\n"
        "        await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )

    async def body(client):
        await fill(client, 1)
        with subprocess.Popen([sys.executable, "-c", holding, postgresql], stdout=subprocess.PIPE) as process:
            try:
                assert await asyncio.to_thread(process.stdout.readline) == b"2\n"
                assert await drain(client) == [], "what another has taken or not committed is nobody else's"
            finally:
                process.send_signal(signal.SIGKILL)
                await asyncio.to_thread(process.wait)
        await claimed(postgresql, 1)
        async with (
            asyncio.timeout(PATIENCE),
            AsyncClient(postgresql) as next_one,
        ):  # it takes the log over, and recovers
            async with next_one.transaction() as tx:
                (found,) = await tx.dequeue("quotes", count=2, timeout=None)
                assert (found.size, found.deliveries) == (1, 1)

    on(postgresql, body, clients=1)


def test_a_transaction_whose_log_is_taken_over_is_undone_and_the_client_goes_on(postgresql, monkeypatch):
    async def body(client):
        await fill(client, 1)
        tx = client.transaction()
        assert sizes(await tx.dequeue("quotes")) == [1]
        member = client._session.connection._store
        member._timer.cancel()  # what is done now and then would claim its log again
        member._writer._timer.cancel()
        store = member.store
        store._session.connection.connection.driver_connection.close()  # the claim on its log ends with it
        await claimed(postgresql, 0)
        async with AsyncClient(postgresql, timeout=PATIENCE) as other:
            assert other._session.connection._store.store.log == store.log
            with pytest.raises(TransactionAborted):
                await tx.commit()
            assert await drain(other) == [1]
        await fill(client, 2)
        assert await drain(client) == [2]

    on(postgresql, body, clients=1)


def test_a_database_that_ends_its_connections_is_connected_to_again(postgresql):
    async def body(client, other):
        await fill(client, 1)
        for number in (2, 3):
            store = client._session.connection._store.store
            store._session.connection.connection.driver_connection.close()
            await fill(client, number)
        assert await drain(other) == [1, 2, 3]

    on(postgresql, body)


class Stopped:
    """The server's process for a client is stopped; it goes on by itself after a while, should nobody let it."""

    def __init__(self, client):
        store = client._session.connection._store.store
        self.pid = store._session.connection.connection.driver_connection.info.backend_pid
        self._timer = threading.Timer(PATIENCE, self._go_on)

    def __enter__(self):
        os.kill(self.pid, signal.SIGSTOP)
        self._timer.start()
        return self

    def _go_on(self):
        os.kill(self.pid, signal.SIGCONT)

    def __exit__(self, *_):
        assert self._timer.is_alive(), "nothing else went on meanwhile"
        self._timer.cancel()
        self._go_on()


def test_the_event_loop_goes_on_while_the_database_does_not_answer(postgresql):
    async def body(client, other):
        await fill(client, 1, 2)
        tx = client.transaction()
        with Stopped(client):
            task = asyncio.create_task(tx.dequeue("quotes", where="size > 0", order="size desc"))  # asked for first now
            await fill(other, 3)
        assert len(await task) == 1
        await tx.commit()

    on(postgresql, body)


@pytest.mark.parametrize("first", ["enqueue", "dequeue"])
def test_a_commit_whose_connection_is_ended_is_done_once(postgresql, first):
    async def body(client, other):
        await fill(client, 1)
        tx = client.transaction()
        if first == "dequeue":
            assert sizes(await tx.dequeue("quotes")) == [1]
        await tx.enqueue("quotes", quote(2))
        with Stopped(client) as stopped:
            task = asyncio.create_task(tx.commit())
            await other.types()
            async with await psycopg.AsyncConnection.connect(postgresql, autocommit=True) as server:
                await server.execute("SELECT pg_terminate_backend(%s)", [stopped.pid])
        await task
        assert await drain(other) == ([2] if first == "dequeue" else [1, 2])

    on(postgresql, body)


def test_what_needs_a_broker_says_so(postgresql):
    async def body(client):
        for asked in (
            client.declare_topic("quotes", QUOTE),
            client.put("quotes", quote(1)),
            client.subscribe("quotes"),
            client.status(),
            client.topics(),
        ):
            with pytest.raises(ConfigError, match="without a broker"):
                await asked
        await fill(client, 1)
        assert await drain(client) == [1]

    on(postgresql, body, clients=1)


def test_messages_that_need_no_batch_and_those_that_do_are_the_same(postgresql, monkeypatch):
    async def body(client, other):
        await client.declare_type("note: [text: string, size: int?, price: double]")
        await client.declare_queue("notes", ["note"])
        given = [
            {"text": 'it\'s "quoted", \\ and {braced}, NULL', "size": None, "price": -0.0},
            {"text": "", "size": -(1 << 31), "price": 1e300},
            {"text": "NULL", "size": 0, "price": 0.1},
            {"text": "größer", "price": 2},  # not plain enough: it becomes a batch
        ]
        found = []
        for rows in (given[:3], given[3:], given[:3], given[3:]):
            async with client.transaction() as tx:
                await tx.enqueue("notes", rows)
            async with other.transaction() as tx:
                (part,) = await tx.dequeue_batches("notes", count=10)
                assert part.plain == part.batch.to_pylist()
                found.append(part.plain)
            monkeypatch.setattr(QueueSession, "plain_rows", lambda *_: None)
        assert found[:2] == found[2:] == [given[:3], [{"text": "größer", "size": None, "price": 2.0}]]
        for wrong in ({"text": "a\0b", "size": 1, "price": 1.0}, {"text": "a", "size": 1 << 31, "price": 1.0}):
            with pytest.raises(InvalidValue):
                async with client.transaction() as tx:
                    await tx.enqueue("notes", wrong)

    on(postgresql, body)


def test_without_an_event_loop_and_with_a_name(postgresql):
    with Client(postgresql, name="shop") as client:
        client.declare_type(QUOTE)
        client.declare_queue("quotes", ["quote"])
        with client.transaction() as tx:
            first = tx.enqueue("quotes", quote(1))
    with Client(postgresql, name="shop") as client:
        with client.transaction() as tx:
            second = tx.enqueue("quotes", quote(2))
        with client.transaction() as tx:
            assert sizes(tx.dequeue("quotes", count=5)) == [1, 2]
    assert first.mids[0].partition("/")[0] == second.mids[0].partition("/")[0], "one writer over all its lives"


def test_an_address_is_shown_without_its_password():
    address = parse_address("postgresql://shop:secret@db.example:5433/shop?password=secret")
    assert str(address) == "postgresql://shop:***@db.example:5433/shop"
    with pytest.raises(ConfigError, match="mysql"):
        parse_address("mysql://db.example/shop")
