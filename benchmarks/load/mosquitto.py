"""Mosquitto through paho-mqtt, quality of service 0."""

from __future__ import annotations

import asyncio
import threading
from itertools import cycle, islice
from typing import Any

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion

from benchmarks.load.payload import payloads


class _Connected:
    def __init__(self, host: str, port: int, topic: str) -> None:
        self._address, self._topic = (host, port), topic
        self._client = Client(CallbackAPIVersion.VERSION2)
        self._client.max_queued_messages_set(0)  # no limit

    async def open(self) -> None:
        self._client.connect(*self._address)
        self._client.loop_start()

    async def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


class Publish(_Connected):
    """`client.publish` in a loop; the client's thread writes."""

    def __init__(self, host: str, port: int, topic: str) -> None:
        super().__init__(host, port, topic)
        self._payloads = payloads()

    async def send(self, count: int) -> None:
        for payload in islice(cycle(self._payloads), count):
            last = self._client.publish(self._topic, payload)
        await asyncio.to_thread(last.wait_for_publish, 60)


class Callback(_Connected):
    """A subscription with a callback, in the client's thread."""

    def __init__(self, host: str, port: int, topic: str) -> None:
        super().__init__(host, port, topic)
        self._came = self._wanted = 0
        self._all = threading.Event()
        self._subscribed = threading.Event()
        self._client.on_message = self._take
        self._client.on_subscribe = lambda *_: self._subscribed.set()

    async def open(self) -> None:
        await super().open()
        self._client.subscribe(self._topic, 0)
        await asyncio.to_thread(self._subscribed.wait, 10)

    def _take(self, client: Client, data: Any, message: MQTTMessage) -> None:
        self._came += 1
        if self._came == self._wanted:
            self._all.set()

    async def receive(self, count: int) -> int:
        self._came, self._wanted = 0, count
        self._all.clear()
        await asyncio.to_thread(self._all.wait, 60)
        return self._came
