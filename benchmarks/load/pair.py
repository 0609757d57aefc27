"""One publisher and one subscriber of any broker: the two processes, and the interface of their clients."""

from __future__ import annotations

import asyncio
import importlib
import time
from typing import Any, Protocol

from benchmarks.load.worker import Commands

LOST_SECONDS = 30.0  # without the last message: some were lost on the way


class Publisher(Protocol):
    """Made with host, port and topic."""

    async def open(self) -> None: ...

    async def send(self, count: int) -> None:
        """Send that many messages as fast as the client can; return when all have left the process."""

    async def close(self) -> None: ...


class Subscriber(Protocol):
    """Made with host, port and topic. Counts from the moment it is opened."""

    async def open(self) -> None: ...

    async def receive(self, count: int) -> int:
        """Take that many messages from the broker; return how many came, which are all unless it ends early."""

    async def close(self) -> None: ...


async def publish(commands: Commands, client: str, host: str, port: int, topic: str) -> None:
    """A publisher process: for each number it sends as many messages, and answers with the start time in ns."""
    publisher: Publisher = made(client, host, port, topic)
    await publisher.open()
    commands.say("open")
    while (count := await commands.next()) is not None:
        began = time.monotonic_ns()
        await publisher.send(count)
        commands.say(began)
    await publisher.close()


async def subscribe(commands: Commands, client: str, host: str, port: int, topic: str) -> None:
    """A subscriber process: for each number it takes as many messages, and answers with (messages, ns of the last)."""
    subscriber: Subscriber = made(client, host, port, topic)
    await subscriber.open()
    commands.say("open")
    while (count := await commands.next()) is not None:
        commands.say("receiving")
        try:
            async with asyncio.timeout(LOST_SECONDS):
                came = await subscriber.receive(count)
        except TimeoutError:
            came = 0
        commands.say((came, time.monotonic_ns()))
    await subscriber.close()


def made(client: str, host: str, port: int, topic: str) -> Any:
    """A client by the name of its module and class, as in benchmarks.load.nats:Callback."""
    module, _, name = client.partition(":")
    return getattr(importlib.import_module(module), name)(host, port, topic)
