"""A database: connections to it, and statements run on them. SQLite and PostgreSQL are its two kinds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import sqlalchemy as sa
from sqlalchemy.pool import NullPool, QueuePool

from milepost.storage import faults
from milepost.storage.session import Session
from milepost.storage.statement import Statement
from milepost.storage.url import shown

__all__ = ["Database", "Session"]

READERS: Final = 8  # connections for reading; threads beyond them wait for one
READER_WAIT_S: Final = 30.0  # seconds for one, before the store counts as not answering

T = TypeVar("T")


class Database(ABC):
    """Where connections come from. Reading and writing have their own: readers never hold up the writer."""

    shared: bool  # several brokers may write
    begin: str  # the words that begin a transaction that writes

    def __init__(self, url: sa.URL) -> None:
        self.place: Final = shown(url)
        arguments = self.arguments()
        self._writing = sa.create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT", **arguments)
        self._reading = sa.create_engine(
            url, poolclass=QueuePool, pool_size=READERS, max_overflow=0, pool_timeout=READER_WAIT_S,
            isolation_level="AUTOCOMMIT", **arguments,
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

    def read(self, function: Callable[[Session], T]) -> T:
        """Run something that reads, and again when the connection turns out to be lost: a pooled one may be old."""
        for last in (False, True):
            try:
                with self.reading() as session:
                    return function(session)
            except faults.DRIVER_ERRORS as error:
                if last or faults.kind(error) is not faults.Kind.LOST:
                    raise faults.fault(error, self.place) from error
                self._reading.dispose()
        raise AssertionError

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
