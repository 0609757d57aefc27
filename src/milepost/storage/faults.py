"""Faults: what an error of the database means, and how the store reacts to it."""

from __future__ import annotations

import sqlite3
from enum import Enum
from typing import Any, Final

from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from milepost.errors import CorruptLog, StoreError, StoreFull, StoreUnavailable


class FaultKind(Enum):
    """What to do about an error."""

    LOST = "the connection or the file cannot be trusted: connect again"
    AGAIN = "somebody was in the way: the same transaction may pass now"
    FULL = "no room"
    CORRUPT = "what is there is not what was written"
    REFUSED = "anything else: saying it again does not help"


_SQLITE: Final = {
    sqlite3.SQLITE_FULL: FaultKind.FULL,
    sqlite3.SQLITE_CORRUPT: FaultKind.CORRUPT,
    sqlite3.SQLITE_NOTADB: FaultKind.CORRUPT,
    sqlite3.SQLITE_IOERR: FaultKind.LOST,
    sqlite3.SQLITE_CANTOPEN: FaultKind.LOST,
    sqlite3.SQLITE_PROTOCOL: FaultKind.LOST,
    sqlite3.SQLITE_READONLY: FaultKind.LOST,
    sqlite3.SQLITE_BUSY: FaultKind.AGAIN,
    sqlite3.SQLITE_LOCKED: FaultKind.AGAIN,
}
_SHORT_READ: Final = 522  # SQLITE_IOERR_SHORT_READ: the file ends in the middle of a page
# By SQLSTATE, or its first three or two characters: the longest match counts.
_POSTGRESQL: Final = {
    "08": FaultKind.LOST,  # the connection
    "23505": FaultKind.AGAIN,  # two brokers made the same thing at once: a retry finds it
    "25006": FaultKind.LOST,  # read-only: a standby, perhaps; the next connection may find the server that took over
    "25P03": FaultKind.LOST,  # the server ended an idle transaction, and its session
    "25P04": FaultKind.LOST,  # … or a transaction that exceeded transaction_timeout
    "40": FaultKind.AGAIN,  # deadlocks and serialization failures
    "42P01": FaultKind.AGAIN,  # a queue's table that another broker has just dropped: a retry finds no such queue
    "53": FaultKind.AGAIN,  # too few resources, such as memory
    "53100": FaultKind.FULL,  # … disk space
    "53300": FaultKind.LOST,  # … connections: one may be free later
    "55P03": FaultKind.AGAIN,  # lock_timeout
    "57014": FaultKind.AGAIN,  # statement_timeout, or cancelled by an operator
    "57P": FaultKind.LOST,  # the server stops, starts, has crashed, or ends sessions
    "58": FaultKind.LOST,  # the server's disk or operating system fails
    "XX001": FaultKind.CORRUPT, "XX002": FaultKind.CORRUPT,
}  # fmt: skip
_AWAY: Final = frozenset({"08", "57", "58"})  # SQLSTATE classes: the server does not answer


def kind(error: BaseException) -> FaultKind:
    """The kind of an error of SQLAlchemy or of a driver."""
    if isinstance(error, PoolTimeout):
        return FaultKind.LOST
    driver: Any = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(driver, sqlite3.Error):
        code = getattr(driver, "sqlite_errorcode", None)
        if code is None:
            return FaultKind.LOST if isinstance(driver, sqlite3.ProgrammingError) else FaultKind.REFUSED
        return FaultKind.CORRUPT if code == _SHORT_READ else _SQLITE.get(code & 0xFF, FaultKind.REFUSED)
    state = _state(error)
    if state is None:  # psycopg: the connection failed, or was closed; the server said nothing
        return (
            FaultKind.LOST if type(driver).__name__ in ("OperationalError", "ConnectionTimeout") else FaultKind.REFUSED
        )
    return _POSTGRESQL.get(state, _POSTGRESQL.get(state[:3], _POSTGRESQL.get(state[:2], FaultKind.REFUSED)))


def fault(error: BaseException, place: str) -> StoreError:
    """The error for callers, about the store at `place`."""
    words = said(error)
    match kind(error):
        case FaultKind.FULL:
            return StoreFull(
                f"the disk of the store {place} is full, and nothing was stored: make room, then try again"
            )
        case FaultKind.CORRUPT if "SQLITE_NOTADB" in words:
            return CorruptLog(
                f"{place} is no SQLite database, or its first page is damaged: give another file as the store, "
                "or restore it from a backup"
            )
        case FaultKind.CORRUPT:
            return CorruptLog(
                f"the store {place} is damaged ({words}): stop the broker and restore it from a backup, "
                "or take what can be read into a new one"
            )
        case FaultKind.LOST | FaultKind.AGAIN if (_state(error) or "08")[:2] not in _AWAY:
            return StoreUnavailable(
                f"the store {place} cannot do it now ({words}): see what is in the way, then try again"
            )
        case FaultKind.LOST | FaultKind.AGAIN:
            return StoreUnavailable(f"the store {place} does not answer ({words}): see that it runs, then try again")
        case _:
            return StoreError(f"the store {place} refused a statement: {words}")


def _state(error: BaseException) -> str | None:
    driver: Any = error.orig if isinstance(error, DBAPIError) else error
    state: str | None = getattr(driver, "sqlstate", None)
    return state


def said(error: BaseException) -> str:
    """The driver's message, in one line."""
    driver = error.orig if isinstance(error, DBAPIError) else error
    name = getattr(driver, "sqlite_errorname", None)
    lines = str(driver).strip().splitlines()
    return f"{lines[0][:200] if lines else type(driver).__name__}{f', {name}' if name else ''}"


DRIVER_ERRORS: Final = (SQLAlchemyError, sqlite3.Error)  # raised by statements
