"""Milepost's durable topics through its own client."""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import cycle, islice
from typing import Any

import milepost
from benchmarks.load.acknowledged import IN_FLIGHT
from benchmarks.load.payload import SCHEMA, rows

HALVES = 2  # of the messages in flight: one half is stored while the other is made
GET_SECONDS = 20.0  # for the next messages, which are stored already


class _Connected:
    def __init__(self, host: str, port: int, topic: str) -> None:
        self._topic = topic
        self._client: Any = milepost.AsyncClient(f"milepost://{host}:{port}")

    async def open(self) -> None:
        await self._client.connect()
        await self._client.declare_topic(self._topic, SCHEMA, durable=True)

    async def close(self) -> None:
        await self._client.close()


class Rows(_Connected):
    """A call for each message, without waiting, and a flush after 500 of them, like a Redis pipeline."""

    def __init__(self, host: str, port: int, topic: str) -> None:
        super().__init__(host, port, topic)
        self._rows = rows()

    async def send(self, count: int) -> None:
        put, flush, topic = self._client.put, self._client.flush, self._topic
        given = islice(cycle(self._rows), count)
        while some := list(islice(given, IN_FLIGHT)):
            for row in some:
                await put(topic, row, wait=False)
            await flush()


class Sliding(Rows):
    """A call for each message; of 500 in flight, it waits for the older half while the newer half is on its way.

    Each half has a flush of its own, which runs beside the puts of the next.
    """

    async def send(self, count: int) -> None:
        put, flush, topic = self._client.put, self._client.flush, self._topic
        given = islice(cycle(self._rows), count)
        flying: deque[asyncio.Task[None]] = deque()
        while some := list(islice(given, IN_FLIGHT // HALVES)):
            for row in some:
                await put(topic, row, wait=False)
            flying.append(asyncio.ensure_future(flush()))
            await asyncio.sleep(0)  # the messages are sent in this turn of the event loop
            if len(flying) == HALVES:
                await flying.popleft()
        while flying:
            await flying.popleft()


class Tasks(Rows):
    """A task for each message, 500 at a time, each waiting until its own is stored."""

    async def send(self, count: int) -> None:
        put, topic = self._client.put, self._topic
        given = islice(cycle(self._rows), count)
        while some := list(islice(given, IN_FLIGHT)):
            await asyncio.gather(*[put(topic, row) for row in some])


class Many(Rows):
    """A call of `put_many` for 500 messages, each call waited for."""

    async def send(self, count: int) -> None:
        put_many, topic = self._client.put_many, self._topic
        given = islice(cycle(self._rows), count)
        while some := list(islice(given, IN_FLIGHT)):
            await put_many(topic, some)


class ManyInTurns(Many):
    """Two tasks with calls of `put_many` for 250 messages: one call is made while the other is stored."""

    async def send(self, count: int) -> None:
        put_many, topic = self._client.put_many, self._topic
        given = islice(cycle(self._rows), count)

        async def put() -> None:
            while some := list(islice(given, IN_FLIGHT // HALVES)):
                await put_many(topic, some)

        await asyncio.gather(*(put() for _ in range(HALVES)))


class Encoded(Rows):
    """A call of `put_many` for a batch of 500 messages; the next batch is encoded while the last one is stored."""

    async def send(self, count: int) -> None:
        put_many, topic, schema = self._client.put_many, self._topic, milepost.parse_schema(SCHEMA)
        given = islice(cycle(self._rows), count)
        batch = milepost.encode(schema, list(islice(given, IN_FLIGHT)))
        while len(batch):
            putting = asyncio.ensure_future(put_many(topic, batch))
            await asyncio.sleep(0)  # the batch leaves
            batch = milepost.encode(schema, list(islice(given, IN_FLIGHT)))
            await putting


class GetMany(_Connected):
    """A named subscription: `get_many` of up to 500 messages with one acknowledgement, a field read of each."""

    async def open(self) -> None:
        await super().open()
        await (await self._subscribed()).detach()  # from here on everything is kept for it

    async def _subscribed(self) -> Any:
        return await self._client.subscribe(self._topic, name=f"{self._topic}-desk", start="earliest")

    async def receive(self, count: int) -> int:
        subscription = await self._subscribed()
        came = 0
        while came < count:
            messages = await subscription.get_many(IN_FLIGHT, timeout=GET_SECONDS)
            if not messages:
                break
            for message in messages:
                if message.size:  # never zero
                    came += 1
        await subscription.detach()
        return came


class Iterate(GetMany):
    """A loop over the messages, a field read of each. The client acknowledges a message when the loop takes the next.

    At most 500 to an acknowledgement. The loop does not wait for it while there is more, as RabbitMQ's and JetStream's
    consumers do not; the end waits until all are stored. Messages of a loop that dies are delivered again, as with
    all peers.
    """

    async def receive(self, count: int) -> int:
        subscription = await self._subscribed()
        came = 0
        async for message in subscription:
            if message.size:
                came += 1
            if came == count:
                break
        await subscription.detach()
        return came


class Get(GetMany):
    """The same with `get`: each message acknowledged, and that synced, before it returns."""

    async def receive(self, count: int) -> int:
        subscription = await self._subscribed()
        came = 0
        while came < count:
            message = await subscription.get(timeout=GET_SECONDS)
            if message is None:
                break
            if message.size:
                came += 1
        await subscription.detach()
        return came
