"""A database: connections to it, and statements run on them. SQLite and PostgreSQL are its two kinds."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Final, TypeVar

import sqlalchemy as sa
from sqlalchemy.pool import NullPool, QueuePool

from milepost.storage import faults
from milepost.storage.faults import FaultKind
from milepost.storage.outage import Outage
from milepost.storage.session import Session
from milepost.storage.statement import Statement
from milepost.storage.url import shown

__all__ = ["Database", "Session"]

READERS: Final = 8  # connections for reading; further threads wait for a free one
READER_WAIT_S: Final = 30.0  # seconds that a thread waits for one, before the store counts as not answering
MIGRATION_S: Final = 3_600.0  # seconds for one statement of a migration: it may rewrite a large table
ATTEMPTS: Final = 3  # at a transaction on SQLite that met an I/O error or a lock

T = TypeVar("T")


class Database(ABC):
    """Makes connections. Reading and writing have separate ones, so readers never delay the writer."""

    shared: bool  # several brokers may write
    begin: str  # the SQL that begins a writing transaction
    reader_wait_s = READER_WAIT_S
    outage: Outage | None = None  # of a server; None: no server, so a failed call does not wait

    def __init__(self, url: sa.URL) -> None:
        self.place: Final = shown(url)
        arguments = self.arguments()
        self._writing = sa.create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT", **arguments)
        # Connections return to the pool without an open transaction, so they need no reset. Resetting a connection that
        # the server has ended would only fail, with a traceback in the log.
        self._reading = sa.create_engine(
            url, poolclass=QueuePool, pool_size=READERS, max_overflow=0, pool_timeout=self.reader_wait_s,
            pool_reset_on_return=None, isolation_level="AUTOCOMMIT", **arguments,
        )  # fmt: skip
        sa.event.listen(self._writing, "connect", lambda connection, _: self.prepare(connection, writing=True))
        sa.event.listen(self._reading, "connect", lambda connection, _: self.prepare(connection, writing=False))

    @abstractmethod
    def arguments(self) -> dict[str, Any]:
        """Arguments of the engines."""

    @abstractmethod
    def prepare(self, connection: Any, writing: bool) -> None:
        """Set up a new connection of the driver."""

    @abstractmethod
    def has_tables(self, session: Session) -> bool:
        """Whether Milepost's tables exist. `ConfigError` when the database belongs to another program."""

    @abstractmethod
    def lock_schema(self, session: Session) -> None:
        """Keep other processes from making the tables until the transaction ends."""

    @abstractmethod
    def mend(self, session: Session) -> None:
        """After an I/O error: make sure that all visible data is on disk. Raises the errors of statements."""

    @abstractmethod
    def begin_transaction(self, session: Session, synced: bool) -> Statement:
        """Begin a writing transaction. Returns its first statement: TOUCH_LOG or a variant.

        Unless `synced`, the commit does not wait for the disk: a crash may undo it, but only together with all later
        transactions.
        """

    @abstractmethod
    def require_there(self, session: Session) -> None:
        """After a commit, before it is reported: `StoreUnavailable` when it went to a deleted or moved file."""

    @abstractmethod
    def claim(self, session: Session, log: str) -> bool:
        """Hold a log while the connection lives; False when another connection holds it."""

    @abstractmethod
    def give_back(self, session: Session) -> bool:
        """Return some free space to the file system; True when there is more."""

    def write(self) -> Session:
        """A new connection for writing, not from the pool."""
        return self._session(self._writing.connect())

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """A connection from the pool."""
        with self._reading.connect() as connection:
            yield self._session(connection)

    @abstractmethod
    def _session(self, connection: sa.Connection) -> Session: ...

    def read(self, function: Callable[[Session], T], *, snapshot: bool = True) -> T:
        """Run a function that reads, and retry as `again` decides: a pooled connection may be lost, or blocked.

        All its statements see one state of the database. One statement needs no `snapshot`: that saves a round trip.
        """
        began = tried = time.monotonic()
        attempt = 0
        while True:
            attempt += 1
            try:
                if self.outage is not None:
                    self.outage.require()
                with self.reading() as session, session.snapshot() if snapshot else nullcontext():
                    found = function(session)
            except faults.DRIVER_ERRORS as error:
                kind = faults.kind(error)
                if kind is FaultKind.LOST:
                    self._reading.dispose()
                if not self.again(kind, error, attempt, began, tried):
                    raise faults.fault(error, self.place) from error
            else:
                if self.outage is not None:
                    self.outage.answered(tried)
                return found
            tried = time.monotonic()

    # Outages

    def again(self, kind: FaultKind, error: BaseException, attempt: int, began: float, tried: float) -> bool:
        """Whether to retry a failed attempt; waits first, for the server or for a lock.

        `attempt` is the 1-based number of the attempt, which began at `tried`; its call began at `began`.
        """
        if self.outage is None:
            return kind in (FaultKind.LOST, FaultKind.AGAIN) and attempt < ATTEMPTS
        if kind is FaultKind.LOST:
            return self.outage.failed(faults.said(error), began, tried)
        if kind is FaultKind.AGAIN and time.monotonic() < began + self.outage.limit_s:
            self.outage.pause()
            return True
        return False

    @contextmanager
    def patience(self) -> Iterator[None]:
        """Allow long statements while tables are made, before the database is used otherwise."""
        if self.outage is None:
            yield
            return
        before, self.outage.limit_s = self.outage.limit_s, MIGRATION_S
        try:
            yield
        finally:
            self.outage.limit_s = before

    def hurry(self, seconds: float) -> None:
        """Make every wait for a server end within this many seconds."""
        if self.outage is not None:
            self.outage.hurry(seconds)

    @abstractmethod
    def halt(self) -> None:
        """End statements with clients' expressions now, or within `limits.QUERY_MS`, and start no new ones."""

    def forget(self) -> None:
        """Drop the pooled connections: the pool makes new ones."""
        self._reading.dispose()

    def close(self) -> None:
        """Close the connections that are not in use."""
        self._reading.dispose()
        self._writing.dispose()
        if self.outage is not None:
            self.outage.close()
