"""A process that fills a queue and empties it, with a number of messages in each transaction, for any queue system."""

from __future__ import annotations

import asyncio
import importlib
import time
from itertools import cycle, islice
from typing import Any, Protocol

from benchmarks.load.worker import Commands

LOST_SECONDS = 60.0  # for one run: some messages were lost on the way


class Queue(Protocol):
    """Made with where it is (a URL) and the queue's name."""

    def messages(self) -> list[dict[str, Any]]:
        """The messages to enqueue, repeated in a circle; mostly with the five attributes of `payload`."""

    async def open(self) -> None: ...

    async def enqueue(self, messages: list[dict[str, Any]]) -> None:
        """One transaction with these messages; returns when it is committed."""

    async def dequeue(self, count: int) -> int:
        """Take up to so many messages, read an attribute of each, and commit. Returns how many came."""

    async def settle(self) -> None:
        """Called between runs, not timed: upkeep that lets this queue perform best, as time and autovacuum would."""

    async def close(self) -> None: ...


async def work(commands: Commands, kind: str, url: str, name: str) -> None:
    """For each ("enqueue" or "dequeue", messages, messages to a transaction) it answers with (messages, start, end).

    `kind` is the name of a class, as in benchmarks.load.pgqueuer:Queue.
    """
    module, _, class_ = kind.partition(":")
    queue: Queue = getattr(importlib.import_module(module), class_)(url, name)
    await queue.open()
    commands.say("open")
    given = cycle(queue.messages())
    while (word := await commands.next()) is not None:
        what, count, size = word
        await queue.settle()
        began = time.monotonic_ns()
        async with asyncio.timeout(LOST_SECONDS):
            went = await (_fill(queue, given, count, size) if what == "enqueue" else _empty(queue, count, size))
        commands.say((went, began, time.monotonic_ns()))
    await queue.close()


async def _fill(queue: Queue, given: Any, count: int, size: int) -> int:
    for _ in range(0, count, size):
        await queue.enqueue(list(islice(given, size)))
    return count


async def _empty(queue: Queue, count: int, size: int) -> int:
    came = 0
    while came < count:
        some = await queue.dequeue(size)
        if not some:
            break
        came += some
    return came
