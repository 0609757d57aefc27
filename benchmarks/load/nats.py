"""NATS through nats-py, and through sockets alone."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from itertools import cycle, islice

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg

from benchmarks.load.pair import LOST_SECONDS
from benchmarks.load.payload import BYTES, payloads

PENDING_BYTES = 1 << 30  # of a subscription: more than any run sends, so nothing is dropped
RAW_BYTES = 1 << 18  # a write or read of the raw clients
FIRST_PING_SECONDS = 3.0


class Publish:
    """`await nc.publish` in a loop, and a flush at the end."""

    def __init__(self, host: str, port: int, topic: str) -> None:
        self._topic = topic
        self._url = f"nats://{host}:{port}"
        self._payloads = payloads()

    async def open(self) -> None:
        self._client: Client = await nats.connect(self._url)

    async def send(self, count: int) -> None:
        publish = self._client.publish
        for payload in islice(cycle(self._payloads), count):
            await publish(self._topic, payload)
        await self._client.flush(timeout=60)

    async def close(self) -> None:
        await self._client.close()


class Callback:
    """A subscription with a callback."""

    def __init__(self, host: str, port: int, topic: str) -> None:
        self._topic = topic
        self._url = f"nats://{host}:{port}"
        self._came = self._wanted = 0
        self._all = asyncio.Event()

    async def open(self) -> None:
        self._client: Client = await nats.connect(self._url)
        await self._client.subscribe(
            self._topic, cb=self._take, pending_msgs_limit=1 << 30, pending_bytes_limit=PENDING_BYTES
        )
        await self._client.flush()

    async def _take(self, message: Msg) -> None:
        self._came += len(message.data) == BYTES
        if self._came == self._wanted:
            self._all.set()

    async def receive(self, count: int) -> int:
        self._came, self._wanted = 0, count
        self._all.clear()
        await self._all.wait()
        return self._came

    async def close(self) -> None:
        await self._client.close()


class RawPublish:
    """Prepared frames in large writes: the capacity of the server without a Python client as the bottleneck."""

    def __init__(self, host: str, port: int, topic: str) -> None:
        self._topic = topic
        self._address = (host, port)
        one = b"PUB %s %d\r\n%s\r\n" % (topic.encode(), BYTES, b"x" * BYTES)
        self._each = RAW_BYTES // len(one)
        self._chunk = one * self._each
        self._one = one

    async def open(self) -> None:
        self._socket = greet(self._address)

    async def send(self, count: int) -> None:
        whole, rest = divmod(count, self._each)
        for _ in range(whole):
            self._socket.sendall(self._chunk)
        self._socket.sendall(self._one * rest)
        self._socket.sendall(b"PING\r\n")
        answer = self._socket.recv(RAW_BYTES)
        while not answer.endswith(b"PONG\r\n"):
            answer += self._socket.recv(RAW_BYTES)

    async def close(self) -> None:
        self._socket.close()


class RawCount:
    """Reads into one buffer and counts bytes: all messages have the same length."""

    def __init__(self, host: str, port: int, topic: str) -> None:
        self._topic = topic
        self._address = (host, port)
        self._each = len(b"MSG %s 1 %d\r\n" % (topic.encode(), BYTES)) + BYTES + 2
        self._buffer = bytearray(RAW_BYTES)

    async def open(self) -> None:
        self._socket = greet(self._address)
        # A second or two after the greetings the server measures the round trip with a ping. It must not come
        # during the count, so it is awaited here; the next one is an hour away.
        self._socket.settimeout(FIRST_PING_SECONDS)
        with contextlib.suppress(TimeoutError):
            assert self._socket.recv(64) == b"PING\r\n"
            self._socket.sendall(b"PONG\r\n")
        self._socket.settimeout(LOST_SECONDS)
        self._socket.sendall(b"SUB %s 1\r\nPING\r\n" % self._topic.encode())
        assert self._socket.recv(64) == b"PONG\r\n"

    async def receive(self, count: int) -> int:
        left = count * self._each
        take, buffer = self._socket.recv_into, self._buffer
        while left > 0:
            read = take(buffer)
            if not read:
                break
            left -= read
        return count if left == 0 else 0

    async def close(self) -> None:
        self._socket.close()


def greet(address: tuple[str, int]) -> socket.socket:
    """A connection with the greetings done."""
    made = socket.create_connection(address)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.recv(65536)  # INFO
    made.sendall(b'CONNECT {"verbose":false,"pedantic":false}\r\nPING\r\n')
    assert made.recv(64) == b"PONG\r\n"
    return made


class Timed:
    """Both ends of the latency run: a message holds when it was sent, in ns, in its first eight bytes."""

    def __init__(self, host: str, port: int, topic: str) -> None:
        self._topic = topic
        self._url = f"nats://{host}:{port}"
        self.arrivals: list[tuple[int, int]] = []
        self._rest = b"x" * (BYTES - 8)

    async def open(self) -> None:
        self._client: Client = await nats.connect(self._url)

    async def listen(self) -> None:
        await self._client.subscribe(self._topic, cb=self._take)
        await self._client.flush()

    async def send(self) -> None:
        await self._client.publish(self._topic, time.monotonic_ns().to_bytes(8, "little") + self._rest)

    async def _take(self, message: Msg) -> None:
        now = time.monotonic_ns()
        self.arrivals.append((int.from_bytes(message.data[:8], "little"), now))

    async def close(self) -> None:
        await self._client.close()
