"""Messages that are enqueued in a caller's own database transaction."""

from __future__ import annotations

import threading

import psycopg
import pyarrow as pa
import pytest
import sqlalchemy as sa

import milepost.queues
from milepost.errors import InvalidValue, NoTransaction, StoreError, UnknownQueue
from milepost.queues import outbox
from tests.unit.queues.conftest import Queues

NOTES = [{"text": "it's; --", "size": 1}, {"text": "two", "size": None}]


def test_what_the_caller_commits_is_there_and_what_he_rolls_back_is_not(shared: Queues) -> None:
    shared.notes()
    with psycopg.connect(shared.url) as connection:
        connection.execute("CREATE TABLE accounts (balance integer)")
        mids = milepost.queues.enqueue(connection, "notes", NOTES[:1])
        mids += milepost.queues.enqueue(connection, "notes", pa.table({"text": ["two"]}))
        assert shared.texts() == [], "not committed yet"
        assert connection.execute("SHOW search_path").fetchone() == ('"$user", public',)
        connection.commit()
        assert shared.texts() == ["it's; --", "two"]
        milepost.queues.enqueue(connection, "notes", {"text": "never", "size": 1})
        connection.rollback()
    assert shared.texts() == ["it's; --", "two"]
    assert len({mid.split("/")[1] for mid in mids}) == 1
    reader = shared.party()
    assert reader.dequeue(5) == ["it's; --", "two"]
    reader.commit()
    assert shared.tables() == {}


@pytest.mark.parametrize("level", ["ordered", "blockwise", "ordered blockwise"])
def test_one_transaction_of_the_caller_is_one_block(shared: Queues, level: str) -> None:
    shared.notes(level)
    with psycopg.connect(shared.url) as one, psycopg.connect(shared.url) as two:
        milepost.queues.enqueue(one, "notes", {"text": "a", "size": 1})
        milepost.queues.enqueue(two, "notes", {"text": "x", "size": 1})
        milepost.queues.enqueue(one, "notes", {"text": "b", "size": 1})
        two.commit()
        one.commit()
        milepost.queues.enqueue(one, "notes", {"text": "c", "size": 1})
        one.commit()
    first, second = shared.party(), shared.party()
    assert first.one() == "a"
    assert second.one() == "x"
    assert first.one() == "b"
    first.commit()
    assert second.one() == "c"


def test_numbers_follow_those_of_brokers_and_are_never_given_twice(shared: Queues) -> None:
    shared.notes()
    connections = [psycopg.connect(shared.url) for _ in range(3)]
    mids: list[str] = []
    for turn in range(5):
        for connection in connections:
            mids += milepost.queues.enqueue(connection, "notes", {"text": str(turn), "size": 1})
    for connection in connections:
        connection.commit()
        connection.close()
    assert len(set(mids)) == 15
    assert len(shared.texts()) == 15


def test_with_sqlalchemy(shared: Queues) -> None:
    shared.notes()
    engine = sa.create_engine(sa.make_url(shared.url).set(drivername="postgresql+psycopg"))
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE things (a integer)"))
        milepost.queues.enqueue(connection, "notes", NOTES, priority=3.0)
    with pytest.raises(RuntimeError), engine.begin() as connection:
        milepost.queues.enqueue(connection, "notes", NOTES)
        raise RuntimeError
    engine.dispose()
    assert shared.texts() == ["it's; --", "two"]


def test_what_cannot_be(shared: Queues) -> None:
    shared.notes()
    with psycopg.connect(shared.url) as connection:
        with pytest.raises(InvalidValue, match="size"):
            milepost.queues.enqueue(connection, "notes", {"text": "a", "size": "many"})
        milepost.queues.enqueue(connection, "notes", NOTES[0])
        connection.commit()
        with pytest.raises(UnknownQueue, match="did you mean 'notes'"):
            milepost.queues.enqueue(connection, "notez", NOTES)
        assert connection.execute("SHOW search_path").fetchone() == ('"$user", public',), "and the transaction goes on"
    with (
        psycopg.connect(shared.url, autocommit=True) as connection,
        pytest.raises(NoTransaction, match="begin one"),
    ):
        milepost.queues.enqueue(connection, "notes", NOTES)
    with pytest.raises(InvalidValue, match="psycopg"):
        milepost.queues.enqueue(object(), "notes", NOTES)
    assert shared.texts() == ["it's; --"]


def test_a_database_without_queues_is_called_that(postgresql: str) -> None:
    with psycopg.connect(postgresql) as connection, pytest.raises(StoreError, match="grant the role"):
        milepost.queues.enqueue(connection, "notes", NOTES)


@pytest.mark.parametrize(("queue", "type"), [("nots", None), ("notes", "nite")])
def test_whoever_erred_goes_on_where_he_was(shared: Queues, queue: str, type: str | None) -> None:
    shared.notes()
    with psycopg.connect(shared.url) as connection:
        with pytest.raises(LookupError):
            milepost.queues.enqueue(connection, queue, NOTES, type)
        assert connection.execute("SHOW search_path").fetchone() == ('"$user", public',)


def test_numbers_that_another_has_set_meanwhile_are_not_set_back(shared: Queues) -> None:
    shared.notes()
    waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    mids: list[str] = []

    def late() -> None:
        with psycopg.connect(shared.url) as connection:
            mids.extend(milepost.queues.enqueue(connection, "notes", NOTES))

    with psycopg.connect(shared.url, autocommit=True) as first:
        first.execute("SELECT pg_advisory_lock(%s)", [outbox._AHEAD])
        thread = threading.Thread(target=late)
        thread.start()
        while first.execute(waits).fetchone() != (1,):
            pass
        tick = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint - %s"
        first.execute(f"SELECT setval('milepost.queue_outbox', {tick})", [outbox.EPOCH_US])
        given = first.execute("SELECT nextval('milepost.queue_outbox') FROM generate_series(1, 100)").fetchall()
        first.execute("SELECT pg_advisory_unlock(%s)", [outbox._AHEAD])
        thread.join()
    assert min(int(mid.split("/")[2]) >> outbox.LANE_BITS for mid in mids) > given[-1][0]
