"""A session: one connection to a database, and statements on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, TypeAlias

import sqlalchemy as sa

from milepost import limits
from milepost.query.sql.value import Dialect
from milepost.storage import faults
from milepost.storage.statement import Statement
from milepost.storage.watch import too_long

Check: TypeAlias = Callable[[Any], None]  # inspects a result (`rowcount`, `fetchone`), and may raise


class Session:
    """One connection, and statements on it. The caller begins and ends transactions."""

    dialect: ClassVar[Dialect]
    begin_snapshot = "BEGIN"

    def __init__(self, connection: sa.Connection) -> None:
        self.connection = connection
        self.synced = True  # SQLite: whether the connection is set to sync its commits
        self.asked_s = 0.0  # seconds of wall clock that statements with clients' expressions took
        self.left_s = limits.QUERY_MS / 1_000  # seconds left to those of the current operation; CPU time on SQLite
        self._driver: Any = connection.connection.driver_connection

    def _asked(self, statement: Statement, values: dict[str, Any]) -> Any:
        """The result of a statement, after the waiting statements."""
        raise NotImplementedError

    def rows(self, statement: Statement, **values: Any) -> Sequence[Any]:
        """All rows of a result."""
        found: Sequence[Any] = self._asked(statement, values).fetchall()
        return found

    def row(self, statement: Statement, **values: Any) -> Any:
        """The first row of a result, or None."""
        result = self._asked(statement, values)
        found = result.fetchone()
        result.close()
        return found

    def bounded(self, statement: Statement, check: Check | None = None, **values: Any) -> Sequence[Any]:
        """All rows of a statement that contains a client's expression.

        Together, those of one operation may take `limits.QUERY_MS`; beyond that this raises `QueryTooCostly`, and the
        transaction may be aborted. Their time is added to `asked_s`.

        `check` is as for `later` with `raises`.
        """
        result = self._asked(statement, values)
        if check is not None:
            check(result)
            return ()
        found: Sequence[Any] = result.fetchall()
        return found

    def _left_ms(self) -> int:
        """Milliseconds left to the current operation; raises when there are none."""
        if self.left_s <= 0:
            raise too_long(limits.QUERY_MS / 1_000 - self.left_s)
        return max(1, int(self.left_s * 1_000))

    def stream(self, statement: Statement, **values: Any) -> Any:
        """A result whose rows are fetched one by one; the caller closes it."""
        return self._asked(statement, values)

    def run(self, statement: Statement, **values: Any) -> int:
        """Run a statement. Returns the number of rows that it changed."""
        return int(self._asked(statement, values).rowcount)

    def each(self, statement: Statement, rows: list[dict[str, Any]], **values: Any) -> int:
        """Run a statement once per row, with the same `values` each time. Returns the number of changed rows."""
        raise NotImplementedError

    def found(self, statement: Statement, items: list[dict[str, Any]]) -> list[Any]:
        """Run a statement once per item. Returns the rows of all results."""
        return [row for item in items for row in self.rows(statement, **item)]

    def numbers(self, items: Sequence[int]) -> Any:
        """A list of numbers as a value for `{in ...}`."""
        listed = ",".join(map(str, items))
        return f"[{listed}]" if self.dialect == "sqlite" else f"{{{listed}}}"

    def later(self, statement: Statement, check: Check | None = None, *, raises: bool = False, **values: Any) -> None:
        """Run a statement whose result is not needed now; `check` inspects it before the commit.

        `raises`: on PostgreSQL the statement itself fails where the check would, so the COMMIT may be sent with it.
        """
        result = self._asked(statement, values)
        if check is not None:
            check(result)

    def later_text(self, text: str, values: Any, check: Check | None = None) -> None:
        """Like `later`, for a text in the database's own form: `?` on SQLite, with a list of rows; `$1` on PostgreSQL.

        `check` only receives the result: a commit does not wait for it.
        """

    def all_rows(self, texts: Sequence[str], values: Any) -> list[Sequence[Any]]:
        """The rows of several texts in the database's own form, with the same values."""
        raise NotImplementedError

    def settle(self) -> None:
        """Run the waiting statements and their checks."""

    def settle_checks(self) -> None:
        """Call `settle` if a waiting check is not covered by `raises`. Called before a commit."""

    def commit_at_once(self) -> bool:
        """Run the waiting statements and commit, if one step can do that; otherwise do nothing, and return False.

        Raises the errors of a commit, after which the outcome is in doubt in the same way.
        """
        return False

    def say(self, text: str) -> None:
        """Run a text without values: BEGIN, COMMIT, settings."""

    def roll_back(self) -> None:
        """Roll back the transaction, if one has begun."""

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Let all statements of the block see one state of the database, whatever is committed meanwhile. Read only."""
        self.say(self.begin_snapshot)
        try:
            yield
        except BaseException:
            try:
                self.roll_back()
            except faults.DRIVER_ERRORS:
                self.discard()  # otherwise the next user of the pooled connection would be in this transaction
            raise
        self.roll_back()

    def discard(self) -> None:
        """Close the connection in any state; errors of a broken one are ignored."""
        try:
            self.connection.invalidate()
            self.connection.close()
        except faults.DRIVER_ERRORS:
            pass
