"""Commits that happened and whose answer was lost, and the reverse: each counts once."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine, event
from sqlalchemy.exc import OperationalError

from milepost.errors import StoreUnavailable
from milepost.operations import Append, Appended, Cursor, Move, Part
from milepost.storage.piped import PipedSession
from milepost.storage.sqlite_session import SqliteSession
from tests.unit.storage.conftest import Rig, rows
from tests.unit.storage.test_store import attach


def lost(rig: Rig) -> OperationalError:
    """What the driver says when a connection breaks, or a sync fails."""
    if rig.shared:
        return OperationalError("COMMIT", {}, psycopg.OperationalError("the connection is lost"))
    failed = sqlite3.OperationalError("disk I/O error")
    failed.sqlite_errorcode = sqlite3.SQLITE_IOERR
    failed.sqlite_errorname = "SQLITE_IOERR"
    return OperationalError("COMMIT", {}, failed)


@contextmanager
def at_commits(when: str, reaction: Callable[[int], None]) -> Iterator[None]:
    """Have something done before or after each commit; it is told the number of the commit."""
    seen = 0
    ways = [(SqliteSession, "say"), (SqliteSession, "append_at_once"), (PipedSession, "say")]
    plain = [getattr(kind, name) for kind, name in ways]

    def reacting(call: Callable[..., None]) -> Callable[..., None]:
        def called(session: Any, what: Any) -> None:
            nonlocal seen
            commits = what == "COMMIT" or isinstance(what, dict)  # the values of an append that commits itself
            seen += commits
            if commits and when == "before":
                reaction(seen)
            call(session, what)
            if commits and when == "after":
                reaction(seen)

        return called

    for (kind, name), call in zip(ways, plain, strict=True):
        setattr(kind, name, reacting(call))
    try:
        yield
    finally:
        for (kind, name), call in zip(ways, plain, strict=True):
            setattr(kind, name, call)


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_answer_that_is_lost(rig: Rig, when: str) -> None:
    store = rig.open()
    topic, publisher = rig.topic(store), rig.enrol(store)
    made = rig.do(store, attach("desk", topic))

    def fail(number: int) -> None:
        if number == 1:
            raise lost(rig)

    operations = (
        Append(publisher, (Part(topic, rows(publisher, [1, 2])),), b"k" * 16),
        Move(made.subscription, made.epoch, {store.log: Cursor(1)}, b"m", 1, (Part(topic, rows(publisher, [1])),)),
    )
    with at_commits(when, fail):
        committed = rig.write(store, *operations)
    assert committed.outcomes == [Appended(2, 0), None]
    assert [(entry.first, len(entry.batch)) for entry in committed.entries] == [(0, 3)]
    assert rig.contents(store, topic) == [(0, publisher, 1), (1, publisher, 2), (2, publisher, 1)]
    assert rig.append(store, topic, publisher, [3]) == Appended(1, 0)
    assert len(rig.contents(store, topic)) == 4


@pytest.mark.parametrize("upkeep", [False, True])
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_outcome_that_is_found_out_later(rig: Rig, when: str, upkeep: bool) -> None:
    """The write gives up; what it did is known with the next one, and readers of the tail miss nothing."""
    store = rig.open()
    topic, publisher = rig.topic(store), rig.enrol(store)
    if rig.shared:  # only now: a server ends a session that idles for half of it, and busy cores let it idle
        store._database.outage.limit_s = 0.3

    def fail(_number: int) -> None:
        raise lost(rig)

    def refuse(*_: Any) -> Any:
        raise lost(rig)

    with at_commits(when, fail):
        event.listen(Engine, "do_connect", refuse)  # and there is no other
        try:
            with pytest.raises(StoreUnavailable):
                rig.append(store, topic, publisher, [1])
        finally:
            event.remove(Engine, "do_connect", refuse)
    rig.back(store)
    happened = when == "after"
    if upkeep:  # it finds out as well
        store.maintain(rig.now)
        assert [(entry.first, len(entry.batch)) for entry in store.late()] == ([(0, 1)] if happened else [])
        assert store.late() == []
        assert rig.append(store, topic, publisher, [1]) == (Appended(0, 1) if happened else Appended(1, 0))
        return
    committed = rig.write(store, Append(publisher, (Part(topic, rows(publisher, [1, 2])),)))
    assert committed.outcomes == [Appended(1, 1) if happened else Appended(2, 0)]
    assert [(entry.first, len(entry.batch)) for entry in committed.entries] == (
        [(0, 1), (1, 1)] if happened else [(0, 2)]
    )
    assert rig.contents(store, topic) == [(0, publisher, 1), (1, publisher, 2)]


def test_a_session_that_the_server_ended(postgresql_rig: Rig) -> None:
    rig = postgresql_rig
    store = rig.open()
    topic, publisher = rig.topic(store), rig.enrol(store)

    def end(number: int) -> None:
        if number <= 2:
            rig.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
                    " AND datname = current_database()")  # fmt: skip

    with at_commits("before", end):
        assert rig.append(store, topic, publisher, [1]) == Appended(1, 0)
    assert rig.contents(store, topic) == [(0, publisher, 1)]
