"""Sessions with PostgreSQL that send as many statements as possible in one round trip."""

from __future__ import annotations

import time
from collections.abc import Sequence
from threading import Event
from typing import Any, Final, NamedTuple

import psycopg
import sqlalchemy as sa
from psycopg.pq import TransactionStatus
from sqlalchemy.exc import DBAPIError

from milepost import limits
from milepost.errors import QueryTooCostly
from milepost.storage.pipeline import StatementPipeline, StatementResult, simple
from milepost.storage.session import Check, Session
from milepost.storage.statement import Statement
from milepost.storage.watch import stopping, too_long, too_much_text

RAISED: Final = frozenset({"22012", "23505"})  # division by zero, unique violation: raised by self-checking statements
TIMEOUTS: Final = 10  # different values, for the time that an operation has left
# After a statement with a client's expression. A rollback resets the timeout, too.
_RESET: Final = "SET statement_timeout TO DEFAULT"


class _Later(NamedTuple):
    text: str
    values: Sequence[Any]
    check: Check | None = None
    raises: bool = False  # the database raises where the check would: later statements do not run


class PipedSession(Session):
    """A session with PostgreSQL that sends statements together, until a result is needed.

    A round trip takes as long as a small statement itself. BEGIN and the statements given to `later` wait for the next
    statement whose result is needed, and are sent with it.
    """

    dialect = "postgresql"
    begin_snapshot = "BEGIN ISOLATION LEVEL REPEATABLE READ"

    def __init__(self, connection: sa.Connection, halted: Event) -> None:
        super().__init__(connection)
        self._halted = halted
        self._waiting: list[_Later] = []
        kept = connection.info  # lives as long as the driver's connection, across uses from the pool
        self._pipeline: StatementPipeline = kept.get("pipeline") or kept.setdefault(
            "pipeline", StatementPipeline(self._driver)
        )

    def stream(self, statement: Statement, **values: Any) -> Any:
        return self._plainly(statement.named, values)

    def each(self, statement: Statement, rows: list[dict[str, Any]], **values: Any) -> int:
        if statement.arrays:
            columns = {name: [row[name] for row in rows] for name in rows[0]}
            return int(self._asked(statement, columns | values).rowcount)
        text, names = statement.numbered
        many = [[row[name] if name in row else values[name] for name in names] for row in rows]
        if not all(map(simple, many)):
            return int(self._plainly(statement.named, [row | values for row in rows]).rowcount)
        return sum(answer.rowcount for answer in self._sent([(text, given) for given in many]))

    def found(self, statement: Statement, items: list[dict[str, Any]]) -> list[Any]:
        assert statement.arrays
        return list(self.rows(statement, **{name: [item[name] for item in items] for name in items[0]}))

    def later(self, statement: Statement, check: Check | None = None, *, raises: bool = False, **values: Any) -> None:
        text, names = statement.numbered
        self._waiting.append(_Later(text, [values[name] for name in names], check, raises))

    def later_text(self, text: str, values: Any, check: Check | None = None) -> None:
        self._waiting.append(_Later(text, values, check, check is not None))

    def bounded(self, statement: Statement, check: Check | None = None, **values: Any) -> Sequence[Any]:
        """As for any session. The server's own timeout, set and reset in the same round trip, ends the statement."""
        if self._halted.is_set():
            raise stopping()
        text, names = statement.numbered
        given = [values[name] for name in names]
        timeout = _timeout(self._left_ms())
        began = time.monotonic()
        try:
            if not simple(given):
                return self._bounded_plainly(statement, values, timeout)
            found: list[Any] = []
            place = len(self._waiting) + 1
            self._waiting += [
                _Later(timeout, ()),
                _Later(text, given, check or found.append, check is not None),
                _Later(_RESET, ()),
            ]
            try:
                self._sent([])
            except DBAPIError as error:
                if self._pipeline.failed == place:
                    raise _costly(error, began) or error from error
                raise
            return found[0].fetchall() if found else ()
        finally:
            taken_s = time.monotonic() - began
            self.asked_s += taken_s
            self.left_s -= taken_s

    def _bounded_plainly(self, statement: Statement, values: dict[str, Any], timeout: str) -> Sequence[Any]:
        began = time.monotonic()
        self._plainly(timeout)
        try:
            found: Sequence[Any] = self._plainly(statement.named, values).fetchall()
        except DBAPIError as error:
            if self._driver.info.transaction_status == TransactionStatus.IDLE:
                self._plainly(_RESET)  # otherwise the rollback resets the timeout
            raise _costly(error, began) or error from error
        self._plainly(_RESET)
        return found

    def all_rows(self, texts: Sequence[str], values: Any) -> list[Sequence[Any]]:
        return [answer.fetchall() for answer in self._sent([(text, values) for text in texts])]

    def settle(self) -> None:
        if self._waiting:
            self._sent([])

    def settle_checks(self) -> None:
        if any(each.check is not None and not each.raises for each in self._waiting):
            self._sent([])

    def say(self, text: str) -> None:
        if text in ("BEGIN", self.begin_snapshot):
            self._waiting.append(_Later(text, ()))
        elif text == "COMMIT" and self._waiting and self._waiting[0].text == "BEGIN":
            # No statement was sent yet. The statements of one pipeline are one transaction, committed at its end.
            del self._waiting[0]
            self.settle()
        elif text in ("COMMIT", "ROLLBACK"):
            self._sent([(text, ())])
        else:
            self._plainly(text)

    def roll_back(self) -> None:
        self._waiting.clear()
        if self._driver.info.transaction_status:
            self.say("ROLLBACK")

    def _asked(self, statement: Statement, values: dict[str, Any]) -> Any:
        text, names = statement.numbered
        given = [values[name] for name in names]
        if not simple(given):
            return self._plainly(statement.named, values)
        (answer,) = self._sent([(text, given)])
        return answer

    def _plainly(self, text: str, values: Any = None) -> Any:
        """Run a statement through the driver: for values of other types, and for statements not worth preparing."""
        self.settle()
        return self.connection.exec_driver_sql(text, values)

    def _sent(self, wanted: list[tuple[str, Any]]) -> list[Any]:
        """Run the waiting and the wanted statements in one round trip. Returns the results of the wanted ones."""
        waiting, self._waiting = self._waiting, []
        try:
            answers = self._pipeline.run([*((each.text, each.values) for each in waiting), *wanted])
        except psycopg.Error as error:
            self._tell(waiting, error)
            raise DBAPIError(None, None, error) from error  # as SQLAlchemy would
        for answer, each in zip(answers, waiting, strict=False):
            if each.check is not None:
                each.check(answer)
        return answers[len(waiting) :]

    def _tell(self, waiting: list[_Later], error: Any) -> None:
        """Let the check of a statement that raised by itself raise the error for callers."""
        place = self._pipeline.failed
        if error.sqlstate in RAISED and place < len(waiting) and waiting[place].raises:
            check = waiting[place].check
            assert check is not None
            check(StatementResult((), -1))  # -1: no successful statement has this row count


def _timeout(left_ms: int) -> str:
    # Rounded to a few different values, since each is a prepared statement.
    part_ms = max(1, limits.QUERY_MS // TIMEOUTS)
    return f"SET statement_timeout = {-(-left_ms // part_ms) * part_ms}"


def _costly(error: DBAPIError, began: float) -> QueryTooCostly | None:
    """The error for callers, if the client's expression caused the error of its statement."""
    match getattr(error.orig, "sqlstate", None):
        case "57014":  # the timeout
            return too_long(time.monotonic() - began)
        case "22012" | "54000":  # raised by `query.sql` for a long text; or a value exceeds the server's limit
            return too_much_text()
    return None
