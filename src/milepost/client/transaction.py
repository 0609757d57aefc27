"""A transaction on queues: its writes and reads take effect when it commits, or not at all."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np

from milepost import limits
from milepost.batch import Batch
from milepost.batch.header import Buffer
from milepost.batch.plain_rows import PlainRows
from milepost.client.acks import BatchRows
from milepost.client.connection import BrokerConnection
from milepost.client.durable import DurableSubscription
from milepost.client.taken import Classes, QueueMessage, TakenBatch, micros
from milepost.client.topic import require_text
from milepost.errors import (
    AckMismatch,
    BlockIncomplete,
    ConnectionLost,
    InvalidValue,
    MilepostError,
    NoTransaction,
    OutcomeUnknown,
    TimedOut,
    TransactionAborted,
)
from milepost.wire import Ack, Control, Dequeue, Enqueue, Finish
from milepost.wire.queue import NO_PRIORITY

if TYPE_CHECKING:
    from milepost.client.queue_session import QueueSession

PIECE_BYTES: Final = 1 << 20  # a larger enqueue is sent in several frames
SEND_BYTES: Final = 1 << 20  # gathered here before they are sent without waiting for a request
# Seconds for which a commit may be repeated: stores remember the outcome of a transaction for ten minutes, and would
# execute it again after that.
REPEATED_S: Final = 480.0
FLUSH_BYTES: Final = 32 << 20  # that may have to be sent again: with more, the broker is asked to execute them


class Receipt:
    """The result of an `enqueue`: the IDs of its messages, once the transaction was committed or flushed."""

    __slots__ = ("_frames", "_told", "rows")

    def __init__(self, rows: int, frames: int) -> None:
        self.rows: Final = rows
        self._frames = frames
        self._told: list[tuple[int, int, Any]] = []  # of each frame that was answered: writer, transaction, numbers

    @property
    def mids(self) -> list[str]:
        """The IDs, "S/T/M", in the order of the messages."""
        if len(self._told) < self._frames:
            raise NoTransaction("messages have IDs when they are stored: after the commit, or after tx.flush()")
        return [
            f"{writer}/{transaction}/{number}"
            for writer, transaction, numbers in self._told
            for number in (np.frombuffer(numbers, "<i8").tolist() if isinstance(numbers, bytes) else numbers)
        ]

    def tell(self, writer: int, transaction: int, numbers: Any) -> None:
        """Add the IDs of one stored frame: a list of numbers, or its bytes, as most programs never ask."""
        self._told.append((writer, transaction, numbers))


class _Pending:
    """An ENQUEUE that no reply has confirmed."""

    __slots__ = ("batch", "connection", "frame", "receipt")

    def __init__(self, frame: Enqueue, batch: Batch | PlainRows, receipt: Receipt) -> None:
        self.frame: Final = frame
        self.batch: Final = batch
        self.receipt: Final = receipt
        self.connection: BrokerConnection | None = None  # that it was sent on last


class Transaction:
    """Made by `AsyncClient.transaction`.

    ::

        async with client.transaction() as tx:
            for order in await tx.dequeue("orders", "OrderMessage", count=10, timeout=5):
                await tx.enqueue("invoices", invoice(order))

    Leaving the block commits; leaving it by an exception, or with a writer's block taken in part, aborts. The
    transaction survives a lost connection if the client reconnects within the broker's lease. Otherwise, and when the
    broker restarted, it was aborted, and every call raises `TransactionAborted`: run the block again.
    """

    def __init__(self, queue_session: QueueSession) -> None:
        self._queue_session = queue_session
        self._session = queue_session.session
        self._client = queue_session.next_number()
        self._number = 0  # the store's number
        self._step = 0
        self._pending: list[_Pending] = []
        self._untold: deque[Receipt] = deque()  # for each frame that the broker has: the receipt that lacks its IDs
        self._unsent = self._unconfirmed = 0  # bytes
        self._acks: dict[DurableSubscription, list[tuple[list[BatchRows], int]]] = {}
        self._lock = asyncio.Lock()  # one request at a time
        self._over: MilepostError | None = None  # why the transaction can no longer be used
        self._finished = False  # the broker holds nothing of it

    def __repr__(self) -> str:
        return f"<Transaction {self._client}{'' if self._over is None else ', over'}>"

    @property
    def number(self) -> int:
        """T of the messages that it writes; 0 while the broker's store holds nothing of it."""
        return self._number

    # Writing

    async def enqueue(
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
        """Put a message into a queue, or many: a list, a batch, an Arrow table, a frame. A dict is one message.

        They are checked at once: after `InvalidValue` or `CheckFailed`, nothing was enqueued. They are sent with the
        next request of the transaction, which raises the broker's errors, and these end the transaction:
        `UnknownQueue`, `WrongType`. `type` is the name of the message type, or the type itself; it may be omitted when
        the queue takes only one. `priority` overrides the queue's function. A message is not delivered before
        `not_before`, or before `delay` seconds have passed, nor after `expires`.
        """
        self._require_open()
        require_text("the name of a queue", queue)
        limits.require("NAME_CHARS", len(queue), "the characters of a queue's name")
        number = NO_PRIORITY if priority is None else _priority(priority)
        due_us, ends_us = self._due(delay, not_before), self._ends(expires)
        schema = await self._queue_session.schema_for(queue, type, messages)
        pieces: Sequence[Batch | PlainRows]
        plain = self._queue_session.plain_rows(schema, messages)
        if plain is not None:
            pieces = (plain,)
        else:
            batch = self._queue_session.encoded(schema, messages)
            pieces = _pieces(batch, min(PIECE_BYTES, self._queue_session.batch_bytes))
        self._require_open()
        receipt = Receipt(sum(map(len, pieces)), len(pieces))
        for piece in pieces:
            self._step += 1
            data = b"" if isinstance(piece, PlainRows) else piece.data
            frame = Enqueue(0, self._client, self._step, queue, number, due_us, ends_us, True, data)
            self._pending.append(_Pending(frame, piece, receipt))
            self._unsent += len(data)
            self._unconfirmed += len(data)
        if self._unconfirmed > FLUSH_BYTES:
            await self.flush()
        elif self._unsent > SEND_BYTES:
            await self._send_early()
        return receipt

    async def flush(self) -> None:
        """Have the broker execute the enqueues so far, and learn the IDs. Other clients see them after the commit."""
        await self._ask(
            lambda request, step: Finish(
                request=request, transaction=self._client, step=step, number=self._number, how="flush"
            ),
            self._session.timeout,
        )

    # Reading

    async def dequeue(
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
        """Take up to `count` messages: those that satisfy `where`, in the order of `order`, or of their priorities.

        `where` is a predicate over the type's members, `order` one or several expressions, each with `asc` or `desc`.
        When no message qualifies, this waits `timeout` seconds, None for ever, and returns an empty list. `classes` are
        the generated classes of the type: `NODE_CLASSES`. Messages taken are hidden from other readers; the commit
        removes them, an abort puts them back. A cancelled dequeue aborts the transaction, so that nothing is lost.

        `select` is the old name of `where`, and will be removed in the next version.
        """
        if select is not None:
            if where is not None:
                raise InvalidValue("dequeue takes where=, or select=, its old name, and not both; give where= alone")
            where = select
        found = await self.dequeue_batches(queue, type, count=count, where=where, order=order, timeout=timeout)
        return [message for part in found for message in part.messages(classes)]

    async def dequeue_batches(
        self,
        queue: str,
        type: str | None = None,
        *,
        count: int = 1,
        where: str | None = None,
        order: str | None = None,
        timeout: float | None = 0.0,
    ) -> list[TakenBatch]:
        """Like `dequeue`, but as batches, each of one type: `part.batch.to_arrow()`, `part.priorities`."""
        self._require_open()
        require_text("the name of a queue", queue)
        for what, text in (("the name of a type", type), ("a predicate", where), ("an ordering", order)):
            if text is not None:
                require_text(what, text)
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise InvalidValue(f"count={count!r}: takes a number of messages, from 1 on")
        limits.require("DEQUEUE_MESSAGES", count, "the messages of one dequeue")
        clock = asyncio.get_running_loop().time
        end = math.inf if timeout is None else clock() + _seconds("timeout", timeout)
        while True:
            wait_s = min(max(0.0, end - clock()), float(limits.DEQUEUE_WAIT_S)) if timeout != 0 else 0.0

            def request(number: int, step: int, wait_s: float = wait_s) -> Control:
                return Dequeue(
                    request=number, transaction=self._client, step=step, number=self._number, queue=queue, type=type,
                    count=count, where=where, order=order, wait_s=wait_s,
                )  # fmt: skip

            value, again = await self._ask(request, wait_s + self._session.timeout)
            groups: list[TakenBatch] = list(value.get("groups", ()))
            # A broker that loses its client ends the wait; so repeat the request while there is time left.
            if groups or timeout == 0 or clock() >= end or not (again or end == math.inf):
                return groups

    # Subscriptions that feed queues

    def ack(self, what: Any) -> None:
        """Acknowledge messages of a durable subscription with the commit: its cursor moves if and only if it succeeds.

        `what` is a message, a `LogBatch`, or the subscription, for all messages that it has handed out so far. The
        subscription has ack="explicit". After an abort its messages wait for their acknowledgement as before; if the
        connection broke meanwhile they are delivered again, and the commit fails with `AckMismatch`.
        """
        self._require_open()
        if isinstance(what, DurableSubscription):
            self._acks.setdefault(what, []).append(what.named(None))
        else:
            subscription = self._queue_session.subscription_of(what)
            self._acks.setdefault(subscription, []).append(subscription.named(what))

    # Ending

    async def commit(self, *, decision: tuple[str, str] | None = None) -> None:
        """Commit: when this returns, all effects of the transaction are stored, and synced to disk.

        When the connection breaks meanwhile, the commit is repeated on the next one, for up to eight minutes, and this
        reports its outcome. `OutcomeUnknown` when there was no connection for so long, or the client was closed: then,
        and after a cancelled commit, it may have happened or not. `BlockIncomplete` leaves the transaction open; after
        any other error it is aborted. `decision`, a name and a participant, is stored with it: see `prepare`.
        """
        if self._over is None and not self._step and not self._acks:  # the broker never heard of it
            self._end(NoTransaction("this transaction was committed; begin another with client.transaction()"))
            return
        told = None if decision is None else {"gid": decision[0], "participant": decision[1]}

        acks: list[Ack] = []

        def request(number: int, step: int) -> Control:
            return Finish(
                request=number, transaction=self._client, step=step, number=self._number, how="commit", decision=told,
                acks=acks,
            )  # fmt: skip

        self._require_open()
        reserved: list[DurableSubscription] = []
        try:
            # Ordered by number: two transactions that acknowledge the same subscriptions must not deadlock.
            for subscription in sorted(self._acks, key=lambda each: each.number):
                spans = [span for some, _ in self._acks[subscription] for span in some]
                acks.append(await subscription.acks.reserve(spans))
                reserved.append(subscription)
            await self._ask(request, None, ends=True)
            self._acks.clear()
        except BlockIncomplete:
            raise
        except AckMismatch:
            self._acks.clear()  # they are delivered again
            self._give_up(
                TransactionAborted("messages that it acknowledges come again, so it was undone; run it again")
            )
            raise
        except BaseException:
            self._give_up(TransactionAborted("its commit failed, and so it was undone; run it again"))
            raise
        finally:
            for subscription in reserved:
                subscription.acks.released()
        self._end(NoTransaction("this transaction was committed; begin another with client.transaction()"))

    async def prepare(self, gid: str, coordinator: str) -> None:
        """Be ready to commit or to abort, whatever happens, until `AsyncClient.decide` decides."""
        if self._acks:
            raise InvalidValue("a transaction that acknowledges messages of a subscription is committed, not prepared")

        def request(number: int, step: int) -> Control:
            return Finish(
                request=number, transaction=self._client, step=step, number=self._number, how="prepare", gid=gid,
                coordinator=coordinator,
            )  # fmt: skip

        try:
            await self._ask(request, None)
        except BlockIncomplete:
            raise
        except BaseException:
            self._give_up(TransactionAborted("it could not be prepared, and so it was undone; run it again"))
            raise
        self._end(NoTransaction(f"this transaction is prepared; decide about it by its name, {gid!r}"))

    async def abort(self) -> None:
        """Undo the transaction: messages that it took are back, messages that it wrote are gone."""
        over = NoTransaction("this transaction was aborted; begin another with client.transaction()")
        if isinstance(self._over, TransactionAborted):
            self._over = over  # the abort is expected now: leaving the block raises nothing
        self._give_up(over)
        try:
            await self._queue_session.aborted(self)
        except MilepostError:
            pass  # the client is closed, or not connected: its broker aborts the transaction

    async def __aenter__(self) -> Transaction:
        self._session.require_open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            await self.abort()
        elif isinstance(self._over, TransactionAborted | OutcomeUnknown):
            raise self._over
        elif self._over is None:
            try:
                await self.commit()
            except BlockIncomplete:
                await self.abort()  # a program that leaves the block takes no more
                raise

    def _end(self, over: MilepostError) -> None:
        self._over, self._finished = over, True
        self._pending.clear()

    def _give_up(self, over: MilepostError) -> None:
        """Abort the transaction at the broker: a task of the client repeats the request until it is answered."""
        if self._finished:
            return
        begun = self._step
        for subscription, named in self._acks.items():
            for spans, connections in named:
                subscription.give_back(spans, connections)
        self._acks.clear()
        self._end(over)
        if begun:
            self._queue_session.abort(self)

    async def tell_abort(self) -> None:
        """Tell the broker that this transaction is over. Called until the broker answers."""
        self._step += 1
        step = self._step

        def request(number: int) -> Control:
            return Finish(request=number, transaction=self._client, step=step, number=self._number, how="abort")

        await (await self._session.connected()).ask(request)

    # Requests

    def _require_open(self) -> None:
        if self._over is not None:
            raise self._over
        self._session.require_open()

    async def _ask(
        self, make: Callable[[int, int], Control], timeout: float | None, *, ends: bool = False
    ) -> tuple[Any, bool]:
        """The reply to a request, and whether it was sent more than once.

        After a failure without an answer it is unknown what the broker did: the transaction is aborted then, unless
        this request `ends` it and may have succeeded.
        """
        async with self._lock:
            self._require_open()
            self._step += 1
            step, sent, again = self._step, False, False
            began, last = time.time(), asyncio.get_running_loop().time() + REPEATED_S
            try:
                async with asyncio.timeout(timeout) as limit:
                    while True:
                        connection = await self._session.connected()
                        if ends and again and time.time() > began + REPEATED_S:  # the machine was suspended meanwhile
                            raise TimeoutError
                        try:
                            before = await self._sent(connection, step)
                            sent = True
                            value = await connection.ask(lambda number: make(number, step), before)
                            break
                        except ConnectionLost:
                            again = True
                            if ends:
                                limit.reschedule(last)
            except BaseException as error:
                answered = isinstance(error, MilepostError) and self._session.failure is None
                if not ends or not sent or answered:
                    self._failed(error, step, REPEATED_S if timeout is None else timeout)
                over = OutcomeUnknown(
                    "nobody waited for this commit to the end, and it may be done or not: look whether its messages "
                    "are there, or are gone, before it is run again"
                )
                self._give_up(over)
                if isinstance(error, MilepostError | TimeoutError):
                    raise over from error
                raise
            self._confirm(step, value)
            return value, again

    def _failed(self, error: BaseException, step: int, timeout: float) -> NoReturn:
        """Handle a failed request that was answered or does not end the transaction."""
        if isinstance(error, TransactionAborted):
            self._give_up(error)
        elif isinstance(error, MilepostError):
            self._queue_session.forget()  # a queue or a type may have changed
            self._confirm(step, None)
        elif isinstance(error, TimeoutError):
            late = TimedOut(f"the broker did not answer within {timeout:g} s; this transaction is undone")
            self._give_up(TransactionAborted(str(late)))
            raise late from None
        else:
            self._give_up(TransactionAborted("a request in it was cancelled, and so it was undone; run it again"))
        raise error

    async def _sent(self, connection: BrokerConnection, step: int) -> list[Buffer]:
        """Send frames enqueued before a step that are not on this connection yet. Returns the parts of the last frames.

        Those are written together with the request; frames that must wait for room are written at once.
        """
        parts: list[Buffer] = []
        for pending in self._pending:
            if pending.frame.step > step:
                break
            if pending.connection is not connection:
                if not connection.has_room:
                    if parts:
                        connection.send(*parts)
                        parts = []
                    await connection.room()
                if pending.connection is None:
                    self._unsent -= len(pending.frame.data)
                pending.connection = connection
                parts += connection.enqueue(pending.frame, pending.batch)
        return parts

    async def _send_early(self) -> None:
        async with self._lock:
            connection = self._session.connection
            if connection is not None:
                try:
                    connection.send(*await self._sent(connection, self._step))
                except ConnectionLost:
                    pass  # it is sent again with the next request

    def _confirm(self, step: int, value: Any) -> None:
        """Handle an answer: the broker has executed or refused all frames sent before."""
        done = [pending for pending in self._pending if pending.frame.step < step]
        self._pending = self._pending[len(done) :]
        self._untold += [pending.receipt for pending in done]
        self._unconfirmed = sum(len(pending.frame.data) for pending in self._pending)
        self._unsent = sum(len(pending.frame.data) for pending in self._pending if pending.connection is None)
        if isinstance(value, dict) and "t" in value:
            self._number = int(value["t"]) or self._number
            for numbers in value["mids"]:
                if self._untold:
                    self._untold.popleft().tell(value["s"], value["t"], numbers)

    # Times

    def _due(self, delay: float | timedelta | None, not_before: datetime | None) -> int:
        if delay is not None and not_before is not None:
            raise InvalidValue("a message has a delay or a not_before, not both")
        if not_before is not None:
            return micros(not_before)
        return 0 if delay is None else self._queue_session.time_us() + int(_seconds("delay", delay) * 1_000_000)

    def _ends(self, expires: float | timedelta | datetime | None) -> int:
        if expires is None:
            return 0
        if isinstance(expires, datetime):
            return micros(expires)
        return self._queue_session.time_us() + int(_seconds("expires", expires) * 1_000_000)


def _seconds(what: str, value: Any) -> float:
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < MOST_SECONDS:
        raise InvalidValue(f"{what}={value!r}: takes a number of seconds, from 0 on")
    return float(value)


MOST_SECONDS: Final = 1e11  # more than three thousand years


def _priority(value: Any) -> float:
    try:
        number = math.nan if isinstance(value, bool) or not isinstance(value, int | float) else float(value)
    except OverflowError:  # an integer too large for a float
        number = math.inf
    if not math.isfinite(number):
        raise InvalidValue(f"priority={value!r:.40}: takes a finite number")
    return number


def _pieces(batch: Batch, most: int) -> list[Batch]:
    """A batch in pieces of about `most` bytes; one row is never split."""
    if len(batch.data) <= most or len(batch) == 1:
        return [batch]
    rows = max(1, len(batch) * most // len(batch.data))
    parts = [batch.slice(start, start + rows) for start in range(0, len(batch), rows)]
    return [piece for part in parts for piece in (_pieces(part, most) if len(part) < len(batch) else [part])]
