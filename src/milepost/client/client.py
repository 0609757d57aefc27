"""The synchronous face of the client: each verb runs the asynchronous one and waits for it."""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar

from milepost.batch import Batch
from milepost.client.async_client import ANSWER_S, DEFAULT_ADDRESS, WINDOW_BYTES, AsyncClient
from milepost.client.atomic import Atomic
from milepost.client.durable import DurableSubscription
from milepost.client.logbatch import LogBatch
from milepost.client.options import PREFETCH
from milepost.client.queues import BROWSED, unknown_verb
from milepost.client.read import TAKEN_BYTES
from milepost.client.start import Start
from milepost.client.statistics import ClientStatistics
from milepost.client.subscription import Subscription
from milepost.client.taken import Classes, QueueMessage, TakenBatch
from milepost.client.transaction import Transaction
from milepost.client.worker import BACKOFF_S, Handler, takes_two
from milepost.errors import Closed, InvalidValue, MilepostError

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """The blocking form of a method of `asynchronous`, with the same parameters and documentation."""

    @wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        found: T = self._run(method(self.asynchronous, *args, **kwargs))
        return found

    return call


class Client:
    """`AsyncClient` for programs without an event loop: the same verbs, each blocking until it is done.

    ::

        with milepost.Client("milepost://127.0.0.1:7450") as client:
            client.put("quotes", {"symbol": "IBM", "price": 101.5, "size": 200})
            for message in client.subscribe("quotes", "price > 100"): ...

    A thread of its own runs the event loop, uvloop where it is installed. Any thread may call. Each call changes
    threads twice, which costs far more than a put itself: to put fast, use `put_many`.
    """

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        *,
        name: str = "",
        slow: str | None = None,
        window: int = WINDOW_BYTES,
        reconnect: bool = True,
        timeout: float = ANSWER_S,
        clock: Callable[[], float] | None = None,
        known_broker_id: str | None = None,
    ) -> None:
        self.asynchronous = AsyncClient(
            address,
            name=name,
            slow=slow,
            window=window,
            reconnect=reconnect,
            timeout=timeout,
            clock=clock,
            known_broker_id=known_broker_id,
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._process = 0  # the process that runs the thread: a forked child has no such thread

    if not TYPE_CHECKING:  # type checkers would accept any name

        def __getattr__(self, name: str) -> Any:
            raise unknown_verb(self, name)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """The one bridge: run a coroutine of the asynchronous client in its thread, and wait for it."""
        if self._loop is None or self._loop.is_closed():
            work.close()
            raise Closed("this client is not connected, or closed; write `with Client(...) as client`, or connect()")
        if self._process != os.getpid():
            work.close()
            raise Closed(
                f"this client was connected by process {self._process}, and this is a child that was forked from it, "
                "which has no connection: make another Client here, or start the child by 'spawn' or 'forkserver'"
            )
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # an interrupted call also cancels its coroutine
            raise

    def connect(self) -> Client:
        """Start the thread and connect. Raises `ConnectionLost` when no broker answers."""
        if self._thread is not None:
            raise Closed("this client was connected before; make another")
        self._loop = _new_loop()
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._loop.run_forever, name="milepost client", daemon=True)
        self._thread.start()
        try:
            self._run(self.asynchronous.connect())
        except BaseException:
            self._end()
            raise
        return self

    def close(self, *, drain: bool = True) -> None:
        """Send the rows in outboxes, disconnect, and end the thread; without `drain`, disconnect now.

        Does nothing in a forked child: the connection and the thread are the parent's.
        """
        if self._loop is not None and not self._loop.is_closed() and self._process == os.getpid():
            try:
                self._run(self.asynchronous.close(drain=drain))
            finally:
                self._end()

    def _end(self) -> None:
        assert self._loop is not None
        assert self._thread is not None
        self._run(_finished())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Client:
        return self.connect()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(drain=kind is None)

    @property
    def broker_id(self) -> str:
        """See `AsyncClient.broker_id`."""
        return self.asynchronous.broker_id

    @property
    def failure(self) -> MilepostError | None:
        """See `AsyncClient.failure`."""
        return self.asynchronous.failure

    declare_topic = _blocking(AsyncClient.declare_topic)
    delete_topic = _blocking(AsyncClient.delete_topic)
    topics = _blocking(AsyncClient.topics)
    versions = _blocking(AsyncClient.versions)
    status = _blocking(AsyncClient.status)
    look = _blocking(AsyncClient.look)
    trim = _blocking(AsyncClient.trim)
    hold = _blocking(AsyncClient.hold)

    put = _blocking(AsyncClient.put)
    put_many = _blocking(AsyncClient.put_many)
    flush = _blocking(AsyncClient.flush)

    @contextmanager
    def atomic(self) -> Iterator[Atomic]:
        """See `AsyncClient.atomic`; use a plain `with`."""
        together = self.asynchronous.atomic()
        try:
            yield together
        except BaseException:
            together.abandon()
            raise
        self._run(together.store())

    stage = _blocking(AsyncClient.stage)
    publish = _blocking(AsyncClient.publish)
    published = _blocking(AsyncClient.published)
    unstage = _blocking(AsyncClient.unstage)

    def subscribe(
        self,
        pattern: str,
        where: str | None = None,
        *,
        callback: Callable[[Any], None] | None = None,
        batches: bool = False,
        name: str | None = None,
        start: Start = None,
        ack: Literal["auto", "explicit"] = "auto",
        prefetch: int = PREFETCH,
        max_deliveries: int | None = None,
        dead_letter: str | None = None,
        create: bool = True,
        token: bytes | None = None,
    ) -> SyncSubscription:
        """See `AsyncClient.subscribe`. A callback runs in the client's thread, and must not call the client."""
        made = self._run(
            self.asynchronous.subscribe(
                pattern,
                where,
                callback=callback,
                batches=batches,
                name=name,
                start=start,
                ack=ack,
                prefetch=prefetch,
                max_deliveries=max_deliveries,
                dead_letter=dead_letter,
                create=create,
                token=token,
            )
        )
        return SyncSubscription(self._run, made)

    def read(
        self, topic: str, start: Mapping[int, int], stop: Mapping[int, int], where: str | None = None
    ) -> Iterator[LogBatch]:
        """See `AsyncClient.read`. Batches cross threads several at a time."""
        reading = self._run(self.asynchronous._begin_read(topic, start, stop, where))
        try:
            while found := self._run(reading.take_batches(TAKEN_BYTES)):
                yield from found
        finally:
            if not reading.ended:
                self._run(self.asynchronous.detach(reading))

    get = _blocking(AsyncClient.get)
    get_many = _blocking(AsyncClient.get_many)

    def unsubscribe(
        self, subscription: str | SyncSubscription | None = None, *, name: str | None = None, token: bytes | None = None
    ) -> None:
        """See `AsyncClient.unsubscribe`."""
        chosen = subscription.asynchronous if isinstance(subscription, SyncSubscription) else subscription
        self._run(self.asynchronous.unsubscribe(chosen, name=name, token=token))

    def detach(self, subscription: SyncSubscription) -> None:
        """See `AsyncClient.detach`."""
        chosen: Any = subscription.asynchronous if isinstance(subscription, SyncSubscription) else subscription
        self._run(self.asynchronous.detach(chosen))

    def statistics(self) -> ClientStatistics:
        """The client's counters."""
        return self.asynchronous.statistics()

    declare_type = _blocking(AsyncClient.declare_type)
    types = _blocking(AsyncClient.types)
    delete_type = _blocking(AsyncClient.delete_type)
    declare_queue = _blocking(AsyncClient.declare_queue)
    delete_queue = _blocking(AsyncClient.delete_queue)
    queues = _blocking(AsyncClient.queues)
    queue = _blocking(AsyncClient.queue)
    peek = _blocking(AsyncClient.peek)

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
            found = self._run(
                _listed(self.asynchronous.browse_batches(queue, type, where=where, after=after, count=wanted))
            )
            yield from found
            if not found:
                return
            after = int(found[-1].numbers[-1])
            count = None if count is None else count - sum(map(len, found))

    move = _blocking(AsyncClient.move)
    purge = _blocking(AsyncClient.purge)

    def transaction(self) -> SyncTransaction:
        """See `AsyncClient.transaction`; use a plain `with`."""
        return SyncTransaction(self._run, self._run(_made(self.asynchronous.transaction)))

    decide = _blocking(AsyncClient.decide)
    in_doubt = _blocking(AsyncClient.in_doubt)
    decisions = _blocking(AsyncClient.decisions)
    forget_decision = _blocking(AsyncClient.forget_decision)
    settle = _blocking(AsyncClient.settle)
    holding = _blocking(AsyncClient.holding)
    transfer = _blocking(AsyncClient.transfer)
    delete_transfer = _blocking(AsyncClient.delete_transfer)
    transfers = _blocking(AsyncClient.transfers)

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
        registering = self.asynchronous.worker(
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
            takes_two(handler)  # raises if it is no function of one or two arguments

            @wraps(handler)
            async def call(message: QueueMessage, *tx: Transaction) -> None:
                await asyncio.to_thread(handler, message, *(SyncTransaction(self._run, each) for each in tx))

            registering(call)
            return handler

        return register

    def run_workers(self) -> None:
        """See `AsyncClient.run_workers`: blocks until another thread calls `stop_workers`."""
        self._run(self.asynchronous.run_workers())

    def stop_workers(self) -> None:
        """See `AsyncClient.stop_workers`. Any thread may call it."""
        self._run(_made(self.asynchronous.stop_workers))


class SyncTransaction:
    """See `Transaction`; use a plain `with`."""

    def __init__(self, run: Callable[[Coroutine[Any, Any, Any]], Any], transaction: Transaction) -> None:
        self._run = run
        self.asynchronous = transaction

    @property
    def number(self) -> int:
        """See `Transaction.number`."""
        return self.asynchronous.number

    enqueue = _blocking(Transaction.enqueue)
    dequeue = _blocking(Transaction.dequeue)
    dequeue_batches = _blocking(Transaction.dequeue_batches)

    def ack(self, what: Any) -> None:
        """See `Transaction.ack`."""
        meant = what.asynchronous if isinstance(what, SyncSubscription) else what
        self._run(_made(lambda: self.asynchronous.ack(meant)))

    flush = _blocking(Transaction.flush)
    commit = _blocking(Transaction.commit)
    prepare = _blocking(Transaction.prepare)
    abort = _blocking(Transaction.abort)

    def __enter__(self) -> SyncTransaction:
        self._run(self.asynchronous.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self.asynchronous.__aexit__(kind, error, trace))


class SyncSubscription:
    """A `Subscription` to iterate over with a plain `for`. Messages cross threads many at a time."""

    def __init__(self, run: Callable[[Coroutine[Any, Any, Any]], Any], subscription: Subscription) -> None:
        self._run = run
        self.asynchronous = subscription

    def __getattr__(self, name: str) -> Any:
        if name in _SHOWN or (name in _SHOWN_OF_DURABLE and isinstance(self.asynchronous, DurableSubscription)):
            return getattr(self.asynchronous, name)
        raise AttributeError(f"a subscription has no {name!r}")

    def __dir__(self) -> list[str]:
        more = _SHOWN_OF_DURABLE if isinstance(self.asynchronous, DurableSubscription) else ()
        return [*super().__dir__(), *_SHOWN, *more]

    def __repr__(self) -> str:
        return repr(self.asynchronous)

    def __iter__(self) -> Iterator[Any]:
        while True:
            # This thread makes the views from batches that the loop's thread fetched; only fetching crosses threads.
            yield from self.asynchronous.current
            if not self._run(self.asynchronous.advance()):
                return

    def get(self, timeout: float | None = None) -> Any:
        """The next message; None when none came within `timeout` seconds, or when the subscription has ended."""
        if not isinstance(self.asynchronous, DurableSubscription):  # a durable message must be acknowledged first
            for message in self.asynchronous.current:
                return message
        return self._run(self.asynchronous.get(timeout))

    def get_many(self, count: int, timeout: float | None = None) -> list[Any]:
        """See `DurableSubscription.get_many`."""
        found: list[Any] = self._run(self._durable.get_many(count, timeout))
        return found

    def ack(self, what: Any = None) -> None:
        """See `DurableSubscription.ack`."""
        self._run(self._durable.ack(what))

    def nack(self, what: Any = None) -> None:
        """See `DurableSubscription.nack`."""
        self._run(self._durable.nack(what))

    def detach(self) -> None:
        """See `DurableSubscription.detach`."""
        self._run(self._durable.detach())

    @property
    def _durable(self) -> DurableSubscription:
        if not isinstance(self.asynchronous, DurableSubscription):
            raise InvalidValue(f"the subscription to {self.asynchronous.name} is not durable: subscribe with a name")
        return self.asynchronous

    def batches(self) -> Iterator[Batch]:
        """The messages a batch at a time."""
        while (batch := self._run(self.asynchronous.next_batch())) is not None:
            yield batch

    def unsubscribe(self) -> None:
        """End the subscription."""
        self._run(self.asynchronous.unsubscribe())

    def close(self) -> None:
        """End the subscription; a named one stays at the broker."""
        self._run(self.asynchronous.close())

    def __enter__(self) -> SyncSubscription:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


_SHOWN = ("pattern", "where", "topics", "skipped", "dropped", "lost", "error", "topic", "number", "ended", "name")
_SHOWN_OF_DURABLE = ("log", "offset", "deliveries", "position", "created", "options")


async def _finished() -> None:
    """Cancel all tasks that other threads wait for, so that none waits for ever."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


async def _made(make: Callable[[], T]) -> T:
    """Call a function in the event loop's thread."""
    return make()


async def _listed(parts: AsyncIterator[T]) -> list[T]:
    return [part async for part in parts]
