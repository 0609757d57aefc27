"""The four levels: the schedules of the paper's Figure 3, step by step, and what the levels promise beside them."""

from __future__ import annotations

import pytest

from milepost.errors import BlockIncomplete
from milepost.operations import queues as ops
from tests.unit.queues.conftest import Queues

GROUPED = ["ordered", "blockwise", "ordered blockwise"]


def figure(queues: Queues, level: str):
    """Two writers, two readers: writer 1 wrote a to d in one transaction, writer 2 e and f, then writer 1 g."""
    queues.notes(level)
    first, second = queues.party(), queues.party()
    first.put("1/a", "1/b", "1/c", "1/d")
    second.put("2/e", "2/f")
    first.put("1/g")
    return queues.party(), queues.party()


def test_figure_3_left_none_mixes_writers_and_readers(queues: Queues) -> None:
    one, two = figure(queues, "none")
    assert one.one() == "1/a"
    assert one.one() == "1/b"
    assert two.one() == "1/c"
    assert one.one() == "1/d"
    assert two.one() == "2/e"
    two.abort()
    assert one.one() == "1/c", "given back, and so out of order"
    one.commit()
    assert queues.texts() == ["2/e", "2/f", "1/g"]


def test_figure_3_centre_ordered_gives_a_writer_to_one_reader(queues: Queues) -> None:
    one, two = figure(queues, "ordered")
    assert one.one() == "1/a"
    assert one.one() == "1/b"
    assert two.one() == "2/e", "writer 1 is reserved"
    assert one.one() == "1/c"
    assert two.one() == "2/f"
    assert two.one() is None, "1/g is of writer 1"
    two.abort()
    assert one.one() == "1/d"
    assert one.one() == "2/e", "the reader may go on with another writer"
    assert two.one() is None
    one.commit()
    assert two.one() == "2/f"
    assert two.one() == "1/g"


def test_figure_3_right_blockwise_gives_a_transaction_to_one_reader(queues: Queues) -> None:
    one, two = figure(queues, "blockwise")
    assert one.one() == "1/a"
    assert one.one() == "1/b"
    assert two.one() == "2/e"
    assert one.one() == "1/c"
    assert two.one() == "2/f"
    with pytest.raises(BlockIncomplete, match="some messages remain"):
        one.commit()
    assert one.one() == "1/d"
    one.commit()
    assert two.one() == "1/g", "another transaction of writer 1"
    two.commit()
    assert queues.texts() == []
    assert queues.tables() == {}


def test_ordered_blockwise_is_both(queues: Queues) -> None:
    one, two = figure(queues, "ordered blockwise")
    assert one.dequeue(2) == ["1/a", "1/b"]
    assert two.one() == "2/e"
    assert two.one() == "2/f"
    assert two.one() is None, "1/g is of writer 1, which is reserved"
    with pytest.raises(BlockIncomplete):
        one.commit()
    assert one.dequeue(2) == ["1/c", "1/d"]
    one.commit()
    assert two.one() == "1/g"
    two.commit()
    assert queues.texts() == []


@pytest.mark.parametrize("level", ["none", *GROUPED])
def test_an_abort_gives_back_what_was_taken_where_it_was(queues: Queues, level: str) -> None:
    one, two = figure(queues, level)
    before = queues.texts()
    taken = one.dequeue(5)
    assert len(taken) == 5
    one.abort()
    assert queues.texts() == before
    assert two.dequeue(5) == taken


@pytest.mark.parametrize("level", ["none", *GROUPED])
def test_what_is_not_committed_is_nobody_elses(queues: Queues, level: str) -> None:
    queues.notes(level)
    writer, reader = queues.party(), queues.party()
    writer.enqueue("x")
    assert reader.one() is None
    assert queues.texts() == []
    writer.commit()
    assert reader.one() == "x"


@pytest.mark.parametrize("level", ["none", *GROUPED])
def test_enqueued_and_dequeued_by_one_transaction(queues: Queues, level: str) -> None:
    queues.notes(level)
    party, other = queues.party(), queues.party()
    party.enqueue("a", "b")
    assert party.one() == "a"
    assert other.one() is None
    party.commit()
    assert queues.texts() == ["b"]
    party.enqueue("c")
    assert party.dequeue(2) == ["b", "c"]
    party.abort()
    assert queues.texts() == ["b"]
    assert other.one() == "b"
    other.commit()
    assert queues.tables() == {} or set(queues.tables()) == {"queue_groups"}


@pytest.mark.parametrize("level", GROUPED)
def test_a_writer_that_commits_while_a_reader_holds_its_messages(queues: Queues, level: str) -> None:
    queues.notes(level)
    writer, one, two = queues.party(), queues.party(), queues.party()
    writer.put("a")
    assert one.one() == "a"
    writer.put("b")
    if level == "blockwise":
        assert two.one() == "b", "another block"
    else:
        assert two.one() is None, "the state is (a/1/n, c, b/2)"
        assert one.one() == "b"
    one.commit()


def test_while_one_reader_holds_a_writer_another_takes_the_next(queues: Queues) -> None:
    queues.notes("ordered")
    readers = [queues.party() for _ in range(3)]
    for name in "abc":
        writer = queues.party()
        writer.put(f"{name}1", f"{name}2")
    assert [reader.one() for reader in readers] == ["a1", "b1", "c1"]
    assert [reader.one() for reader in readers] == ["a2", "b2", "c2"]
    assert [reader.one() for reader in readers] == [None, None, None]


@pytest.mark.parametrize("level", ["ordered", "ordered blockwise"])
def test_priorities_choose_among_the_oldest_of_each_writer(queues: Queues, level: str) -> None:
    queues.notes(level)
    one, two = queues.party(), queues.party()
    one.put("a5", priority=5.0)
    one.put("a1", priority=1.0)
    two.put("b3", priority=3.0)
    two.put("b9", priority=9.0)
    reader = queues.party()
    assert reader.dequeue(4) == ["a5", "b3", "b9", "a1"]
    reader.abort()
    assert [reader.one() for _ in range(4)] == ["a5", "b3", "b9", "a1"], "one by one it is the same"


def test_priorities_at_level_none(queues: Queues) -> None:
    queues.notes()
    queues.notes(name="least", direction="asc", priority=2.0)
    writer = queues.party()
    for queue in ("notes", "least"):
        writer.put("one", queue=queue, priority=1.0)
        writer.put("three", queue=queue, priority=3.0)
        writer.put("default", queue=queue)
    reader = queues.party()
    assert reader.dequeue(3) == ["three", "one", "default"]
    assert reader.dequeue(3, queue="least") == ["one", "default", "three"]


@pytest.mark.parametrize("level", ["ordered", "ordered blockwise"])
def test_few_writers_are_looked_at_one_by_one_in_the_same_order(queues: Queues, level: str) -> None:
    queues.notes(level)
    writers = [queues.party() for _ in range(3)]
    for turn in range(2):
        for place, writer in enumerate(writers):
            writer.put(f"{place}{turn}")
    queues.do(ops.Sweep())
    one, two = queues.party(), queues.party()
    assert [one.one() for _ in range(2)] == ["00", "10"]
    assert [two.one() for _ in range(3)] == ["20", "21", None], "what others have is not in the way"
    assert [one.one() for _ in range(3)] == ["01", "11", None]
    one.abort()
    assert two.one() == "00"
