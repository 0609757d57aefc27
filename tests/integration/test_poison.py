"""Messages that kill whoever handles them: they are dead letters in the end, and no other message is."""

import asyncio
import signal
import sys

import pytest

from milepost import AsyncClient, testing
from tests.integration.test_brokerless import claimed
from tests.integration.test_failures import EVENT, PATIENCE, Broker, run

pytestmark = pytest.mark.xdist_group("postgresql")

POISON, LAST = 3, 9
KILLED = -signal.SIGKILL

# Handles messages up to the last one. It prints each before it handles it: what it has had is known however it ends.
CONSUMER = f"""
import asyncio, os, signal, sys, milepost
address, ack, also = sys.argv[1], sys.argv[2], [int(each) for each in sys.argv[3:]]

async def main():
    async with milepost.AsyncClient(address) as client:
        work = await client.subscribe(
            "work", name="desk", start="earliest", ack=ack, max_deliveries=3, dead_letter="work.dead"
        )
        async for message in work:
            print(message.n, work.deliveries, flush=True)
            if message.n == {POISON}:
                for process in (*also, os.getpid()):
                    os.kill(process, signal.SIGKILL)
            if ack == "explicit":
                await work.ack(message)
            if message.n == {LAST}:
                break
        if ack == "auto":
            await work.get(timeout=0)  # it comes back for more: what it was given is done

asyncio.run(main())
"""

READER = """
import asyncio, os, signal, sys, milepost

async def main():
    async with milepost.AsyncClient(sys.argv[1]) as client:
        while True:
            async with client.transaction() as tx:
                found = await tx.dequeue("work")
                if not found:
                    break
                print(found[0].n, found[0].deliveries, flush=True)
                if found[0].n == 3:
                    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def consume(program, *arguments):
    """Run a program to its end: how it ended, and the messages that it had, with earlier deliveries."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, *map(str, arguments), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    return process.returncode, [tuple(map(int, line.split())) for line in out.decode().splitlines()]


async def dead(client):
    """The dead letters: a last message behind them says that there are no more."""
    await client.put("work.dead", {"n": -1})
    found = []
    async with await client.subscribe("work.dead", start="earliest") as letters:
        while not found or found[-1] != -1:
            found.append((await letters.get(timeout=PATIENCE)).n)
    return found[:-1]


def judge(runs, letters):
    """Three deliveries, and then it is dead; nothing else is, and the next consumer handles all the rest."""
    assert [code for code, _ in runs] == [KILLED, KILLED, KILLED, 0]
    assert [had[-1] for _, had in runs[:3]] == [(POISON, 0), (POISON, 1), (POISON, 2)]
    handled = {n for _, had in runs for n, _ in had}
    assert handled == set(range(LAST + 1))
    assert POISON not in {n for n, _ in runs[3][1]}
    assert letters == [POISON]


@pytest.mark.slow
def test_a_message_that_kills_its_consumer_is_dead_after_max_deliveries(tmp_path):
    async def body():
        async with (
            testing.broker(listen="127.0.0.1:0", store=str(tmp_path / "log.db")) as broker,
            AsyncClient(str(broker.address), timeout=PATIENCE) as client,
        ):
            await client.declare_topic("work", EVENT, durable=True)
            await client.put_many("work", [{"n": n} for n in range(LAST + 1)])
            runs = [await consume(CONSUMER, broker.address, "auto") for _ in range(4)]
            judge(runs, await dead(client))

    run(body())


@pytest.mark.slow
@pytest.mark.parametrize("store", ["sqlite", "postgresql"])
def test_a_message_that_kills_its_broker_too_is_dead_in_the_end(tmp_path, store, request):
    """Killed at once, a broker may forget the first delivery of a message, and none of those after it."""

    async def body():
        url = tmp_path / "log.db" if store == "sqlite" else request.getfixturevalue("postgresql")
        async with Broker(tmp_path, url) as broker:
            async with AsyncClient(broker.address, timeout=PATIENCE) as client:
                await client.declare_topic("work", EVENT, durable=True)
                await client.put_many("work", [{"n": n} for n in range(LAST + 1)])
            runs = []
            while not runs or runs[-1][0] != 0:
                runs.append(await consume(CONSUMER, broker.address, "explicit", broker.process.pid))
                assert len(runs) <= 5
                if runs[-1][0] == KILLED:
                    await broker.kill()
                    await broker.start()
            assert len(runs) in (4, 5)
            assert [n for n, _ in runs[-1][1]] == list(range(POISON + 1, LAST + 1))
            async with AsyncClient(broker.address, timeout=PATIENCE) as client:
                assert await dead(client) == [POISON]

    run(body())


def test_deliveries_are_counted_over_all_brokers_of_a_cell(postgresql):
    async def body():
        async with (
            testing.broker(name="one", listen="127.0.0.1:0", store=postgresql) as one,
            testing.broker(name="two", listen="127.0.0.1:0", store=postgresql) as two,
        ):
            both = f"{one.address},{two.address}"
            async with AsyncClient(both, timeout=PATIENCE) as client:
                await client.declare_topic("work", EVENT, durable=True)
                await client.put("work", {"n": 0})
            for tries, broker in enumerate((one, two, one)):
                consumer = AsyncClient(str(broker.address), reconnect=False, timeout=PATIENCE)
                await consumer.connect()
                work = await consumer.subscribe(
                    "work", name="desk", start="earliest", ack="explicit", max_deliveries=3, dead_letter="work.dead"
                )
                assert (await work.get(timeout=PATIENCE)).n == 0
                assert work.deliveries == tries
                consumer._session.connection.abort()  # as when its process is killed
                await consumer.close(drain=False)
            async with AsyncClient(str(two.address), timeout=PATIENCE) as client:
                letters = await client.subscribe("work.dead", start="earliest")
                assert (await letters.get(timeout=PATIENCE)).n == 0

    run(body())


@pytest.mark.slow
def test_a_message_that_kills_readers_without_a_broker_is_dead_after_most_aborts(postgresql):
    async def body():
        async with AsyncClient(postgresql, timeout=PATIENCE) as client:
            await client.declare_type("job: [n: long]")
            await client.declare_queue("work", "job", dead_letter="work.dead", max_deliveries=3)
            async with client.transaction() as tx:
                await tx.enqueue("work", [{"n": n} for n in range(LAST + 1)])
        runs = []
        for _ in range(4):
            runs.append(await consume(READER, postgresql))
            await claimed(postgresql, 0)  # the next one has its log, and undoes what it has left there
        async with AsyncClient(postgresql, timeout=PATIENCE) as client:
            letters = [message.n async for message in client.browse("work.dead")]
        judge(runs, letters)

    run(body())


def test_rows_that_were_sent_ahead_and_not_seen_are_not_counted():
    """A program that takes one message and leaves, again and again: the rest was here each time, and nobody saw it."""

    async def body():
        async with testing.broker(listen="127.0.0.1:0") as broker:
            async with AsyncClient(str(broker.address), timeout=PATIENCE) as client:
                await client.declare_topic("work", EVENT, durable=True)
                await client.put_many("work", [{"n": n} for n in range(8)])
            for number in range(8):
                async with AsyncClient(str(broker.address), timeout=PATIENCE) as client:
                    work = await client.subscribe(
                        "work", name="desk", start="earliest", ack="explicit" if number % 2 else "auto",
                        max_deliveries=2, dead_letter="work.dead",
                    )  # fmt: skip
                    message = await work.get(timeout=PATIENCE)
                    assert (message.n, work.deliveries) == (number, 0)
                    if number % 2:
                        await work.ack(message)
                    if number % 3:
                        await work.detach()
            async with AsyncClient(str(broker.address), timeout=PATIENCE) as client:
                assert await dead(client) == []

    run(body())


def test_what_an_application_has_seen_is_counted_when_it_leaves_in_order():
    async def body():
        async with testing.broker(listen="127.0.0.1:0") as broker:
            async with AsyncClient(str(broker.address), timeout=PATIENCE) as client:
                await client.declare_topic("work", EVENT, durable=True)
                await client.put_many("work", [{"n": n} for n in range(3)])
            for tries, (ack, detaches) in enumerate([("explicit", True), ("auto", True), ("explicit", False)]):
                async with AsyncClient(str(broker.address), timeout=PATIENCE) as client:
                    work = await client.subscribe(
                        "work", name="desk", start="earliest", ack=ack, max_deliveries=3, dead_letter="work.dead"
                    )
                    async for message in work:
                        assert (message.n, work.deliveries) == (0, tries)
                        break
                    if detaches:
                        await work.detach()
            async with AsyncClient(str(broker.address), timeout=PATIENCE) as client:
                letters = await client.subscribe("work.dead", start="earliest")
                assert (await letters.get(timeout=PATIENCE)).n == 0
                assert await dead(client) == [0]
                work = await client.subscribe("work", name="desk", ack="explicit", create=False)
                assert (await work.get(timeout=PATIENCE)).n == 1
                assert work.deliveries == 0

    run(body())
