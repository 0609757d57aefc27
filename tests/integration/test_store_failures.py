"""A store that refuses every few commits: what is told to have failed has failed, and nothing else is lost or twice."""

import asyncio
import random
from contextlib import asynccontextmanager

import pytest

from milepost import AsyncClient, testing
from milepost.errors import AckMismatch, StoreFull

EVENT = "event: [publisher: int, n: long]"
PUBLISHERS = 3
MESSAGES = 60
PATIENCE = 60.0


class Refusing:
    """The store's `write`, which raises as a full disk makes it, before anything is written, when a draw says so."""

    def __init__(self, store, draw, share):
        self._write = store.write
        self._draw = draw
        self._share = share
        self.refused = 0

    def __call__(self, operations, time_us):
        if self._draw.random() < self._share:
            self.refused += 1
            raise StoreFull("the disk is full, as the test wants it")
        return self._write(operations, time_us)


@asynccontextmanager
async def closing(client):
    try:
        yield client
    finally:
        await client.close()


async def stubborn(call, *arguments, **named):
    """Do it until the store takes it."""
    while True:
        try:
            return await call(*arguments, **named)
        except StoreFull:
            await asyncio.sleep(0)


async def publish(address, number, draw):
    client = await stubborn(lambda: AsyncClient(address, name=f"publisher {number}", timeout=PATIENCE).connect())
    async with closing(client):
        n = 0
        while n < MESSAGES:
            if draw.random() < 0.3:
                some = [{"publisher": number, "n": n + place} for place in range(min(5, MESSAGES - n))]
                await stubborn(client.put_many, "events", some)
                n += len(some)
            else:
                await stubborn(client.put, "events", {"publisher": number, "n": n})
                n += 1


async def get(client, found):
    while len(found) < PUBLISHERS * MESSAGES:
        message = await stubborn(client.get, "events", timeout=PATIENCE)
        found.append((message.publisher, message.n))


async def work(client, found, draw):
    """A member of a group that acknowledges by itself, and sends some back."""
    subscription = await stubborn(client.subscribe, "events", name="group", ack="explicit", prefetch=7)
    while True:
        message = await subscription.get(timeout=None)
        what = message.publisher, message.n
        back = draw.random() < 0.1
        try:
            await stubborn(subscription.nack if back else subscription.ack, message)
        except AckMismatch:
            continue  # an acknowledgement that failed leaves the row with us; one that went elsewhere does not
        if not back:
            found.append(what)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("queues", [0, 2])
def test_nothing_is_lost_and_nothing_comes_twice(seed, queues):
    draw = random.Random(seed)

    async def body():
        async with testing.broker(listen="127.0.0.1:0", input_queues=queues) as broker:
            address = str(broker.address)
            async with (
                AsyncClient(address, timeout=PATIENCE) as reader,
                AsyncClient(address, timeout=PATIENCE) as one,
                AsyncClient(address, timeout=PATIENCE) as other,
                asyncio.timeout(PATIENCE * 2),
            ):
                await reader.declare_topic("events", EVENT, durable=True)
                await reader.subscribe("events", name="reader")
                await (await one.subscribe("events", name="group")).detach()  # it is there before anything is put
                found, shared = [], []
                refusing = Refusing(broker._store.store, draw, 0.25)
                broker._store.store.write = refusing
                async with asyncio.TaskGroup() as group:
                    members = [group.create_task(work(each, shared, draw)) for each in (one, other)]
                    for number in range(PUBLISHERS):
                        group.create_task(publish(address, number, draw))
                    await get(reader, found)
                    while len(shared) < PUBLISHERS * MESSAGES:
                        await asyncio.sleep(0)
                    for member in members:
                        member.cancel()
                assert refusing.refused
                for got in (found, shared):
                    assert sorted(got) == [(p, n) for p in range(PUBLISHERS) for n in range(MESSAGES)]
                for number in range(PUBLISHERS):
                    assert [n for p, n in found if p == number] == list(range(MESSAGES)), f"seed {seed}"

    asyncio.run(body())
