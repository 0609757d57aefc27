"""RabbitMQ through aio-pika: a durable queue, persistent messages, publisher confirms, acknowledgements."""

from __future__ import annotations

import asyncio
from itertools import cycle, islice
from typing import Any

import aio_pika
from aio_pika.abc import AbstractIncomingMessage

from benchmarks.load.acknowledged import IN_FLIGHT
from benchmarks.load.payload import BYTES, payloads


class _Connected:
    def __init__(self, host: str, port: int, topic: str) -> None:
        self._url, self._topic = f"amqp://guest:guest@{host}:{port}/", topic

    async def open(self) -> None:
        self._connection = await aio_pika.connect(self._url)
        self._channel = await self._connection.channel(publisher_confirms=True)
        self._queue = await self._channel.declare_queue(self._topic, durable=True)

    async def close(self) -> None:
        await self._connection.close()


class Publish(_Connected):
    """A task for each message, which ends with its confirm; at most 500 are there."""

    async def send(self, count: int) -> None:
        messages = [aio_pika.Message(each, delivery_mode=aio_pika.DeliveryMode.PERSISTENT) for each in payloads()]
        exchange, room = self._channel.default_exchange, asyncio.Semaphore(IN_FLIGHT)

        async def publish(message: aio_pika.Message) -> None:
            try:
                await exchange.publish(message, self._topic)
            finally:
                room.release()

        async with asyncio.TaskGroup() as group:
            for message in islice(cycle(messages), count):
                await room.acquire()
                group.create_task(publish(message))


class Consume(_Connected):
    """A consumer with 500 messages unacknowledged at most; one acknowledgement for half of them, so that more come."""

    async def open(self) -> None:
        await super().open()
        await self._channel.set_qos(prefetch_count=IN_FLIGHT)

    async def receive(self, count: int) -> int:
        came = 0
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def take(message: AbstractIncomingMessage) -> None:
            nonlocal came
            if len(message.body) == BYTES:
                came += 1
            if came % (IN_FLIGHT // 2) == 0 or came == count:
                await message.ack(multiple=True)
            if came == count and not done.done():
                done.set_result(None)

        consumer: Any = await self._queue.consume(take)
        await done
        await self._queue.cancel(consumer)
        return came
