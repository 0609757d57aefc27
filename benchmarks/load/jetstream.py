"""JetStream through nats-py: a stream in files, and a durable pull consumer."""

from __future__ import annotations

import asyncio
from itertools import cycle, islice

import nats
from nats.aio.client import Client
from nats.js.api import AckPolicy, ConsumerConfig, StorageType

from benchmarks.load.acknowledged import IN_FLIGHT
from benchmarks.load.payload import BYTES, payloads

FETCH_SECONDS = 20.0


class _Connected:
    def __init__(self, host: str, port: int, topic: str) -> None:
        self._topic = topic
        self._url = f"nats://{host}:{port}"

    async def open(self) -> None:
        self._client: Client = await nats.connect(self._url)
        self._stream = self._client.jetstream(publish_async_max_pending=IN_FLIGHT)
        await self._stream.add_stream(name=self._topic, subjects=[self._topic], storage=StorageType.FILE)

    async def close(self) -> None:
        await self._client.close()


class Publish(_Connected):
    """`publish_async` with 500 pending; returns when all are acknowledged."""

    def __init__(self, host: str, port: int, topic: str) -> None:
        super().__init__(host, port, topic)
        self._payloads = payloads()

    async def send(self, count: int) -> None:
        publish = self._stream.publish_async
        waiting: list[asyncio.Future[object]] = []
        for payload in islice(cycle(self._payloads), count):
            waiting.append(await publish(self._topic, payload))  # type: ignore[arg-type]
        for acknowledged in waiting:
            await acknowledged


class Fetch(_Connected):
    """`fetch` of 500, and one acknowledgement, answered by the server, for all up to the last."""

    async def open(self) -> None:
        await super().open()
        # The server's default cuts a consumer off at 1,000 unacknowledged messages: enough for 500.
        settings = ConsumerConfig(ack_policy=AckPolicy.ALL)
        self._pull = await self._stream.pull_subscribe(self._topic, durable="desk", config=settings)

    async def receive(self, count: int) -> int:
        came = 0
        while came < count:
            messages = await self._pull.fetch(min(IN_FLIGHT, count - came), timeout=FETCH_SECONDS)
            for message in messages:
                if len(message.data) == BYTES:
                    came += 1
            await messages[-1].ack_sync()
        return came
