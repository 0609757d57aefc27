"""SQLite: one file, one broker."""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
import stat
import time
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import sqlalchemy as sa

from milepost.errors import ConfigError, StoreUnavailable
from milepost.limits import FRAME_BYTES
from milepost.query.sql import functions
from milepost.storage import statements
from milepost.storage.database import Database, Session
from milepost.storage.sqlite_session import BEGIN, SqliteSession
from milepost.storage.statement import Statement
from milepost.storage.watch import Watch

BUSY_MS: Final = 5_000  # most milliseconds that a checkpoint waits for readers, which take milliseconds
CACHE_KIB: Final = 16_384  # of pages, for each connection; the blobs themselves come from the system's cache
CHECKPOINT_PAGES: Final = 4_000  # 16 MB of log between checkpoints: each costs two syncs in the middle of a commit
LOG_BYTES: Final = 64 << 20  # most that the write-ahead log's file keeps after a checkpoint
VALUE_BYTES: Final = 2 * FRAME_BYTES  # most of one value: more than is ever stored, less than `||` could build
VACUUM_PAGES: Final = 512  # pages (2 MB) returned to the file system in one step of upkeep
LOOK_S: Final = 0.01  # between checks of the files' names: a check makes the next sync 30 microseconds slower
KEPT_PAGES: Final = 1_024  # free pages (4 MB) that stay for later writes

log = logging.getLogger("milepost.storage")


class Sqlite(Database):
    """A file in WAL mode, synced at each commit. A lock file beside it keeps other brokers out."""

    shared = False
    begin = BEGIN

    def __init__(self, url: sa.URL) -> None:
        assert url.database
        self.path: Final = Path(url.database)
        self._lock: int | None = None
        self._gave = False
        self._watch = Watch()
        self._take()
        self._make()
        self._place = str(self.path)
        self._file = _identity(self._place)
        self._wal = f"{self.path}-wal"
        self._log: tuple[int, int] | None = None  # the write-ahead log's device and inode, once it exists
        self._looked = 0.0  # when the names were last checked, by a monotonic clock
        self._missing = False  # it was logged that the file is missing
        super().__init__(url)
        for engine in (self._writing, self._reading):
            sa.event.listen(engine, "do_connect", self._connect)

    def _take(self) -> None:
        beside = self.path.with_name(self.path.name + ".lock")
        try:
            self._lock = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(f"the store {self.path} cannot be opened: {error.strerror}") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            self._lock = None
            raise ConfigError(
                f"another broker has the store {self.path} open: stop it, or give this one a store of its own "
                "(milepost up --store PATH); brokers that share one use PostgreSQL"
            ) from None

    def _make(self) -> None:
        """Make the file if it does not exist, for its owner alone; SQLite gives the files beside it the same mode."""
        try:
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            pass
        except OSError as error:
            self._release()
            raise ConfigError(f"the store {self.path} cannot be opened: {error.strerror}") from None

    def arguments(self) -> dict[str, Any]:
        # "named" is the form of the statements.
        return {"paramstyle": "named"}

    def _connect(self, *_: Any) -> sqlite3.Connection:
        """Connect to the existing file, never to a new one of the same name. Threads share it, one at a time."""
        self._require_file()
        place = f"file:{quote(str(self.path))}?mode=rw"
        return sqlite3.connect(place, uri=True, check_same_thread=False, timeout=BUSY_MS / 1_000)

    def prepare(self, connection: Any, writing: bool) -> None:
        connection.isolation_level = None  # otherwise the driver begins transactions by itself, and not immediate ones
        cursor = connection.cursor()
        # No memory map: it reads three times as fast, but a read error then kills the process by SIGBUS instead of
        # being reported (docs/decisions/0012).
        cursor.execute("PRAGMA mmap_size = 0")
        cursor.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        if writing:
            cursor.execute("PRAGMA auto_vacuum = INCREMENTAL")  # for a new file; only before its first page is written
            mode = cursor.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            if mode != "wal":
                raise StoreUnavailable(
                    f"the file system of {self.path} does not allow a write-ahead log: move the store"
                )
            cursor.execute("PRAGMA synchronous = FULL")
            cursor.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
            cursor.execute(f"PRAGMA journal_size_limit = {LOG_BYTES}")
            cursor.execute("PRAGMA secure_delete = OFF")  # Debian's default overwrites deleted data with zeros
        else:
            cursor.execute("PRAGMA query_only = ON")
        cursor.close()
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, VALUE_BYTES)
        functions.install(connection)

    def _session(self, connection: sa.Connection) -> Session:
        return SqliteSession(connection, self._watch)

    def has_tables(self, session: Session) -> bool:
        found = {row[0] for row in session.connection.exec_driver_sql("SELECT name FROM sqlite_master")}
        if found and not {"meta", "logs", "entries"} <= found:
            raise ConfigError(f"{self.path} is the database of another program: give Milepost a file of its own")
        if found and stat.S_IMODE(self.path.stat().st_mode) & 0o044:
            log.warning("other users may read the store %s: `chmod 600` it, unless they are meant to", self.path)
        return bool(found)

    def lock_schema(self, session: Session) -> None:
        pass  # the lock file keeps other brokers out, and the transaction is immediate

    def mend(self, session: Session) -> None:
        # After a failed sync, pages in the kernel's cache may not be on disk. A full checkpoint writes and syncs all
        # visible data again, and empties the write-ahead log.
        busy = session.connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy is None or busy[0]:
            raise StoreUnavailable(
                f"the store {self.path} could not be synced after an error: it is being read; try again"
            )

    def require_there(self, session: Session) -> None:
        """Check the names of the files: SQLite itself goes on writing to deleted files."""
        if time.monotonic() < self._looked + LOOK_S:
            return
        self._looked = time.monotonic()
        self._require_file()
        found = _identity(self._wal)
        if self._log is None:
            self._log = found
        elif self._log != found:
            # Copy the deleted log into the store while it can still be read; then all connections use a new log.
            busy = session.connection.exec_driver_sql("PRAGMA wal_checkpoint(FULL)").fetchone()
            self.forget()
            saved = "is in the store" if busy is not None and not busy[0] else "may be lost"
            raise StoreUnavailable(f"{self._wal} was deleted while the broker had it open; what it had {saved}")

    def _require_file(self) -> None:
        if _identity(self._place) == self._file:
            self._missing = False
            return
        gone = StoreUnavailable(
            f"the store {self.path} was moved, deleted or replaced while the broker had it open: nothing is stored any "
            "more. Put it back; or restart the broker, which begins with what is there then"
        )
        if not self._missing:
            self._missing = True
            log.error("%s", gone)
        raise gone

    def write(self) -> Session:
        """A new connection for writing. If it is the only one, SQLite makes a new write-ahead log."""
        self._log = None
        return super().write()

    def begin_transaction(self, session: Session, synced: bool) -> Statement:
        if session.synced != synced:  # the setting cannot change within a transaction
            session.say(f"PRAGMA synchronous = {'FULL' if synced else 'NORMAL'}")
            session.synced = synced
        session.say(self.begin)
        return statements.TOUCH_LOG

    def claim(self, session: Session, log: str) -> bool:
        return True

    def give_back(self, session: Session) -> bool:
        free = session.connection.exec_driver_sql("PRAGMA freelist_count").scalar_one() - KEPT_PAGES
        if free <= 0:
            if self._gave:  # a checkpoint truncates the file itself
                session.connection.exec_driver_sql("PRAGMA wal_checkpoint(PASSIVE)").close()
                self._gave = False
            return False
        cursor: Any = session.connection.connection.cursor()
        try:
            # The pragma's result has a row for each page, but no columns, so the driver stops an ordinary statement
            # after the first row. A script runs to its end.
            cursor.executescript(f"PRAGMA incremental_vacuum({min(free, VACUUM_PAGES)})")
        finally:
            cursor.close()
        self._gave = True
        return True

    def halt(self) -> None:
        self._watch.halt()

    def close(self) -> None:
        self._watch.halt()
        super().close()
        self._release()

    def _release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _identity(path: str) -> tuple[int, int] | None:
    """The device and inode of the file of this name; None when there is none."""
    try:
        found = os.stat(path)  # noqa: PTH116  a Path takes four times as long
    except OSError:
        return None
    return found.st_dev, found.st_ino
