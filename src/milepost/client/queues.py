"""The verbs of a client about queues: types, queues, transactions, workers."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from milepost import limits
from milepost.batch.atoms import timestamp_of
from milepost.client.options import require_dead_letter
from milepost.client.queue_session import QueueSession
from milepost.client.taken import Classes, QueueMessage, TakenBatch
from milepost.client.topic import parsed, require_text, schema_from, schema_text
from milepost.client.transaction import Transaction
from milepost.client.transfers import TransferVerbs
from milepost.client.worker import BACKOFF_S, Handler, QueueWorkers, Worker, takes_two
from milepost.errors import InvalidValue
from milepost.schema import Schema
from milepost.wire import (
    Browse,
    DeclareQueue,
    DeclareType,
    DeleteQueue,
    DeleteType,
    Dequeue,
    MoveMessages,
    Purge,
    Queues,
    Types,
)

BROWSED: Final = 500  # messages per request
RENAMED: Final = {
    "create_queue": "declare_queue",
    "define_type": "declare_type",
    "delete_forward": "delete_transfer",
    "drop_forward": "delete_transfer",
    "drop_queue": "delete_queue",
    "drop_type": "delete_type",
    "forward": "transfer",
    "forwards": "transfers",
}
"""Verbs that had other names: the error for an old name gives the new one."""


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """A queue as the broker describes it."""

    name: str
    types: tuple[str, ...]
    level: str  # of isolation: "none", "ordered", "blockwise" or "ordered blockwise"
    direction: str  # of priorities: "desc" takes the highest first
    priority: float  # of messages without a priority of their own or a function for it
    priorities: Mapping[str, str]  # by type: the expression that gives a message its priority
    dead_letter: str | None  # the queue for messages whose deliveries all failed
    max_deliveries: int | None  # deliveries before a message goes to `dead_letter`; None: no limit
    created_at: datetime
    figures: Mapping[str, int] = field(default_factory=dict)  # the broker's counters, if they were asked for


class QueueVerbs(TransferVerbs):
    """The verbs of `AsyncClient` for queues."""

    _queue_session: QueueSession
    _workers: QueueWorkers

    if not TYPE_CHECKING:  # type checkers would accept any name

        def __getattr__(self, name: str) -> Any:
            raise unknown_verb(self, name)

    # Types

    async def declare_type(self, definition: Any) -> Schema:
        """Create a message type for queues: a text in either notation, a `Schema`, a `MessageType` or a dataclass.

        A type that already is as declared stays unchanged. Raises `TypeExists` when this name has another definition.
        """
        schema = schema_from(definition)
        text = schema_text(schema)
        reply = await self._session.ask(lambda request: DeclareType(request=request, text=text))
        self._queue_session.forget()
        return parsed(reply["text"])

    async def types(self) -> dict[str, Schema]:
        """The message types by name."""
        found = await self._session.ask(lambda request: Types(request=request))
        return {each["name"]: parsed(each["text"]) for each in found}

    async def delete_type(self, name: str) -> None:
        """Remove a message type. Raises `TypeInUse` while a queue takes it."""
        require_text("the name of a type", name)
        await self._session.ask(lambda request: DeleteType(request=request, name=name), again=False)
        self._queue_session.forget()

    # Queues

    async def declare_queue(
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
        """Create a queue for messages of some types. One that is as declared stays; `QueueExists` for a different one.

        `level` is the isolation level: "none", "ordered" (a writer's messages in order),
        "blockwise" (a writer's transactions whole) or "ordered blockwise". Messages come by priority, in `direction`:
        their own, or the result of the expression in `priorities` for their type, or `priority`; within one priority,
        in order of arrival. A message that was delivered `max_deliveries` times, each time to a transaction that was
        aborted, goes to queue `dead_letter`, which is created if it does not exist.
        """
        require_text("the name of a queue", name)
        named = [types] if isinstance(types, str) else list(types)
        for each in named:
            require_text("the name of a type", each)
        for what, text in (("a level", level), ("a direction", direction)):
            require_text(what, text)
        for kind, text in (priorities or {}).items():
            require_text("the name of a type", kind)
            require_text("a priority function", text)
        _require_number("priority", priority)
        require_dead_letter("a dead-letter queue", max_deliveries, dead_letter)
        reply = await self._session.ask(
            lambda request: DeclareQueue(
                request=request,
                name=name,
                types=named,
                level=level,
                direction=direction,
                priority=float(priority),
                functions=dict(priorities or {}),
                dead_letter=dead_letter,
                max_deliveries=max_deliveries or 0,
            )
        )
        self._queue_session.forget()
        return _info(reply)

    async def delete_queue(self, name: str) -> None:
        """Remove a queue. Raises `QueueInUse` while it has messages or open transactions."""
        require_text("the name of a queue", name)
        await self._session.ask(lambda request: DeleteQueue(request=request, name=name), again=False)
        self._queue_session.forget()

    async def queues(self) -> list[QueueInfo]:
        """All queues, with the broker's statistics of each."""
        return [_info(each) for each in await self._session.ask(lambda request: Queues(request=request))]

    async def queue(self, name: str) -> QueueInfo:
        """One queue. Raises `UnknownQueue` when it does not exist."""
        require_text("the name of a queue", name)
        (found,) = await self._session.ask(lambda request: Queues(request=request, name=name))
        return _info(found)

    async def peek(
        self,
        queue: str,
        type: str | None = None,
        *,
        count: int = 1,
        where: str | None = None,
        order: str | None = None,
        classes: Classes | None = None,
    ) -> list[QueueMessage]:
        """The messages that `Transaction.dequeue` would take now. They stay: another reader may take them."""
        _require_texts(queue, type, where, order)
        _require_count(count)
        reply = await self._session.ask(
            lambda request: Dequeue(
                request=request, queue=queue, type=type, count=count, where=where, order=order, peek=True
            )
        )
        return [message for group in reply.get("groups", ()) for message in group.messages(classes)]

    async def browse(
        self,
        queue: str,
        type: str | None = None,
        *,
        where: str | None = None,
        after: int = 0,
        count: int | None = None,
        classes: Classes | None = None,
    ) -> AsyncIterator[QueueMessage]:
        """The current messages of a queue in order of arrival; none is taken.

        At most `count`, starting after number `after`.
        """
        async for part in self.browse_batches(queue, type, where=where, after=after, count=count):
            for message in part.messages(classes):
                yield message

    async def browse_batches(
        self,
        queue: str,
        type: str | None = None,
        *,
        where: str | None = None,
        after: int = 0,
        count: int | None = None,
    ) -> AsyncIterator[TakenBatch]:
        """Like `browse`, a batch at a time, each of one type: `part.batch.to_arrow()`, `part.priorities`."""
        _require_texts(queue, type, where, None)
        if count is not None:
            _require_count(count)
        while count is None or count > 0:
            found = await self._browse(queue, type, where, after, BROWSED if count is None else min(count, BROWSED))
            parts = found.get("groups", ())
            for part in parts:
                yield part
            if not parts:
                return
            after = int(found["after"])
            count = None if count is None else count - sum(map(len, parts))

    async def _browse(self, queue: str, kind: str | None, where: str | None, after: int, count: int) -> Any:
        return await self._session.ask(
            lambda request: Browse(request=request, queue=queue, type=kind, where=where, after=after, count=count)
        )

    async def move(
        self,
        source: str,
        target: str,
        type: str | None = None,
        *,
        where: str | None = None,
        count: int | None = None,
    ) -> int:
        """Move messages that satisfy `where`, and are not taken, to another queue. Returns their number."""
        _require_texts(source, type, where, None)
        require_text("the name of a queue", target)
        if count is not None:
            _require_count(count, None)
        reply = await self._session.ask(
            lambda request: MoveMessages(
                request=request, source=source, target=target, type=type, where=where, count=count
            ),
            again=False,
        )
        return int(reply["messages"])

    async def purge(
        self,
        queue: str,
        type: str | None = None,
        *,
        where: str | None = None,
        count: int | None = None,
    ) -> int:
        """Remove messages that satisfy `where`, and are not taken. Returns their number."""
        _require_texts(queue, type, where, None)
        if count is not None:
            _require_count(count, None)
        reply = await self._session.ask(
            lambda request: Purge(request=request, queue=queue, type=type, where=where, count=count), again=False
        )
        return int(reply["messages"])

    # Transactions

    def transaction(self) -> Transaction:
        """A transaction on queues::

        async with client.transaction() as tx:
            await tx.enqueue("orders", order)
            found = await tx.dequeue("orders", "OrderMessage", count=10, where="...", order="...")
        """
        self._session.require_open()
        return Transaction(self._queue_session)

    # Workers

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
        """A decorator: the function is called with each message, in a transaction that commits when it returns.

        ::

            @client.worker("orders", "OrderMessage", where="...", concurrency=4)
            async def handle(message, tx):
                await tx.enqueue("invoices", invoice(message))

            await client.run_workers()

        The function takes the message alone, or the transaction too. An exception aborts the transaction: its messages
        return to the queue after a pause, with one more delivery counted. The first pause is about `backoff` seconds;
        each further one in a row is twice as long, up to a minute. `concurrency` is the number of concurrent
        transactions, `count` the number of messages that each takes.
        """
        _require_texts(queue, type, where, order)
        _require_count(count)
        _require_count(concurrency, "TRANSACTIONS")
        _require_number("backoff", backoff)
        if not 0 <= backoff < math.inf:
            raise InvalidValue(f"backoff={backoff!r}: takes the seconds of the first pause, from 0 on")

        def register(handler: Handler) -> Handler:
            both, pause = takes_two(handler), float(backoff)
            self._workers.add(Worker(handler, both, queue, type, where, order, concurrency, count, classes, pause))
            return handler

        return register

    async def run_workers(self) -> None:
        """Run all workers until `stop_workers`, or until the client fails: then raise its error.

        A dequeue error that no retry can fix (`QueryTypeError`, `UnknownQueue`, `WrongType`) ends all workers and is
        raised once the others have finished their transactions.
        """
        self._session.require_open()
        await self._workers.run(self.transaction, self._session.over)

    def stop_workers(self) -> None:
        """Let `run_workers` return once open transactions are finished."""
        self._workers.stop()


def unknown_verb(client: Any, name: str) -> AttributeError:
    """The error for a name that a client does not have."""
    new = f"; it is called {RENAMED[name]} now" if name in RENAMED else ""
    return AttributeError(f"{type(client).__name__!r} object has no attribute {name!r}{new}", name=name, obj=client)


def _info(said: Mapping[str, Any]) -> QueueInfo:
    return QueueInfo(
        said["name"], tuple(said["types"]), said["level"], said["direction"], said["priority"], said["functions"],
        said["dead_letter"], said["max_deliveries"] or None, timestamp_of(said["created_us"]),
        said.get("statistics") or {},
    )  # fmt: skip


def _require_texts(queue: Any, kind: Any, where: Any, order: Any) -> None:
    require_text("the name of a queue", queue)
    for what, text in (("the name of a type", kind), ("a predicate", where), ("an ordering", order)):
        if text is not None:
            require_text(what, text)


def _require_count(count: Any, limit: str | None = "DEQUEUE_MESSAGES") -> None:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise InvalidValue(f"{count!r}: takes a number from 1 on")
    if limit is not None:
        limits.require(limit, count, "the messages of one request" if "MESSAGES" in limit else "transactions at once")


def _require_number(what: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidValue(f"{what}={value!r}: takes a number")
    if isinstance(value, int) and abs(value) >= 1 << 63:
        raise InvalidValue(f"{what}={value!r:.40}: takes a number of up to 63 bits")
