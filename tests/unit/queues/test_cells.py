"""Several brokers on one PostgreSQL: they work the same queues at once, and what one changes the others know."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from milepost.batch import Batch
from milepost.errors import BlockIncomplete, QueueInUse, TransactionAborted, TypeInUse, UnknownQueue, UnknownType
from milepost.operations import queues as ops
from milepost.operations import steps
from milepost.queues import first_dequeue
from milepost.queues.states import LEVELS
from tests.unit.queues.conftest import LEASE_US, NOTE, Party, Queues

ROUNDS = 60  # of each broker: some transactions that write, some that read
JOIN_S = 120.0  # that a thread may take; one that hangs is a deadlock


def at_once(*works: Callable[[], None]) -> None:
    """Run in a thread each, and raise what one of them raised."""
    wrong: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=guarded, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(JOIN_S)
        assert not thread.is_alive(), "brokers wait for each other"
    if wrong:
        raise wrong[0]


@dataclass
class Read:
    """A reader's transaction that was committed: `first`, by writer, and `last` are while it held what it took."""

    first: dict[int, int] = field(default_factory=dict)
    last: int = 0
    heads: list[tuple[int, int, int]] = field(default_factory=list)  # s, t, mid


@dataclass
class Ledger:
    written: dict[int, list[int]] = field(default_factory=dict)  # T -> its messages
    reads: list[Read] = field(default_factory=list)
    ticks: itertools.count[int] = field(default_factory=itertools.count)


def work(queues: Queues, broker: str, seed: int, ledger: Ledger, prioritized: bool) -> None:
    """Write and read in small transactions; some are aborted."""
    chance = random.Random(seed)
    writers = [queues.party(broker) for _ in range(2)]
    readers = [queues.party(broker) for _ in range(2)]
    held: dict[int, Read] = {}

    def took(reader: Party, count: int) -> int:
        got = reader.perform(steps.Dequeue("notes", count=count))
        read = held.setdefault(reader.s, Read())
        now = next(ledger.ticks)
        for group in got.groups:
            for s in group.s:
                read.first.setdefault(s, now)
            read.heads += zip(group.s, group.t, group.mids, strict=True)
        return got.count

    def ended(reader: Party) -> None:
        read = held.pop(reader.s)
        while True:
            read.last = next(ledger.ticks)
            try:
                if reader.number:
                    reader.commit()
                    ledger.reads.append(read)
                return
            except BlockIncomplete:
                held[reader.s] = read
                assert took(reader, 5), "the rest of a block is its reader's"
                held.pop(reader.s)

    for _ in range(ROUNDS):
        writer = chance.choice(writers)
        mids: list[int] = []
        for _ in range(chance.randint(1, 2)):
            texts = [f"{broker} {next(ledger.ticks)}" for _ in range(chance.randint(1, 3))]
            priority = float(chance.randint(0, 2)) if prioritized else None
            mids += writer.enqueue(*texts, priority=priority)
        number = writer.number
        if chance.random() < 0.15:
            writer.abort()
        else:
            writer.commit()
            ledger.written[number] = mids
        reader = chance.choice(readers)
        took(reader, chance.randint(1, 4))
        if chance.random() < 0.15 and reader.number:
            held.pop(reader.s)
            reader.abort()
        elif chance.random() < 0.8:
            ended(reader)
    for reader in readers:
        if reader.s in held:
            ended(reader)


@pytest.mark.parametrize("prioritized", [False, True])
@pytest.mark.parametrize("level", LEVELS)
def test_two_brokers_work_one_queue(shared: Queues, level: str, prioritized: bool) -> None:
    shared.notes(level)
    shared.store("two")
    ledger = Ledger()
    at_once(
        lambda: work(shared, "one", 1, ledger, prioritized),
        lambda: work(shared, "two", 2, ledger, prioritized),
    )
    reader = shared.party()
    rest = reader.perform(steps.Dequeue("notes", count=10_000))
    if rest.count:
        reader.commit()
    left = [mid for group in rest.groups for mid in group.mids]
    taken = [mid for read in ledger.reads for _, _, mid in read.heads]
    assert len(set(taken + left)) == len(taken + left), "one came twice"
    assert sorted(taken + left) == sorted(mid for mids in ledger.written.values() for mid in mids)
    assert len(taken) > ROUNDS
    if "blockwise" in level:
        for read in ledger.reads:
            for number in {t for _, t, _ in read.heads}:
                assert [mid for _, t, mid in read.heads if t == number] == sorted(ledger.written[number]) or prioritized
                assert {mid for _, t, mid in read.heads if t == number} == set(ledger.written[number])
    if "ordered" in level:
        for s in {s for read in ledger.reads for s in read.first}:
            of_one = sorted((read for read in ledger.reads if s in read.first), key=lambda read: read.first[s])
            assert all(one.last < two.first[s] for one, two in itertools.pairwise(of_one)), "two had one writer"
            order = [mid for read in of_one for each, _, mid in read.heads if each == s]
            assert order == sorted(order)
    shared.do(ops.Sweep())
    assert shared.tables() == {}


@pytest.mark.parametrize("level", ["ordered", "blockwise", "ordered blockwise"])
def test_while_one_broker_has_a_writer_another_takes_the_next(shared: Queues, level: str) -> None:
    shared.notes(level)
    shared.party("one").put("a1", "a2")
    shared.party("two").put("b1", "b2")
    one, two = shared.party("one"), shared.party("two")
    assert one.one() == "a1"
    assert two.one() == "b1"
    assert one.one() == "a2"
    assert two.dequeue(5) == ["b2"]
    one.commit()
    two.commit()


def test_sweeps_while_others_work(shared: Queues) -> None:
    """Groups without messages go while messages come."""
    shared.notes("blockwise")
    shared.store("two")
    over = threading.Event()
    ledger = Ledger()

    def working() -> None:
        try:
            work(shared, "one", 3, ledger, prioritized=False)
        finally:
            over.set()

    def sweeping() -> None:
        while not over.is_set():
            shared.do(ops.Sweep(), shared.store("two"))

    at_once(working, sweeping)
    reader = shared.party()
    rest = reader.dequeue(10_000)
    if rest:
        reader.commit()
    total = sum(len(mids) for mids in ledger.written.values())
    assert len(rest) + sum(len(read.heads) for read in ledger.reads) == total
    shared.do(ops.Sweep())
    assert shared.tables() == {}


@pytest.mark.parametrize("prioritized", [False, True])
@pytest.mark.parametrize("level", LEVELS)
def test_a_writer_that_commits_does_not_hide_what_it_wrote_before(
    shared: Queues, level: str, prioritized: bool
) -> None:
    shared.notes(level)
    writer = shared.party("one")
    writer.put(*("old" for _ in range(100)), priority=1.0 if prioritized else None)
    shared.store("two")
    over = threading.Event()

    def writing() -> None:
        while not over.is_set():
            writer.put("new")

    def reading() -> None:
        try:
            for _ in range(20):
                reader = shared.party("two")
                assert reader.one() == "old"
                assert reader.one() == "old"
                reader.abort()
        finally:
            over.set()

    at_once(writing, reading)


# What another broker has changed


def test_a_queue_that_another_broker_made(shared: Queues) -> None:
    shared.store("two")
    for number, level in enumerate(LEVELS):
        name = f"made {number}"
        party = shared.party("two")
        shared.notes(level, name)
        match number:
            case 0:
                party.put("a", queue=name)
            case 1:
                assert party.one(queue=name) is None
            case 2:
                party.perform(steps.Enqueue(name, Batch.encode(NOTE, [{"text": "a"}])), steps.Commit())
            case _:
                with pytest.raises(UnknownQueue):
                    party.enqueue("a", queue="made 4")
                party.put("a", queue=name)
        assert shared.texts(name) == ([] if number == 1 else ["a"])


def test_a_queue_that_another_broker_made_otherwise(shared: Queues) -> None:
    shared.notes("none")
    two = shared.party("two")
    two.put("a")
    assert two.one() == "a"
    two.commit()
    shared.do(ops.DeleteQueue("notes"))
    with pytest.raises(UnknownQueue):
        two.enqueue("b")
    with pytest.raises(UnknownQueue):
        two.one()
    shared.notes("blockwise")
    two.put("b", "c")
    assert two.one() == "b"
    with pytest.raises(BlockIncomplete):
        two.commit()
    assert two.one() == "c"
    two.commit()


@pytest.mark.parametrize("level", LEVELS)
def test_priorities_that_came_by_another_broker(shared: Queues, level: str) -> None:
    shared.notes(level)
    shared.party("two").put("first")
    shared.party("one").put("high", priority=5.0)
    assert shared.party("two").one() == "high"
    assert shared.party("one").one() == "first"


def test_queues_come_and_go_while_another_broker_uses_them(shared: Queues) -> None:
    """Whoever is late hears that there is no such queue; nothing of the store's own comes through."""
    shared.do(ops.DeclareType(str(NOTE)))
    shared.store("two")
    over = threading.Event()
    kept: list[str] = []

    def making() -> None:
        try:
            for _ in range(25):
                shared.do(ops.DeclareQueue("notes", ("note",)))
                try:
                    shared.do(ops.DeleteQueue("notes"))
                except QueueInUse:
                    shared.do(ops.Purge("notes"))
        finally:
            over.set()

    def using() -> None:
        party = shared.party("two")
        while not over.is_set():
            try:
                party.perform(steps.Enqueue("notes", Batch.encode(NOTE, [{"text": "a"}])), steps.Commit())
                kept.append("a")
            except UnknownQueue:
                pass
            party.over()
            try:
                shared.do(ops.Queues(), shared.store("two"))
                if party.one() is not None:
                    party.commit()
            except UnknownQueue:
                party.over()

    at_once(making, using)


def test_a_queue_is_deleted_between_a_dequeue_in_vain_and_its_answer(
    shared: Queues, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared.notes()
    reader = shared.party("two")
    assert reader.one() is None  # it knows the queue now
    usual = first_dequeue.nothing

    def nothing(*given: Any) -> steps.Got:
        shared.do(ops.DeleteQueue("notes"))
        return usual(*given)

    monkeypatch.setattr(first_dequeue, "nothing", nothing)
    assert reader.one() is None
    monkeypatch.setattr(first_dequeue, "nothing", usual)
    with pytest.raises(UnknownQueue):
        reader.one()


def test_two_brokers_define_and_create_the_same_at_once(shared: Queues) -> None:
    shared.store("two")
    made = []

    def making(broker: str) -> Callable[[], None]:
        def run() -> None:
            for number in range(8):
                record = shared.do(ops.DeclareType(f"kind{number}: [a: int]"), shared.store(broker))
                shared.do(ops.DeclareQueue(f"queue {number}", (record.name,)), shared.store(broker))
                made.append(record.number)

        return run

    at_once(making("one"), making("two"))
    assert len(set(made)) == 8
    assert len(shared.do(ops.Queues())) == 8


def test_a_type_is_dropped_while_a_queue_of_it_is_made(shared: Queues) -> None:
    """Either the queue is there and the type too, or neither."""
    shared.store("two")
    for number in range(8):
        text = f"kind{number}: [a: int]"
        shared.do(ops.DeclareType(text))
        ready = threading.Barrier(2)

        def dropping(name: str = f"kind{number}", ready: threading.Barrier = ready) -> None:
            ready.wait()
            try:
                shared.do(ops.DeleteType(name))
            except TypeInUse:
                pass

        def making(name: str = f"kind{number}", ready: threading.Barrier = ready) -> None:
            ready.wait()
            try:
                shared.do(ops.DeclareQueue(name, (name,)), shared.store("two"))
            except UnknownType:
                pass

        at_once(dropping, making)
        queues = {each.name for each in shared.do(ops.Queues())}
        types = {each.name for each in shared.do(ops.Types())}
        assert (f"kind{number}" in queues) == (f"kind{number}" in types)


# One transaction, two brokers


def test_an_end_that_two_brokers_are_asked_for_at_once(shared: Queues) -> None:
    """A client that gave up on one broker asks another: both say the same, and that is so."""
    shared.notes("ordered")
    shared.store("two")
    said: dict[int, list[str]] = {}
    for number in range(20):
        party = shared.party("one")
        party.enqueue(f"{number}")
        outcomes = said.setdefault(number, [])
        ready = threading.Barrier(2)

        def asking(
            known: int,
            store: str,
            party: Party = party,
            outcomes: list[str] = outcomes,
            ready: threading.Barrier = ready,
        ) -> None:
            transaction = steps.TransactionOwner(known, party.s, party.instance, party.client, LEASE_US)
            ready.wait()
            try:
                shared.do(ops.Perform(transaction, (steps.Commit(),)), shared.store(store))
                outcomes.append("committed")
            except TransactionAborted:
                outcomes.append("aborted")

        at_once(lambda asking=asking, party=party: asking(party.number, "one"), lambda asking=asking: asking(0, "two"))
        assert len(outcomes) == 2
        assert len(set(outcomes)) == 1
        assert (f"{number}" in shared.texts()) == (outcomes[0] == "committed")


def test_one_shot_that_two_brokers_are_asked_for_at_once(shared: Queues) -> None:
    shared.notes()
    shared.store("two")
    for number in range(20):
        party = shared.party("one")
        transaction = steps.TransactionOwner(0, party.s, party.instance, party.client, LEASE_US)
        steps_given = steps.Enqueue("notes", Batch.encode(NOTE, [{"text": f"{number}"}])), steps.Commit()
        once = ops.Perform(transaction, steps_given)
        done: list[steps.Performed] = []
        ready = threading.Barrier(2)

        def asking(
            store: str,
            operation: ops.Perform = once,
            done: list[steps.Performed] = done,
            ready: threading.Barrier = ready,
        ) -> None:
            ready.wait()
            done.append(shared.do(operation, shared.store(store)))

        at_once(lambda asking=asking: asking("one"), lambda asking=asking: asking("two"))
        assert done[0].outcomes[0] == done[1].outcomes[0]
        assert {each.outcomes[1].repeated for each in done} == {False, True}
    assert sorted(shared.texts(), key=int) == [f"{number}" for number in range(20)]
