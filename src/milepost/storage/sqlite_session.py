"""A session of SQLite, which calls the driver directly, with as few statements as possible.

The driver releases the interpreter lock at each statement, and at each row of `executemany`. While the event loop
waits for the lock, each release is a wake-up, often useless, that takes ten times as long as SQLite itself. So a
transaction begins only when a result is needed. A transaction that only appends to one topic, as most do, is a single
statement: a trigger does the work of the others, and SQLite commits it by itself.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import sqlalchemy as sa

from milepost.storage import faults, statements
from milepost.storage.session import Check, Session
from milepost.storage.statement import Statement
from milepost.storage.transaction import Stale
from milepost.storage.watch import Watch

BEGIN: Final = "BEGIN IMMEDIATE"


class _Held(NamedTuple):
    """A held statement and the rows to run it for; `check` inspects its result."""

    statement: Statement
    rows: list[dict[str, Any]]
    check: Check | None = None  # None, of an append: each row must change one row


class SqliteSession(Session):
    """Behaves as any session: held statements run in order, before any other statement."""

    dialect = "sqlite"

    def __init__(self, connection: sa.Connection, watch: Watch) -> None:
        super().__init__(connection)
        self._watch = watch
        self._held: list[_Held] | None = None  # of a transaction that has not begun yet; None: there is none
        self._prepared = False  # for `commit_at_once`

    def _asked(self, statement: Statement, values: dict[str, Any]) -> sqlite3.Cursor:
        if self._held is not None:
            self.settle()
        result: sqlite3.Cursor = self._driver.execute(statement.sqlite, values)
        return result

    def _plainly(self, text: str, values: Any = ()) -> sqlite3.Cursor:
        if self._held is not None:
            self.settle()
        run = self._driver.executemany if type(values) is list else self._driver.execute
        result: sqlite3.Cursor = run(text, values)
        return result

    def bounded(self, statement: Statement, check: Check | None = None, **values: Any) -> Sequence[Any]:
        self.settle()
        with self._watch.over(self._driver, self._left_ms()) as run:
            began = time.monotonic()
            try:
                return super().bounded(statement, check, **values)
            finally:
                self.asked_s += time.monotonic() - began
                self.left_s -= run.used_s

    def say(self, text: str) -> None:
        if text == BEGIN:
            self._held = []
        elif text == "ROLLBACK" and self._held is not None:
            self._held = None
        else:
            self._plainly(text)

    def roll_back(self) -> None:
        self._held = None
        if self._driver.in_transaction:
            self._plainly("ROLLBACK")

    def later(self, statement: Statement, check: Check | None = None, *, raises: bool = False, **values: Any) -> None:
        if self._held is None:
            super().later(statement, check, raises=raises, **values)
        else:
            self._held.append(_Held(statement, [values], check or _accept))

    def later_text(self, text: str, values: Any, check: Check | None = None) -> None:
        result = self._plainly(text, values)
        if check is not None:
            check(result)

    def all_rows(self, texts: Sequence[str], values: Any) -> list[Sequence[Any]]:
        return [self._plainly(text, values).fetchall() for text in texts]

    def each(self, statement: Statement, rows: list[dict[str, Any]], **values: Any) -> int:
        """As for any session. Statements of appends are held and count as done; if not so, `settle` raises `Stale`."""
        if self._held is None or statement not in _APPENDS:
            return self._each(statement, rows, **values)
        self._held.append(_Held(statement, rows))
        return len(rows)

    def _each(self, statement: Statement, rows: list[dict[str, Any]], **values: Any) -> int:
        if len(rows) == 1:
            return self._asked(statement, rows[0] | values).rowcount
        if statement is not statements.MOVE_HIGH_WATERS:
            return self._plainly(statement.sqlite, [row | values for row in rows] if values else rows).rowcount
        by_epoch: dict[int, list[dict[str, Any]]] = {}
        for row in rows:
            by_epoch.setdefault(row["epoch"], []).append(row)
        return sum(
            self.run(statements.MOVE_HIGH_WATERS_AT_ONCE, high_waters=_high_waters(alike), epoch=epoch)
            for epoch, alike in by_epoch.items()
        )

    def settle(self) -> None:
        """Begin the transaction and run the held statements."""
        held, self._held = self._held, None
        if held is None:
            return
        self._plainly(BEGIN)
        for statement, rows, check in held:
            if check is not None:
                check(self._asked(statement, rows[0]))
            elif self._each(statement, rows) != len(rows):
                raise Stale  # a publisher was enrolled elsewhere, or a topic dropped

    def settle_checks(self) -> None:
        self.settle()

    def commit_at_once(self) -> bool:
        held = self._held
        if held is None or [each.statement for each in held] != _AT_ONCE:
            return False
        (touched,), high_waters, grown, entries = (each.rows for each in held)
        epoch = high_waters[0]["epoch"]
        if len(grown) != 1 or len(entries) != 1 or any(row["epoch"] != epoch for row in high_waters):
            return False
        values = entries[0] | {
            "epoch": touched["epoch"], "next": grown[0]["next"],
            "high_waters": _high_waters(high_waters), "publishers": len(high_waters), "publisher_epoch": epoch,
        }  # fmt: skip
        try:
            if not self._prepared:
                self._driver.execute(statements.APPENDING)
                self._driver.execute(statements.APPENDING_DONE)
                self._prepared = True
            self.append_at_once(values)
        except sqlite3.Error as error:
            if faults.kind(error) is not faults.FaultKind.REFUSED:
                raise
            return False  # a check failed: running the statements one by one shows which
        self._held = None
        return True

    def append_at_once(self, values: dict[str, Any]) -> None:
        """Run the one statement."""
        self._driver.execute(statements.APPEND_AT_ONCE.sqlite, values)


def _accept(_: Any) -> None:
    """The check of a statement that may change any number of rows."""


def _high_waters(rows: list[dict[str, Any]]) -> str:
    """The high waters of publishers, by number, as a JSON object."""
    return "{" + ",".join([f'"{row["number"]}":{row["high_water"]}' for row in rows]) + "}"


_APPENDS: Final = frozenset((statements.MOVE_HIGH_WATERS, statements.GROW, statements.INSERT_ENTRY))
_AT_ONCE: Final = [statements.TOUCH_LOG, statements.MOVE_HIGH_WATERS, statements.GROW, statements.INSERT_ENTRY]
