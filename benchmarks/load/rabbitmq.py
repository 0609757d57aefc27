"""RabbitMQ through aio-pika: a transient queue, no confirms, no acknowledgements."""

from __future__ import annotations

import asyncio
from itertools import cycle, islice

import aio_pika
from aio_pika.abc import AbstractIncomingMessage

from benchmarks.load.payload import payloads


class _Connected:
    def __init__(self, host: str, port: int, topic: str) -> None:
        self._url, self._topic = f"amqp://guest:guest@{host}:{port}/", topic

    async def open(self) -> None:
        self._connection = await aio_pika.connect(self._url)
        self._channel = await self._connection.channel(publisher_confirms=False)
        self._exchange = await self._channel.declare_exchange(
            self._topic, aio_pika.ExchangeType.FANOUT, auto_delete=True
        )

    async def close(self) -> None:
        await self._connection.close()


class Publish(_Connected):
    """`await exchange.publish` in a loop."""

    async def send(self, count: int) -> None:
        messages = [aio_pika.Message(payload) for payload in payloads()]
        publish = self._exchange.publish
        for message in islice(cycle(messages), count):
            await publish(message, "")


class Consume(_Connected):
    """A consumer with a callback."""

    def __init__(self, host: str, port: int, topic: str) -> None:
        super().__init__(host, port, topic)
        self._came = self._wanted = 0
        self._all = asyncio.Event()

    async def open(self) -> None:
        await super().open()
        queue = await self._channel.declare_queue(exclusive=True)
        await queue.bind(self._exchange)
        await queue.consume(self._take, no_ack=True)

    async def _take(self, message: AbstractIncomingMessage) -> None:
        self._came += 1
        if self._came == self._wanted:
            self._all.set()

    async def receive(self, count: int) -> int:
        self._came, self._wanted = 0, count
        self._all.clear()
        await self._all.wait()
        return self._came
