"""Transfers in the store: who runs them, and what is asked of a coordinator."""

from __future__ import annotations

import pytest

from milepost.errors import BlockIncomplete, InvalidValue, TransactionAborted, UnknownQueue
from milepost.operations import queues as ops
from milepost.operations import steps
from milepost.operations.transfers import (
    DeleteTransfer,
    HeldMessages,
    Holding,
    KeepTransfers,
    Report,
    Settle,
    SetTransfer,
    Transfers,
)
from tests.unit.queues.conftest import Queues

LEASE_US = 1_000_000
THERE = "milepost://there:7450"


# A coordinator's log


def test_what_was_not_decided_is_undone_for_ever(queues: Queues) -> None:
    queues.notes(dead_letter="dead", max_deliveries=1)
    queues.party().put("a", "b")
    slow = queues.party()
    assert slow.dequeue(2) == ["a", "b"]
    assert queues.do(Settle("g/1", slow.number)) == (False, ("notes",))
    with pytest.raises(TransactionAborted):
        slow.perform(steps.Commit(steps.Decision("g/1", "there")))
    assert queues.do(ops.Decisions()) == []
    assert queues.texts() == ["a", "b"], "and counts no abort: otherwise they were dead"
    assert queues.do(Settle("g/1", slow.number)) == (False, ())


def test_what_was_decided_stays_decided(queues: Queues) -> None:
    queues.notes()
    queues.party().put("a")
    party = queues.party()
    party.dequeue()
    number = party.number
    party.commit(decision=steps.Decision("g/1", "there"))
    for _ in range(2):
        assert queues.do(Settle("g/1", number)) == (True, ())
        queues.restart()
    assert queues.do(ops.Decisions()) == [("g/1", "there")]
    assert queues.texts() == []
    assert queues.do(Settle("g/2", number)) == (False, ()), "another name was not decided by it"
    queues.do(ops.ForgetDecision("g/1"))
    assert queues.do(Settle("g/1", number)) == (False, ())


def test_a_transaction_that_nobody_knows_is_not_decided(queues: Queues) -> None:
    queues.notes()
    assert queues.do(Settle("g/1", 4711)) == (False, ())


def test_another_broker_of_the_cell_can_settle(shared: Queues) -> None:
    queues = shared
    queues.notes()
    queues.party().put("a", "b")
    slow, quick = queues.party("one"), queues.party("one")
    assert slow.dequeue() == ["a"]
    assert quick.dequeue() == ["b"]
    number = quick.number
    quick.commit(decision=steps.Decision("g/2", "there"))
    other = queues.store("two")
    assert queues.do(Settle("g/1", slow.number), other) == (False, ("notes",))
    assert queues.do(Settle("g/2", number), other) == (True, ())
    with pytest.raises(TransactionAborted):  # also where the broker thinks to know all about it
        slow.perform(steps.Commit(steps.Decision("g/1", "there")))
    assert queues.texts() == ["a"]


# What a transaction has taken


def test_holding_tells_what_remains_of_blocks(queues: Queues) -> None:
    queues.notes("blockwise")
    writer, reader = queues.party(), queues.party()
    writer.put("a", "b", "c")
    writer.put("d", "e")
    assert reader.dequeue(2) == ["a", "b"]
    assert queues.do(Holding(reader.number)) == HeldMessages(1, [])
    with pytest.raises(BlockIncomplete):
        reader.perform(steps.Commit())
    assert reader.dequeue(1) == ["c"]
    assert queues.do(Holding(reader.number)) == HeldMessages(0, [])
    assert reader.dequeue(1) == ["d"]
    assert queues.do(Holding(reader.number)) == HeldMessages(1, [])


def test_holding_tells_whose_time_ends(queues: Queues) -> None:
    queues.notes()
    writer, reader = queues.party(), queues.party()
    ends = queues.now + 60_000_000
    writer.enqueue("a")
    (second,) = writer.enqueue("b", ends_us=ends)
    writer.commit()
    reader.dequeue(2)
    assert queues.do(Holding(reader.number)) == HeldMessages(0, [(second, ends)])
    assert queues.do(Holding(4711)) == HeldMessages(0, [])


# Transfers


def test_a_queue_goes_to_one_place(queues: Queues) -> None:
    queues.notes()
    for _ in range(2):
        queues.do(SetTransfer("notes", THERE, "notes"))
    with pytest.raises(InvalidValue, match="is transferred to milepost://there:7450/notes"):
        queues.do(SetTransfer("notes", THERE, "others"))
    with pytest.raises(UnknownQueue):
        queues.do(SetTransfer("quotes", THERE, "notes"))
    queues.restart()
    (found,) = queues.do(Transfers())
    assert (found.queue, found.address, found.target, found.messages, found.error) == ("notes", THERE, "notes", 0, "")
    queues.do(DeleteTransfer("notes"))
    assert queues.do(Transfers()) == []
    with pytest.raises(InvalidValue, match="not transferred"):
        queues.do(DeleteTransfer("notes"))
    queues.do(SetTransfer("notes", THERE, "others"))
    queues.do(ops.DeleteQueue("notes"))
    assert queues.do(Transfers()) == []


def test_figures_are_told_to_everybody(queues: Queues) -> None:
    queues.notes()
    queues.do(SetTransfer("notes", THERE, "notes"))
    (kept,) = queues.do(KeepTransfers(LEASE_US))
    queues.do(KeepTransfers(LEASE_US, (Report(kept.number, kept.created_us, 5, ""),)))
    queues.do(KeepTransfers(LEASE_US, (Report(kept.number, kept.created_us, 2, "no\0body there" * 100),)))
    (found,) = queues.do(Transfers())
    assert found.messages == 7
    assert found.error.startswith("no body there")
    assert len(found.error) == 500
    queues.do(DeleteTransfer("notes"))
    queues.do(SetTransfer("notes", THERE, "notes"))
    queues.do(KeepTransfers(LEASE_US))
    queues.do(KeepTransfers(LEASE_US, (Report(kept.number, kept.created_us, 5, "late"),)))
    (found,) = queues.do(Transfers())
    assert (found.messages, found.error) == (0, ""), "of the transfer before"


def test_one_broker_of_a_cell_runs_a_transfer(shared: Queues) -> None:
    queues = shared
    queues.notes()
    queues.do(SetTransfer("notes", THERE, "notes"))
    one, two = queues.store("one"), queues.store("two")
    assert len(queues.do(KeepTransfers(600 * LEASE_US), one)) == 1
    assert queues.do(KeepTransfers(600 * LEASE_US), two) == []
    assert len(queues.do(KeepTransfers(600 * LEASE_US), one)) == 1, "it keeps what it has"
    assert queues.do(KeepTransfers(0), one) == []
    assert len(queues.do(KeepTransfers(600 * LEASE_US), two)) == 1, "and leaves it when it stops"
    assert queues.do(KeepTransfers(LEASE_US), one) == []
