"""A database: connections to it, and statements run on them. SQLite and PostgreSQL are its two kinds."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import sqlalchemy as sa
from sqlalchemy.pool import NullPool, QueuePool

from milepost.storage import faults
from milepost.storage.statement import Statement

READERS: Final = 8  # connections for reading; threads beyond them wait for one
READER_WAIT_S: Final = 30.0  # seconds for one, before the store counts as not answering

T = TypeVar("T")


class Session:
    """One connection, and statements on it. Transactions are begun and ended by hand."""

    def __init__(self, connection: sa.Connection) -> None:
        self.connection: Final = connection
        self.synced = True  # SQLite: whether commits are, as the connection is set
        self._dialect = connection.dialect
        self._execute = connection.exec_driver_sql
        self._arrays = connection.dialect.name == "postgresql"

    def rows(self, statement: Statement, **values: Any) -> Sequence[Any]:
        """All rows of a result."""
        return self._execute(statement.of(self._dialect), values).fetchall()

    def row(self, statement: Statement, **values: Any) -> Any:
        """The first row of a result, or None."""
        result = self._execute(statement.of(self._dialect), values)
        found = result.fetchone()
        result.close()
        return found

    def stream(self, statement: Statement, **values: Any) -> sa.CursorResult[Any]:
        """Rows as they are asked for; the caller closes the result."""
        return self._execute(statement.of(self._dialect), values)

    def run(self, statement: Statement, **values: Any) -> int:
        """Run a statement; the number of rows that it changed."""
        return self._execute(statement.of(self._dialect), values).rowcount

    def each(self, statement: Statement, rows: list[dict[str, Any]], **values: Any) -> int:
        """Run a statement for each of some rows; the number of rows that it changed. `values` are the same for all."""
        if self._arrays and statement.arrays:
            columns = {name: [row[name] for row in rows] for name in rows[0]}
            return self._execute(statement.of(self._dialect), columns | values).rowcount
        if len(rows) == 1:
            return self._execute(statement.of(self._dialect), rows[0] | values).rowcount
        return self._execute(statement.of(self._dialect), [row | values for row in rows] if values else rows).rowcount

    def fresh(self, statement: Statement, name: str, items: list[bytes], **values: Any) -> set[bytes]:
        """Insert items unless they are there; those that were not."""
        if self._arrays:
            return {bytes(row[0]) for row in self._execute(statement.of(self._dialect), {name: items} | values)}
        return {item for item in items if self.run(statement, **{name: item}, **values)}

    def known(self, statement: Statement, name: str, items: list[bytes]) -> set[bytes]:
        """Those of some items that are there."""
        if self._arrays:
            return {bytes(row[0]) for row in self._execute(statement.of(self._dialect), {name: items})}
        return {item for item in items if self.row(statement, **{name: item}) is not None}

    def numbers(self, items: Sequence[int]) -> Any:
        """A list of numbers as a value for `{in ...}`."""
        return list(items) if self._arrays else json.dumps(list(items))

    def say(self, text: str) -> None:
        """Run a text without values: BEGIN, COMMIT, settings."""
        self._execute(text)

    def roll_back(self) -> None:
        """Undo what was begun, if anything was."""
        driver: Any = self.connection.connection.driver_connection
        if driver.info.transaction_status if self._arrays else driver.in_transaction:
            self.say("ROLLBACK")

    def discard(self) -> None:
        """End the connection, in whatever state it is; when it is broken, that is no news."""
        try:
            self.connection.invalidate()
            self.connection.close()
        except faults.DRIVER_ERRORS:
            pass


class Database(ABC):
    """Where connections come from. Reading and writing have their own: readers never hold up the writer."""

    shared: bool  # several brokers may write
    begin: str  # the words that begin a transaction that writes

    def __init__(self, url: sa.URL) -> None:
        self.place: Final = url.set(drivername=url.get_backend_name()).render_as_string(hide_password=True)
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
    def claim(self, session: Session, log: str) -> bool:
        """Hold a log as long as the connection lives; False when another connection holds it."""

    @abstractmethod
    def give_back(self, session: Session) -> bool:
        """Give some free space back to the file system; True when there is more."""

    def write(self) -> Session:
        """A connection of one's own, for writing."""
        return Session(self._writing.connect())

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """A connection from the pool."""
        with self._reading.connect() as connection:
            yield Session(connection)

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

    def forget(self) -> None:
        """Let the pool make new connections."""
        self._reading.dispose()

    def close(self) -> None:
        """Close what is not in use."""
        self._reading.dispose()
        self._writing.dispose()
