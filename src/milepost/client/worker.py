"""Workers: functions that are called with messages of a queue, each call in a transaction.

A failure may be temporary, so the worker retries after a growing pause. A message whose function failed stays in its
transaction during the pause: otherwise another worker would take it at once, and `max_deliveries` would be spent in
milliseconds. An error of a dequeue that no retry can fix, such as a wrong name in a predicate, ends all workers.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import traceback
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from milepost.client.backoff import Backoff
from milepost.client.taken import Classes, QueueMessage
from milepost.client.transaction import Transaction
from milepost.errors import (
    Closed,
    Fenced,
    HandshakeRefused,
    InvalidValue,
    MilepostError,
    ProtocolError,
    QueryError,
    StateLost,
    UnknownQueue,
    UnknownType,
    WrongType,
)

WAIT_S: Final = 60.0  # of one dequeue: the broker answers at once when there is a message, so this only has to be long
BACKOFF_S: Final = 1.0  # bound of the first pause after a failure: enough for a short outage
LONGEST_S: Final = 60.0  # bound of any later pause, unless the first was longer
SHOWN_CHARS: Final = 200  # of a function's exception, in the log

# Errors of a dequeue when the worker is declared wrongly, or its client has ended. `retriable` is another question:
# a caller should not repeat a query that took too long, or a store that fails, at once, but a worker pauses first.
ENDING: Final = (
    QueryError, UnknownQueue, UnknownType, WrongType, InvalidValue,
    Closed, Fenced, StateLost, HandshakeRefused, ProtocolError,
)  # fmt: skip

Handler = TypeVar("Handler", bound=Callable[..., Any])

_log = logging.getLogger("milepost.client")


@dataclass(frozen=True, slots=True)
class Worker:
    """A function, and the messages that it takes."""

    handler: Callable[..., Any]
    with_transaction: bool  # the function takes the transaction as its second argument
    queue: str
    kind: str | None
    where: str | None
    order: str | None
    concurrency: int
    count: int
    classes: Classes | None
    backoff: float  # seconds

    def backoff_anew(self) -> Backoff:
        """New pauses for one of its tasks, from the first on."""
        return Backoff(first=self.backoff, longest=LONGEST_S)


class _HandlerFailed(Exception):
    """A function raised; the error was logged, and the pause is over."""


class QueueWorkers:
    """The workers of one client."""

    def __init__(self) -> None:
        self._workers: list[Worker] = []
        self._stop: asyncio.Event | None = None  # set while they run
        self._refused: MilepostError | None = None  # the error that ended them: a dequeue that no retry can fix
        self.handled = 0  # messages, in transactions that were committed
        self.failed = 0  # transactions

    def add(self, worker: Worker) -> None:
        self._workers.append(worker)

    async def run(self, begin: Callable[[], Transaction], over: Callable[[], Awaitable[None]]) -> None:
        """Run until stopped. Raises the error that ended the client, or that of a dequeue which no retry can fix.

        `over` returns when the client has ended.
        """
        if self._stop is not None:
            raise InvalidValue("the workers of this client are running already")
        if not self._workers:
            raise InvalidValue("this client has no workers; decorate a function with @client.worker(queue)")
        stop = self._stop = asyncio.Event()
        self._refused = None
        try:
            async with asyncio.TaskGroup() as group:
                for worker in self._workers:
                    for _ in range(worker.concurrency):
                        work = self._work(worker, begin, stop, over)
                        group.create_task(work, name=f"milepost worker of {worker.queue}")
        except* MilepostError as errors:
            raise errors.exceptions[0] from None
        finally:
            self._stop = None
        if self._refused is not None:
            raise self._refused

    def stop(self) -> None:
        """Take no more messages; those already taken are finished."""
        if self._stop is not None:
            self._stop.set()

    async def _work(
        self, worker: Worker, begin: Callable[[], Transaction], stop: asyncio.Event, over: Callable[[], Awaitable[None]]
    ) -> None:
        backoff = worker.backoff_anew()
        while not stop.is_set():
            transaction = begin()  # raises the error that ended the client, which ends all workers
            found: list[QueueMessage] | None = None
            try:
                async with transaction:
                    found = await _next(worker, transaction, stop)
                    for message in found:
                        try:
                            await _call(worker, message, transaction)
                        except (Exception, asyncio.CancelledError) as error:
                            _pass_cancellation(error)
                            header, where = message.header, _place(error)
                            what = f"message {header.id}, delivery {header.deliveries + 1}, failed{where} and goes back"
                            await _pause(worker, what, error, backoff, stop, over)
                            raise _HandlerFailed from None
            except _HandlerFailed:
                self.failed += 1
            except (Exception, asyncio.CancelledError) as error:
                _pass_cancellation(error)
                if found is None and isinstance(error, ENDING):
                    if self._refused is None:  # also logged at once: the program may be waiting for something else
                        _log.error("queue %s: the workers end: %s", worker.queue, error)
                        self._refused = error
                    stop.set()  # the others finish their messages
                    return
                self.failed += 1
                what = "a dequeue failed" if found is None else f"the commit of {len(found)} messages failed"
                what += " and is tried again"
                await _pause(worker, what, error, backoff, stop, over)
            else:
                self.handled += len(found)
                backoff = worker.backoff_anew()


def _pass_cancellation(error: BaseException) -> None:
    """Raise if this task was cancelled. Otherwise only an awaitable of the function was, which counts as a failure."""
    current = asyncio.current_task()
    if isinstance(error, asyncio.CancelledError) and current is not None and current.cancelling():
        raise error


def _place(error: BaseException) -> str:
    """The file and line where a handler raised, for the log."""
    frames = traceback.extract_tb(error.__traceback__)
    return f" in {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""


async def _pause(
    worker: Worker, what: str, error: BaseException, backoff: Backoff, stop: asyncio.Event,
    over: Callable[[], Awaitable[None]],
) -> None:  # fmt: skip
    """Log a failure in one line, and wait. Half of the time is random, so that workers do not retry together."""
    seconds = (backoff.bound + backoff.next()) / 2
    _log.error("queue %s: %s in %.1f s: %s", worker.queue, what, seconds, repr(error)[:SHOWN_CHARS])
    _log.debug("queue %s: where that was raised", worker.queue, exc_info=error)
    ends = [asyncio.ensure_future(stop.wait()), asyncio.ensure_future(over())]
    try:
        await asyncio.wait(ends, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in ends:
            each.cancel()


async def _next(worker: Worker, transaction: Transaction, stop: asyncio.Event) -> list[QueueMessage]:
    """The next messages, or none when the worker must stop."""
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
                    taking.cancel()  # which aborts the transaction: no message that arrives now is lost
                    with suppress(asyncio.CancelledError):
                        await taking
                    await transaction.abort()
                elif not taking.cancelled():
                    taking.exception()  # or asyncio would report an unretrieved exception when this task is cancelled
        return []
    finally:
        stopping.cancel()


async def _call(worker: Worker, message: QueueMessage, transaction: Transaction) -> None:
    made = worker.handler(message, transaction) if worker.with_transaction else worker.handler(message)
    if inspect.isawaitable(made):
        await made


def takes_two(handler: Callable[..., Any]) -> bool:
    """Whether a worker takes its transaction too."""
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
