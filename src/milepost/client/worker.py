"""Workers: functions that are called with messages of a queue, each call in a transaction."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from milepost.client.backoff import Backoff
from milepost.client.taken import Classes, QueueMessage
from milepost.client.transaction import Transaction
from milepost.errors import Closed, InvalidValue, MilepostError

WAIT_S: Final = 60.0  # of one dequeue: the broker tells at once when there is something, so this only has to be long

Handler = TypeVar("Handler", bound=Callable[..., Any])

_log = logging.getLogger("milepost.client")


@dataclass(frozen=True, slots=True)
class Worker:
    """A function, and the messages that it wants."""

    handler: Callable[..., Any]
    with_transaction: bool  # it takes that as its second argument
    queue: str
    kind: str | None
    where: str | None
    order: str | None
    concurrency: int
    count: int
    classes: Classes | None


class Workers:
    """Those of one client."""

    def __init__(self) -> None:
        self._workers: list[Worker] = []
        self._stop: asyncio.Event | None = None  # while they run
        self.handled = 0  # messages, in transactions that were committed
        self.failed = 0  # transactions

    def registering(
        self,
        queue: str,
        kind: str | None,
        where: str | None,
        order: str | None,
        concurrency: int,
        count: int,
        classes: Classes | None,
    ) -> Callable[[Handler], Handler]:
        """The decorator for a worker."""

        def register(handler: Handler) -> Handler:
            both = takes_two(handler)
            self._workers.append(Worker(handler, both, queue, kind, where, order, concurrency, count, classes))
            return handler

        return register

    async def run(self, begin: Callable[[], Transaction]) -> None:
        """Until they are stopped; raises what ended the client."""
        if self._stop is not None:
            raise InvalidValue("the workers of this client are running already")
        if not self._workers:
            raise InvalidValue("this client has no workers; decorate a function with @client.worker(queue)")
        stop = self._stop = asyncio.Event()
        try:
            async with asyncio.TaskGroup() as group:
                for worker in self._workers:
                    for _ in range(worker.concurrency):
                        group.create_task(self._work(worker, begin, stop), name=f"milepost worker of {worker.queue}")
        except* MilepostError as errors:
            raise errors.exceptions[0] from None
        finally:
            self._stop = None

    def stop(self) -> None:
        """Take no more messages; those that were taken are finished."""
        if self._stop is not None:
            self._stop.set()

    async def _work(self, worker: Worker, begin: Callable[[], Transaction], stop: asyncio.Event) -> None:
        backoff = Backoff()
        while not stop.is_set():
            transaction = begin()  # raises what ended the client, and that ends all workers
            try:
                async with transaction:
                    found = await _next(worker, transaction, stop)
                    for message in found:
                        await _call(worker, message, transaction)
            except Closed:
                raise
            except (Exception, asyncio.CancelledError) as error:
                current = asyncio.current_task()
                if isinstance(error, asyncio.CancelledError) and current is not None and current.cancelling():
                    raise  # this task; otherwise something that the function waited for was cancelled, and it failed
                self.failed += 1
                _log.error("a worker of queue %s failed, and its messages go back", worker.queue, exc_info=error)
                with suppress(TimeoutError):
                    async with asyncio.timeout(backoff.next()):
                        await stop.wait()
            else:
                self.handled += len(found)
                backoff = Backoff()


async def _next(worker: Worker, transaction: Transaction, stop: asyncio.Event) -> list[QueueMessage]:
    """The next messages, or none when the worker is to stop."""
    stopping = asyncio.ensure_future(stop.wait())
    try:
        while not stop.is_set():
            taking = asyncio.ensure_future(
                transaction.dequeue(
                    worker.queue, worker.kind, count=worker.count, where=worker.where, order=worker.order,
                    timeout=WAIT_S, classes=worker.classes,
                )
            )  # fmt: skip
            try:
                await asyncio.wait((taking, stopping), return_when=asyncio.FIRST_COMPLETED)
                if taking.done() and (found := taking.result()):
                    return found
            finally:
                if not taking.done():
                    taking.cancel()  # which aborts the transaction: nothing that comes now is lost
                    with suppress(asyncio.CancelledError):
                        await taking
                    await transaction.abort()
        return []
    finally:
        stopping.cancel()


async def _call(worker: Worker, message: QueueMessage, transaction: Transaction) -> None:
    made = worker.handler(message, transaction) if worker.with_transaction else worker.handler(message)
    if inspect.isawaitable(made):
        await made


def takes_two(handler: Callable[..., Any]) -> bool:
    """Whether a worker wants its transaction too."""
    if not callable(handler):
        raise InvalidValue(f"a worker is a function of a message, not {handler!r:.60}")
    try:
        parameters = list(inspect.signature(handler).parameters.values())
    except (TypeError, ValueError):
        return False
    places = [
        each
        for each in parameters
        if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD, each.VAR_POSITIONAL)
    ]
    required = [each for each in places if each.default is each.empty and each.kind is not each.VAR_POSITIONAL]
    if not places or len(required) > 2:
        raise InvalidValue("a worker takes the message, or the message and the transaction")
    return len(places) >= 2
