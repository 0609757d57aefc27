"""Leases of transactions: renewed while the client lives; transactions of a client that is gone are undone."""

from __future__ import annotations

import logging
import math
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from milepost.errors import MilepostError, StoreUnavailable, TransactionAborted
from milepost.operations import queues as operations
from milepost.queues.open_transaction import OpenTransaction, QueueClient

if TYPE_CHECKING:
    from milepost.queues.machine import Effects, TransactionMachine

RENEWALS: Final = 3  # renewals in the time of a lease
SWEEP_S: Final = 5.0  # between sweeps of expired messages and of leases that have ended

log = logging.getLogger("milepost.queues")


class Leases:
    """The leases of all transactions of a machine."""

    def __init__(self, machine: TransactionMachine, lease_s: float, now: float = -math.inf) -> None:
        """`now`, in seconds of the driver's monotonic clock, is when the store was last swept."""
        self._machine = machine
        self._lease_s = lease_s
        self._renewed = self._swept = now
        self._renewing = self._sweeping = False  # at most one at a time: more would pile up during an outage
        self.us: Final = int(lease_s * 1_000_000)

    def drop(self, client: QueueClient) -> Effects:
        """Called when a client's connection is lost: its pending requests get no reply."""
        effects: Effects = []
        for transaction in list(client.transactions.values()):
            transaction.forget_held()
            for request in transaction.requests:
                request.reply_to = 0
            if transaction.requests and transaction.requests[0].waiting:
                effects += self._machine.waiting.come_away(transaction.requests[0])
        return effects

    def undo_all(self, client: QueueClient, reason: str) -> Effects:
        """Undo the open transactions of a client that will not return."""
        effects: Effects = []
        for transaction in client.transactions.values():
            if transaction.over is None:
                transaction.over = TransactionAborted(reason)
                effects += self.undo(transaction)
        return effects

    def undo(self, transaction: OpenTransaction) -> Effects:
        """Undo a transaction in the store. One that has no number yet is undone when the store has begun it."""
        self._machine.totals["queue_aborts"] += 1
        return self.undo_late(transaction) if transaction.number else []

    def undo_late(self, transaction: OpenTransaction) -> Effects:
        """The same for a transaction whose number is known."""
        return self._machine.write(operations.Undo(transaction.number), partial(self._undone, transaction))

    def _undone(self, transaction: OpenTransaction, outcome: Any) -> Effects:
        effects: Effects = []
        if not isinstance(outcome, MilepostError):  # otherwise its lease ends, and `Sweep` undoes it
            self._machine.waiting.notify(outcome.touched, effects, transaction.taken)
        return effects

    def tick(self, now: float, sweeps: bool = True) -> Effects:
        """Renew leases and sweep the store, if that is due. Called about once a second."""
        effects: Effects = []
        sweeps = sweeps and now - self._swept >= SWEEP_S
        # Also before each sweep: leases use the wall clock, and a jump of that must not cost a live client its
        # transactions.
        if (sweeps or now - self._renewed >= self._lease_s / RENEWALS) and not self._renewing:
            self._renewed = now
            numbers = tuple(
                transaction.number
                for client in self._machine.clients()
                for transaction in client.transactions.values()
                if transaction.number and transaction.over is None
            )
            if numbers:
                self._renewing = True
                effects += self._machine.write(operations.Renew(numbers, self.us), self._renewed_all)
        if sweeps:
            self._swept = now
            if not self._sweeping:
                effects += self._sweep()
        return effects

    def _renewed_all(self, outcome: Any) -> Effects:
        self._renewing = False
        if isinstance(outcome, MilepostError) and not isinstance(outcome, StoreUnavailable):
            log.warning("the leases of transactions cannot be renewed: %s", outcome)
        return []

    def _sweep(self) -> Effects:
        self._sweeping = True
        return self._machine.write(operations.Sweep(), self.swept)

    def swept(self, outcome: Any) -> Effects:
        """Called after a sweep: it has undone abandoned transactions and removed expired messages."""
        self._sweeping = False
        effects: Effects = []
        if isinstance(outcome, StoreUnavailable):
            pass  # `storage.outage` has logged this
        elif isinstance(outcome, MilepostError):
            log.warning("queues cannot be swept: %s", outcome)
        else:
            self._machine.waiting.notify(outcome.touched, effects)
            if outcome.more:  # queued after the operations that arrived meanwhile
                effects += self._sweep()
        return effects
