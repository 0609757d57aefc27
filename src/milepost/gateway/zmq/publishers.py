"""The publishers of a gateway: clients of the broker that put in the name of those who put over ZeroMQ.

The publisher of a message is its connection's, and order and consumer groups go by it: of one publisher's messages a
group has some at one member at a time. So a pub_id always has the same client, and different ones mostly have different
clients. A bounded number of them serves any number of pub_ids, which are spread by a hash: nothing is kept for a
pub_id, and those that share a client only share an order.
"""

from __future__ import annotations

import asyncio
from hashlib import blake2b
from typing import Final

from milepost import limits
from milepost.client import AsyncClient

PUBLISHERS: Final = 32  # connections, made when they are needed: more members than most groups have


class Publishers:
    """Clients by number. With a `name`, which no other gateway may have, a restart does not change the publishers."""

    def __init__(self, address: str, name: str) -> None:
        self._address = address
        # Names of clients are printable.
        self._name = name.encode("unicode_escape").decode()[: limits.NAME_CHARS - len(f".{PUBLISHERS}")]
        self._clients: dict[int, AsyncClient] = {}
        self._opening: Final = asyncio.Lock()

    def __len__(self) -> int:
        return len(self._clients)

    async def of(self, pub_id: str, broker_id: str) -> AsyncClient:
        """The client that puts for a pub_id; `StateLost` when the broker has other stored state than `broker_id`."""
        number = int.from_bytes(blake2b(pub_id.encode(), digest_size=8).digest(), "little") % PUBLISHERS
        found = self._clients.get(number)
        if found is not None and found.failure is None:
            return found
        async with self._opening:
            found = self._clients.get(number)  # another request may have been faster
            if found is None or found.failure is not None:  # one that failed was fenced: another client took its name
                name = f"{self._name}.{number}" if self._name else ""
                made = AsyncClient(self._address, name=name, known_broker_id=broker_id)
                found = self._clients[number] = await made.connect()
        return found

    async def close(self, *, drain: bool = True) -> None:
        """Close all of them."""
        await asyncio.gather(*(each.close(drain=drain) for each in self._clients.values()))
