"""A disk that fails, a disk that is full, a server that goes away, a broker that is paused: nothing acknowledged is
lost, and nothing is there twice.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

import psycopg
import pytest
from sqlalchemy.exc import DBAPIError

from milepost.errors import ConfigError, Fenced, StoreFull, StoreUnavailable
from milepost.operations import Append, Appended, Enrol, Part
from milepost.storage import faults
from milepost.storage.faults import FaultKind
from tests.conftest import Server
from tests.unit.storage.conftest import Rig, rows

APPENDER = str(Path(__file__).with_name("appender.py"))


def started(*arguments: object, before: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    command = [*before, sys.executable, APPENDER, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def lines(process: subprocess.Popen[str]) -> Iterator[list[str]]:
    stream: IO[str] | None = process.stdout
    assert stream is not None
    with stream:
        for line in stream:
            yield line.split()


def ended(process: subprocess.Popen[str]) -> list[list[str]]:
    """All that it still says, up to its end."""
    said = list(lines(process))
    assert process.wait(60) == 0
    return said


def stamps(rig: Rig, *logs: int) -> list[int]:
    """The stamps of all rows, log after log."""
    store = rig.stores[-1]
    (topic,) = [record.topic for record in store.topics()]
    return [row[2] for log in logs or (store.log,) for row in rig.contents(store, topic, log)]


# SQLite: the disk

INJECTIONS = {
    "one sync fails": "fdatasync,fsync:error=EIO:when=12",
    "syncs fail for a while": "fdatasync,fsync:error=EIO:when=12..40",
    "every eighth sync fails": "fdatasync,fsync:error=EIO:when=12+8",
    "one write fails": "pwrite64:error=EIO:when=40",
    "writes fail for a while": "pwrite64:error=EIO:when=40..90",
    "every hundredth write fails": "pwrite64:error=EIO:when=40+100",
    "no room for a while": "pwrite64:error=ENOSPC:when=40..90",
}


@pytest.mark.slow
@pytest.mark.parametrize("injection", INJECTIONS)
def test_a_disk_that_fails(sqlite_rig: Rig, tmp_path: Path, injection: str) -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    sqlite_rig.topic(sqlite_rig.open())
    sqlite_rig.close()
    trace = tmp_path / "trace"
    calls = INJECTIONS[injection]
    wrapped = ("strace", "-f", "-o", str(trace), "-e", f"trace={calls.partition(':')[0]}", "-e", f"inject={calls}")
    said = ended(started(sqlite_rig.url, "one", 1, 60, before=wrapped))
    assert "(INJECTED)" in trace.read_text()
    assert said[-1] == ["done"]
    failures = {line[2] for line in said if line[0] == "failed"}
    wanted = "StoreFull" if "ENOSPC" in calls else "StoreUnavailable"
    assert failures <= {wanted, "InDoubt"}  # which is one of the second kind
    assert failures or "for a while" not in injection
    assert [int(line[1]) for line in said if line[0] == "stored"] == list(range(1, 61))
    sqlite_rig.open()
    assert stamps(sqlite_rig) == list(range(1, 61))


@pytest.mark.slow
@pytest.mark.parametrize("call", ["fdatasync", "pwrite64"])
@pytest.mark.parametrize("number", [15, 22, 37])
def test_killed_when_a_call_is_made(sqlite_rig: Rig, tmp_path: Path, call: str, number: int) -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    sqlite_rig.topic(sqlite_rig.open())
    sqlite_rig.close()
    when = number * 3 if call == "pwrite64" else number
    inject = f"inject={call}:signal=KILL:when={when}"
    wrapped = ("strace", "-f", "-o", str(tmp_path / "trace"), "-e", f"trace={call}", "-e", inject)
    process = started(sqlite_rig.url, "one", 1, 10_000, before=wrapped)
    said = list(lines(process))
    process.wait(60)
    assert ["done"] not in said
    acknowledged = [int(line[1]) for line in said if line[0] == "stored"]
    sqlite_rig.open()
    there = stamps(sqlite_rig)
    assert there == list(range(1, len(there) + 1))
    assert len(there) - len(acknowledged) in (0, 1)  # the last may have been stored unacknowledged


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system takes root")
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)  # tracebacks may still hold what is open there


def test_a_full_disk(small_disk: Path) -> None:
    filler = small_disk / "filler"
    filler.write_bytes(bytes(4 << 20))
    rig = Rig(str(small_disk / "store.db"))
    store = rig.open()
    topic, publisher = rig.topic(store), rig.enrol(store)
    stamp = 0
    with pytest.raises(StoreFull, match="make room"):
        while stamp < 1_000:
            rig.append(store, topic, publisher, [stamp + 1], size=20_000)
            stamp += 1
    assert stamp > 5
    for _ in range(3):
        with pytest.raises(StoreFull):
            rig.append(store, topic, publisher, [stamp + 1], size=200_000)
    assert stamps(rig) == list(range(1, stamp + 1))  # reading goes on
    filler.unlink()
    assert rig.append(store, topic, publisher, [stamp + 1], size=20_000) == Appended(1, 0)
    rig.close()
    again = rig.open()
    assert stamps(rig) == list(range(1, stamp + 2))
    again.close()


# PostgreSQL: the server

STATES = {
    "08000": FaultKind.LOST, "08003": FaultKind.LOST, "08006": FaultKind.LOST, "08P01": FaultKind.LOST,
    "25006": FaultKind.LOST, "25P03": FaultKind.LOST, "25P04": FaultKind.LOST,
    "40001": FaultKind.AGAIN, "40P01": FaultKind.AGAIN, "23505": FaultKind.AGAIN, "42P01": FaultKind.AGAIN,
    "53000": FaultKind.AGAIN, "53100": FaultKind.FULL, "53200": FaultKind.AGAIN, "53300": FaultKind.LOST,
    "53400": FaultKind.AGAIN,
    "55P03": FaultKind.AGAIN, "57014": FaultKind.AGAIN,
    "57P01": FaultKind.LOST, "57P02": FaultKind.LOST, "57P03": FaultKind.LOST, "57P05": FaultKind.LOST,
    "58000": FaultKind.LOST, "58030": FaultKind.LOST, "58P01": FaultKind.LOST,
    "XX001": FaultKind.CORRUPT, "XX002": FaultKind.CORRUPT,
    "22012": FaultKind.REFUSED, "23514": FaultKind.REFUSED, "42601": FaultKind.REFUSED, "42501": FaultKind.REFUSED,
    "XX000": FaultKind.REFUSED,
}  # fmt: skip


@pytest.mark.parametrize("state", STATES)
def test_what_a_state_of_the_server_means(state: str) -> None:
    error = DBAPIError(None, None, psycopg.errors.lookup(state)("as the server says it"))
    assert faults.kind(error) is STATES[state]
    told = faults.fault(error, "postgresql://there")
    assert "as the server says it" in str(told) or STATES[state] is FaultKind.FULL
    assert told.retriable is (STATES[state] in (FaultKind.LOST, FaultKind.AGAIN, FaultKind.FULL))
    assert told.code == {
        FaultKind.FULL: "store_full", FaultKind.CORRUPT: "corrupt_log", FaultKind.REFUSED: "store",
    }.get(STATES[state], "store_unavailable")  # fmt: skip


def test_a_connection_that_breaks_without_a_state_is_lost() -> None:
    error = DBAPIError(None, None, psycopg.OperationalError("the connection is lost"))
    assert faults.kind(error) is FaultKind.LOST
    assert "does not answer" in str(faults.fault(error, "postgresql://there"))


@pytest.mark.slow
@pytest.mark.parametrize("setting", ["statement_timeout", "transaction_timeout"])
def test_a_write_that_the_server_gives_up_is_written_when_it_can_be(postgresql_rig: Rig, setting: str) -> None:
    """A lock that another session holds is in the way; it is given back when the server has given up at least once."""
    rig = postgresql_rig
    topic = rig.topic(rig.open())
    rig.close()
    rig.sql(f"ALTER DATABASE {rig.url.partition('?')[0].rpartition('/')[2]} SET {setting} = '1s'")
    store = rig.open(lease_s=60.0)
    publisher = rig.enrol(store)
    given_up = threading.Event()
    failed = store._failed

    def watched(kind: FaultKind) -> None:
        given_up.set()
        failed(kind)

    store._failed = watched  # type: ignore[method-assign]
    with psycopg.connect(rig.url, options=f"-c search_path=milepost -c {setting}=0") as other:
        other.execute("SELECT * FROM publishers FOR UPDATE")
        with ThreadPoolExecutor(1) as pool:
            task = pool.submit(rig.append, store, topic, publisher, [1])
            try:
                assert given_up.wait(60)
                assert not task.done()
            finally:
                other.rollback()
            assert task.result(60) == Appended(1, 0)
    assert stamps(rig) == [1]


def test_a_server_that_only_reads(postgresql_rig: Rig) -> None:
    """As one does that was the primary before another took over: writes fail, and go on when it writes again."""
    rig = postgresql_rig
    store = rig.open()
    topic, publisher = rig.topic(store), rig.enrol(store)
    rig.append(store, topic, publisher, [1])
    name = rig.url.partition("?")[0].rpartition("/")[2]
    with psycopg.connect(rig.url, autocommit=True) as server:
        server.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on".encode())
        server.execute(b"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
                       b" AND datname = current_database()")  # fmt: skip
        store._database.outage.limit_s = 0.5
        with pytest.raises(StoreUnavailable, match="read-only"):
            rig.append(store, topic, publisher, [2])
        assert stamps(rig) == [1]  # reading goes on
        store._database.outage.limit_s = 60.0
        server.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only".encode())
    assert rig.append(store, topic, publisher, [2]) == Appended(1, 0)


@pytest.mark.slow
def test_a_server_that_is_restarted(postgresql_rig: Rig, postgresql_server: Server) -> None:
    rig = postgresql_rig
    store = rig.open(lease_s=60.0)
    topic, publisher = rig.topic(store), rig.enrol(store)
    rig.append(store, topic, publisher, [1])
    assert stamps(rig) == [1]
    postgresql_server.stop()
    postgresql_server.start()
    assert stamps(rig) == [1]  # by a new connection
    assert rig.append(store, topic, publisher, [2]) == Appended(1, 0)
    # While a thread writes.
    wrong: list[Any] = []
    stored = 2
    over = threading.Event()

    def write() -> None:
        nonlocal stored
        try:
            while not over.is_set():
                stored += 1
                assert rig.append(store, topic, publisher, [stored]) == Appended(1, 0)
        except Exception as error:
            wrong.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    for _ in range(3):
        postgresql_server.stop()
        postgresql_server.start()
    over.set()
    thread.join(120)
    assert not wrong
    assert stamps(rig) == list(range(1, stored + 1))


@pytest.mark.slow
def test_a_server_that_stays_away(postgresql_rig: Rig, postgresql_server: Server) -> None:
    rig = postgresql_rig
    store = rig.open()
    # Only now: a server ends a session that idles for half of it, and busy cores let it idle.
    store._database.outage.limit_s = 0.5
    topic, publisher = rig.topic(store), rig.enrol(store)
    rig.append(store, topic, publisher, [1])
    postgresql_server.stop()
    try:
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="does not answer"):
                rig.append(store, topic, publisher, [2])
        with pytest.raises(StoreUnavailable):
            store.read(topic, store.log, 0)
        with pytest.raises(StoreUnavailable):
            store.maintain(rig.now)
        with pytest.raises(StoreUnavailable):
            rig.open("another")
    finally:
        postgresql_server.start()
    rig.back(store)
    assert rig.append(store, topic, publisher, [2]) == Appended(1, 0)
    assert stamps(rig) == [1, 2]


# PostgreSQL: a broker that is paused


def paused(process: subprocess.Popen[str]) -> None:
    """Wait until it has stopped itself."""
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_paused_broker_and_a_publisher_that_moved(postgresql_rig: Rig, when: str) -> None:
    """The publisher goes to another broker while the first is stopped around a commit, and the first then goes on."""
    rig = postgresql_rig
    store = rig.open("two")
    topic = rig.topic(store)
    process = started(rig.url, "one", 1, 20, rig.LEASE_S, "pause", when, 10)
    paused(process)
    # The commit that hangs holds the publisher's row: this waits until the server has ended that transaction.
    enrolled = rig.do(store, Enrol("feed", 5, create=False))
    assert enrolled.high_water == (9 if when == "before" else 10)
    for stamp in range(enrolled.high_water + 1, 16):
        assert rig.append(store, topic, enrolled.number, [stamp]) == Appended(1, 0)
    process.send_signal(signal.SIGCONT)
    said = ended(process)
    assert said[-1][0] == "refused"
    assert said[-1][2] == "Fenced"
    acknowledged = [int(line[1]) for line in said if line[0] == "stored"]
    assert acknowledged == list(range(1, enrolled.high_water + 1))
    one, two = stamps(rig, 2 if store.log == 1 else 1), stamps(rig, store.log)
    assert one == acknowledged
    assert two == list(range(enrolled.high_water + 1, 16))
    assert store.read(topic, store.log, 0)[0].after == (2 if store.log == 1 else 1, enrolled.high_water)


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_paused_broker_whose_log_is_taken(postgresql_rig: Rig, when: str) -> None:
    """A new process of the same name takes the log over once the lease is over; the old one then has to end."""
    rig, lease_s = postgresql_rig, 4.0  # half of it ends the paused transaction, and whoever comes before is refused
    process = started(rig.url, "one", 1, 20, lease_s, "pause", when, 10)
    paused(process)
    refused = 0
    while True:
        try:
            store = rig.open("one", lease_s=lease_s)
            break
        except (ConfigError, StoreUnavailable):
            refused += 1
    assert refused
    topic = rig.topic(store)
    enrolled = rig.do(store, Enrol("feed", 5))
    assert enrolled.high_water == (9 if when == "before" else 10)
    rig.append(store, topic, enrolled.number, [enrolled.high_water + 1, enrolled.high_water + 2])
    process.send_signal(signal.SIGCONT)
    said = ended(process)
    assert said[-1][:2] == ["log", "taken"]
    assert stamps(rig) == list(range(1, enrolled.high_water + 3))


@pytest.mark.slow
def test_a_killed_brokers_log_is_free_at_once(postgresql_rig: Rig) -> None:
    rig = postgresql_rig
    process = started(rig.url, "one", 1, 100_000, 60.0)
    said = lines(process)
    acknowledged = 0
    while acknowledged < 20:
        line = next(said)
        acknowledged = int(line[1]) if line[0] == "stored" else 0
    process.kill()
    acknowledged = max([acknowledged, *(int(line[1]) for line in said if line[0] == "stored")])
    process.wait()
    while True:  # its connection ends when the server notices, not when the lease is over
        try:
            rig.open("one", lease_s=60.0)
            break
        except ConfigError:
            pass
    there = stamps(rig)
    assert there == list(range(1, len(there) + 1))
    assert len(there) - acknowledged in (0, 1)


@pytest.mark.slow
def test_a_lock_that_nobody_gives_back(postgresql_rig: Rig) -> None:
    """A session that is not ours, and so has no limits, holds a publisher's row: the write gives up after its lease."""
    rig = postgresql_rig
    store = rig.open(lease_s=3.0)
    topic, publisher = rig.topic(store), rig.enrol(store)
    with psycopg.connect(rig.url, options="-c search_path=milepost") as other:
        other.execute("SELECT * FROM publishers FOR UPDATE")
        with pytest.raises(StoreUnavailable, match="lock timeout"):
            rig.append(store, topic, publisher, [1])
    assert rig.append(store, topic, publisher, [1]) == Appended(1, 0)


def test_an_old_process_finds_out_when_it_writes(postgresql_rig: Rig) -> None:
    rig = postgresql_rig
    store = rig.open(lease_s=0.3)
    topic, publisher = rig.topic(store), rig.enrol(store)
    rig.sql("UPDATE logs SET opening = opening + 1, epoch = epoch + 1")  # as another process does
    with pytest.raises(Fenced, match="must end"):
        store.write([Append(publisher, (Part(topic, rows(publisher, [1])),))], rig.now)
    patience = time.monotonic() + 60
    with pytest.raises(Fenced):
        while time.monotonic() < patience:  # at the latest when it is to say that it is alive
            store.maintain(rig.now)
    assert stamps(rig) == []
