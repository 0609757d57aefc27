"""The transactions of clients as one state machine: it sends operations to the store and replies to clients.

The store decides everything about messages; this machine decides when the store is called. The requests of one
transaction are carried out in order, one at a time, each with the preceding enqueues in one operation. A dequeue that
finds nothing waits in line (`waiters`). Open transactions of a client that is gone are undone (`leases`).

Events are calls: a request (`ask`), the outcome of an operation (the function given with it), new messages in a queue
(`waiting.notify`), time (`waiting.wake`, `leases.tick`), a lost connection (`leases.drop`), a client that is gone
(`leases.undo_all`). Each returns effects: operations for the store, and replies. The driver makes them, in a form of
its own, and carries them out after the call. Nothing here waits, reads a clock or contains SQL.

The drivers are the broker's core (`broker.core.queues`) and a client without a broker (`brokerless`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import count
from typing import Any, Final, TypeAlias

from milepost.errors import (
    InDoubt,
    MilepostError,
    NoTransaction,
    StoreError,
    TransactionAborted,
)
from milepost.operations import queues as operations
from milepost.operations import steps
from milepost.operations.steps import Group, Performed, Step
from milepost.queues.leases import Leases
from milepost.queues.open_transaction import KeptReply, OpenTransaction, QueueClient, TransactionRequest
from milepost.queues.requests import decision_of, dequeue_of, enqueue_of, undone_by
from milepost.queues.waiters import Waiters
from milepost.wire import Dequeue, Enqueue, Finish

PREPARED_KEPT: Final = 10_000  # most prepared transactions whose messages are counted when they are decided

Effects: TypeAlias = list[Any]  # in the driver's form
Then: TypeAlias = Callable[[Any], Effects]  # takes the outcome of an operation, or its error


class TransactionMachine(ABC):
    """The state machine. The driver implements the abstract methods and those of the same section."""

    def __init__(self, leases: Leases, totals: Counter[str]) -> None:
        self.totals: Final = totals  # counts of events, by name
        self.waiting: Final = Waiters(self)
        self.leases = leases
        self._orders = count(1)
        self._prepared: dict[str, Counter[str]] = {}  # gid -> counts of messages of transactions that are not decided

    # Implemented by drivers

    @abstractmethod
    def clients(self) -> Iterable[QueueClient]:
        """All clients that may have transactions."""

    @abstractmethod
    def write(self, operation: Any, then: Then) -> Effects:
        """Make the store carry out an operation."""

    @abstractmethod
    def look(self, operation: Any, then: Then) -> Effects:
        """Make the store carry out an operation that only reads, concurrently with its writes."""

    @abstractmethod
    def reply(self, request: TransactionRequest, reply: KeptReply) -> Effects:
        """Reply to a request, if its client still waits."""

    @abstractmethod
    def ended(self, transaction: OpenTransaction, reply: KeptReply) -> None:
        """Called after the last reply of a transaction: forget it."""

    @abstractmethod
    def present(self, request: TransactionRequest) -> bool:
        """Whether the client of a dequeue still waits for it."""

    @abstractmethod
    def doubtful(self, request: TransactionRequest, error: MilepostError) -> Effects:
        """Make the client repeat the end of a transaction, since it is not known whether the store has committed it."""

    def step_of(self, said: Dequeue) -> steps.Dequeue:
        """The step of a dequeue."""
        return dequeue_of(said)

    def require_room(self, transaction: OpenTransaction) -> None:
        """Raise when there is no room for messages in a reply."""
        return

    def find_type(self, request: TransactionRequest, held: Any) -> Effects | None:
        """Find the type of a batch and decode the batch; None when that is done, or has failed."""
        raise AssertionError("this driver holds decoded batches only")

    def settling(self, request: TransactionRequest, effects: Effects) -> Sequence[Any] | None:
        """The acknowledgements of a commit, each with its `move`; None: they have to wait."""
        raise AssertionError("this driver has no subscriptions")

    def settled(self, settling: Sequence[Any], error: MilepostError | None) -> Effects:
        """Called when a commit with acknowledgements is done, or has failed."""
        raise AssertionError("this driver has no subscriptions")

    def give_back(self, held: Iterable[Any]) -> Effects:
        """Return the credit of enqueues to their connections: they are stored, or dropped."""
        return []

    # Requests, in order

    def request(
        self, transaction: OpenTransaction, said: Dequeue | Finish | Enqueue | None, reply_to: Any, until: float = 0.0
    ) -> TransactionRequest:
        """Make a request, with the held enqueues."""
        held, transaction.held = transaction.held, []
        return TransactionRequest(
            transaction, said, reply_to, held, next(self._orders), transaction.step, until
        )  # fmt: skip

    def ask(self, request: TransactionRequest) -> Effects:
        """Queue a request; it is carried out after those before it."""
        transaction = request.transaction
        transaction.requests.append(request)
        first = transaction.requests[0]
        if first.waiting:  # a waiting dequeue, which its client no longer waits for
            return self.waiting.come_away(first)
        return self.advance(transaction)

    def advance(self, transaction: OpenTransaction) -> Effects:
        """Carry out the next request, unless one is being carried out."""
        effects: Effects = []
        while transaction.requests and not transaction.busy and not transaction.requests[0].waiting:
            effects += self._carry_out(transaction, transaction.requests[0])
        return effects

    def _carry_out(self, transaction: OpenTransaction, request: TransactionRequest) -> Effects:
        said = request.said
        if isinstance(said, Finish) and said.how == "abort":
            return self._abort(transaction, request)
        if transaction.over is not None:
            error = undone_by(transaction.over) if transaction.told else transaction.over
            transaction.told = True
            return self._drop_held(request) + self.settle(request, KeptReply(request.step, error=error))
        if transaction.claimed and not transaction.number:
            return self._claim(transaction, request)
        for held in request.held:
            if held.batch is None and held.error is None:
                effects = self.find_type(request, held)
                if effects is not None:
                    return effects
            if held.error is not None:
                return self._spoiled(request, held.error)
        todo: list[Step] = [enqueue_of(held.said, held.batch) for held in request.held]
        if isinstance(said, Dequeue):
            if not todo and said.wait_s and self.waiting.joins(request):
                return []
            try:
                self.require_room(transaction)
            except MilepostError as error:
                if request.held:
                    return self._held_first(request)
                return self.settle(request, KeptReply(request.step, error=error))
            todo.append(self.step_of(said))
        elif isinstance(said, Finish) and said.how == "commit":
            if not transaction.number and not todo and not said.acks and not said.decision and not transaction.resumed:
                self.totals["queue_commits"] += 1
                return self._finish(request, KeptReply(request.step, transaction.receipt()))
            if said.acks:
                effects = []
                try:
                    settling = self.settling(request, effects)
                except MilepostError as error:  # the rows will be delivered again: the transaction must not commit
                    return self._spoiled(request, error) + effects
                if settling is None:
                    transaction.busy = True
                    return []
                request.settling = settling
            todo.append(steps.Commit(decision_of(said), tuple([each.move for each in request.settling])))
        elif isinstance(said, Finish) and said.how == "prepare":
            todo.append(steps.Prepare(said.gid, said.coordinator))
        if not todo:
            return self.settle(request, KeptReply(request.step, transaction.receipt()))
        return self.give(request, tuple(todo), self._performed)

    def _held_first(self, request: TransactionRequest) -> Effects:
        """Carry out the enqueues held before a request on their own, then the request."""
        transaction, held, request.held = request.transaction, request.held, []
        transaction.requests.appendleft(
            TransactionRequest(transaction, None, 0, held, next(self._orders), request.step)
        )
        return []

    def _drop_held(self, request: TransactionRequest) -> Effects:
        held, request.held = request.held, []
        return self.give_back(held) if held else []

    def _claim(self, transaction: OpenTransaction, request: TransactionRequest) -> Effects:
        """End a transaction that was begun elsewhere: either it has ended as requested, or it is undone now.

        The store finds it by its client, not by its number: a client cannot claim a transaction of another client.
        """
        said = request.said
        effects = self._drop_held(request)
        if isinstance(said, Finish) and said.how == "commit":
            return effects + self.give(request, (steps.Commit(),), self._performed)
        if isinstance(said, Finish) and said.how == "prepare":
            return effects + self.give(request, (steps.Prepare(said.gid, said.coordinator),), self._performed)
        transaction.over = unknown(transaction.client_number)
        effects += self.write(self._operation(transaction, (steps.Abort(),)), self._disclaimed)
        return effects + self.settle(request, KeptReply(request.step, error=transaction.over))

    def _disclaimed(self, outcome: Any) -> Effects:
        effects: Effects = []
        if not isinstance(outcome, MilepostError):
            self.waiting.notify(outcome.outcomes[-1].touched, effects)
        return effects

    def give(
        self, request: TransactionRequest, todo: tuple[Step, ...], then: Callable[[TransactionRequest, Any], Effects]
    ) -> Effects:
        """Make the store carry out steps of a transaction."""
        transaction = request.transaction
        transaction.busy = True
        return self.write(self._operation(transaction, todo), partial(then, request))

    def _operation(self, transaction: OpenTransaction, todo: tuple[Step, ...]) -> operations.Perform:
        client = transaction.client
        whose = steps.TransactionOwner(
            transaction.number, transaction.writer, client.instance, transaction.client_number, self.leases.us,
            client.came,
        )  # fmt: skip
        return operations.Perform(whose, todo)

    # Outcomes

    def _performed(self, request: TransactionRequest, outcome: Any) -> Effects:
        """Called with the outcome of a request."""
        transaction, said = request.transaction, request.said
        transaction.busy = False
        wrong = outcome if isinstance(outcome, MilepostError) else None
        settling, request.settling = request.settling, ()
        effects = self.settled(settling, wrong) if settling else []
        if wrong is not None:
            return effects + self.failed(request, wrong) + self.advance(transaction)
        effects += self.learn(transaction, outcome)
        if request.held:
            for held, each in zip(request.held, outcome.outcomes, strict=False):
                self.enqueued(transaction, held, each)
            effects += self._drop_held(request)
        last = outcome.outcomes[-1]
        if isinstance(said, Dequeue):
            effects += self.waiting.got(request, last)
        elif isinstance(said, Finish) and said.how in ("commit", "prepare"):
            effects += self._finish(request, KeptReply(request.step, transaction.receipt()))
            self.totals["queue_commits"] += said.how == "commit"
            if not last.repeated:
                self._count(transaction, said)
            self.waiting.notify(last.touched, effects, transaction.enqueued, transaction.taken)
        elif said is None:
            transaction.requests.popleft()
        else:
            effects += self.settle(request, KeptReply(request.step, transaction.receipt()))
        return effects + self.advance(transaction)

    def _count(self, transaction: OpenTransaction, said: Finish) -> None:
        """Count the messages of a committed transaction; those of a prepared one are counted when it is decided."""
        moved = Counter(messages_enqueued=transaction.enqueued.total(), messages_dequeued=transaction.taken.total())
        if said.how == "prepare":
            if len(self._prepared) >= PREPARED_KEPT:
                del self._prepared[next(iter(self._prepared))]
            self._prepared[said.gid] = moved
            return
        self.totals.update(moved)

    def decided(self, gid: str, commit: bool) -> None:
        """Called when a prepared transaction has ended."""
        moved = self._prepared.pop(gid, None)
        if commit and moved is not None:
            self.totals.update(moved)

    def learn(self, transaction: OpenTransaction, outcome: Performed) -> Effects:
        """Keep the number that the store gave a transaction."""
        begun, transaction.number = not transaction.number, outcome.number
        transaction.client.came = False
        if begun and transaction.number and transaction.over is not None:  # its client is gone meanwhile
            return self.leases.undo_late(transaction)
        return []

    def enqueued(self, transaction: OpenTransaction, held: Any, outcome: steps.Enqueued | None) -> None:
        """Called for each stored enqueue of a request."""
        if outcome is None:  # of a repeated commit: the messages' numbers are forgotten
            transaction.mids.append([])
            return
        transaction.writer = outcome.s  # of a repeated commit: the client's number at the first one
        transaction.mids.append(outcome.mids)
        transaction.enqueued[held.said.queue] += len(outcome.mids)

    def failed(self, request: TransactionRequest, error: MilepostError) -> Effects:
        """Called when a request has failed: the store has done nothing of it."""
        said = request.said
        if isinstance(error, InDoubt) and isinstance(said, Finish):
            return self.doubtful(request, error)
        if isinstance(error, StoreError | TransactionAborted):
            return self._spoiled(request, error)
        if not request.held:
            return self.settle(request, KeptReply(request.step, error=error))
        if said is None or isinstance(said, Enqueue):
            return self._spoiled(request, error)
        return self._held_first(request)  # separately, which shows the one that fails

    def _spoiled(self, request: TransactionRequest, error: MilepostError) -> Effects:
        """Undo a transaction that cannot continue, and reply with the error."""
        transaction = request.transaction
        effects = self._drop_held(request)
        transaction.over = error
        effects += self.leases.undo(transaction)
        if request.said is None:
            transaction.requests.popleft()  # the next request gets the error
            return effects
        transaction.told = True
        return effects + self.settle(request, KeptReply(request.step, error=error))

    def _abort(self, transaction: OpenTransaction, request: TransactionRequest) -> Effects:
        effects = self._drop_held(request)
        if transaction.over is not None:
            return effects + self._finish(request, KeptReply(request.step, {}))
        self.totals["queue_aborts"] += 1
        if not transaction.number and not transaction.claimed:
            return effects + self._finish(request, KeptReply(request.step, {}))
        return effects + self.give(request, (steps.Abort(),), self._aborted)

    def _aborted(self, request: TransactionRequest, outcome: Any) -> Effects:
        transaction = request.transaction
        transaction.busy = False
        if isinstance(outcome, StoreError):
            # The client does not repeat it. The machine forgets the transaction: its lease ends, and `Sweep` undoes it.
            return self._finish(request, KeptReply(request.step, error=outcome))
        effects = self._finish(request, KeptReply(request.step, {}))  # even if it was undone before
        if not isinstance(outcome, MilepostError):
            self.waiting.notify(outcome.outcomes[-1].touched, effects, transaction.taken)
        return effects

    # Replies

    def settle(self, request: TransactionRequest, reply: KeptReply) -> Effects:
        """Reply to the first request of a transaction."""
        request.transaction.requests.popleft()
        return self.reply(request, reply)

    def took(self, request: TransactionRequest, groups: list[Group], rows: int) -> Effects:
        """Reply to a dequeue, with or without messages."""
        transaction = request.transaction
        transaction.taken[request.dequeue.queue] += rows
        return self.settle(request, KeptReply(request.step, transaction.receipt() | {"messages": rows}, groups))

    def _finish(self, request: TransactionRequest, reply: KeptReply) -> Effects:
        """Reply to the last request of a transaction."""
        transaction = request.transaction
        effects = self.settle(request, reply)
        self.ended(transaction, reply)
        effects += self.give_back(transaction.forget_held())
        while transaction.requests:  # sent after the end
            late = transaction.requests[0]
            effects += self._drop_held(late)
            error = NoTransaction(f"transaction {transaction.client_number} is over; begin another")
            effects += self.settle(late, KeptReply(late.step, error=error))
        return effects


def unknown(number: int) -> TransactionAborted:
    """The error for a transaction that was begun elsewhere and cannot continue here."""
    return TransactionAborted(f"transaction {number} is not known here, or no longer: it was undone; run it again")
