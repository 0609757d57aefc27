"""Redis through redis-py with its C parser."""

from __future__ import annotations

from itertools import cycle, islice

import redis

from benchmarks.load.payload import payloads

PIPELINE = 500  # publishes sent together: one at a time, each would wait for its answer


class Publish:
    """Pipelines without a transaction: the quickest way that the client offers."""

    def __init__(self, host: str, port: int, topic: str) -> None:
        self._topic = topic
        self._client = redis.Redis(host, port)
        self._payloads = payloads()

    async def open(self) -> None:
        self._client.ping()

    async def send(self, count: int) -> None:
        given = islice(cycle(self._payloads), count)
        while some := list(islice(given, PIPELINE)):
            pipeline = self._client.pipeline(transaction=False)
            for payload in some:
                pipeline.publish(self._topic, payload)
            pipeline.execute()

    async def close(self) -> None:
        self._client.close()


class Listen:
    """`for message in pubsub.listen()`; the synchronous client is the quicker one."""

    def __init__(self, host: str, port: int, topic: str) -> None:
        self._topic = topic
        self._client = redis.Redis(host, port)

    async def open(self) -> None:
        self._pubsub = self._client.pubsub(ignore_subscribe_messages=True)  # type: ignore[no-untyped-call]
        self._pubsub.subscribe(self._topic)
        self._pubsub.get_message(timeout=5)

    async def receive(self, count: int) -> int:
        came = 0
        for _ in islice(self._pubsub.listen(), count):
            came += 1
        return came

    async def close(self) -> None:
        self._pubsub.close()
        self._client.close()
