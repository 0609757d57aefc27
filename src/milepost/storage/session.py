"""A session: one connection to a database, and statements on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import sqlalchemy as sa

from milepost import limits
from milepost.storage import faults
from milepost.storage.statement import Statement
from milepost.storage.watch import too_long

Check: TypeAlias = Callable[[Any], None]  # looks at a result (`rowcount`, `fetchone`), and raises what is wrong


class Session:
    """One connection, and statements on it. Transactions are begun and ended by hand."""

    begin_snapshot = "BEGIN"

    def __init__(self, connection: sa.Connection) -> None:
        self.connection = connection
        self.synced = True  # SQLite: whether commits are, as the connection is set
        self.asked_s = 0.0  # seconds that statements with clients' expressions have taken, by the clock
        self.left_s = limits.QUERY_MS / 1_000  # for those of the operation under way; on SQLite, the processor's
        self._dialect = connection.dialect
        self._driver: Any = connection.connection.driver_connection
        self._execute: Callable[..., Any] = connection.exec_driver_sql

    def rows(self, statement: Statement, **values: Any) -> Sequence[Any]:
        """All rows of a result."""
        found: Sequence[Any] = self._execute(statement.of(self._dialect), values).fetchall()
        return found

    def row(self, statement: Statement, **values: Any) -> Any:
        """The first row of a result, or None."""
        result = self._execute(statement.of(self._dialect), values)
        found = result.fetchone()
        result.close()
        return found

    def bounded(self, statement: Statement, check: Check | None = None, **values: Any) -> Sequence[Any]:
        """All rows of a statement that contains a client's expression.

        All of these in one operation take `limits.QUERY_MS` at most; then it raises `QueryTooCostly`, and the
        transaction may be gone. What they take is added to `asked_s`.

        `check` is as for `later`, where PostgreSQL raises by itself.
        """
        result = self._execute(statement.of(self._dialect), values)
        if check is not None:
            check(result)
            return ()
        found: Sequence[Any] = result.fetchall()
        return found

    def _left_ms(self) -> int:
        """What is left for the operation under way; raises when that is nothing."""
        if self.left_s <= 0:
            raise too_long(limits.QUERY_MS / 1_000 - self.left_s)
        return max(1, int(self.left_s * 1_000))

    def stream(self, statement: Statement, **values: Any) -> Any:
        """Rows as they are asked for; the caller closes the result."""
        return self._execute(statement.of(self._dialect), values)

    def run(self, statement: Statement, **values: Any) -> int:
        """Run a statement; the number of rows that it changed."""
        return int(self._execute(statement.of(self._dialect), values).rowcount)

    def each(self, statement: Statement, rows: list[dict[str, Any]], **values: Any) -> int:
        """Run a statement for each of some rows; the number of rows that it changed. `values` are the same for all."""
        if len(rows) == 1:
            return int(self._execute(statement.of(self._dialect), rows[0] | values).rowcount)
        many = [row | values for row in rows] if values else rows
        return int(self._execute(statement.of(self._dialect), many).rowcount)

    def found(self, statement: Statement, items: list[dict[str, Any]]) -> list[Any]:
        """All rows of the results of a statement for each of some items."""
        return [row for item in items for row in self.rows(statement, **item)]

    def numbers(self, items: Sequence[int]) -> Any:
        """A list of numbers as a value for `{in ...}`."""
        return f"[{','.join(map(str, items))}]"

    def later(self, statement: Statement, check: Check | None = None, *, raises: bool = False, **values: Any) -> None:
        """Run a statement whose result is not needed now; `check` looks at it before anything is committed.

        `raises`: PostgreSQL does by itself what the check would, by an error, and the commit may go with it.
        """
        result = self._execute(statement.of(self._dialect), values)
        if check is not None:
            check(result)

    def later_text(self, text: str, values: Any, check: Check | None = None) -> None:
        """The same for a text in the database's own form: `?` on SQLite, with a list of rows; `$1` on PostgreSQL.

        `check` only takes the result: a commit does not wait for it.
        """
        result = _run(self._driver, text, values)
        if check is not None:
            check(result)

    def all_rows(self, texts: Sequence[str], values: Any) -> list[Sequence[Any]]:
        """The rows of several texts in the database's own form, with the same values."""
        return [_run(self._driver, text, values).fetchall() for text in texts]

    def settle(self) -> None:
        """Run what waits, and check it."""

    def settle_checks(self) -> None:
        """The same, if there is something to check that does not raise. To be called before a commit."""

    def say(self, text: str) -> None:
        """Run a text without values: BEGIN, COMMIT, settings."""
        self._execute(text)

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Let all statements in it see one state of the database, whatever is committed meanwhile. It only reads."""
        self.say(self.begin_snapshot)
        try:
            yield
        except BaseException:
            try:
                self.roll_back()
            except faults.DRIVER_ERRORS:
                self.discard()  # or the next one that has it from the pool would be in this transaction
            raise
        self.roll_back()

    def roll_back(self) -> None:
        """Undo what was begun, if anything was."""
        if self._driver.in_transaction:
            self.say("ROLLBACK")

    def discard(self) -> None:
        """End the connection, in whatever state it is; when it is broken, that is no news."""
        try:
            self.connection.invalidate()
            self.connection.close()
        except faults.DRIVER_ERRORS:
            pass


def _run(driver: Any, text: str, values: Any) -> Any:
    cursor = driver.cursor()
    if isinstance(values, list):
        cursor.executemany(text, values)
    else:
        cursor.execute(text, values)
    return cursor
