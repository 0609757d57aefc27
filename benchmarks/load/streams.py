"""Redis Streams through redis-py with its C parser."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice
from threading import Lock
from typing import Any

import redis

from benchmarks.load.acknowledged import IN_FLIGHT
from benchmarks.load.payload import BYTES, payloads

HALVES = 2  # of the messages in flight
GROUP, CONSUMER = "desk", "one"


class _Connected:
    def __init__(self, host: str, port: int, topic: str) -> None:
        self._topic = topic
        self._client: Any = redis.Redis(host, port)

    async def open(self) -> None:
        self._client.ping()

    async def close(self) -> None:
        self._client.close()


class Add(_Connected):
    """Pipelines of 500 XADDs without a transaction; their answers come when the log is synced."""

    def __init__(self, host: str, port: int, topic: str) -> None:
        super().__init__(host, port, topic)
        self._messages = [{b"d": payload} for payload in payloads()]

    async def send(self, count: int) -> None:
        given = islice(cycle(self._messages), count)
        while some := list(islice(given, IN_FLIGHT)):
            pipeline = self._client.pipeline(transaction=False)
            for message in some:
                pipeline.xadd(self._topic, message)
            pipeline.execute()


class AddInTurns(Add):
    """Two pipelines of 250, each on a connection and in a thread of its own: one is made while the other is synced."""

    def __init__(self, host: str, port: int, topic: str) -> None:
        super().__init__(host, port, topic)
        self._clients = [redis.Redis(host, port) for _ in range(HALVES)]
        self._threads = ThreadPoolExecutor(HALVES)

    async def send(self, count: int) -> None:
        given = islice(cycle(self._messages), count)
        taking = Lock()

        def add(client: Any) -> None:
            while True:
                with taking:
                    some = list(islice(given, IN_FLIGHT // HALVES))
                if not some:
                    return
                pipeline = client.pipeline(transaction=False)
                for message in some:
                    pipeline.xadd(self._topic, message)
                pipeline.execute()

        await asyncio.gather(
            *(asyncio.get_running_loop().run_in_executor(self._threads, add, client) for client in self._clients)
        )

    async def close(self) -> None:
        self._threads.shutdown()
        for client in self._clients:
            client.close()
        await super().close()


class AddAhead(Add):
    """Pipelines of 500 in a thread; the next one is made while the last one is synced."""

    def __init__(self, host: str, port: int, topic: str) -> None:
        super().__init__(host, port, topic)
        self._thread = ThreadPoolExecutor(1)

    def _made(self, given: Iterator[dict[bytes, bytes]]) -> Any:
        pipeline = self._client.pipeline(transaction=False)
        for message in islice(given, IN_FLIGHT):
            pipeline.xadd(self._topic, message)
        return pipeline

    async def send(self, count: int) -> None:
        given = islice(cycle(self._messages), count)
        pipeline = self._made(given)
        while len(pipeline):
            executing = asyncio.get_running_loop().run_in_executor(self._thread, pipeline.execute)
            pipeline = self._made(given)
            await executing

    async def close(self) -> None:
        self._thread.shutdown()
        await super().close()


class ReadGroup(_Connected):
    """XREADGROUP of 500, the bytes of each looked at, and one XACK for all of them."""

    async def open(self) -> None:
        await super().open()
        self._client.xgroup_create(self._topic, GROUP, id="0", mkstream=True)

    async def receive(self, count: int) -> int:
        came = 0
        while came < count:
            found = self._client.xreadgroup(GROUP, CONSUMER, {self._topic: ">"}, count=IN_FLIGHT)
            if not found:
                break
            messages = found[self._topic.encode()][0] if isinstance(found, dict) else found[0][1]
            for _, fields in messages:
                if len(fields[b"d"]) == BYTES:
                    came += 1
            self._client.xack(self._topic, GROUP, *[number for number, _ in messages])
        return came
