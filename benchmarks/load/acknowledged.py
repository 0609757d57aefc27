"""A publisher whose messages are acknowledged, and a consumer that acknowledges: the two processes."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

from benchmarks.load.pair import made
from benchmarks.load.worker import Commands

LOST_SECONDS = 60.0  # without the last message: some were lost on the way
IN_FLIGHT = 500  # messages in flight of a publisher, and messages of one acknowledgement


class Putter(Protocol):
    """Made with host, port and topic."""

    async def open(self) -> None: ...

    async def send(self, count: int) -> None:
        """Put that many messages, `IN_FLIGHT` of them under way; return when the last one is acknowledged."""

    async def close(self) -> None: ...


class Getter(Protocol):
    """Made with host, port and topic. Messages that are put after `open` are kept for it."""

    async def open(self) -> None: ...

    async def receive(self, count: int) -> int:
        """Take that many messages, from asking for the first to acknowledging the last; return how many came."""

    async def close(self) -> None: ...


async def put(commands: Commands, client: str, host: str, port: int, topic: str) -> None:
    """A publisher process: for each number it puts as many messages, and answers with (start, end) in ns."""
    putter: Putter = made(client, host, port, topic)
    await putter.open()
    commands.say("open")
    while (count := await commands.next()) is not None:
        began = time.monotonic_ns()
        async with asyncio.timeout(LOST_SECONDS):
            await putter.send(count)
        commands.say((began, time.monotonic_ns()))
    await putter.close()


async def get(commands: Commands, client: str, host: str, port: int, topic: str) -> None:
    """A consumer process: for each number it takes as many messages, and answers with (messages, start, end)."""
    getter: Getter = made(client, host, port, topic)
    await getter.open()
    commands.say("open")
    while (count := await commands.next()) is not None:
        began = time.monotonic_ns()
        async with asyncio.timeout(LOST_SECONDS):
            came = await getter.receive(count)
        commands.say((came, began, time.monotonic_ns()))
    await getter.close()
