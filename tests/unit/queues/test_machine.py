"""The state machine of transactions, with a driver that writes down what it is asked: no store, no event loop."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from milepost.errors import InDoubt, MilepostError, StoreFull, TransactionAborted
from milepost.operations import queues as operations
from milepost.operations import steps
from milepost.operations.steps import Done, Got, Group, Performed
from milepost.query import parse_schema
from milepost.queues.leases import Leases
from milepost.queues.machine import TransactionMachine
from milepost.queues.open_transaction import KeptReply, OpenTransaction, QueueClient, TransactionRequest
from milepost.wire import Dequeue, Finish

NOTE = parse_schema("note: [text: string]")
ONE = Counter({"notes": 1})
LEASE_S = 30.0
EMPTY = Performed(0, (Got([]),))


class Driver(TransactionMachine):
    """One client. `asked` has operations that are not done, `replies` what each request was replied."""

    def __init__(self) -> None:
        super().__init__(Leases(self, LEASE_S, 0.0), Counter())
        self.client = QueueClient(b"i" * 16)
        self.asked: list[tuple[Any, Any]] = []
        self.replies: dict[str, KeptReply] = {}
        self.gone: set[str] = set()  # requests that are cancelled
        self.doubts: list[TransactionRequest] = []

    def run(self, effects: list[Any]) -> None:
        self.asked += effects

    def done(self, outcome: Any) -> Any:
        """The first operation that was asked for is done; which it was."""
        operation, then = self.asked.pop(0)
        self.run(then(outcome))
        return operation

    def say(self, name: str, said: Dequeue | Finish, now: float = 0.0) -> TransactionRequest:
        transaction = self.client.transactions.get(said.transaction)
        if transaction is None:
            transaction = OpenTransaction(self.client, said.transaction, 7)
            self.client.transactions[said.transaction] = transaction
        wait_s = said.wait_s if isinstance(said, Dequeue) else 0.0
        request = self.request(transaction, said, name, now + wait_s if wait_s else 0.0)
        self.run(self.ask(request))
        return request

    def wait(self, name: str, number: int, wait_s: float = 100.0) -> TransactionRequest:
        """A dequeue that has found nothing."""
        request = self.say(name, Dequeue(request=0, transaction=number, step=1, queue="notes", wait_s=wait_s))
        if self.asked:
            self.done(EMPTY)
        assert request.waiting
        return request

    def end(self, name: str, number: int, how: str = "commit") -> TransactionRequest:
        return self.say(name, Finish(request=0, transaction=number, step=2, how=how))

    def come(self, counted: Counter[str] | None = ONE) -> None:
        """A message was committed."""
        effects: list[Any] = []
        self.waiting.notify(["notes"], effects, counted)
        self.run(effects)

    # A driver's part

    def clients(self) -> list[QueueClient]:
        return [self.client]

    def write(self, operation: Any, then: Any) -> list[Any]:
        return [(operation, then)]

    look = write

    def present(self, request: TransactionRequest) -> bool:
        return bool(request.reply_to) and request.reply_to not in self.gone

    def reply(self, request: TransactionRequest, reply: KeptReply) -> list[Any]:
        if request.reply_to:
            self.replies[request.reply_to] = reply
        return []

    def ended(self, transaction: OpenTransaction, reply: KeptReply) -> None:
        self.client.transactions.pop(transaction.client_number)

    def doubtful(self, request: TransactionRequest, error: MilepostError) -> list[Any]:
        self.doubts.append(request)
        request.transaction.requests.clear()
        return []


@pytest.fixture
def machine() -> Driver:
    return Driver()


def taken(number: int = 4242) -> Performed:
    return Performed(number, (Got([Group("note", NOTE, lambda: None, [1], [1], [1], [0.0], [0])]),))  # type: ignore[arg-type, return-value]


def test_a_dequeue_that_is_cancelled_when_a_message_comes_leaves_it_to_the_next(machine: Driver) -> None:
    machine.wait("first", 1)
    machine.wait("second", 2)
    machine.gone.add("first")
    machine.come()
    ((operation, _),) = machine.asked
    assert operation.transaction.client == 2
    machine.done(taken())
    assert machine.replies["second"].value["messages"] == 1
    assert not machine.waiting.some
    assert not machine.client.transactions[1].requests


def test_a_dequeue_that_is_cancelled_while_it_looks_leaves_the_message_to_the_next(machine: Driver) -> None:
    machine.wait("first", 1)
    machine.wait("second", 2)
    machine.come(None)
    assert isinstance(machine.asked[0][0], operations.Peek)
    machine.gone.add("first")
    machine.done(taken().outcomes[0])
    assert isinstance(machine.done(taken().outcomes[0]), operations.Peek)
    assert machine.done(taken()).transaction.client == 2
    assert machine.replies["second"].value["messages"] == 1
    assert not machine.waiting.some


def test_a_dequeue_whose_time_is_over_leaves_messages_to_the_next(machine: Driver) -> None:
    machine.wait("late", 1, wait_s=1.0)
    machine.wait("stays", 2, wait_s=2.0)
    assert machine.waiting.soonest == 1.0
    machine.run(machine.waiting.wake(1.0, 0))
    assert machine.replies["late"].value["messages"] == 0
    assert isinstance(machine.done(Got([])), operations.Peek), "without a reason: once a second"
    machine.come()
    assert machine.done(taken()).transaction.client == 2
    assert "stays" in machine.replies


def test_a_request_behind_a_dequeue_that_waits_ends_it(machine: Driver) -> None:
    machine.wait("waits", 1)
    machine.end("abort", 1, "abort")
    assert machine.replies["waits"].value["messages"] == 0
    assert machine.replies["abort"].value == {}
    assert not machine.client.transactions
    assert not machine.asked, "the store has nothing of it"


def test_an_abort_behind_a_dequeue_that_looks_comes_after_it(machine: Driver) -> None:
    machine.wait("looks", 1)
    machine.come()
    machine.end("abort", 1, "abort")
    machine.done(EMPTY)
    assert machine.replies["looks"].value["messages"] == 0
    assert not machine.client.transactions


def test_what_is_in_doubt_is_the_drivers(machine: Driver) -> None:
    machine.say("take", Dequeue(request=0, transaction=1, step=1, queue="notes"))
    machine.done(taken())
    request = machine.end("commit", 1)
    machine.done(InDoubt("the server went away"))
    assert machine.doubts == [request]
    assert "commit" not in machine.replies
    machine.end("again", 1)
    assert machine.done(Performed(4242, (Done(repeated=True),))).steps == (steps.Commit(),)
    assert machine.replies["again"].value["t"] == 4242
    assert machine.totals["messages_dequeued"] == 0, "counted when it was done first, or nobody knows"


def test_a_client_that_leaves_while_its_transaction_begins_has_it_undone(machine: Driver) -> None:
    machine.say("take", Dequeue(request=0, transaction=1, step=1, queue="notes"))
    machine.run(machine.leases.drop(machine.client))
    machine.run(machine.leases.undo_all(machine.client, "gone"))
    assert machine.totals["queue_aborts"] == 1
    machine.done(taken(17))
    assert machine.done(Done(touched=("notes",))) == operations.Undo(17)
    assert machine.replies == {}, "nobody waits for it"


def test_leases_are_renewed_and_the_store_swept_one_at_a_time(machine: Driver) -> None:
    machine.say("take", Dequeue(request=0, transaction=1, step=1, queue="notes"))
    machine.done(taken(17))
    assert machine.leases.tick(4.9) == []
    machine.run(machine.leases.tick(5.0))
    machine.run(machine.leases.tick(16.0))
    assert [operation for operation, _ in machine.asked] == [
        operations.Renew((17,), int(LEASE_S * 1e6)),
        operations.Sweep(),
    ], "the store is away"
    machine.done(StoreFull("it is back"))
    machine.done(Done(more=True))
    assert machine.done(Done()) == operations.Sweep(), "there was more than one sweep may take"
    machine.run(machine.leases.tick(21.0))
    assert len(machine.asked) == 2


def test_a_transaction_that_is_undone_says_so_to_every_request(machine: Driver) -> None:
    machine.say("take", Dequeue(request=0, transaction=1, step=1, queue="notes"))
    machine.done(StoreFull("no room"))
    assert isinstance(machine.replies["take"].error, StoreFull)
    machine.end("commit", 1)
    assert isinstance(machine.replies["commit"].error, TransactionAborted)
