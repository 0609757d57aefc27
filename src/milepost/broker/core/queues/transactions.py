"""The driver of queue transactions in a broker: it turns frames into requests of the machine, and replies into frames.

`milepost.queues.machine` decides about transactions. This module adds the broker's part: frames that are repeated on
another connection, credit for ENQUEUE frames, types that another broker has declared, memory for replies, and
acknowledgements that are stored with a commit.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from milepost import limits
from milepost.batch.header import fingerprint_of
from milepost.broker.core.effects import Effect, Inspect, Say, Write
from milepost.broker.core.queues.clients import ClientLeases, ConnectedClient, HeldFrame
from milepost.broker.core.queues.taken import messages
from milepost.broker.core.sessions.connection import Connection
from milepost.errors import (
    AckMismatch,
    BrokerError,
    InvalidValue,
    MilepostError,
    NotDurable,
    NoTransaction,
    TransactionAborted,
    UnknownType,
)
from milepost.operations import Look, steps
from milepost.operations import queues as operations
from milepost.query import decode
from milepost.queues.machine import TransactionMachine, unknown
from milepost.queues.open_transaction import KeptReply, OpenTransaction, TransactionRequest
from milepost.queues.requests import answer_to, dequeue_of, operation_of, require_right
from milepost.schema import Schema
from milepost.wire import Browse, Decide, DeclareType, DeleteTransfer, Dequeue, Enqueue, Finish, Reply, SetTransfer

if TYPE_CHECKING:
    from milepost.broker.core.core import Core
    from milepost.broker.core.log.acknowledgements import Settling

HELD_SHARE: Final = 4  # a client's ENQUEUE frames are held up to a quarter of its window, so that it can send more

log = logging.getLogger("milepost.broker")


class QueueTransactions(TransactionMachine):
    """The transactions of this broker's clients."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.memory: Final = core.memory
        self.leases: ClientLeases = ClientLeases(self, core.settings.queue_lease_s)
        super().__init__(self.leases, core.totals)
        self.types: dict[int, Schema] = {}  # by fingerprint, as far as this broker knows
        self._looking: list[OpenTransaction] | None = None  # waiting for the types; None: they are not being read

    def begin(self) -> list[Effect]:
        """Called when the store is open: recover transactions, and read the types."""
        return [Write(operations.Recover(), self.leases.swept), Write(operations.Types(), self._typed)]

    def _typed(self, outcome: Any) -> list[Effect]:
        waiting, self._looking = self._looking or [], None
        if isinstance(outcome, MilepostError):
            log.warning("the message types of the store cannot be read: %s", outcome)
        else:
            self.types = {each.schema.fingerprint: each.schema for each in outcome}
        effects: list[Effect] = []
        for transaction in waiting:
            transaction.busy = False
            effects += self.advance(transaction)
        return effects

    def figures(self) -> dict[str, int]:
        """Current figures: transactions, waiting dequeues, and bytes of held ENQUEUE frames."""
        clients = self.leases.clients.values()
        return {
            "transactions": sum(len(client.transactions) for client in clients),
            "waiting": len(self.waiting),
            "held_bytes": sum(client.held_bytes for client in clients),
        }

    # Requests outside of transactions

    def administer(self, connection: Connection, request: Any) -> list[Effect]:
        """Have the store carry out a request about queues and types; raises for errors that show without the store."""
        self.require_store()
        operation, then = operation_of(request), partial(self._administered, connection, request)
        # A look does not wait for writes, nor hold them up: a queue may be long.
        return [Inspect(operation, then, connection) if isinstance(operation, Look) else Write(operation, then)]

    def _administered(self, connection: Connection, request: Any, outcome: Any) -> list[Effect]:
        if isinstance(outcome, MilepostError):
            return self._core.reply(connection, request.request, outcome)
        value, visible = answer_to(request, outcome)
        effects: list[Effect] = []
        match request:
            case DeclareType():
                self.types[outcome.schema.fingerprint] = outcome.schema
            case Dequeue() | Browse():
                return self._say(connection, request.request, KeptReply(0, value, outcome.groups))
            case Decide():
                self.decided(request.gid, request.commit)
            case SetTransfer() | DeleteTransfer():
                self._core.transfers_changed()
        self.waiting.notify(visible.queues, effects, visible.counted)
        return [*self._core.reply(connection, request.request, value), *effects]

    # Frames of clients

    def enqueue(self, connection: Connection, said: Enqueue) -> list[Effect]:
        """Handle an ENQUEUE frame."""
        size = said.size
        self._core.admission.accept(connection, size)
        held = HeldFrame(said, connection=connection, size=size)
        try:
            transaction, repeated = self._find(connection, said.transaction, said.step)
            if transaction is None or repeated:
                effects = self.give_back([held])
                return effects if said.held else effects + self._again(connection, said)
        except MilepostError as error:
            effects = self.give_back([held])
            if said.held:
                return effects  # the request that follows gets the same error
            return effects + self._core.reply(connection, said.request, error)
        transaction.step = said.step
        self._check(transaction, held)
        transaction.held.append(held)
        transaction.held_bytes += size
        transaction.client.held_bytes += size
        much = transaction.client.held_bytes > self._core.settings.put_window // HELD_SHARE
        if said.held and not much:
            return []
        if transaction.resumed and not transaction.number:  # only a request has the number that the store knows
            transaction.over = unknown(said.transaction)
        return self._begin(transaction, None, 0) if said.held else self._begin(transaction, said, said.request)

    def asked(self, connection: Connection, request: Dequeue | Finish, now: float) -> list[Effect]:
        """Handle a request of a transaction."""
        require_right(request)
        aborts = isinstance(request, Finish) and request.how == "abort"
        transaction, repeated = self._find(connection, request.transaction, request.step, aborts)
        if transaction is None or repeated:
            return self._again(connection, request)
        transaction.step = request.step
        if transaction.resumed and not transaction.number:
            transaction.claimed = request.number
        until = now + request.wait_s if isinstance(request, Dequeue) and request.wait_s else 0.0
        return self._begin(transaction, request, request.request, until)

    def _begin(
        self, transaction: OpenTransaction, said: Dequeue | Finish | Enqueue | None, number: int, until: float = 0.0
    ) -> list[Effect]:
        """Hand a request to the machine."""
        client = transaction.client
        client.held_bytes -= transaction.held_bytes
        transaction.held_bytes = 0
        transaction.asked = transaction.step
        transaction.reply = None  # a client that sends the next request has received it
        self.memory.keep(transaction, 0)
        return self.ask(self.request(transaction, said, number, until))

    def _find(
        self, connection: Connection, number: int, step: int, aborts: bool = False
    ) -> tuple[OpenTransaction | None, bool]:
        """The transaction of a frame (None: it is finished and its reply is kept), and whether the frame is repeated.

        When the client `aborts`, steps may be missing: they would be undone.
        """
        self.require_store()
        if not connection.instance:
            raise BrokerError("a client that uses queues says in its HELLO which instance it is")
        if number < 1 or step < 1 or number >= 1 << 63:
            raise NoTransaction("queues are used in a transaction: a client counts them from 1 on, and their steps")
        client = self.leases.client(connection)
        transaction = client.transactions.get(number)
        if transaction is not None:
            if step > transaction.step + 1 and not aborts:
                raise TransactionAborted(f"steps of transaction {number} are missing before {step}; run it again")
            return transaction, step <= transaction.step
        if number in client.replies:
            return None, True
        limits.require("TRANSACTIONS", len(client.transactions) + 1, "the transactions of one client at once")
        transaction = client.transactions[number] = OpenTransaction(client, number, connection.publisher.number)
        # A transaction that does not start with its first step was begun on another broker, or here before a restart.
        # The store knows whether it was committed, or whether nothing of it was stored.
        transaction.resumed = step > 1
        transaction.step = transaction.asked = step - 1
        self.totals["queue_transactions"] += 1
        return transaction, False

    def _again(self, connection: Connection, said: Dequeue | Finish | Enqueue) -> list[Effect]:
        """Answer a request that is repeated on another connection, with the kept reply or the one under way."""
        client, number = connection.owner, said.transaction
        assert client is not None
        transaction = client.transactions.get(number)
        reply = client.replies.get(number) if transaction is None else transaction.reply
        if transaction is not None:
            for each in transaction.requests:
                if each.step == said.step:
                    each.reply_to = said.request
                    return []
        if reply is None or reply.step != said.step:
            raise NoTransaction(f"transaction {number} is over; begin another")
        return self._say(connection, said.request, reply)

    def _check(self, transaction: OpenTransaction, held: HeldFrame) -> None:
        """Check a batch; an error is reported with the next request."""
        said = held.said
        try:
            limits.require("NAME_CHARS", len(said.queue), "the characters of a queue's name")
            if math.isinf(said.priority):
                raise InvalidValue(f"priority {said.priority}: takes a finite number")
            if said.due_us < 0 or said.ends_us < 0:
                raise InvalidValue("a message is due, and ends, at a time after 1970")
            schema = self.types.get(fingerprint_of(said.data))
            if schema is None:
                if held.looked:
                    raise UnknownType(
                        f"a batch for queue {said.queue!r} is of no message type that this broker has; declare it first"
                    )
                return
            batch = decode(said.data, schema)
            if not len(batch):
                raise InvalidValue("an ENQUEUE without messages")
            self._core.admission.admit(held.connection, said.queue, 0, 0, batch)
            self.memory.measured(said.queue, len(batch), len(batch.data))
            transaction.messages += len(batch)
            limits.require("TRANSACTION_MESSAGES", transaction.messages, "the messages that one transaction enqueues")
            held.batch = batch
        except MilepostError as error:
            held.error = error
        held.said = said._replace(data=b"" if held.batch is not None else said.data)

    def find_type(self, request: TransactionRequest, held: HeldFrame) -> list[Effect] | None:
        """Read the types again for a batch of an unknown type: another broker may have declared it."""
        transaction = request.transaction
        if held.looked:
            self._check(transaction, held)
            return None
        for each in request.held:
            each.looked = each.batch is None
        transaction.busy = True
        if self._looking is not None:
            self._looking.append(transaction)
            return []
        self._looking = [transaction]
        return [Write(operations.Types(), self._typed)]

    # Calls of the machine

    def clients(self) -> Iterable[ConnectedClient]:
        """See `TransactionMachine`."""
        return self.leases.clients.values()

    def write(self, operation: Any, then: Callable[[Any], list[Effect]]) -> list[Effect]:
        """See `TransactionMachine`."""
        return [Write(operation, then)]

    def look(self, operation: Any, then: Callable[[Any], list[Effect]]) -> list[Effect]:
        """See `TransactionMachine`."""
        return [Inspect(operation, then)]

    def present(self, request: TransactionRequest) -> bool:
        """Whether the client is connected."""
        return request.transaction.client.connection is not None

    def require_room(self, transaction: OpenTransaction) -> None:
        """Raise `Overloaded` when memory is short."""
        client = transaction.client
        if client.connection is not None:
            self.memory.require(client.connection, client)

    def step_of(self, said: Dequeue) -> steps.Dequeue:
        """The step of a dequeue, limited to the number of messages that a reply may have now."""
        step = dequeue_of(said)
        most = self.memory.messages(said.queue, said.count)
        return step if most == said.count else replace(step, count=most)

    def settling(self, request: TransactionRequest, effects: list[Effect]) -> list[Settling] | None:
        """The acknowledgements that are stored with a commit; None: they have to wait."""
        transaction, said = request.transaction, request.said
        connection = transaction.client.connection
        assert isinstance(said, Finish)
        if connection is None:
            raise AckMismatch("the connection broke before this was acknowledged; the messages come again")
        return self._core.durable.subscriptions.acks.settle(connection, said.acks, transaction, effects)

    def settled(self, settling: Sequence[Settling], error: MilepostError | None) -> list[Effect]:
        """See `TransactionMachine`."""
        return self._core.durable.subscriptions.acks.settled(settling, error)

    def enqueued(self, transaction: OpenTransaction, held: HeldFrame, outcome: steps.Enqueued | None) -> None:
        """Also count the messages of the connection."""
        super().enqueued(transaction, held, outcome)
        if outcome is not None:
            held.connection.rows_in += len(outcome.mids)

    def doubtful(self, request: TransactionRequest, error: MilepostError) -> list[Effect]:
        """Close the connection without a reply: the client reconnects and asks again, and the store knows then."""
        transaction, effects = request.transaction, []
        for each in transaction.requests:
            effects += self.give_back(each.held)
            transaction.uncount(each.held)
        transaction.requests.clear()
        transaction.asked = transaction.step = request.step - 1 - len(request.held)
        connection = transaction.client.connection
        return effects + (self._core.refused(connection, error) if connection is not None else [])

    def reply(self, request: TransactionRequest, reply: KeptReply) -> list[Effect]:
        """Reply on the client's current connection, and keep the reply until its next request."""
        transaction = request.transaction
        transaction.reply = reply
        if reply.value:
            mids = reply.value["mids"]
            mids[:] = [np.asarray(each, "<i8").tobytes() for each in mids]
        size = sum([len(group.batch.data) for group in reply.groups])
        if size:
            self.memory.measured(request.dequeue.queue, reply.value["messages"], size)
        self.memory.keep(transaction, size)
        connection = transaction.client.connection
        return self._say(connection, request.reply_to, reply) if connection is not None and request.reply_to else []

    def ended(self, transaction: OpenTransaction, reply: KeptReply) -> None:
        """Keep the last reply of a transaction: a client that reconnects asks for it again."""
        client = transaction.client
        self.memory.keep(transaction, 0)
        client.held_bytes -= transaction.held_bytes
        client.keep(transaction.client_number, reply)

    def _say(self, connection: Connection, request: int, reply: KeptReply) -> list[Effect]:
        if not connection.open:
            return []
        if reply.error is not None:
            return self._core.reply(connection, request, reply.error)
        said = Reply(request=request, value=reply.value)
        if not reply.groups:
            return [Say(connection, said)]
        self.memory.answered(connection, request)
        return messages(self._core.delivery, connection, request, reply.groups, said)

    def give_back(self, held: Iterable[HeldFrame]) -> list[Effect]:
        """Give the credit of ENQUEUE frames back."""
        effects: list[Effect] = []
        for each in held:
            if each.connection.open:
                self._core.admission.give_credit(each.connection, each.size, effects)
        return effects

    def require_store(self) -> None:
        """Raise `NotDurable` when the broker has no store."""
        if not self._core.durable.on:
            raise NotDurable("this broker keeps nothing, and so has no queues: start it with a store")
