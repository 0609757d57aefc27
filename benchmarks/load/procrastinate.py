"""Procrastinate through its app: batches are deferred by one statement; jobs are fetched and finished one by one.

It has no call that fetches or finishes several jobs. Its worker fetches one job after the other and finishes as many at
once as its concurrency allows; the timed code does the same, without the worker's tasks, logging and heartbeat.
"""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import procrastinate
import psycopg_pool
from procrastinate.jobs import Status

from benchmarks.load.payload import rows

CONNECTIONS = 4  # jobs are finished over them while others are fetched; there are only two cores


class Queue:
    """Its own pool checks each connection before use, a round trip more: a pool may be given instead, and is.

    The connections commit each statement by themselves, which spares BEGIN and COMMIT. Finished jobs are deleted, which
    is less to keep than its default of marking them.
    """

    def __init__(self, url: str, name: str) -> None:
        self._url = url
        self._name = name
        self._app = procrastinate.App(
            connector=procrastinate.PsycopgConnector(json_dumps=orjson.dumps, json_loads=orjson.loads)
        )
        self._task: Any = self._app.configure_task("benchmark", queue=name)

    def messages(self) -> list[dict[str, Any]]:
        return rows()

    async def open(self) -> None:
        self._pool = psycopg_pool.AsyncConnectionPool(
            self._url, min_size=CONNECTIONS, max_size=CONNECTIONS, kwargs={"autocommit": True}, open=False
        )
        await self._pool.open(wait=True)
        await self._app.open_async(self._pool)
        await self._app.schema_manager.apply_schema_async()
        self._manager = self._app.job_manager
        self._worker = await self._manager.register_worker()

    async def enqueue(self, messages: list[dict[str, Any]]) -> None:
        if len(messages) == 1:
            await self._task.defer_async(**messages[0])
        else:
            await self._task.batch_defer_async(*messages)

    async def dequeue(self, count: int) -> int:
        finishing: list[asyncio.Task[None]] = []
        while len(finishing) < count:
            job = await self._manager.fetch_job([self._name], self._worker)
            if job is None:
                break
            assert job.task_kwargs["size"]  # never zero
            done = self._manager.finish_job(job, Status.SUCCEEDED, delete_job=True)
            finishing.append(asyncio.ensure_future(done))
        await asyncio.gather(*finishing)
        return len(finishing)

    async def settle(self) -> None:
        """Its fetch is twice as quick when PostgreSQL has statistics of the jobs that wait."""
        async with self._pool.connection() as connection:
            await connection.execute("ANALYZE procrastinate_jobs")

    async def close(self) -> None:
        await self._app.close_async()
        await self._pool.close()
