"""The synchronous verbs for queues. Each runs the asynchronous one and waits for it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from milepost.client.queues import BROWSED, QueueInfo, unknown_verb
from milepost.client.taken import Classes, QueueMessage, TakenBatch
from milepost.client.transaction import Receipt, Transaction
from milepost.client.transfers import HoldingInfo, TransferInfo
from milepost.client.worker import BACKOFF_S, Handler, takes_two
from milepost.errors import InvalidValue
from milepost.schema import Schema

if TYPE_CHECKING:
    from milepost.client.async_client import AsyncClient

T = TypeVar("T")


class SyncTransaction:
    """See `Transaction`; use a plain `with`."""

    def __init__(self, run: Callable[[Coroutine[Any, Any, Any]], Any], transaction: Transaction) -> None:
        self._run = run
        self.asynchronous = transaction

    @property
    def number(self) -> int:
        """See `Transaction.number`."""
        return self.asynchronous.number

    def enqueue(
        self,
        queue: str,
        messages: Any,
        type: Any = None,
        *,
        priority: float | None = None,
        delay: float | timedelta | None = None,
        not_before: datetime | None = None,
        expires: float | timedelta | datetime | None = None,
    ) -> Receipt:
        """See `Transaction.enqueue`."""
        made: Receipt = self._run(
            self.asynchronous.enqueue(
                queue, messages, type, priority=priority, delay=delay, not_before=not_before, expires=expires
            )
        )
        return made

    def dequeue(
        self,
        queue: str,
        type: str | None = None,
        *,
        count: int = 1,
        where: str | None = None,
        order: str | None = None,
        timeout: float | None = 0.0,
        classes: Classes | None = None,
        select: str | None = None,
    ) -> list[QueueMessage]:
        """See `Transaction.dequeue`."""
        found: list[QueueMessage] = self._run(
            self.asynchronous.dequeue(
                queue, type, count=count, where=where, order=order, timeout=timeout, classes=classes, select=select
            )
        )
        return found

    def dequeue_batches(
        self,
        queue: str,
        type: str | None = None,
        *,
        count: int = 1,
        where: str | None = None,
        order: str | None = None,
        timeout: float | None = 0.0,
    ) -> list[TakenBatch]:
        """See `Transaction.dequeue_batches`."""
        found: list[TakenBatch] = self._run(
            self.asynchronous.dequeue_batches(queue, type, count=count, where=where, order=order, timeout=timeout)
        )
        return found

    def ack(self, what: Any) -> None:
        """See `Transaction.ack`."""
        from milepost.client.client import SyncSubscription

        meant = what.asynchronous if isinstance(what, SyncSubscription) else what
        self._run(_made(lambda: self.asynchronous.ack(meant)))

    def flush(self) -> None:
        """See `Transaction.flush`."""
        self._run(self.asynchronous.flush())

    def commit(self, *, decision: tuple[str, str] | None = None) -> None:
        """See `Transaction.commit`."""
        self._run(self.asynchronous.commit(decision=decision))

    def prepare(self, gid: str, coordinator: str) -> None:
        """See `Transaction.prepare`."""
        self._run(self.asynchronous.prepare(gid, coordinator))

    def abort(self) -> None:
        """See `Transaction.abort`."""
        self._run(self.asynchronous.abort())

    def __enter__(self) -> SyncTransaction:
        self._run(self.asynchronous.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self.asynchronous.__aexit__(kind, error, trace))


class SyncQueueVerbs:
    """The verbs of `Client` for queues."""

    _client: AsyncClient

    if TYPE_CHECKING:  # implemented by `Client`

        def _run(self, work: Coroutine[Any, Any, T]) -> T: ...

    else:  # type checkers would accept any name

        def __getattr__(self, name: str) -> Any:
            raise unknown_verb(self, name)

    def declare_type(self, definition: Any) -> Schema:
        """See `AsyncClient.declare_type`."""
        return self._run(self._client.declare_type(definition))

    def types(self) -> dict[str, Schema]:
        """See `AsyncClient.types`."""
        return self._run(self._client.types())

    def delete_type(self, name: str) -> None:
        """See `AsyncClient.delete_type`."""
        self._run(self._client.delete_type(name))

    def declare_queue(
        self,
        name: str,
        types: Sequence[str] | str,
        *,
        level: str = "none",
        direction: str = "desc",
        priority: float = 0.0,
        priorities: Mapping[str, str] | None = None,
        dead_letter: str | None = None,
        max_deliveries: int | None = None,
    ) -> QueueInfo:
        """See `AsyncClient.declare_queue`."""
        return self._run(
            self._client.declare_queue(
                name,
                types,
                level=level,
                direction=direction,
                priority=priority,
                priorities=priorities,
                dead_letter=dead_letter,
                max_deliveries=max_deliveries,
            )
        )

    def delete_queue(self, name: str) -> None:
        """See `AsyncClient.delete_queue`."""
        self._run(self._client.delete_queue(name))

    def queues(self) -> list[QueueInfo]:
        """See `AsyncClient.queues`."""
        return self._run(self._client.queues())

    def queue(self, name: str) -> QueueInfo:
        """See `AsyncClient.queue`."""
        return self._run(self._client.queue(name))

    def peek(
        self,
        queue: str,
        type: str | None = None,
        *,
        count: int = 1,
        where: str | None = None,
        order: str | None = None,
        classes: Classes | None = None,
    ) -> list[QueueMessage]:
        """See `AsyncClient.peek`."""
        return self._run(self._client.peek(queue, type, count=count, where=where, order=order, classes=classes))

    def browse(
        self,
        queue: str,
        type: str | None = None,
        *,
        where: str | None = None,
        after: int = 0,
        count: int | None = None,
        classes: Classes | None = None,
    ) -> Iterator[QueueMessage]:
        """See `AsyncClient.browse`."""
        for part in self.browse_batches(queue, type, where=where, after=after, count=count):
            yield from part.messages(classes)

    def browse_batches(
        self,
        queue: str,
        type: str | None = None,
        *,
        where: str | None = None,
        after: int = 0,
        count: int | None = None,
    ) -> Iterator[TakenBatch]:
        """See `AsyncClient.browse_batches`. Each crossing of threads brings one reply of the broker."""
        while count is None or count > 0:
            wanted = BROWSED if count is None else min(count, BROWSED)
            found = self._run(_listed(self._client.browse_batches(queue, type, where=where, after=after, count=wanted)))
            yield from found
            if not found:
                return
            after = int(found[-1].numbers[-1])
            count = None if count is None else count - sum(map(len, found))

    def move(
        self,
        source: str,
        target: str,
        type: str | None = None,
        *,
        where: str | None = None,
        count: int | None = None,
    ) -> int:
        """See `AsyncClient.move`."""
        return self._run(self._client.move(source, target, type, where=where, count=count))

    def purge(
        self,
        queue: str,
        type: str | None = None,
        *,
        where: str | None = None,
        count: int | None = None,
    ) -> int:
        """See `AsyncClient.purge`."""
        return self._run(self._client.purge(queue, type, where=where, count=count))

    def transaction(self) -> SyncTransaction:
        """See `AsyncClient.transaction`; use a plain `with`."""
        return SyncTransaction(self._run, self._run(_made(self._client.transaction)))

    def decide(self, gid: str, commit: bool) -> bool:
        """See `AsyncClient.decide`."""
        return self._run(self._client.decide(gid, commit))

    def in_doubt(self, coordinator: str | None = None) -> list[tuple[str, str]]:
        """See `AsyncClient.in_doubt`."""
        return self._run(self._client.in_doubt(coordinator))

    def decisions(self) -> list[tuple[str, str]]:
        """See `AsyncClient.decisions`."""
        return self._run(self._client.decisions())

    def forget_decision(self, gid: str) -> None:
        """See `AsyncClient.forget_decision`."""
        self._run(self._client.forget_decision(gid))

    def settle(self, gid: str, number: int) -> bool:
        """See `AsyncClient.settle`."""
        return self._run(self._client.settle(gid, number))

    def holding(self, number: int) -> HoldingInfo:
        """See `AsyncClient.holding`."""
        return self._run(self._client.holding(number))

    def transfer(self, queue: str, address: str, target: str) -> None:
        """See `AsyncClient.transfer`."""
        self._run(self._client.transfer(queue, address, target))

    def delete_transfer(self, queue: str) -> None:
        """See `AsyncClient.delete_transfer`."""
        self._run(self._client.delete_transfer(queue))

    def transfers(self) -> list[TransferInfo]:
        """See `AsyncClient.transfers`."""
        return self._run(self._client.transfers())

    def worker(
        self,
        queue: str,
        type: str | None = None,
        *,
        where: str | None = None,
        order: str | None = None,
        concurrency: int = 4,
        count: int = 1,
        classes: Classes | None = None,
        backoff: float = BACKOFF_S,
    ) -> Callable[[Handler], Handler]:
        """See `AsyncClient.worker`. The function runs in a thread of its own, with a `SyncTransaction`."""
        registering = self._client.worker(
            queue,
            type,
            where=where,
            order=order,
            concurrency=concurrency,
            count=count,
            classes=classes,
            backoff=backoff,
        )

        def register(handler: Handler) -> Handler:
            if inspect.iscoroutinefunction(handler):
                raise InvalidValue("a worker of Client is a plain function; AsyncClient takes an async one")
            if takes_two(handler):

                @wraps(handler)
                async def call(message: QueueMessage, tx: Transaction) -> None:
                    await asyncio.to_thread(handler, message, SyncTransaction(self._run, tx))

                registering(call)
            else:

                @wraps(handler)
                async def call_alone(message: QueueMessage) -> None:
                    await asyncio.to_thread(handler, message)

                registering(call_alone)
            return handler

        return register

    def run_workers(self) -> None:
        """See `AsyncClient.run_workers`: blocks until another thread calls `stop_workers`."""
        self._run(self._client.run_workers())

    def stop_workers(self) -> None:
        """See `AsyncClient.stop_workers`. Any thread may call it."""
        self._run(_made(self._client.stop_workers))


async def _made(make: Callable[[], T]) -> T:
    """Call a function in the event loop's thread."""
    return make()


async def _listed(parts: Any) -> list[TakenBatch]:
    return [part async for part in parts]
