"""Milepost through its own client."""

from __future__ import annotations

import time
from itertools import cycle, islice
from typing import Any

import milepost
from benchmarks.load.payload import SCHEMA, columns, rows

COLUMN_ROWS = 10_000  # of a call of put_many, as a feed has that reads files or data frames


class _Connected:
    def __init__(self, host: str, port: int, topic: str) -> None:
        self._topic = topic
        self._client: Any = milepost.AsyncClient(f"milepost://{host}:{port}")

    async def open(self) -> None:
        await self._client.__aenter__()
        await self._client.declare_topic(self._topic, schema=SCHEMA)

    async def close(self) -> None:
        await self._client.__aexit__(None, None, None)


class Put(_Connected):
    """Python dicts in: `await client.put` in a loop, and a flush at the end."""

    def __init__(self, host: str, port: int, topic: str) -> None:
        super().__init__(host, port, topic)
        self._rows = rows()

    async def send(self, count: int) -> None:
        put = self._client.put
        for row in islice(cycle(self._rows), count):
            await put(self._topic, row)
        await self._client.flush()


class Views(_Connected):
    """Python views out: `async for message in subscription`, one field read of each."""

    async def open(self) -> None:
        await super().open()
        self._subscription = await self._client.subscribe(self._topic)

    async def receive(self, count: int) -> int:
        came = 0
        async for message in self._subscription:
            if message.size:  # never zero
                came += 1
            if came == count:
                break
        return came


class PutColumns(_Connected):
    """Columns in: `put_many` with NumPy and Arrow columns, encoded anew at each call."""

    def __init__(self, host: str, port: int, topic: str) -> None:
        super().__init__(host, port, topic)
        self._columns = columns(COLUMN_ROWS)

    async def send(self, count: int) -> None:
        for _ in range(count // COLUMN_ROWS):  # counts are multiples of it
            await self._client.put_many(self._topic, self._columns)
        await self._client.flush()


class Columns(_Connected):
    """Columns out: whole batches, one column read of each."""

    async def open(self) -> None:
        await super().open()
        self._subscription = await self._client.subscribe(self._topic)

    async def receive(self, count: int) -> int:
        came = 0
        async for batch in self._subscription.batches():
            came += len(batch.column("price"))
            if came >= count:
                break
        return came


class Timed(_Connected):
    """Both ends of the latency run: `size` is when the row was sent, in ns."""

    def __init__(self, host: str, port: int, topic: str) -> None:
        super().__init__(host, port, topic)
        self.arrivals: list[tuple[int, int]] = []
        self._row = rows()[0]

    async def listen(self) -> None:
        await self._client.subscribe(self._topic, callback=self._take)

    async def send(self) -> None:
        self._row["size"] = time.monotonic_ns()
        await self._client.put(self._topic, self._row)

    def _take(self, message: Any) -> None:
        now = time.monotonic_ns()
        self.arrivals.append((message.size, now))
