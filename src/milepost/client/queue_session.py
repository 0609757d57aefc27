"""What a client knows about queues: their types, its transactions to abort, the broker's time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from milepost import limits
from milepost.batch import Batch
from milepost.batch.plain_rows import PlainRows, plain_rows
from milepost.client.durable import DurableSubscription
from milepost.client.session import ClientSession
from milepost.client.subscriptions import Subscriptions
from milepost.client.taken import QueueMessage
from milepost.client.topic import parsed, schema_from
from milepost.errors import (
    AckMismatch,
    ConnectionLost,
    InvalidValue,
    MilepostError,
    TimedOut,
    UnknownType,
    WrongType,
    did_you_mean,
)
from milepost.query import encode, enforce
from milepost.schema import Node, Schema
from milepost.schema.node import type_of
from milepost.wire import Queues, Types, Welcome
from milepost.wire.queue import ENQUEUE_HEADER

if TYPE_CHECKING:
    from milepost.client.transaction import Transaction


class QueueSession:
    """The state of a client about queues."""

    def __init__(self, session: ClientSession, subscriptions: Subscriptions, use: Callable[[], None]) -> None:
        """`use` is called before a transaction stores anything: the broker's state matters from then on."""
        self.session: Final = session
        self._use = use
        self._subscriptions = subscriptions
        self.batch_bytes = limits.FRAME_BYTES - ENQUEUE_HEADER
        self._numbers = count(1)
        self._types: dict[str, Schema] = {}
        self._queues: dict[str, tuple[str, ...]] = {}  # the types that each queue takes
        self._aborts: dict[Transaction, asyncio.Future[None]] = {}
        self._offset_us = 0  # of the broker's clock from the local monotonic clock

    def welcomed(self, welcome: Welcome) -> None:
        """Called after a handshake."""
        self.batch_bytes = welcome.frame_bytes - ENQUEUE_HEADER
        self._offset_us = welcome.time_us - time.monotonic_ns() // 1_000

    def time_us(self) -> int:
        """Microseconds since 1970, by the broker's clock."""
        return self._offset_us + time.monotonic_ns() // 1_000

    def next_number(self) -> int:
        """The number of a new transaction."""
        self._use()
        return next(self._numbers)

    # Types

    def forget(self) -> None:
        """Forget which queue takes which types, and ask again: an answer was unexpected."""
        self._queues.clear()
        self._types.clear()

    async def schema_for(self, queue: str, wanted: Any, messages: Any) -> Schema:
        """The schema to encode messages with."""
        if isinstance(wanted, str):
            return self._types.get(wanted) or await self._named(wanted)
        if wanted is not None:
            return schema_from(wanted)
        if isinstance(messages, Batch):
            return messages.schema
        taken = self._queues.get(queue)
        if taken is None:
            (found,) = await self.session.ask(lambda request: Queues(request=request, name=queue, counted=False))
            taken = self._queues[queue] = tuple(found["types"])
        name = taken[0] if len(taken) == 1 else await self._fitting(queue, taken, messages)
        return self._types.get(name) or await self._named(name)

    async def _named(self, name: str) -> Schema:
        found = await self.session.ask(lambda request: Types(request=request))
        self._types = {each["name"]: parsed(each["text"]) for each in found}
        if name not in self._types:
            near = did_you_mean(name, self._types)
            raise UnknownType(f"there is no message type {name!r}{near or '; make it with declare_type'}")
        return self._types[name]

    async def _fitting(self, queue: str, names: tuple[str, ...], messages: Any) -> str:
        """The type whose root matches a node, for a queue that takes several types."""
        first = messages[0] if isinstance(messages, list | tuple) and messages else messages
        if isinstance(first, QueueMessage) and first.header.type in names:
            return first.header.type
        if isinstance(first, Node):
            for name in names:
                schema = self._types.get(name) or await self._named(name)
                if schema.message_type is not None and schema.message_type.root == type_of(first):
                    return name
        raise WrongType(f"queue {queue!r} takes messages of {', '.join(names)}; say which these are, with type=")

    def plain_rows(self, schema: Schema, messages: Any) -> PlainRows | None:
        """Messages unencoded, if their type allows it and the connection takes them so."""
        connection = self.session.connection
        if connection is None or not connection.takes_plain_rows:
            return None
        rows = messages if type(messages) is list else [messages]
        return plain_rows(schema, rows)

    def encoded(self, schema: Schema, messages: Any) -> Batch:
        """Messages as a batch. Raises the error of an invalid message."""
        if isinstance(messages, Batch):
            if messages.schema.fingerprint != schema.fingerprint:
                raise InvalidValue(f"a batch of {messages.schema.name}, where messages are of {schema.name}")
            enforce(messages)
            batch = messages
        else:
            batch = batch_of(schema, messages)
        if not len(batch):
            raise InvalidValue("there is no message to enqueue")
        limits.require("TRANSACTION_MESSAGES", len(batch), "the messages that one transaction enqueues")
        return batch

    def subscription_of(self, what: Any) -> DurableSubscription:
        """The subscription that handed out a message or a batch."""
        for each in self._subscriptions.durable():
            if each.handed_out(what):
                return each
        raise AckMismatch(
            "this is no message or batch that waits for its acknowledgement, of a durable subscription of this client "
            'with ack="explicit": it was acknowledged before, or the connection broke since, and it comes again'
        )

    # Aborts

    def abort(self, transaction: Transaction) -> None:
        """Tell the broker that a transaction is aborted, until it answers."""
        future = self._aborts[transaction] = asyncio.get_running_loop().create_future()
        self.session.start(self._abort(transaction, future), "abort")
        if self.session.failure is not None:
            self._heard(transaction, future)

    async def _abort(self, transaction: Transaction, future: asyncio.Future[None]) -> None:
        try:
            while True:
                try:
                    await transaction.tell_abort()
                    return
                except ConnectionLost:
                    self.session.require_open()
                except MilepostError:
                    return  # the transaction is over at the broker, too
        except MilepostError:
            pass  # the client has ended
        finally:
            self._heard(transaction, future)

    def _heard(self, transaction: Transaction, future: asyncio.Future[None]) -> None:
        self._aborts.pop(transaction, None)
        if not future.done():
            future.set_result(None)

    async def aborted(self, transaction: Transaction) -> None:
        """Wait until the broker knows of the abort. After `TimedOut` the client keeps telling it."""
        future = self._aborts.get(transaction)
        if future is not None:
            try:
                async with asyncio.timeout(self.session.timeout):
                    await asyncio.shield(future)
            except TimeoutError:
                raise TimedOut(f"the broker did not answer within {self.session.timeout:g} s") from None


def batch_of(schema: Schema, messages: Any) -> Batch:
    """One message or several as a batch: rows, an Arrow table or a frame.

    A dict is always one message. It could be columns too, but a type with a list field takes a dict of lists for one
    message, and the same call must not mean something else when a field is added.
    """
    many = isinstance(messages, list | tuple) or (
        not isinstance(messages, Mapping | Node | QueueMessage | str | bytes)
        and (hasattr(messages, "__arrow_c_stream__") or hasattr(messages, "__next__"))
    )
    source = messages if many else [messages]
    if isinstance(source, list | tuple):
        source = [QueueMessage.plain(each) if isinstance(each, QueueMessage) else each for each in source]
    try:
        return encode(schema, source)
    except InvalidValue as error:
        if not isinstance(messages, Mapping) or not all(_is_column(messages[name]) for name in messages):
            raise
        raise InvalidValue(
            f"{error}; a dict is one message: give columns as an Arrow table, a frame or milepost.encode(type, columns)"
        ) from None


def _is_column(value: Any) -> bool:
    return isinstance(value, list | tuple) or hasattr(value, "__array__") or hasattr(value, "__arrow_c_array__")
