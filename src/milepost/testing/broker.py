"""A broker in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from milepost.broker import Broker, Clock
from milepost.config import settings

_names = count(1)


class MemoryBroker(Broker):
    """The real broker, reachable under `uri` from this event loop only."""

    @property
    def uri(self) -> str:
        """The address for `AsyncClient`."""
        return str(self.address)


@asynccontextmanager
async def broker(
    *, clock: Clock | None = None, listen: str | None = None, **changes: Any
) -> AsyncIterator[MemoryBroker]:
    """A running broker. `changes` are settings, as in `defaults.toml`.

    Durable state is stored in a temporary folder, unless `store` names a place. `store=""` runs without a store.
    """
    address = listen or f"inproc://test-{next(_names)}"
    with TemporaryDirectory(prefix="milepost-") as folder:
        chosen = {"store": str(Path(folder) / "milepost.db"), "http": "", "zmq": ""} | changes
        async with MemoryBroker(settings(listen=address, **chosen), clock=clock) as running:
            assert isinstance(running, MemoryBroker)
            yield running
