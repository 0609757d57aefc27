"""Mishaps around queues: too much of something at once, clocks that jump, callers that err and go on."""

from __future__ import annotations

import psycopg
import pytest

from milepost.batch import Batch
from milepost.errors import SchemaError
from milepost.operations import queues as ops
from milepost.operations import steps
from milepost.query import parse_schema
from milepost.queues import statements, upkeep
from milepost.storage import Store
from milepost.storage.pipeline import PREPARED, StatementPipeline
from tests.unit.queues.conftest import NOTE, Queues


def test_more_statements_at_once_than_are_kept_prepared(shared: Queues) -> None:
    with psycopg.connect(shared.url, autocommit=True) as connection:
        pipeline = StatementPipeline(connection)
        for _ in range(2):
            answers = pipeline.run([(f"SELECT {number}", ()) for number in range(PREPARED + 10)])
            assert [answer.fetchone() for answer in answers] == [(number,) for number in range(PREPARED + 10)]
        pipeline.run([("SELECT 1", ())])
        found = connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchone()
        assert found == (PREPARED + 1,)  # and the last one, which was among those that went


def test_types_that_take_turns_are_read_together_and_come_in_order(queues: Queues) -> None:
    schemas = [parse_schema(f"kind{number}: [place: int, parts: *([part: int])*]") for number in range(3)]
    for schema in schemas:
        queues.do(ops.DeclareType(str(schema)))
    queues.do(ops.DeclareQueue("mixed", tuple(schema.name for schema in schemas)))
    writer, reader = queues.party(), queues.party()
    for place in (0, 1, 2, 3, 4, 5):
        message = {"place": place, "parts": [{"part": place}] * place}
        writer.perform(steps.Enqueue("mixed", Batch.encode(schemas[place % 3], [message])))
    writer.commit()
    got = reader.perform(steps.Dequeue("mixed", count=5))
    assert [group.type for group in got.groups] == ["kind0", "kind1", "kind2", "kind0", "kind1"]
    messages = [row for group in got.groups for row in group.batch.to_pylist()]
    assert messages == [{"place": place, "parts": [{"part": place}] * place} for place in range(5)]
    reader.commit()
    assert queues.figures("mixed") == {"waiting": 1}


def test_whoever_asks_what_a_queue_takes_has_nothing_counted(queues: Queues) -> None:
    queues.notes()
    queues.party().put("a")
    (counted,), (plain,) = queues.do(ops.Queues("notes")), queues.do(ops.Queues("notes", counted=False))
    assert counted.statistics["waiting"] == 1
    assert plain == counted._replace(statistics={})


def test_a_sweep_says_when_it_has_not_done_all(queues: Queues) -> None:
    queues.notes()
    queues.party().put(*["x"] * (upkeep.SWEPT + 1), ends_us=queues.now + 100)
    queues.now += 1_000
    assert queues.do(ops.Sweep()).more
    assert not queues.do(ops.Sweep()).more
    assert queues.figures() == {}


def test_a_sweep_finds_leases_by_their_index(shared: Queues) -> None:
    """However many outcomes are remembered: a time that PostgreSQL asks for at each row would have it look at all."""
    shared.notes()
    with psycopg.connect(shared.url, options="-c search_path=milepost -c enable_seqscan=off -c enable_sort=off") as own:
        for statement in (statements.LAPSED, statements.FORGET_OUTCOMES):
            plan = own.execute("EXPLAIN (GENERIC_PLAN) " + statement.numbered[0]).fetchall()
            assert any("Index Cond: (lease_us <" in line for (line,) in plan)


@pytest.mark.parametrize("level", ["ordered", "ordered blockwise"])
def test_a_writer_that_comes_to_a_broker_whose_clock_is_behind_keeps_its_order(shared: Queues, level: str) -> None:
    shared.notes(level)
    one, two, now = shared.store("one"), shared.store("two"), shared.now

    def put(store: Store, text: str, client: int, ahead_us: int, came: bool) -> None:
        batch = Batch.encode(NOTE, [{"text": text}])
        transaction = steps.TransactionOwner(0, 77, b"w" * 16, client, 10_000_000, came)
        (done,) = store.write(
            [ops.Perform(transaction, (steps.Enqueue("notes", batch), steps.Commit()))], now + ahead_us
        ).outcomes
        assert isinstance(done, steps.Performed)

    put(one, "a", 1, 5_000_000, True)
    put(two, "b", 2, 1_000_000, True)
    put(two, "c", 3, 1_000_001, False)
    shared.now += 10_000_000
    reader = shared.party()
    assert reader.dequeue() == ["a"]
    reader.abort()
    assert reader.dequeue(3) == ["a", "b", "c"]
    put(one, "d", 4, 5_000_001, True)
    reader.commit()
    assert reader.dequeue() == ["d"]


@pytest.mark.parametrize(("members", "kind"), [(1_501, "int"), (251, "*(int)*")])
def test_a_type_that_no_database_has_room_for(queues: Queues, members: int, kind: str) -> None:
    with pytest.raises(SchemaError, match="split it"):
        queues.do(ops.DeclareType(f"wide: [{', '.join(f'a{number}: {kind}' for number in range(members))}]"))
    assert queues.do(ops.Types()) == []
