"""Publishers with one message in flight each: the next one leaves when the broker has stored the one before."""

from __future__ import annotations

import asyncio
import time
from itertools import cycle
from typing import Any

import milepost
from benchmarks.load.payload import SCHEMA, rows
from benchmarks.load.worker import Commands


async def publishers(commands: Commands, host: str, port: int, topic: str, number: int) -> None:
    """So many clients. Told seconds, all put for so long; answers puts, seconds and the latencies, in ns."""
    clients = [milepost.AsyncClient(f"milepost://{host}:{port}") for _ in range(number)]
    for client in clients:
        await client.connect()
    await clients[0].declare_topic(topic, SCHEMA, durable=True)
    commands.say("open")
    while (seconds := await commands.next()) is not None:
        latencies: list[int] = []
        began = time.monotonic_ns()
        until = began + int(seconds * 1e9)
        await asyncio.gather(*(_put(client, topic, until, latencies) for client in clients))
        commands.say((len(latencies), (time.monotonic_ns() - began) / 1e9, latencies))
    for client in clients:
        await client.close()


async def _put(client: Any, topic: str, until: int, latencies: list[int]) -> None:
    clock = time.monotonic_ns
    for row in cycle(rows()):
        before = clock()
        if before >= until:
            return
        await client.put(topic, row)
        latencies.append(clock() - before)
