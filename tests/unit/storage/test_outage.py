"""A server that does not answer: how long it is waited for, who is refused, and when it counts as back."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from milepost.errors import InDoubt, StoreUnavailable
from milepost.operations import Append, Appended, Part
from milepost.storage.outage import Outage
from tests.conftest import Server
from tests.unit.storage.conftest import Rig, rows
from tests.unit.storage.test_outcomes import at_commits

HANGS_S = 60.0
LONG_S = 3_600.0  # nothing waits for that long here


class FakeLine:
    """A connection that waits until it is cut."""

    def __init__(self, since: float) -> None:
        self.since = since
        self.gone = threading.Event()

    def cut(self) -> None:
        self.gone.set()


class FakeServer:
    """Answers questions while it is there."""

    def __init__(self) -> None:
        self.there = threading.Event()
        self.asked = threading.Event()

    def __call__(self) -> None:
        self.asked.set()
        if not self.there.is_set():
            raise OSError("away")


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()


@pytest.fixture
def made(server: FakeServer) -> Iterator[Callable[[float], Outage]]:
    found: list[Outage] = []

    def make(limit_s: float) -> Outage:
        found.append(Outage("there", limit_s, server))
        return found[-1]

    yield make
    for each in found:
        each.close()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def failed(outage: Outage, began: float | None = None) -> bool:
    began = time.monotonic() if began is None else began
    return outage.failed("it is away", began, began)


def test_a_call_is_tried_again_when_the_server_answers(made: Any, server: FakeServer, pool: ThreadPoolExecutor) -> None:
    outage = made(LONG_S)
    waiting: Future[bool] = pool.submit(failed, outage)
    assert server.asked.wait(HANGS_S)
    server.there.set()
    assert waiting.result(HANGS_S) is True
    outage.require()


def test_when_the_time_is_up_all_fail_and_others_at_once_until_it_is_back(
    made: Any, server: FakeServer, pool: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    outage = made(0.1)
    line = FakeLine(time.monotonic())
    outage.add(line)
    with caplog.at_level(logging.WARNING):
        assert not any(pool.map(lambda _: failed(outage), range(3)))
        assert line.gone.wait(HANGS_S)
        outage.limit_s = LONG_S
        with pytest.raises(StoreUnavailable, match="it is away") as raised:
            outage.require()
        assert raised.value.retriable
        assert not failed(outage)  # nobody waits any more
        server.there.set()
        while True:
            try:
                outage.require()
                break
            except StoreUnavailable:
                pass
    said = [record.getMessage() for record in caplog.records]
    assert [each.partition(":")[0].partition(",")[0].split("there ")[1] for each in said] == [
        "does not answer", "has not answered for 0.1 s", "answers again",
    ]  # fmt: skip


def test_a_server_that_comes_and_goes_has_one_line_in_the_log(
    made: Any, server: FakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    outage = made(LONG_S)
    server.there.set()
    with caplog.at_level(logging.WARNING):
        for _ in range(10):
            assert failed(outage)
    away, back = [record.getMessage() for record in caplog.records]
    assert "does not answer" in away
    assert "answers again" in back


def test_a_wait_that_is_too_long_is_cut_and_an_idle_connection_is_not(made: Any) -> None:
    outage = made(0.05)
    waiting, idle = FakeLine(time.monotonic()), FakeLine(0.0)
    for each in (waiting, idle):
        outage.add(each)
    assert waiting.gone.wait(HANGS_S)
    assert not idle.gone.is_set()


def test_one_slow_statement_does_not_count_as_an_outage(made: Any, server: FakeServer) -> None:
    """The server answers others meanwhile: the statement ends, and nobody else is concerned."""
    server.there.set()
    outage = made(0.2)
    line = FakeLine(time.monotonic())
    outage.add(line)
    assert line.gone.wait(HANGS_S)
    assert server.asked.is_set()
    assert not failed(outage, line.since)  # its own time is up
    outage.require()


def test_a_process_that_was_stopped_itself_has_waited_for_nobody(made: Any, server: FakeServer) -> None:
    """When it goes on, the time that passed is not the server's: what was asked before is waited for anew."""
    outage = made(LONG_S)
    line = FakeLine(time.monotonic() - 2 * LONG_S)
    with outage._changed:  # as if all threads had been stopped just after this
        outage.add(line)
        outage._checked = time.monotonic() - 2 * LONG_S
    server.there.set()
    assert failed(outage, line.since)
    assert not line.gone.is_set()
    outage.require()


def test_whoever_hurries_ends_all_waits(made: Any, server: FakeServer, pool: ThreadPoolExecutor) -> None:
    outage = made(LONG_S)
    line = FakeLine(time.monotonic())
    outage.add(line)
    waiting = pool.submit(failed, outage)
    assert server.asked.wait(HANGS_S)
    outage.hurry(0.0)
    assert waiting.result(HANGS_S) is False
    assert line.gone.wait(HANGS_S)
    with pytest.raises(StoreUnavailable):
        outage.require()


# With a real server


def limited(store: Any, seconds: float) -> Outage:
    """Only now: a server ends a session that idles for half a lease, and busy cores let it idle."""
    outage: Outage = store._database.outage
    outage.limit_s = seconds
    return outage


def backend(store: Any) -> int:
    """The server's process that writes for a store."""
    return int(store._session.connection.connection.driver_connection.info.backend_pid)


def test_a_frozen_server(postgresql_rig: Rig, postgresql_server: Server) -> None:
    rig = postgresql_rig
    store = rig.open()
    topic, publisher = rig.topic(store), rig.enrol(store)
    rig.append(store, topic, publisher, [1])
    append = [Append(publisher, (Part(topic, rows(publisher, [2])),))]
    limited(store, 0.3)
    try:
        with pytest.raises(InDoubt), at_commits("before", lambda number: postgresql_server.freeze()):
            store.write(append, rig.now)
        limited(store, LONG_S)
        for call in (store.topics, lambda: store.read(topic, store.log, 0), lambda: store.write((), rig.now)):
            with pytest.raises(StoreUnavailable):
                call()
        with pytest.raises(InDoubt):
            store.write(append, rig.now)
    finally:
        postgresql_server.thaw()
    rig.back(store)
    assert store.write(append, rig.now).outcomes == [Appended(1, 0)]
    assert [stamp for _, _, stamp in rig.contents(store, topic)] == [1, 2]


def test_one_frozen_connection(postgresql_rig: Rig) -> None:
    """As behind a firewall that has forgotten it: the next one is taken, and the commit is done once."""
    rig = postgresql_rig
    store = rig.open()
    topic, publisher = rig.topic(store), rig.enrol(store)
    rig.append(store, topic, publisher, [1])
    append = [Append(publisher, (Part(topic, rows(publisher, [2])),))]
    limited(store, 2.0)
    frozen = backend(store)
    try:
        with pytest.raises(InDoubt), at_commits("before", lambda number: os.kill(frozen, signal.SIGSTOP)):
            store.write(append, rig.now)
        limited(store, LONG_S)
        assert store.topics()  # the server is there for everybody else
        rig.sql("SELECT pg_terminate_backend(?)", frozen)  # or else it keeps its locks for as long as it is frozen
        os.kill(frozen, signal.SIGCONT)
        assert store.write(append, rig.now).outcomes == [Appended(1, 0)]
        assert backend(store) != frozen
    finally:
        with suppress(ProcessLookupError):
            os.kill(frozen, signal.SIGCONT)
    rig.append(store, topic, publisher, [3])
    assert [stamp for _, _, stamp in rig.contents(store, topic)] == [1, 2, 3]


def test_a_store_that_is_closed_while_its_server_is_frozen(postgresql_rig: Rig, postgresql_server: Server) -> None:
    store = postgresql_rig.open(lease_s=LONG_S)
    postgresql_server.freeze()
    try:
        store.hurry(0.1)
        store.close()
    finally:
        postgresql_server.thaw()


def test_connections_that_the_server_ends_leave_one_line_in_the_log(
    postgresql_rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig = postgresql_rig
    store = rig.open(lease_s=HANGS_S)
    topic, publisher = rig.topic(store), rig.enrol(store)
    with caplog.at_level(logging.INFO):
        for stamp in range(1, 6):
            store.topics()
            rig.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
                    " AND datname = current_database()")  # fmt: skip
            assert store.topics()
            rig.append(store, topic, publisher, [stamp])
    assert not [record for record in caplog.records if record.exc_info]
    assert [record.name for record in caplog.records] == ["milepost.storage.outage"] * 2
