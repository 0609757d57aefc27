"""The publishers of a gateway: clients of the broker that put the messages of ZeroMQ clients.

The broker takes the connection as the publisher of a message, and order and consumer groups depend on the publisher: a
group has the messages of one publisher at one member at a time. So a pub_id always uses the same client, and different
pub_ids mostly use different clients. A bounded number of clients serves any number of pub_ids, which are assigned by a
hash: nothing is stored for a pub_id, and pub_ids with the same client only share an order.

A client keeps an outbox and schemas for each topic that it has put into, and the broker keeps what it has announced to
a connection. So a client that has used many topics is closed and opened again when it is idle.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import blake2b
from typing import ClassVar, Final

from milepost import limits
from milepost.client import AsyncClient

PUBLISHERS: Final = 32  # connections, made when needed: more than most groups have members
PUBLISHER_TOPICS: Final = 1_000  # topics that one client has been asked to put into; some kilobytes each


class GatewayClient(AsyncClient):
    """A client whose connections declare that they act for clients of another protocol."""

    _kind: ClassVar = "gateway"


class GatewayPublishers:
    """Clients by number. With a `name`, which must be unique among gateways, a restart does not change the
    publishers.
    """

    def __init__(self, address: str, name: str) -> None:
        # Names of clients are printable. Without a given name a random one is used, so that a reopened client is the
        # same publisher.
        shown = name.encode("unicode_escape").decode()[: limits.NAME_CHARS - len(f".{PUBLISHERS}")] or uuid.uuid4().hex
        self._all: Final = [_Publisher(address, f"{shown}.{number}") for number in range(PUBLISHERS)]

    def __len__(self) -> int:
        return sum(each.client is not None for each in self._all)

    @asynccontextmanager
    async def of(self, pub_id: str, topic: str, broker_id: str) -> AsyncIterator[AsyncClient]:
        """The client that puts for a pub_id. Raises `StateLost` when the broker has another store than `broker_id`."""
        number = int.from_bytes(blake2b(pub_id.encode(), digest_size=8).digest(), "little") % len(self._all)
        publisher = self._all[number]
        client = await publisher.enter(topic, broker_id)
        try:
            yield client
        finally:
            publisher.leave()

    async def close(self, *, drain: bool = True) -> None:
        """Close all clients."""
        await asyncio.gather(*(each.client.close(drain=drain) for each in self._all if each.client is not None))


class _Publisher:
    """One client, and the requests that use it."""

    def __init__(self, address: str, name: str) -> None:
        self._address = address
        self._name = name
        self._topics: set[str] = set()  # topics that the client was asked to put into
        self._under_way = 0
        self._idle: Final = asyncio.Event()
        self.opening: Final = asyncio.Lock()
        self.client: AsyncClient | None = None

    async def enter(self, topic: str, broker_id: str) -> AsyncClient:
        """The client, for a request that calls `leave` at its end."""
        client = self.client
        # While a request waits here for the client to become idle, requests for known topics wait too; otherwise the
        # client would never become idle.
        if client is None or self.opening.locked() or not self._takes(client, topic):
            async with self.opening:
                client = await self._opened(topic, broker_id)
        self._topics.add(topic)
        self._under_way += 1
        return client

    def leave(self) -> None:
        self._under_way -= 1
        if not self._under_way:
            self._idle.set()

    def _takes(self, client: AsyncClient, topic: str) -> bool:
        """Whether the client works, and has room for a topic. A failed client was fenced by another one with its
        name.
        """
        return client.failure is None and (topic in self._topics or len(self._topics) < PUBLISHER_TOPICS)

    async def _opened(self, topic: str, broker_id: str) -> AsyncClient:
        client = self.client
        if client is not None and self._takes(client, topic):
            return client  # another request was faster
        if client is not None and client.failure is None:
            while self._under_way:
                self._idle.clear()
                await self._idle.wait()
            await client.close()
        made = await GatewayClient(self._address, name=self._name, known_broker_id=broker_id).connect()
        self.client = made
        self._topics.clear()
        return made
