"""Sessions with PostgreSQL, in as few round trips as the answers allow."""

from __future__ import annotations

import time
from collections.abc import Sequence
from threading import Event
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from psycopg.pq import TransactionStatus
from sqlalchemy.exc import DBAPIError

from milepost import limits
from milepost.errors import QueryTooCostly
from milepost.storage.pipeline import StatementPipeline, StatementResult, simple
from milepost.storage.session import Check, Session
from milepost.storage.statement import Statement
from milepost.storage.watch import stopping, too_long, too_much_text

RAISED: Final = frozenset({"22012", "23505"})  # division by zero, unique violation: how a statement says no by itself
TIMEOUTS: Final = 10  # different ones, for what an operation has left of its time
# For a statement with a client's expression. A transaction that fails takes the setting back by itself.
_RESET: Final = "SET statement_timeout TO DEFAULT"


class _Later(NamedTuple):
    text: str
    values: Sequence[Any]
    check: Check | None = None
    raises: bool = False  # in the database, where the check would: nothing behind it is run


class PipedSession(Session):
    """A session with PostgreSQL, which is sent as many statements at once as can go before an answer is needed.

    A round trip takes as long as a small statement itself. What is to be done `later`, and a BEGIN, wait for the next
    statement whose result somebody wants, and travel with it.
    """

    begin_snapshot = "BEGIN ISOLATION LEVEL REPEATABLE READ"

    def __init__(self, connection: sa.Connection, halted: Event) -> None:
        super().__init__(connection)
        self._halted = halted
        self._waiting: list[_Later] = []
        self._execute = self._plainly
        kept = connection.info  # as long as the driver's connection lives, whoever has it from the pool
        self._pipeline: StatementPipeline = kept.get("pipeline") or kept.setdefault(
            "pipeline", StatementPipeline(self._driver)
        )

    def rows(self, statement: Statement, **values: Any) -> Sequence[Any]:
        found: Sequence[Any] = self._asked(statement, values).fetchall()
        return found

    def row(self, statement: Statement, **values: Any) -> Any:
        return self._asked(statement, values).fetchone()

    def run(self, statement: Statement, **values: Any) -> int:
        return int(self._asked(statement, values).rowcount)

    def each(self, statement: Statement, rows: list[dict[str, Any]], **values: Any) -> int:
        if statement.arrays:
            columns = {name: [row[name] for row in rows] for name in rows[0]}
            return int(self._asked(statement, columns | values).rowcount)
        text, names = statement.numbered()
        many = [[row[name] if name in row else values[name] for name in names] for row in rows]
        if not all(map(simple, many)):
            return super().each(statement, rows, **values)
        return sum(answer.rowcount for answer in self._sent([(text, given) for given in many]))

    def found(self, statement: Statement, items: list[dict[str, Any]]) -> list[Any]:
        assert statement.arrays
        return list(self.rows(statement, **{name: [item[name] for item in items] for name in items[0]}))

    def numbers(self, items: Sequence[int]) -> Any:
        return f"{{{','.join(map(str, items))}}}"

    def later(self, statement: Statement, check: Check | None = None, *, raises: bool = False, **values: Any) -> None:
        text, names = statement.numbered()
        self._waiting.append(_Later(text, [values[name] for name in names], check, raises))

    def later_text(self, text: str, values: Any, check: Check | None = None) -> None:
        self._waiting.append(_Later(text, values, check, check is not None))

    def bounded(self, statement: Statement, check: Check | None = None, **values: Any) -> Sequence[Any]:
        """As for any session. The server's own timeout ends it, which is set and reset in the same round trip."""
        if self._halted.is_set():
            raise stopping()
        text, names = statement.numbered()
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
            found: Sequence[Any] = self._plainly(statement.of(self._dialect), values).fetchall()
        except DBAPIError as error:
            if self._driver.info.transaction_status == TransactionStatus.IDLE:
                self._plainly(_RESET)  # otherwise the rollback takes the setting with it
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
            # Nothing of it was sent yet. What goes in one pipeline is one transaction, and committed at its end.
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
        text, names = statement.numbered()
        given = [values[name] for name in names]
        if not simple(given):
            return self._plainly(statement.of(self._dialect), values)
        (answer,) = self._sent([(text, given)])
        return answer

    def _plainly(self, text: str, values: Any = None) -> Any:
        """The driver's own way, for values of other types, and for what is not worth preparing."""
        self.settle()
        return self.connection.exec_driver_sql(text, values)

    def _sent(self, wanted: list[tuple[str, Any]]) -> list[Any]:
        """Run what waits and what is wanted, in one round trip; the answers to what is wanted."""
        waiting, self._waiting = self._waiting, []
        try:
            answers = self._pipeline.run([*((each.text, each.values) for each in waiting), *wanted])
        except self._dialect.loaded_dbapi.Error as error:
            self._tell(waiting, error)
            raise DBAPIError(None, None, error) from error  # as SQLAlchemy would
        for answer, each in zip(answers, waiting, strict=False):
            if each.check is not None:
                each.check(answer)
        return answers[len(waiting) :]

    def _tell(self, waiting: list[_Later], error: Any) -> None:
        """Let a check say what it means that its statement has raised."""
        place = self._pipeline.failed
        if error.sqlstate in RAISED and place < len(waiting) and waiting[place].raises:
            check = waiting[place].check
            assert check is not None
            check(StatementResult((), -1))  # as no statement has it that was carried out


def _timeout(left_ms: int) -> str:
    # A few different ones: each is a prepared statement.
    part_ms = max(1, limits.QUERY_MS // TIMEOUTS)
    return f"SET statement_timeout = {-(-left_ms // part_ms) * part_ms}"


def _costly(error: DBAPIError, began: float) -> QueryTooCostly | None:
    """What an error of a statement with a client's expression says about that, if anything."""
    match getattr(error.orig, "sqlstate", None):
        case "57014":  # the timeout
            return too_long(time.monotonic() - began)
        case "22012" | "54000":  # as `query.sql` says it of a text; or beyond what one value may hold
            return too_much_text()
    return None
