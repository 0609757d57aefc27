"""Whose transactions they are: clients come and go, and what one left behind is undone when its lease ends."""

from __future__ import annotations

import logging
import math
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from milepost.broker.core.effects import Effect, Write
from milepost.broker.core.queues.transaction import OpenTransaction, Owner
from milepost.broker.core.sessions.connection import Connection
from milepost.errors import MilepostError, StoreUnavailable, TransactionAborted
from milepost.operations import queues as operations

if TYPE_CHECKING:
    from milepost.broker.core.queues.transactions import QueueTransactions

RENEWALS: Final = 3  # of a lease before it would end
SWEEP_S: Final = 5.0  # between looks at messages that have expired, and at leases of brokers that are gone

log = logging.getLogger("milepost.broker")


class Leases:
    """The clients that have used queues."""

    def __init__(self, queues: QueueTransactions, lease_s: float) -> None:
        self._queues = queues
        self._lease_s = lease_s
        self._renewed = self._swept = -math.inf  # seconds
        self.owners: Final[dict[bytes, Owner]] = {}
        self.us: Final = int(lease_s * 1_000_000)

    def owner(self, connection: Connection) -> Owner:
        """The client of a connection, with what it left on an earlier one."""
        owner = connection.owner
        if owner is None:
            owner = self.owners.get(connection.instance) or Owner(connection.instance)
            self.owners[connection.instance] = connection.owner = owner
            owner.connection, owner.until, owner.came = connection, None, True
        return owner

    def lost(self, connection: Connection) -> list[Effect]:
        """A connection is gone; its client may come back within the lease."""
        owner, connection.owner = connection.owner, None
        if owner is None or owner.connection is not connection:
            return []
        owner.connection, owner.held_bytes = None, 0
        effects: list[Effect] = []
        for dealing in list(owner.dealings.values()):
            dealing.forget_held()
            for request in dealing.requests:
                request.number = 0
            if dealing.requests and dealing.requests[0].waiting:
                effects += self._queues.waiting.come_away(dealing.requests[0])
        return effects

    def left(self, connection: Connection) -> list[Effect]:
        """A client has said that it goes: what it has not committed is undone at once."""
        owner = connection.owner
        if owner is None or owner.connection is not connection:
            return []
        effects = self.lost(connection)
        del self.owners[owner.instance]
        self._queues.memory.forget(owner)
        return effects + self._undo(owner)

    def _undo(self, owner: Owner) -> list[Effect]:
        effects: list[Effect] = []
        for dealing in owner.dealings.values():
            if dealing.over is None:
                dealing.over = TransactionAborted("its client was away for too long; run it again")
                effects += self.undo(dealing)
        return effects

    def undo(self, dealing: OpenTransaction) -> list[Effect]:
        """Undo what the store has of a transaction. One that it has yet to hear of is undone then."""
        self._queues.totals["queue_aborts"] += 1
        return self.undo_late(dealing) if dealing.number else []

    def undo_late(self, dealing: OpenTransaction) -> list[Effect]:
        """The same, once the store has told its number."""
        return [Write(operations.Undo(dealing.number), partial(self._undone, dealing))]

    def _undone(self, dealing: OpenTransaction, outcome: Any) -> list[Effect]:
        effects: list[Effect] = []
        if not isinstance(outcome, MilepostError):  # otherwise its lease ends, and `Sweep` undoes it
            self._queues.waiting.stir(outcome.touched, effects, dealing.taken)
        return effects

    def tick(self, now: float) -> list[Effect]:
        """Once a second or so."""
        effects: list[Effect] = []
        for owner in list(self.owners.values()):
            if owner.connection is None:
                if owner.until is None:
                    owner.until = now + self._lease_s
                elif owner.until <= now:
                    del self.owners[owner.instance]
                    self._queues.memory.forget(owner)
                    effects += self._undo(owner)
        sweeps = now - self._swept >= SWEEP_S and self._queues.used
        # Before each sweep too: leases are of the clock of the day, which may have jumped, and nobody has to pay for it
        # who is there.
        if sweeps or now - self._renewed >= self._lease_s / RENEWALS:
            self._renewed = now
            numbers = tuple(
                dealing.number
                for owner in self.owners.values()
                for dealing in owner.dealings.values()
                if dealing.number and dealing.over is None
            )
            if numbers:
                effects.append(Write(operations.Renew(numbers, self.us), _renewed))
        if sweeps:
            self._swept = now
            effects.append(Write(operations.Sweep(), self.swept))
        return effects

    def swept(self, outcome: Any) -> list[Effect]:
        """The store has looked after its queues."""
        effects: list[Effect] = []
        if isinstance(outcome, StoreUnavailable):
            pass  # the store says in the log that it is away
        elif isinstance(outcome, MilepostError):
            log.warning("queues cannot be looked after: %s", outcome)
        else:
            self._queues.waiting.stir(outcome.touched, effects)
            if outcome.more:  # behind what others have asked for meanwhile
                effects.append(Write(operations.Sweep(), self.swept))
        return effects


def _renewed(outcome: Any) -> list[Effect]:
    if isinstance(outcome, MilepostError) and not isinstance(outcome, StoreUnavailable):
        log.warning("the leases of transactions cannot be renewed: %s", outcome)
    return []
