"""The driver of queue transactions in a client without a broker: a reply is the result of a request's future."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from milepost import limits
from milepost.errors import ConnectionLost, Fenced, MilepostError
from milepost.operations import steps
from milepost.queues.leases import Leases
from milepost.queues.machine import Effects, TransactionMachine
from milepost.queues.open_transaction import HeldEnqueue, KeptReply, OpenTransaction, QueueClient, TransactionRequest
from milepost.queues.requests import dequeue_of
from milepost.wire import Dequeue


class BrokerlessTransactions(TransactionMachine):
    """The transactions of one connection. Its effects are operations, each with the function that takes the outcome."""

    def __init__(self, lease_s: float, now: float) -> None:
        """`now`, in seconds of the event loop's clock, is when the store was recovered."""
        super().__init__(Leases(self, lease_s, now), Counter())
        self._client = QueueClient(b"")
        self._writer = 0

    def begin(self, instance: bytes, writer: int) -> None:
        """Know the client: its object, and S of what it writes."""
        self._client, self._writer = QueueClient(instance), writer

    def transaction(self, number: int, step: int) -> OpenTransaction:
        """The transaction that a client calls so; one that does not begin with its first step was begun elsewhere."""
        transactions = self._client.transactions
        transaction = transactions.get(number)
        if transaction is None:
            limits.require("TRANSACTIONS", len(transactions) + 1, "the transactions of one client at once")
            transaction = transactions[number] = OpenTransaction(self._client, number, self._writer, resumed=step > 1)
        return transaction

    def hold(self, transaction: OpenTransaction, held: HeldEnqueue) -> None:
        """Let an enqueue go with the next request. What is wrong with it is told then."""
        assert held.batch is not None
        transaction.held.append(held)
        transaction.messages += len(held.batch)
        try:
            limits.require("TRANSACTION_MESSAGES", transaction.messages, "the messages that one transaction enqueues")
        except MilepostError as error:
            held.error = error

    # What the machine asks of its driver

    def clients(self) -> Iterable[QueueClient]:
        """The one that there is."""
        return (self._client,)

    def write(self, operation: Any, then: Callable[[Any], Effects]) -> Effects:
        """See `TransactionMachine`."""
        return [(operation, then)]

    look = write  # the store knows by the operation

    def present(self, request: TransactionRequest) -> bool:
        """Whether nobody has cancelled it."""
        return bool(request.reply_to) and not request.reply_to.done()

    def step_of(self, said: Dequeue) -> steps.Dequeue:
        """Messages go to a program in this process, as they are in the tables."""
        return dequeue_of(said, plain=True)

    def doubtful(self, request: TransactionRequest, error: MilepostError) -> Effects:
        """The client asks again on this connection, without what it has sent: so that is held again."""
        transaction = request.transaction
        transaction.held = request.held + transaction.held
        return self.settle(request, KeptReply(0, error=ConnectionLost(str(error))))

    def reply(self, request: TransactionRequest, reply: KeptReply) -> Effects:
        """Resolve the future of a request. When another process has taken the log over, the client connects again."""
        future: asyncio.Future[KeptReply] = request.reply_to
        if future and not future.done():
            if reply.error is None:
                future.set_result(reply)
            else:
                fenced = isinstance(reply.error, Fenced)
                future.set_exception(ConnectionLost(str(reply.error)) if fenced else reply.error)
        return []

    def ended(self, transaction: OpenTransaction, reply: KeptReply) -> None:
        """Nothing is asked for again on this connection."""
        self._client.transactions.pop(transaction.client_number, None)

    # The end

    def close(self, error: MilepostError) -> Effects:
        """Nobody waits for a reply any longer."""
        for transaction in self._client.transactions.values():
            tell(transaction, error)
        return self.leases.drop(self._client)

    @property
    def busy(self) -> bool:
        """Whether the store has an operation of a transaction."""
        return any(transaction.busy for transaction in self._client.transactions.values())

    def undo_all(self) -> Effects:
        """Undo what is not committed."""
        return self.leases.undo_all(self._client, "its client has left")


def tell(transaction: OpenTransaction, error: MilepostError) -> None:
    """Fail the requests of a transaction that have no reply yet."""
    for request in transaction.requests:
        if request.reply_to and not request.reply_to.done():
            request.reply_to.set_exception(error)
            request.reply_to.exception()  # seen: the caller may be gone
