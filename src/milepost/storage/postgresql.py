"""PostgreSQL: one database, several brokers."""

from __future__ import annotations

import os
import socket
import threading
import time
import zlib
from typing import Any, Final

import psycopg
import sqlalchemy as sa

from milepost.storage import statements
from milepost.storage.database import READER_WAIT_S, Database, Session
from milepost.storage.outage import Outage
from milepost.storage.piped import PipedSession
from milepost.storage.statement import Statement

SCHEMA: Final = "milepost"  # the tables' own schema: the database may hold other tables as well
CONNECT_S: Final = 5  # seconds to connect; half a lease, if that is shorter
LEAST_S: Final = 2  # … and at least this, the minimum of libpq
_MAKING: Final = 0x6D696C65  # advisory lock: the tables are being made
_HOLDING: Final = 0x706F7374  # advisory lock, with the log's name: a process writes it


class _Cursor(psycopg.Cursor[Any]):
    """Results in binary: bytes as text would be hexadecimal digits, twice as long."""

    def execute(
        self, query: Any, params: Any = None, *, prepare: bool | None = None, binary: bool | None = None
    ) -> Any:
        return super().execute(query, params, prepare=prepare, binary=True if binary is None else binary)


class _Connection(psycopg.Connection[Any]):
    """A connection that another thread can break while this one waits: an `outage.WatchedConnection`.

    PostgreSQL has no timeout for a server that hangs, and its kernel still acknowledges TCP. A wait in libpq ends when
    the socket is shut down, through a second descriptor: the first one is libpq's to close.
    """

    outage: Outage | None = None

    def __init__(self, pgconn: psycopg.pq.abc.PGconn) -> None:
        super().__init__(pgconn)
        self.since = 0.0
        self._socket = socket.socket(fileno=os.dup(pgconn.socket))

    def wait(self, *arguments: Any, **named: Any) -> Any:
        self.since = time.monotonic()
        try:
            return super().wait(*arguments, **named)
        finally:
            self.since = 0.0

    def cut(self) -> None:
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the server has closed it already

    def close(self) -> None:
        super().close()
        if self.outage is not None:
            self.outage.remove(self)
        self._socket.close()

    def __del__(self, *_: Any) -> None:
        # SQLAlchemy does not close a connection that breaks during its setup.
        if hasattr(self, "_socket"):
            self.pgconn.finish()
            self._socket.close()


class Postgresql(Database):
    """A server. It ends a session that is idle within a transaction, so a paused broker does not block the others."""

    shared = True
    begin = "BEGIN"

    def __init__(self, url: sa.URL, lease_s: float) -> None:
        self._lease_ms = max(2, int(lease_s * 1_000))
        self._halted = threading.Event()
        self.reader_wait_s = min(READER_WAIT_S, lease_s)
        super().__init__(url)
        self.outage: Outage = Outage(self.place, lease_s, self._probe)
        for engine in (self._writing, self._reading):
            sa.event.listen(engine, "do_connect", self._connect)

    def _connect(self, _dialect: Any, _record: Any, arguments: Any, named: Any) -> _Connection:
        # A connection attempt cannot be cut. Its timeout ends it with the waits that began before it, or soon after.
        seconds = max(LEAST_S, min(named["connect_timeout"], self.outage.left_s()))
        connection = _Connection.connect(*arguments, **named | {"connect_timeout": int(seconds)})
        connection.outage = self.outage
        self.outage.add(connection)
        return connection

    def _probe(self) -> None:
        with self._writing.connect() as connection:
            connection.exec_driver_sql("SELECT 1")

    def arguments(self) -> dict[str, Any]:
        half = self._lease_ms // 2
        options = [
            f"search_path={SCHEMA}", "synchronous_commit=on", "client_encoding=utf8",
            f"lock_timeout={half}", f"idle_in_transaction_session_timeout={half}",
        ]  # fmt: skip
        return {
            "connect_args": {
                "connect_timeout": max(LEAST_S, min(CONNECT_S, self._lease_ms // 2_000)),
                "cursor_factory": _Cursor,
                "options": " ".join(f"-c {option}" for option in options),
                "tcp_user_timeout": self._lease_ms,  # for a server that vanished without closing the connection
                "keepalives_idle": max(1, self._lease_ms // 2_000),
                "application_name": "milepost",
            }
        }

    def prepare(self, connection: Any, writing: bool) -> None:
        connection.autocommit = True
        connection.prepare_threshold = None  # otherwise a rollback drops all statements, those of `pipeline` too
        if not writing:
            connection.execute("SET default_transaction_read_only = on")
            return
        # The statements are few and each has its index, but tables that are often empty have no useful statistics:
        # without these settings, the query for the first of 30,000 messages sorts them all (10 ms instead of 0.1).
        for setting in (
            *(f"enable_{way} = off" for way in ("sort", "bitmapscan", "seqscan")),
            "plan_cache_mode = force_generic_plan",
            "jit = off",  # before PostgreSQL 18, a plan that needs a disabled method counts as worth compiling
        ):
            connection.execute(f"SET {setting}")

    def _session(self, connection: sa.Connection) -> Session:
        return PipedSession(connection, self._halted)

    def has_tables(self, session: Session) -> bool:
        return (
            session.connection.exec_driver_sql(f"SELECT to_regclass('{SCHEMA}.meta') IS NOT NULL").scalar_one() is True
        )

    def lock_schema(self, session: Session) -> None:
        session.say(f"SELECT pg_advisory_xact_lock({_MAKING})")
        if not self.has_tables(session):
            session.say(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")

    def mend(self, session: Session) -> None:
        pass  # the server syncs its own files

    def require_there(self, session: Session) -> None:
        pass  # the server would have reported an error

    def begin_transaction(self, session: Session, synced: bool) -> Statement:
        session.say(self.begin)
        return statements.TOUCH_LOG if synced else statements.TOUCH_LOG_UNSYNCED

    def claim(self, session: Session, log: str) -> bool:
        key = zlib.crc32(log.encode()) - (1 << 31)
        found = session.connection.exec_driver_sql(f"SELECT pg_try_advisory_lock({_HOLDING}, {key})").scalar_one()
        return found is True

    def halt(self) -> None:
        self._halted.set()

    def give_back(self, session: Session) -> bool:
        return False  # autovacuum does this
