"""The driver of queue transactions in a client without a broker: a reply is the result of a request's future."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from milepost import limits
from milepost.client.waiters import fail
from milepost.errors import ConnectionLost, Fenced, MilepostError
from milepost.operations import steps
from milepost.queues.leases import Leases
from milepost.queues.machine import Effects, TransactionMachine
from milepost.queues.open_transaction import HeldEnqueue, KeptReply, OpenTransaction, QueueClient, TransactionRequest
from milepost.queues.requests import dequeue_of
from milepost.wire import Dequeue


class BrokerlessTransactions(TransactionMachine):
    """The transactions of one connection. Its effects are operations, each with the function that takes its outcome."""

    def __init__(self, lease_s: float, now: float) -> None:
        """`now`, in seconds of the event loop's clock, is when the store was recovered."""
        super().__init__(Leases(self, lease_s, now), Counter())
        self._client = QueueClient(b"")
        self._writer = 0

    def begin(self, instance: bytes, writer: int) -> None:
        """Set the client: its instance, and S of its messages."""
        self._client, self._writer = QueueClient(instance), writer

    def transaction(self, number: int, step: int) -> OpenTransaction:
        """The transaction of the client's number. A new one whose first step here is not 1 was begun elsewhere."""
        transactions = self._client.transactions
        transaction = transactions.get(number)
        if transaction is None:
            limits.require("TRANSACTIONS", len(transactions) + 1, "the transactions of one client at once")
            transaction = transactions[number] = OpenTransaction(self._client, number, self._writer, resumed=step > 1)
        return transaction

    def hold(self, transaction: OpenTransaction, held: HeldEnqueue) -> None:
        """Hold an enqueue until the next request, whose reply also tells its error."""
        assert held.batch is not None
        transaction.held.append(held)
        transaction.messages += len(held.batch)
        try:
            limits.require("TRANSACTION_MESSAGES", transaction.messages, "the messages that one transaction enqueues")
        except MilepostError as error:
            held.error = error

    # Methods of the driver, called by the machine

    def clients(self) -> Iterable[QueueClient]:
        """The only client."""
        return (self._client,)

    def write(self, operation: Any, then: Callable[[Any], Effects]) -> Effects:
        """Return the operation as an effect: see `TransactionMachine.write`."""
        return [(operation, then)]

    look = write  # `MemberStore.run` tells the two apart by the operation

    def present(self, request: TransactionRequest) -> bool:
        """Whether the caller has not cancelled the request."""
        return bool(request.reply_to) and not request.reply_to.done()

    def step_of(self, said: Dequeue) -> steps.Dequeue:
        """A plain dequeue: the consumer is in this process, and reads messages as they are in the tables."""
        return dequeue_of(said, plain=True)

    def doubtful(self, request: TransactionRequest, error: MilepostError) -> Effects:
        """Make the client repeat the end on this connection. It does not send its enqueues again, so hold them."""
        transaction = request.transaction
        transaction.held = request.held + transaction.held
        return self.settle(request, KeptReply(0, error=ConnectionLost(str(error))))

    def reply(self, request: TransactionRequest, reply: KeptReply) -> Effects:
        """Resolve the future of a request. When another process has taken over the log, the client reconnects."""
        future: asyncio.Future[KeptReply] = request.reply_to
        if future and not future.done():
            if reply.error is None:
                future.set_result(reply)
            else:
                fenced = isinstance(reply.error, Fenced)
                future.set_exception(ConnectionLost(str(reply.error)) if fenced else reply.error)
        return []

    def ended(self, transaction: OpenTransaction, reply: KeptReply) -> None:
        """Forget the transaction: its requests are not repeated on this connection."""
        self._client.transactions.pop(transaction.client_number, None)

    # The end

    def close(self, error: MilepostError) -> Effects:
        """Fail all open requests with an error."""
        for transaction in self._client.transactions.values():
            tell(transaction, error)
        return self.leases.drop(self._client)

    @property
    def busy(self) -> bool:
        """Whether the store is carrying out an operation of a transaction."""
        return any(transaction.busy for transaction in self._client.transactions.values())

    def undo_all(self) -> Effects:
        """Undo the transactions that are not committed."""
        return self.leases.undo_all(self._client, "its client has left")


def tell(transaction: OpenTransaction, error: MilepostError) -> None:
    """Fail the requests of a transaction that have no reply yet."""
    for request in transaction.requests:
        if request.reply_to:
            fail(request.reply_to, error)
