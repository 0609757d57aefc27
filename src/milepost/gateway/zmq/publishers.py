"""The publishers of a gateway: clients of the broker that put in the name of those who put over ZeroMQ.

The publisher of a message is its connection's, and order and consumer groups go by it: of one publisher's messages a
group has some at one member at a time. So a pub_id always has the same client, and different ones mostly have different
clients. A bounded number of them serves any number of pub_ids, which are spread by a hash: nothing is kept for a
pub_id, and those that share a client only share an order.

A client keeps an outbox and schemas for each topic that it has put into, and the broker remembers what it has told a
connection. So a client that has met many topics is closed and opened again, when nothing of it is under way.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import blake2b
from typing import Final

from milepost import limits
from milepost.client import AsyncClient

PUBLISHERS: Final = 32  # connections, made when they are needed: more members than most groups have
PUBLISHER_TOPICS: Final = 1_000  # that one of them has been asked to put into; some kilobytes each


class GatewayPublishers:
    """Clients by number. With a `name`, which no other gateway may have, a restart does not change the publishers."""

    def __init__(self, address: str, name: str) -> None:
        # Names of clients are printable. Without one it is drawn: a client that is opened again is the same publisher.
        shown = name.encode("unicode_escape").decode()[: limits.NAME_CHARS - len(f".{PUBLISHERS}")] or uuid.uuid4().hex
        self._all: Final = [_Publisher(address, f"{shown}.{number}") for number in range(PUBLISHERS)]

    def __len__(self) -> int:
        return sum(each.client is not None for each in self._all)

    @asynccontextmanager
    async def of(self, pub_id: str, topic: str, broker_id: str) -> AsyncIterator[AsyncClient]:
        """The client that puts for a pub_id; `StateLost` when the broker has other stored state than `broker_id`."""
        number = int.from_bytes(blake2b(pub_id.encode(), digest_size=8).digest(), "little") % len(self._all)
        publisher = self._all[number]
        client = await publisher.enter(topic, broker_id)
        try:
            yield client
        finally:
            publisher.leave()

    async def close(self, *, drain: bool = True) -> None:
        """Close all of them."""
        await asyncio.gather(*(each.client.close(drain=drain) for each in self._all if each.client is not None))


class _Publisher:
    """One client, and the requests that it carries out."""

    def __init__(self, address: str, name: str) -> None:
        self._address = address
        self._name = name
        self._topics: set[str] = set()  # that the client was asked to put into
        self._under_way = 0
        self._idle: Final = asyncio.Event()
        self.opening: Final = asyncio.Lock()
        self.client: AsyncClient | None = None

    async def enter(self, topic: str, broker_id: str) -> AsyncClient:
        """The client, for a request that `leave` ends."""
        client = self.client
        # While others wait here, requests for topics that it knows wait too: they would keep it from becoming idle.
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
        """Whether the client works, and has room for a topic. One that failed was fenced: another took its name."""
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
        made = await AsyncClient(self._address, name=self._name, known_broker_id=broker_id).connect()
        self.client = made
        self._topics.clear()
        return made
