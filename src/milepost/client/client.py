"""The synchronous face of the client."""

from __future__ import annotations

import asyncio
import os
import threading
import uuid
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Literal, TypeVar

from milepost.batch import Batch
from milepost.client.async_client import ANSWER_S, DEFAULT_ADDRESS, WINDOW_BYTES, AsyncClient
from milepost.client.atomic import Atomic
from milepost.client.durable import DurableSubscription
from milepost.client.logbatch import LogBatch
from milepost.client.options import PREFETCH
from milepost.client.read import TAKEN_BYTES
from milepost.client.staging import Published
from milepost.client.start import Start
from milepost.client.statistics import ClientStatistics
from milepost.client.subscription import Subscription
from milepost.client.sync_queues import SyncQueueVerbs
from milepost.client.topic import Retention, TopicInfo
from milepost.errors import Closed, InvalidValue, MilepostError
from milepost.schema import Schema

T = TypeVar("T")


class Client(SyncQueueVerbs):
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
        self._client = AsyncClient(
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
            self._run(self._client.connect())
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
                self._run(self._client.close(drain=drain))
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
        return self._client.broker_id

    @property
    def failure(self) -> MilepostError | None:
        """See `AsyncClient.failure`."""
        return self._client.failure

    def declare_topic(
        self,
        name: str,
        schema: Any,
        *,
        slow: str | None = None,
        durable: bool | None = None,
        retain: Retention | Mapping[str, Any] | None = None,
    ) -> TopicInfo:
        """See `AsyncClient.declare_topic`."""
        return self._run(self._client.declare_topic(name, schema, slow=slow, durable=durable, retain=retain))

    def delete_topic(self, name: str) -> None:
        """See `AsyncClient.delete_topic`."""
        self._run(self._client.delete_topic(name))

    def topics(self, pattern: str = ">") -> list[TopicInfo]:
        """See `AsyncClient.topics`."""
        return self._run(self._client.topics(pattern))

    def versions(self, topic: str, *, again: bool = False) -> tuple[Schema, ...]:
        """See `AsyncClient.versions`."""
        return self._run(self._client.versions(topic, again=again))

    def status(self) -> dict[str, Any]:
        """See `AsyncClient.status`."""
        return self._run(self._client.status())

    def look(self, topic: str, start: Start = None) -> dict[str, Any]:
        """See `AsyncClient.look`."""
        return self._run(self._client.look(topic, start))

    def trim(self, topic: str, before: int | Mapping[int, int]) -> int:
        """See `AsyncClient.trim`."""
        return self._run(self._client.trim(topic, before))

    def hold(self, topic: str, name: str, position: Mapping[int, int] | None = None) -> dict[int, int]:
        """See `AsyncClient.hold`."""
        return self._run(self._client.hold(topic, name, position))

    def put(self, topic: str, row: Any, key: bytes | uuid.UUID | None = None, *, wait: bool = True) -> None:
        """See `AsyncClient.put`."""
        self._run(self._client.put(topic, row, key, wait=wait))

    def put_many(self, topic: str, source: Any) -> int:
        """See `AsyncClient.put_many`."""
        return self._run(self._client.put_many(topic, source))

    def flush(self, timeout: float | None = None) -> None:
        """See `AsyncClient.flush`."""
        self._run(self._client.flush(timeout))

    @contextmanager
    def atomic(self) -> Iterator[Atomic]:
        """See `AsyncClient.atomic`; use a plain `with`."""
        together = self._client.atomic()
        try:
            yield together
        except BaseException:
            together.abandon()
            raise
        self._run(together.store())

    def stage(self, sink: str, epoch: int, part: int, attempt: int, topic: str, source: Any) -> int:
        """See `AsyncClient.stage`."""
        return self._run(self._client.stage(sink, epoch, part, attempt, topic, source))

    def publish(
        self,
        sink: str,
        epoch: int,
        parts: Sequence[tuple[int, int]],
        extra: Mapping[str, Any] | None = None,
    ) -> Published:
        """See `AsyncClient.publish`."""
        return self._run(self._client.publish(sink, epoch, parts, extra))

    def published(self, sink: str) -> int | None:
        """See `AsyncClient.published`."""
        return self._run(self._client.published(sink))

    def unstage(self, sink: str, epoch: int) -> None:
        """See `AsyncClient.unstage`."""
        self._run(self._client.unstage(sink, epoch))

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
            self._client.subscribe(
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
        reading = self._run(self._client._begin_read(topic, start, stop, where))
        try:
            while found := self._run(reading.take_batches(TAKEN_BYTES)):
                yield from found
        finally:
            if not reading.ended:
                self._run(self._client.detach(reading))

    def get(self, topic: str, timeout: float | None = None) -> Any:
        """See `AsyncClient.get`."""
        return self._run(self._client.get(topic, timeout))

    def get_many(self, topic: str, count: int, timeout: float | None = None) -> list[Any]:
        """See `AsyncClient.get_many`."""
        return self._run(self._client.get_many(topic, count, timeout))

    def unsubscribe(
        self, subscription: str | SyncSubscription | None = None, *, name: str | None = None, token: bytes | None = None
    ) -> None:
        """See `AsyncClient.unsubscribe`."""
        chosen = subscription.asynchronous if isinstance(subscription, SyncSubscription) else subscription
        self._run(self._client.unsubscribe(chosen, name=name, token=token))

    def detach(self, subscription: SyncSubscription) -> None:
        """See `AsyncClient.detach`."""
        chosen: Any = subscription.asynchronous if isinstance(subscription, SyncSubscription) else subscription
        self._run(self._client.detach(chosen))

    def statistics(self) -> ClientStatistics:
        """The client's counters."""
        return self._client.statistics()


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
