"""Transactions: ends that are asked for again, leases, two stores, groups in which one fails, times and the dead."""

from __future__ import annotations

import pytest

from milepost.batch import Batch
from milepost.errors import (
    BlockIncomplete,
    InvalidValue,
    MilepostError,
    NoTransaction,
    TransactionAborted,
    UnknownQueue,
)
from milepost.operations import queues as ops
from milepost.operations import steps
from milepost.operations.transfers import SetTransfer
from milepost.queues.states import LEVELS
from tests.unit.queues.conftest import LEASE_US, NOTE, Party, Queues


def batch(*texts: str) -> Batch:
    return Batch.encode(NOTE, [{"text": text} for text in texts])


def asked(party: Party, *given: steps.Step, number: int = 0, client: int | None = None) -> ops.Perform:
    """Steps as a client asks for them that has lost its broker, which knew the number."""
    client = party.client if client is None else client
    return ops.Perform(steps.TransactionOwner(number, party.s, party.instance, client, LEASE_US), given)


@pytest.mark.parametrize("level", LEVELS)
def test_a_commit_of_several_messages_is_written_once(
    queues: Queues, level: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues.notes(level)
    party = queues.party()
    party.put(*"abc")
    assert party.dequeue(3) == ["a", "b", "c"]
    undone = []
    session = queues.store()._session
    monkeypatch.setattr(session, "roll_back", lambda: undone.append(type(session).roll_back(session)))
    party.commit()
    assert not undone
    assert not queues.tables() or level in ("ordered", "ordered blockwise")  # whose groups stay until a sweep


# Ends that are asked for again


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("level", ["none", "blockwise"])
def test_a_commit_whose_answer_was_lost(queues: Queues, level: str, known: bool) -> None:
    queues.notes(level)
    party = queues.party()
    party.enqueue("a")
    number = party.number
    done = party.perform(steps.Commit())
    assert done == steps.Done(touched=("notes",))
    again = asked(party, steps.Commit(), number=number if known else 0)
    assert queues.do(again) == steps.Performed(number, (steps.Done(repeated=True),))
    queues.restart()
    again = asked(party, steps.Commit())
    assert queues.do(again) == steps.Performed(number, (steps.Done(repeated=True),))
    assert queues.texts() == ["a"]


@pytest.mark.parametrize("known", [False, True])
def test_an_abort_whose_answer_was_lost(queues: Queues, known: bool) -> None:
    queues.notes()
    party = queues.party()
    party.put("a")
    assert party.one() == "a"
    number = party.number
    party.perform(steps.Abort())
    again = asked(party, steps.Abort(), number=number if known else 0)
    assert queues.do(again) == steps.Performed(number, (steps.Done(repeated=True),))
    with pytest.raises(TransactionAborted):
        queues.do(asked(party, steps.Commit(), number=number if known else 0))
    assert queues.texts() == ["a"]


def test_a_commit_asked_again_of_another_broker(shared: Queues) -> None:
    shared.notes()
    party = shared.party("one")
    party.enqueue("a")
    number = party.number
    party.perform(steps.Commit())
    again = shared.do(asked(party, steps.Commit()), shared.store("two"))
    assert again == steps.Performed(number, (steps.Done(repeated=True),))
    assert shared.texts() == ["a"]


@pytest.mark.parametrize("level", LEVELS)
def test_enqueue_and_commit_in_one_step_asked_again(queues: Queues, level: str) -> None:
    queues.notes(level)
    queues.notes(level, "others")
    party = queues.party()
    one = (steps.Enqueue("notes", batch("a", "b")), steps.Enqueue("others", batch("c")), steps.Commit())
    done = queues.do(asked(party, *one))
    for restarted in (False, True):
        if restarted:
            queues.restart()
        again = queues.do(asked(party, *one))
        assert again.number == done.number
        assert again.outcomes[:2] == done.outcomes[:2]
        assert again.outcomes[2].repeated
    assert (queues.texts(), queues.texts("others")) == (["a", "b"], ["c"])
    reader = queues.party()
    got = reader.perform(steps.Dequeue("notes", count=2))
    assert got.groups[0].mids == done.outcomes[0].mids
    assert got.groups[0].t == [done.number] * 2


def test_a_commit_asked_elsewhere_of_a_transaction_under_way(shared: Queues) -> None:
    shared.notes()
    shared.party().put("old")
    party = shared.party("one")
    assert party.one() == "old"
    party.enqueue("a")
    with pytest.raises(TransactionAborted):
        shared.do(asked(party, steps.Commit()), shared.store("two"))
    assert shared.texts() == ["old"]
    with pytest.raises(TransactionAborted):
        party.commit()
    assert shared.texts() == ["old"]
    assert shared.figures() == {"waiting": 1}


@pytest.mark.parametrize("step", [steps.Commit(), steps.Abort(), steps.Dequeue("notes")])
def test_steps_without_the_number_of_a_transaction_under_way_undo_it(queues: Queues, step: steps.Step) -> None:
    """Nobody knows then what the client knows of it."""
    queues.notes()
    queues.party().put("old", "older")
    party = queues.party()
    assert party.one() == "old"
    if isinstance(step, steps.Abort):
        assert isinstance(queues.do(asked(party, step)).outcomes[0], steps.Done)
    else:
        with pytest.raises(TransactionAborted):
            queues.do(asked(party, step))
    with pytest.raises(TransactionAborted):
        party.commit()
    assert queues.texts() == ["old", "older"]


def test_nothing_was_begun(queues: Queues) -> None:
    queues.notes()
    party = queues.party()
    with pytest.raises(TransactionAborted):
        queues.do(asked(party, steps.Commit()))
    with pytest.raises(TransactionAborted):
        queues.do(asked(party, steps.Commit(), number=12345))
    with pytest.raises(NoTransaction):
        queues.do(asked(party))
    assert party.one() is None
    assert party.number == 0, "a reader that finds nothing leaves no trace"


def test_steps_behind_the_end_are_refused(queues: Queues) -> None:
    queues.notes()
    party = queues.party()
    for end in (steps.Commit(), steps.Abort(), steps.Prepare("g", "c")):
        with pytest.raises(NoTransaction):
            party.perform(steps.Enqueue("notes", batch("a")), end, steps.Enqueue("notes", batch("b")))
    assert queues.figures() == {}
    assert queues.tables() == {}


def test_a_batch_without_messages(queues: Queues) -> None:
    queues.notes()
    party = queues.party()
    assert party.enqueue() == []
    assert party.enqueue("a")
    party.commit()
    done = queues.do(asked(party, steps.Enqueue("notes", batch()), steps.Commit()))
    assert done.outcomes[0].mids == []
    again = queues.do(asked(party, steps.Enqueue("notes", batch()), steps.Commit()))
    assert again.number == done.number
    assert queues.texts() == ["a"]


# Leases


def test_a_lease_that_ends(queues: Queues) -> None:
    queues.notes("ordered")
    queues.party().put("a", "b")
    party, other = queues.party(), queues.party()
    assert party.one() == "a"
    party.enqueue("mine")
    queues.do(ops.Sweep())
    assert other.one() is None, "the lease is not over"
    assert queues.do(ops.Renew((party.number,), -1)) == [party.number]
    done = queues.do(ops.Sweep())
    assert done.touched == ("notes",)
    for step in (steps.Enqueue("notes", batch("x")), steps.Dequeue("notes"), steps.Commit()):
        with pytest.raises(TransactionAborted):
            party.perform(step)
    assert queues.do(ops.Renew((party.number,), LEASE_US)) == []
    got = other.perform(steps.Dequeue("notes", count=5))
    assert [group.aborts for group in got.groups] == [[1, 0]]
    other.commit()
    queues.do(ops.Sweep())
    assert queues.tables() == {}


def test_a_lease_is_as_long_as_it_was_renewed(queues: Queues) -> None:
    queues.notes()
    party = queues.party()
    party.enqueue("a")
    queues.do(ops.Renew((party.number,), 60_000_000))
    queues.now += 30_000_000
    queues.do(ops.Sweep())
    party.commit()
    assert queues.texts() == ["a"]


def test_an_outcome_is_forgotten_after_a_while(queues: Queues) -> None:
    queues.notes()
    party = queues.party()
    party.put("a")
    queues.now += 601_000_000
    queues.do(ops.Sweep())
    known = queues.do(asked(party, steps.Commit(), client=1)) if queues.shared else None
    if known is None:  # of a store that others share it is the database's clock, which stands still here
        with pytest.raises(TransactionAborted):
            queues.do(asked(party, steps.Commit(), client=1))


def test_undo_of_what_is_over(queues: Queues) -> None:
    queues.notes()
    party = queues.party()
    party.enqueue("a")
    number = party.number
    party.commit()
    assert queues.do(ops.Undo(number)) == steps.Done(repeated=True)
    assert queues.do(ops.Undo(77)) == steps.Done(repeated=True)
    assert queues.texts() == ["a"]


# Two stores


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("level", LEVELS)
def test_prepared_and_decided(queues: Queues, level: str, commit: bool) -> None:
    queues.notes(level)
    queues.party().put("old")
    party, other = queues.party(), queues.party()
    assert party.one() == "old"
    party.enqueue("new")
    number = party.number
    assert party.perform(steps.Prepare("g'1;", "there")) == steps.Done()
    again = asked(party, steps.Prepare("g'1;", "there"), number=number)
    assert queues.do(again).outcomes == (steps.Done(repeated=True),)
    assert queues.do(ops.Prepared()) == [("g'1;", "there")]
    assert queues.do(ops.Prepared("there")) == [("g'1;", "there")]
    assert queues.do(ops.Prepared("elsewhere")) == []
    queues.do(ops.Renew((number,), -1))
    queues.do(ops.Sweep())
    queues.do(ops.Undo(number))
    queues.restart()
    other = queues.party()
    queues.now += 10**12
    queues.do(ops.Sweep())
    assert other.one() is None, "it is in doubt"
    assert queues.texts() == []
    for step in (steps.Commit(), steps.Abort(), steps.Dequeue("notes")):
        with pytest.raises(MilepostError):
            queues.do(asked(party, step, number=number))
    done = queues.do(ops.Decide("g'1;", commit))
    assert done.touched == ("notes",)
    assert queues.do(ops.Decide("g'1;", commit)).repeated
    with pytest.raises(NoTransaction):
        queues.do(ops.Decide("g'1;", not commit))
    assert queues.texts() == (["new"] if commit else ["old"])
    assert queues.do(ops.Prepared()) == []
    assert other.one() == ("new" if commit else "old")
    other.commit()
    queues.do(ops.Sweep())
    assert queues.tables() == {}


def test_decisions_about_what_is_not_there(queues: Queues) -> None:
    queues.notes()
    with pytest.raises(NoTransaction):
        queues.do(ops.Decide("never", commit=True))
    assert queues.do(ops.Decide("never", commit=False)).repeated, "presumed to be undone"


def test_a_prepared_block_must_be_whole(queues: Queues) -> None:
    queues.notes("blockwise")
    queues.party().put("a", "b")
    party = queues.party()
    assert party.one() == "a"
    with pytest.raises(BlockIncomplete):
        party.perform(steps.Prepare("g", "c"))
    assert party.one() == "b"
    party.perform(steps.Prepare("g", "c"))
    queues.do(ops.Decide("g", commit=True))
    assert queues.tables() == {}


def test_a_coordinator_remembers_its_decision_with_its_commit(queues: Queues) -> None:
    queues.notes()
    party = queues.party()
    party.put("a")
    assert party.one() == "a"
    party.perform(steps.Commit(decision=steps.Decision("g'1", "there")))
    queues.restart()
    assert queues.do(ops.Decisions()) == [("g'1", "there")]
    again = queues.do(asked(party, steps.Commit(decision=steps.Decision("g'1", "there"))))
    assert again.outcomes[0].repeated
    queues.do(ops.ForgetDecision("g'1"))
    queues.do(ops.ForgetDecision("g'1"))
    assert queues.do(ops.Decisions()) == []
    assert queues.tables() == {}


def test_a_name_that_is_taken_by_another_prepared_transaction(queues: Queues) -> None:
    """Of a group, only the one that is wrong fails."""
    queues.notes()
    one, two, three = queues.party(), queues.party(), queues.party()
    for party in (one, two):
        party.enqueue("x")
    one.perform(steps.Prepare("g", "c"))
    outcomes = queues.together(
        [
            asked(two, steps.Prepare("g", "c"), number=two.number),
            asked(three, steps.Enqueue("notes", batch("a")), steps.Commit(steps.Decision("d", "p"))),
        ]
    )
    assert isinstance(outcomes[0], InvalidValue)
    assert isinstance(outcomes[1], steps.Performed)
    three.over()
    with pytest.raises(InvalidValue):
        queues.do(asked(three, steps.Enqueue("notes", batch("b")), steps.Commit(steps.Decision("d", "p"))))
    two.abort()
    assert queues.do(ops.Decide("g", commit=True)).touched == ("notes",)
    assert queues.texts() == ["x", "a"]


# Groups


@pytest.mark.parametrize("level", LEVELS)
def test_one_of_a_group_fails_after_it_changed_something(queues: Queues, level: str) -> None:
    queues.notes(level)
    queues.party().put("old")
    one, two, three = queues.party(), queues.party(), queues.party()
    one.enqueue("one")
    number = two.enqueue("two") and two.number
    outcomes = queues.together(
        [
            asked(one, steps.Commit(), number=one.number),
            asked(two, steps.Enqueue("notes", batch("no")), steps.Enqueue("nowhere", batch("no")), number=number),
            asked(three, steps.Enqueue("notes", batch("three")), steps.Commit()),
        ]
    )
    assert isinstance(outcomes[0], steps.Performed)
    assert isinstance(outcomes[1], UnknownQueue)
    assert isinstance(outcomes[2], steps.Performed)
    assert queues.texts() == ["old", "one", "three"]
    two.commit()
    assert queues.texts() == ["old", "one", "two", "three"]


def test_two_steps_of_one_transaction_in_a_group(queues: Queues) -> None:
    queues.notes()
    queues.party().put("a", "b")
    party = queues.party()
    party.enqueue("x")
    number = party.number
    outcomes = queues.together(
        [
            asked(party, steps.Enqueue("notes", batch("y")), number=number),
            asked(party, steps.Dequeue("notes", count=2), number=number),
            asked(party, steps.Commit(), number=number),
        ]
    )
    assert [type(outcome) for outcome in outcomes] == [steps.Performed] * 3, outcomes
    assert queues.texts() == ["x", "y"]
    assert "queue_log" not in queues.tables()


@pytest.mark.parametrize("how", ["commit", "abort", "prepare"])
@pytest.mark.parametrize("level", ["none", "ordered"])
def test_several_operations_in_a_group_and_the_end_behind_it(queues: Queues, level: str, how: str) -> None:
    """Each of them is known at the end."""
    for name in ("one", "two", "three"):
        queues.notes(level, name)
        queues.party().put(f"old {name}", queue=name)
    party = queues.party()
    party.enqueue("new three", queue="three")
    number = party.number
    outcomes = queues.together(
        [
            asked(party, steps.Enqueue("one", batch("new one")), number=number),
            asked(party, steps.Dequeue("two"), number=number),
            asked(party, steps.Enqueue("two", batch("new two")), number=number),
        ]
    )
    assert [type(outcome) for outcome in outcomes] == [steps.Performed] * 3, outcomes
    if how == "commit":
        party.commit()
    elif how == "abort":
        party.abort()
    else:
        party.perform(steps.Prepare("g", "c"))
        queues.do(ops.Decide("g", commit=False))
    found = [queues.texts(name) for name in ("one", "two", "three")]
    if how == "commit":
        assert found == [["old one", "new one"], ["new two"], ["old three", "new three"]]
    else:
        assert found == [["old one"], ["old two"], ["old three"]]
    reader = queues.party()
    for name in ("one", "two", "three"):
        reader.dequeue(5, queue=name)
    reader.commit()
    queues.do(ops.Sweep())
    assert queues.tables() == {}


def test_many_repetitions_in_a_group(queues: Queues) -> None:
    """All clients of a broker ask again at once, after the network was away."""
    queues.notes()
    parties = [queues.party() for _ in range(40)]
    asking = [asked(party, steps.Enqueue("notes", batch("x")), steps.Commit()) for party in parties]
    done = queues.together(asking)
    again = queues.together(asking)
    assert [each.number for each in again] == [each.number for each in done]
    assert [each.outcomes[0] for each in again] == [each.outcomes[0] for each in done]
    readers = [queues.party() for _ in range(40)]
    for reader in readers:
        assert reader.one() == "x"
    commits = [asked(reader, steps.Commit(), number=reader.number) for reader in readers]
    for repeated in (False, True):
        ended = queues.together(commits)
        assert [each.outcomes[0].repeated for each in ended] == [repeated] * 40
    assert queues.tables() == {}


@pytest.mark.parametrize("level", LEVELS)
def test_a_group_is_its_operations_one_after_another(queues: Queues, level: str) -> None:
    """Each sees what those before it did, and the end of one lets the next have what it had."""
    queues.notes(level)
    writer, one, two, three = (queues.party() for _ in range(4))
    writer.put("a")
    assert one.one() == "a"
    outcomes = queues.together(
        [
            asked(two, steps.Dequeue("notes")),
            asked(one, steps.Abort(), number=one.number),
            asked(three, steps.Dequeue("notes")),
            asked(two, steps.Dequeue("notes")),
        ]
    )
    assert [outcome.number > 0 for outcome in outcomes] == [False, True, True, False]
    assert outcomes[2].outcomes[0].groups[0].aborts == [1]


# Times


def test_not_before(queues: Queues) -> None:
    queues.notes()
    party = queues.party()
    due = queues.now + 1_000
    party.put("later", due_us=due)
    party.put("now")
    assert queues.figures() == {"waiting": 1, "delayed": 1}
    assert party.one() == "now"
    party.commit()
    got = party.perform(steps.Dequeue("notes"))
    assert (got.count, got.waits_us) == (0, due)
    queues.now += 2_000
    assert party.one() == "later"
    party.commit()
    assert queues.tables() == {}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dead", [None, "dead"])
def test_expiry(queues: Queues, level: str, dead: str | None) -> None:
    queues.notes(level, dead_letter=dead, max_deliveries=5 if dead else 0)
    party = queues.party()
    end = queues.now + 1_000
    mids = party.put("short", ends_us=end)
    party.put("long")
    assert queues.figures() == {"waiting": 2}
    queues.now += 2_000
    assert queues.figures() == {"waiting": 1, "expired": 1}
    reader = queues.party()
    assert reader.dequeue(5) == ["long"]
    reader.commit()
    queues.do(ops.Sweep())
    assert queues.figures() == {}
    if dead:
        assert queues.texts("dead") == ["short"]
        got = reader.perform(steps.Dequeue("dead"))
        assert got.groups[0].mids == mids
        reader.commit()
    queues.do(ops.Sweep())
    assert queues.tables() == {}


@pytest.mark.parametrize("level", ["blockwise", "ordered blockwise"])
def test_a_block_with_a_delayed_message_ends_with_that(queues: Queues, level: str) -> None:
    queues.notes(level)
    writer, reader = queues.party(), queues.party()
    writer.enqueue("now")
    mids = writer.enqueue("later", due_us=queues.now + 1_000)
    writer.commit()
    assert reader.dequeue(5) == ["now"]
    with pytest.raises(BlockIncomplete, match=f"/{mids[0]}\\)"):
        reader.commit()
    queues.now += 2_000
    assert reader.dequeue(5) == ["later"]
    reader.commit()
    queues.do(ops.Sweep())
    assert queues.tables() == {}


@pytest.mark.parametrize("level", ["blockwise", "ordered blockwise"])
def test_a_block_of_which_a_message_expires_while_it_is_read(queues: Queues, level: str) -> None:
    """What nobody may take any more does not keep a reader from its commit."""
    queues.notes(level)
    writer, reader = queues.party(), queues.party()
    writer.enqueue("a")
    writer.enqueue("b", ends_us=queues.now + 1_000)
    writer.commit()
    assert reader.one() == "a"
    queues.now += 2_000
    queues.do(ops.Sweep())
    assert reader.one() is None
    reader.commit()
    queues.do(ops.Sweep())
    assert queues.tables() == {}


# Dead messages


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("way", ["abort", "undo", "lease"])
def test_a_message_that_is_undone_too_often_is_dead(queues: Queues, level: str, way: str) -> None:
    queues.notes(level, dead_letter="dead", max_deliveries=2)
    writer = queues.party()
    (mid,) = writer.put("bad", priority=3.0)
    for _ in range(2):
        reader = queues.party()
        assert reader.one() == "bad"
        if way == "abort":
            done = reader.abort()
        elif way == "undo":
            done = queues.do(ops.Undo(reader.number))
        else:
            queues.do(ops.Renew((reader.number,), -1))
            done = queues.do(ops.Sweep())
    assert "dead" in done.touched
    assert (queues.texts(), queues.texts("dead")) == ([], ["bad"])
    reader = queues.party()
    assert reader.one() is None
    got = reader.perform(steps.Dequeue("dead"))
    (group,) = got.groups
    assert (group.mids, group.priorities, group.aborts, group.s) == ([mid], [3.0], [2], [writer.s])
    reader.abort()
    assert queues.texts("dead") == ["bad"], "a queue for the dead keeps them"
    assert reader.dequeue(queue="dead") == ["bad"]
    reader.commit()
    queues.do(ops.Sweep())
    assert queues.tables() == {}


def test_a_message_that_is_taken_when_its_process_ends_counts_an_abort(queues: Queues) -> None:
    queues.notes(dead_letter="dead", max_deliveries=3)
    queues.party().put("bad")
    queues.party().put("good")
    for aborts in range(3):
        got = queues.party().perform(steps.Dequeue("notes", where="text = 'bad'"))
        assert got.groups[0].aborts == [aborts]
        queues.restart()
    assert queues.texts() == ["good"]
    assert queues.texts("dead") == ["bad"]
    got = queues.party().perform(steps.Dequeue("notes"))
    assert got.groups[0].aborts == [0], "nobody has taken this one"


def test_a_message_on_its_way_to_another_broker_counts_no_abort(queues: Queues) -> None:
    queues.notes(dead_letter="dead", max_deliveries=1)
    queues.do(SetTransfer("notes", "milepost://127.0.0.1:1", "there"))
    queues.party().put("good")
    assert queues.party().one() == "good"
    queues.restart()
    reader = queues.party()
    assert reader.perform(steps.Dequeue("notes")).groups[0].aborts == [0]
    queues.do(ops.Renew((reader.number,), -1))
    queues.do(ops.Sweep())
    assert queues.texts() == ["good"]


# Wrong messages


@pytest.mark.parametrize("priority", [float("nan"), float("inf"), float("-inf")])
def test_priorities_that_are_none(queues: Queues, priority: float) -> None:
    queues.notes()
    party = queues.party()
    with pytest.raises(InvalidValue):
        party.enqueue("a", priority=priority)
    assert party.number == 0
    assert queues.tables() == {}


@pytest.mark.parametrize("begun", [False, True])
def test_text_that_cannot_be_stored(queues: Queues, begun: bool) -> None:
    queues.notes()
    party = queues.party()
    if begun:
        party.enqueue("good")
    with pytest.raises(InvalidValue):
        party.enqueue("also good", "bad\0")
    with pytest.raises(InvalidValue):
        party.perform(steps.Enqueue("notes", batch("a\0b")), steps.Commit())
    if begun:
        party.commit()
    assert queues.texts() == (["good"] if begun else [])
    assert begun or queues.tables() == {}


@pytest.mark.parametrize("count", [0, -1, 100_001])
def test_counts_that_cannot_be_meant(queues: Queues, count: int) -> None:
    queues.notes()
    with pytest.raises(InvalidValue, match="count"):
        queues.party().dequeue(count)
    with pytest.raises(InvalidValue, match="count"):
        queues.do(ops.Peek("notes", count=count))


def test_values_are_only_values(queues: Queues) -> None:
    nasty = ["'; DROP TABLE queues; --", '"', "\\", ":v0", "{in mids}", "%s %(x)s", "{", "NULL", "a,b", "{}", "é\u2028"]
    queues.notes()
    party = queues.party()
    party.put(*nasty)
    assert party.dequeue(len(nasty)) == nasty
    party.commit()
    assert queues.tables() == {}


def test_moves_of_cursors_are_in_the_transaction(queues: Queues) -> None:
    """A cursor that cannot be moved keeps everything else from being so."""
    from milepost.operations import Cursor, Move

    queues.notes()
    party = queues.party()
    move = Move(subscription=999, epoch=1, cursors={1: Cursor(5)})
    with pytest.raises(MilepostError):
        queues.do(asked(party, steps.Enqueue("notes", batch("a")), steps.Commit(moves=(move,))))
    assert queues.texts() == []
    party.enqueue("b")
    with pytest.raises(MilepostError):
        party.perform(steps.Commit(moves=(move,)))
    assert queues.texts() == []
    party.commit()
    assert queues.texts() == ["b"]
