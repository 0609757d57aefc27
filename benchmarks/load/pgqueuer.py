"""PGQueuer as its queue manager uses it, without the tasks around each job: asyncpg, prepared statements, batches."""

from __future__ import annotations

import uuid
from datetime import timedelta
from typing import Any

import asyncpg
import orjson
from pgqueuer.queries import EntrypointExecutionParameter, Queries

from benchmarks.load.payload import rows

STALE = timedelta(seconds=30)  # the default of its queue manager


class Queue:
    """`enqueue` of lists is one statement; one more picks a batch, and another logs it as done, which deletes it.

    Each commits by itself, as asyncpg does outside a transaction block. Nothing limits concurrency, which spares its
    dequeue the counting of jobs under way. Tables are all logged, which is its default.
    """

    def __init__(self, url: str, name: str) -> None:
        self._url = url
        self._name: Any = name
        self._entrypoints: Any = {name: EntrypointExecutionParameter(0)}
        self._manager: Any = uuid.uuid4()

    def messages(self) -> list[dict[str, Any]]:
        return rows()

    async def open(self) -> None:
        self._connection = await asyncpg.connect(self._url)
        self._queries = Queries.from_asyncpg_connection(self._connection)
        await self._queries.install()
        await self._queries.optimize_autovacuum()  # `pgq autovac`: the settings it recommends

    async def enqueue(self, messages: list[dict[str, Any]]) -> None:
        count = len(messages)
        if count == 1:
            await self._queries.enqueue(self._name, orjson.dumps(messages[0]))
            return
        payloads: list[bytes | None] = [orjson.dumps(message) for message in messages]
        await self._queries.enqueue([self._name] * count, payloads, [0] * count)

    async def dequeue(self, count: int) -> int:
        jobs = await self._queries.dequeue(count, self._entrypoints, self._manager, None, STALE)
        for job in jobs:
            assert orjson.loads(job.payload or b"")["size"]  # never zero
        await self._queries.log_jobs([(job, "successful", None) for job in jobs])
        return len(jobs)

    async def settle(self) -> None:
        """Do nothing: its plans are quicker without statistics."""

    async def close(self) -> None:
        await self._connection.close()
