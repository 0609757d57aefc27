"""A PostgreSQL that is away, stopped or frozen: one rule for all calls, with a broker and without.

A call waits until the server is back, for the broker's lease at most, and then fails with `store_unavailable`. After
that, calls fail at once, until the server is back. The limit is made short for the first, and longer than the test for
the second: a call that would wait then hangs.
"""

import asyncio
import signal
import uuid
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from milepost import AsyncClient, Client, testing
from milepost.errors import OutcomeUnknown, StoreUnavailable, TransactionAborted
from milepost.gateway.zmq import Gateway
from milepost.operations import Append, AppendRows, Move
from milepost.operations.queues import Perform
from tests.integration.test_failures import EVENT, PATIENCE, Broker, run
from tests.integration.test_queues import QUOTE, drain, fill, quote
from tests.integration.test_staging import seen
from tests.integration.test_zeromq import connected

pytestmark = pytest.mark.xdist_group("postgresql")

SHORT_S = 0.3
LONG_S = 3_600.0
WAYS = ["stopped", "frozen"]


class Away:
    """Takes the server away, and brings it back; `outages` are those of the stores that are concerned."""

    def __init__(self, server, how, *outages):
        self.server = server
        self.how = how
        self.outages = outages
        self.gone = False

    async def go(self):
        """Nobody has noticed when this returns; each call then waits for a moment, whatever the lease is."""
        self.limit(SHORT_S)
        await asyncio.to_thread(self.take)

    def take(self):
        self.gone = True
        (self.server.stop if self.how == "stopped" else self.server.freeze)()

    async def noticed(self, call):
        """Wait until calls are refused; from then on none of them may wait."""
        while True:
            with pytest.raises(StoreUnavailable):
                await call()
            if all(outage._refusing for outage in self.outages):
                break
        self.limit(LONG_S)

    async def come_back(self):
        self.limit(LONG_S)
        self.gone = False
        await asyncio.to_thread(self.server.start if self.how == "stopped" else self.server.thaw)

    def limit(self, seconds):
        for outage in self.outages:
            outage.limit_s = seconds

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        if self.gone:
            await self.come_back()


def outage_of(store):
    return store._database.outage


def own_outage(client):
    """That of a client without a broker."""
    return outage_of(client._session.connection._store.store)


async def until_it_is_back(call):
    """Again and again, as an application may: what failed with `store_unavailable` is not done."""
    while True:
        try:
            return await call()
        except StoreUnavailable:
            await asyncio.sleep(0)


# With a broker


class Rig:
    """A client with one of everything, which was made while the store was there."""

    def __init__(self, broker, client):
        self.broker = broker
        self.client = client

    async def prepare(self):
        client = self.client
        await client.declare_topic("events", EVENT, durable=True)
        await client.declare_topic("acked", EVENT, durable=True)
        await client.declare_topic("live", EVENT)
        await client.declare_type(QUOTE)
        await client.declare_queue("quotes", ["quote"])
        await fill(client, 1, 2, 3)
        self.auto = await client.subscribe("acked", name="auto", prefetch=1)
        self.explicit = await client.subscribe("acked", name="explicit", ack="explicit")
        await client.put_many("acked", [{"n": 1}, {"n": 2}])
        await client.put("events", {"n": 0})
        self.message = await self.explicit.get(timeout=PATIENCE)
        while client.statistics().rows_delivered < 3:  # all are here before the store goes
            await client.status()
        self.filled = client.transaction()
        await self.filled.enqueue("quotes", quote(9))
        self.stages = 0
        return self

    # Each is a call of an application. Called again, it does the same again.

    async def put(self):
        await self.client.put("events", {"n": 1})

    async def put_and_flush(self):
        await self.client.put("events", {"n": 1}, wait=False)
        await self.client.flush()

    async def put_many(self):
        await self.client.put_many("events", [{"n": 1}, {"n": 2}])

    async def put_with_a_key(self):
        await self.client.put("events", {"n": 1}, key=uuid.uuid4())

    async def atomic(self):
        async with self.client.atomic() as together:
            together.put("events", {"n": 1})
            together.put("acked", {"n": 3})

    async def get(self):
        assert (await self.auto.get(timeout=PATIENCE)).n == 1

    async def ack(self):
        await self.explicit.ack(self.message)

    async def subscribe_named(self):
        subscription = await self.client.subscribe("events", name="late", start="earliest")
        assert (await subscription.get(timeout=PATIENCE)).n == 0

    async def subscribe_from_a_start(self):
        subscription = await self.client.subscribe("events", start="earliest")
        assert (await subscription.get(timeout=PATIENCE)).n == 0

    async def unsubscribe(self):
        await self.client.unsubscribe("acked", name="explicit")

    async def declare_topic(self):
        await self.client.declare_topic("made", EVENT, durable=True)

    async def delete_topic(self):
        await self.client.delete_topic("acked")

    async def look(self):
        assert (await self.client.look("events"))["logs"]

    async def read(self):
        log = self.broker._store.store.log
        assert [len(batch) async for batch in self.client.read("events", {log: 0}, {log: 1})] == [1]

    async def trim(self):
        assert await self.client.trim("events", 1) == 1

    async def stage_and_publish(self):
        self.stages += 1
        await self.client.stage("sink", 0, 0, self.stages, "events", [{"n": 1}])
        await self.client.publish("sink", 0, [(0, self.stages)])

    async def enqueue_and_commit(self):
        async with self.client.transaction() as tx:
            await tx.enqueue("quotes", quote(4))

    async def commit_what_was_enqueued(self):
        try:
            await self.filled.commit()
        except TransactionAborted:  # it was undone when the store was away: the whole is done again
            async with self.client.transaction() as tx:
                await tx.enqueue("quotes", quote(9))

    async def dequeue(self):
        async with self.client.transaction() as tx:
            assert len(await tx.dequeue("quotes")) == 1

    async def dequeue_and_wait(self):
        async with self.client.transaction() as tx:
            assert len(await tx.dequeue("quotes", timeout=PATIENCE)) == 1

    async def peek(self):
        assert len(await self.client.peek("quotes")) == 1

    async def browse(self):
        assert [found async for found in self.client.browse("quotes")]

    async def queues(self):
        assert [each.name for each in await self.client.queues()] == ["quotes"]

    async def declare_queue(self):
        await self.client.declare_queue("more", ["quote"])

    async def connect_with_a_name(self):
        async with AsyncClient(str(self.broker.address), name="someone", timeout=PATIENCE) as other:
            await other.topics()


CALLS = [name for name in vars(Rig) if not name.startswith("_") and name != "prepare"]
READING = ["look", "read", "peek", "browse", "subscribe_from_a_start"]
REMOVING = ["trim", "unsubscribe", "delete_topic"]
WITHOUT_A_BROKER = [
    "enqueue_and_commit", "commit_what_was_enqueued", "dequeue", "dequeue_and_wait", "peek", "browse", "queues",
    "declare_queue",
]  # fmt: skip


@asynccontextmanager
async def brokered(url, server, how):
    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(testing.broker(listen="127.0.0.1:0", store=url))
        client = await stack.enter_async_context(AsyncClient(str(broker.address), timeout=PATIENCE))
        rig = await Rig(broker, client).prepare()
        yield rig, await stack.enter_async_context(Away(server, how, outage_of(broker._store.store)))


@pytest.mark.parametrize("how", WAYS)
def test_every_call_fails_at_once_while_the_store_is_away_and_succeeds_when_it_is_back(
    postgresql, postgresql_server, how
):
    async def body():
        async with brokered(postgresql, postgresql_server, how) as (rig, away):
            live = await rig.client.subscribe("live")
            await away.go()
            await away.noticed(rig.look)
            failed = []
            for name in CALLS:
                try:
                    await getattr(rig, name)()
                except StoreUnavailable:
                    failed.append(name)
            assert failed == CALLS
            # What needs no store goes on, on the same connections.
            await rig.client.put("live", {"n": 5})
            async for message in live:
                assert message.n == 5
                break
            assert await rig.client.topics()
            await away.come_back()
            assert rig.client.statistics().reconnects == 0
            for name in [*(name for name in CALLS if name not in REMOVING), *REMOVING]:
                await until_it_is_back(getattr(rig, name))

    run(body())


@pytest.mark.parametrize("how", WAYS)
def test_calls_that_came_before_it_was_noticed_fail_together_and_a_commit_in_doubt_is_told_when_it_is_known(
    postgresql, postgresql_server, how
):
    async def body():
        async with brokered(postgresql, postgresql_server, how) as (rig, away):
            await away.go()
            calls = [name for name in CALLS if name not in (*REMOVING, "get", "dequeue_and_wait")]
            tasks = {name: asyncio.create_task(getattr(rig, name)()) for name in calls}
            await asyncio.wait([tasks[name] for name in READING])  # what only reads is never in doubt
            await away.noticed(rig.look)
            for name, task in tasks.items():
                if task.done():
                    assert isinstance(task.exception(), StoreUnavailable), name
            await away.come_back()
            outcomes = dict(zip(calls, await asyncio.gather(*tasks.values(), return_exceptions=True), strict=True))
            assert all(isinstance(each, StoreUnavailable | None) for each in outcomes.values()), outcomes
            wanted = [0]
            for name, rows in {"put": 1, "put_and_flush": 1, "put_with_a_key": 1, "atomic": 1}.items():
                wanted += [1] * rows if outcomes[name] is None else []
            wanted += [1, 2] if outcomes["put_many"] is None else []
            wanted += [1] if outcomes["stage_and_publish"] is None else []
            assert sorted(await until_it_is_back(lambda: seen(rig.client))) == sorted(wanted)

    run(body())


class AtCommit:
    """Takes the server away when a store is about to commit operations of some kind: what comes of them is in doubt."""

    def __init__(self, away, store, *kinds):
        self.away = away
        self.store = store
        self.kinds = kinds
        self.now = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        away.limit(SHORT_S)
        store._session.commit_at_once = self

    def __call__(self):
        if any(isinstance(each, self.kinds) for each in self.store._operations):
            del self.store._session.commit_at_once
            self.away.take()
            self._loop.call_soon_threadsafe(self.now.set)
        return False


IN_DOUBT = {
    "put": (Append, AppendRows), "put_and_flush": (Append, AppendRows), "get": (Move,), "ack": (Move,),
    "enqueue_and_commit": (Perform,), "dequeue": (Perform,),
}  # fmt: skip


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("call", IN_DOUBT)
def test_a_call_whose_commit_is_in_doubt_is_done_once_when_the_store_is_back(postgresql, postgresql_server, call, how):
    async def body():
        async with brokered(postgresql, postgresql_server, how) as (rig, away):
            commit = AtCommit(away, rig.broker._store.store, *IN_DOUBT[call])
            task = asyncio.create_task(getattr(rig, call)())
            await commit.now.wait()
            await away.noticed(rig.look)
            for other in ("put_with_a_key", "ack", "enqueue_and_commit"):
                if other != call:
                    with pytest.raises(StoreUnavailable):  # others are refused all the same, on the same connection
                        await getattr(rig, other)()
            assert not task.done()
            await away.come_back()
            await task
            assert rig.client.statistics().reconnects == 0
            await until_it_is_back(rig.look)
            assert sorted(await seen(rig.client)) == ([0, 1] if call.startswith("put") else [0])
            queued = {"enqueue_and_commit": [1, 2, 3, 4], "dequeue": [2, 3]}.get(call, [1, 2, 3])
            assert await drain(rig.client) == queued
            await until_it_is_back(rig.put)
            if call != "ack":
                await rig.ack()
            assert (await rig.auto.get(timeout=PATIENCE)).n == (2 if call == "get" else 1)

    run(body())


# Without a broker


@pytest.mark.parametrize("how", WAYS)
def test_without_a_broker_the_rule_is_the_same(postgresql, postgresql_server, how):
    async def body():
        async with AsyncClient(postgresql, timeout=PATIENCE) as client:
            await client.declare_type(QUOTE)
            await client.declare_queue("quotes", ["quote"])
            await fill(client, 1, 2, 3)
            rig = Rig(None, client)
            rig.filled = client.transaction()
            await rig.filled.enqueue("quotes", quote(9))
            async with Away(postgresql_server, how, own_outage(client)) as away:
                await away.go()
                await away.noticed(rig.peek)
                failed = []
                for name in WITHOUT_A_BROKER:
                    try:
                        await getattr(rig, name)()
                    except StoreUnavailable:
                        failed.append(name)
                assert failed == WITHOUT_A_BROKER
                await away.come_back()
                for name in WITHOUT_A_BROKER:
                    await until_it_is_back(getattr(rig, name))

    run(body())


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("call", ["enqueue_and_commit", "dequeue"])
def test_without_a_broker_a_commit_in_doubt_is_done_once(postgresql, postgresql_server, call, how):
    async def body():
        async with AsyncClient(postgresql, timeout=PATIENCE) as client:
            await client.declare_type(QUOTE)
            await client.declare_queue("quotes", ["quote"])
            await fill(client, 1, 2)
            rig = Rig(None, client)
            async with Away(postgresql_server, how, own_outage(client)) as away:
                commit = AtCommit(away, client._session.connection._store.store, Perform)
                task = asyncio.create_task(getattr(rig, call)())
                await commit.now.wait()
                await away.noticed(rig.peek)
                with pytest.raises(StoreUnavailable):
                    await rig.dequeue()
                assert not task.done()
                await away.come_back()
                await task
            found = await until_it_is_back(lambda: drain(client))
            assert found == ([1, 2, 4] if call == "enqueue_and_commit" else [2])

    run(body())


def test_a_client_that_leaves_with_a_commit_in_doubt_says_that_nobody_knows(postgresql, postgresql_server):
    async def body():
        async with AsyncClient(postgresql, timeout=PATIENCE) as client:
            await client.declare_type(QUOTE)
            await client.declare_queue("quotes", ["quote"])
            async with Away(postgresql_server, "frozen", own_outage(client)) as away:
                commit = AtCommit(away, client._session.connection._store.store, Perform)
                task = asyncio.create_task(Rig(None, client).enqueue_and_commit())
                await commit.now.wait()
                await away.noticed(client.queues)
                await client.close()
                with pytest.raises(OutcomeUnknown):
                    await task

    run(body())


@pytest.mark.parametrize("how", WAYS)
def test_a_dequeue_that_waits_without_a_broker_hears_that_the_store_is_away_and_the_client_leaves(
    postgresql, postgresql_server, how
):
    async def body():
        async with AsyncClient(postgresql, timeout=PATIENCE) as client:
            await client.declare_type(QUOTE)
            await client.declare_queue("quotes", ["quote"])
            tx = client.transaction()
            waiting = asyncio.create_task(tx.dequeue("quotes", timeout=None))
            await client.queues()
            async with Away(postgresql_server, how, own_outage(client)) as away:
                await away.go()
                with pytest.raises(StoreUnavailable):
                    await waiting
                await client.close()  # while it is away

    run(body())


def test_a_client_without_an_event_loop_has_the_same_rule(postgresql, postgresql_server):
    with Client(postgresql, timeout=PATIENCE) as client:
        client.declare_type(QUOTE)
        client.declare_queue("quotes", ["quote"])
        outage = own_outage(client.asynchronous)
        outage.limit_s = SHORT_S
        postgresql_server.freeze()
        try:
            with pytest.raises(StoreUnavailable):
                client.peek("quotes")
            outage.limit_s = LONG_S
            with pytest.raises(StoreUnavailable), client.transaction() as tx:
                tx.enqueue("quotes", quote(1))
        finally:
            postgresql_server.thaw()
        while True:
            try:
                with client.transaction() as tx:
                    tx.enqueue("quotes", quote(1))
                break
            except StoreUnavailable:
                pass
        assert len(client.peek("quotes", count=10)) == 1


# ZeroMQ


@pytest.mark.parametrize("how", WAYS)
def test_requests_over_zeromq_are_refused_and_may_be_repeated(postgresql, postgresql_server, how):
    async def body():
        async with testing.broker(listen="127.0.0.1:0", store=postgresql) as broker:
            async with (
                Gateway(str(broker.address), "127.0.0.1:0") as gateway,
                connected(gateway.address) as asking,
                AsyncClient(str(broker.address)) as client,
                Away(postgresql_server, how, outage_of(broker._store.store)) as away,
            ):
                await asking.ask("SUB", sub_id="s", topic="t")
                await asking.put("t", b"one")
                assert await asking.get() == (1, b"one")
                key = str(uuid.uuid4())

                def requests():
                    yield asking.ask("ACK", sub_id="s", message_no=1)
                    yield asking.put("t", b"two", key)
                    yield asking.ask("SUB", sub_id="other", topic="t")

                await away.go()
                await away.noticed(lambda: client.look("t"))
                for request in requests():
                    said = await request
                    assert (said["code"], said["retry"]) == ("store_unavailable", True)
                await away.come_back()
                await until_it_is_back(lambda: client.look("t"))
                for request in requests():
                    assert "error_type" not in await request
                assert await asking.take() == (2, b"two")

    run(body())


# The end of a broker


@pytest.mark.slow
@pytest.mark.parametrize("busy", [False, True])
def test_a_broker_ends_while_its_store_is_frozen(tmp_path, postgresql, postgresql_server, busy):
    """However long its lease is: `CLOSING_S` bounds it."""

    async def body():
        broker = Broker(tmp_path, postgresql)
        broker.settings = broker.settings.replace("lease_s = 3.0", "lease_s = 3000.0")
        async with broker:
            async with AsyncClient(broker.address, timeout=PATIENCE) as client:
                await client.declare_topic("events", EVENT, durable=True)
                postgresql_server.freeze()
                try:
                    tasks = []
                    if busy:
                        tasks = [
                            asyncio.create_task(each)
                            for each in (client.put("events", {"n": 1}), client.look("events"))
                        ]
                        await client.topics()
                    broker.signal(signal.SIGTERM)
                    async with asyncio.timeout(PATIENCE):
                        await broker.wait()
                    assert broker.process.returncode == 0
                    for task in tasks:
                        task.cancel()
                finally:
                    postgresql_server.thaw()
                await client.close(drain=False)

    run(body())
