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

READERS: Final = 8  # connections for reading; threads beyond them wait for one
READER_WAIT_S: Final = 30.0  # seconds for one, before the store counts as not answering
MIGRATION_S: Final = 3_600.0  # seconds for one statement of a migration: it may rewrite a large table
ATTEMPTS: Final = 3  # at a transaction on SQLite that met an I/O error, or somebody in the way

T = TypeVar("T")


class Database(ABC):
    """Where connections come from. Reading and writing have their own: readers never hold up the writer."""

    shared: bool  # several brokers may write
    begin: str  # the words that begin a transaction that writes
    reader_wait_s = READER_WAIT_S
    outage: Outage | None = None  # of a server; None: there is none, and what fails is not waited for

    def __init__(self, url: sa.URL) -> None:
        self.place: Final = shown(url)
        arguments = self.arguments()
        self._writing = sa.create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT", **arguments)
        # Nobody leaves a transaction open on a connection that goes back to the pool, and to reset one that the server
        # has ended would only fail, with a traceback in the log.
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
        """Whether Milepost's tables are there. `ConfigError` when somebody else's are."""

    @abstractmethod
    def lock_schema(self, session: Session) -> None:
        """Keep others from making the tables at the same time, until the transaction ends."""

    @abstractmethod
    def mend(self, session: Session) -> None:
        """After an I/O error: make sure that what is visible is on disk. Raises what statements raise."""

    @abstractmethod
    def begin_transaction(self, session: Session, synced: bool) -> Statement:
        """Begin a transaction that writes; the statement that comes first in it, TOUCH_LOG or its like.

        Unless it is to be `synced`, its commit is not waited for: a crash may take it back, but never without what came
        after it.
        """

    @abstractmethod
    def require_there(self, session: Session) -> None:
        """After a commit, before anybody is told of it: `StoreUnavailable` when it went to where nobody finds it."""

    def commit_at_once(self, session: Session) -> bool:
        """Run what the session still holds back and commit it, if that is one step; False, and nothing done, if not."""
        return False

    @abstractmethod
    def claim(self, session: Session, log: str) -> bool:
        """Hold a log as long as the connection lives; False when another connection holds it."""

    @abstractmethod
    def give_back(self, session: Session) -> bool:
        """Give some free space back to the file system; True when there is more."""

    def write(self) -> Session:
        """A connection of one's own, for writing."""
        return self._session(self._writing.connect())

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """A connection from the pool."""
        with self._reading.connect() as connection:
            yield self._session(connection)

    def _session(self, connection: sa.Connection) -> Session:
        return Session(connection)

    def read(self, function: Callable[[Session], T], *, snapshot: bool = True) -> T:
        """Run something that reads, and again as `again` says: a pooled connection may be lost, or in the way.

        All of it sees one state of the database; without `snapshot`, for a single statement, a round trip is saved.
        """
        began = tried = time.monotonic()
        attempt = 0
        while True:
            attempt += 1
            try:
                self.require()
                with self.reading() as session, session.snapshot() if snapshot else nullcontext():
                    found = function(session)
            except faults.DRIVER_ERRORS as error:
                kind = faults.kind(error)
                if kind is FaultKind.LOST:
                    self._reading.dispose()
                if not self.again(kind, error, attempt, began, tried):
                    raise faults.fault(error, self.place) from error
            else:
                self.answered(tried)
                return found
            tried = time.monotonic()

    # While it is away

    def require(self) -> None:
        """Raise `StoreUnavailable` when it has been away for so long that nobody waits for it."""
        if self.outage is not None:
            self.outage.require()

    def answered(self, tried: float) -> None:
        """Something was carried out that was begun at `tried`."""
        if self.outage is not None:
            self.outage.answered(tried)

    def again(self, kind: FaultKind, error: BaseException, attempt: int, began: float, tried: float) -> bool:
        """Whether to try again what failed, after waiting for what is in the way.

        It was the `attempt`-th of a call that began at `began`, and began itself at `tried`.
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
        """While tables are made, before anybody else uses this: a statement may take long."""
        if self.outage is None:
            yield
            return
        before, self.outage.limit_s = self.outage.limit_s, MIGRATION_S
        try:
            yield
        finally:
            self.outage.limit_s = before

    def hurry(self, seconds: float) -> None:
        """Let every wait for a server end within so many seconds."""
        if self.outage is not None:
            self.outage.hurry(seconds)

    @abstractmethod
    def halt(self) -> None:
        """End statements with clients' expressions now, or in `limits.QUERY_MS`, and begin no more of them."""

    def forget(self) -> None:
        """Let the pool make new connections."""
        self._reading.dispose()

    def close(self) -> None:
        """Close what is not in use."""
        self._reading.dispose()
        self._writing.dispose()
        if self.outage is not None:
            self.outage.close()
