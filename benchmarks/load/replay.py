"""A client that reads a log again, from its beginning or from the middle."""

from __future__ import annotations

import time

import milepost
from benchmarks.load.worker import Commands

ANSWER_SECONDS = 60.0


async def replay(commands: Commands, host: str, port: int, topic: str) -> None:
    """For each (where, rows) it takes as many rows of a subscription without a name, and answers with (rows, seconds).

    The time is from subscribing to having read a column of the last batch.
    """
    async with milepost.AsyncClient(f"milepost://{host}:{port}", timeout=ANSWER_SECONDS) as client:
        commands.say("open")
        while (told := await commands.next()) is not None:
            where, wanted = told
            began = time.monotonic_ns()
            subscription = await client.subscribe(topic, where, start="earliest")
            came = 0
            async for batch in subscription.batches():
                came += len(batch.column("size"))
                if came >= wanted:
                    break
            ended = time.monotonic_ns()
            await subscription.detach()
            commands.say((came, (ended - began) / 1e9))


async def place(commands: Commands, host: str, port: int, topic: str, name: str, offset: int) -> None:
    """Make a named subscription that begins at an offset of the topic's only log, and leave it."""
    async with milepost.AsyncClient(f"milepost://{host}:{port}", timeout=ANSWER_SECONDS) as client:
        await (await client.subscribe(topic, name=name, start=offset)).detach()
        commands.say("placed")
        await commands.next()


async def first(commands: Commands, topic: str, name: str) -> None:
    """For each host and port it gets one message of a named subscription, and answers with (offset, arrival in ns)."""
    while (told := await commands.next()) is not None:
        host, port = told
        async with milepost.AsyncClient(f"milepost://{host}:{port}", timeout=ANSWER_SECONDS) as client:
            subscription = await client.subscribe(topic, name=name, create=False)
            await subscription.get(timeout=ANSWER_SECONDS)
            came, offset = time.monotonic_ns(), subscription.offset
            await subscription.detach()
        commands.say((offset, came))
