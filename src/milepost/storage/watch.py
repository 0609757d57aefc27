"""A watch over SQLite statements with clients' expressions: it interrupts those that take too long.

SQLite checks its interrupt flag in each loop of a statement anyway, so this costs a statement nothing. A progress
handler would be a callback in Python, and wait for the interpreter lock each time.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from milepost import limits
from milepost.errors import QueryTooCostly, TransactionAborted

LOOK_S: Final = 0.05  # between checks of running statements
WALL: Final = 5  # times its CPU limit that a statement may take by the clock, if it waits for a disk or a processor
REST: Final = 200  # checks without a running statement, after which the thread ends


class WatchedStatement:
    """A running statement."""

    __slots__ = ("_began", "_clock", "_most_ms", "_wall", "connection", "interrupted")

    def __init__(self, connection: sqlite3.Connection, most_ms: int) -> None:
        self.connection = connection
        self._most_ms = most_ms
        self.interrupted = False
        self._clock = time.pthread_getcpuclockid(threading.get_ident())
        self._began = time.clock_gettime(self._clock)
        self._wall = time.monotonic()

    @property
    def used_s(self) -> float:
        """CPU seconds of its thread so far: a busy machine does not make a statement costly."""
        return time.clock_gettime(self._clock) - self._began

    @property
    def taken_s(self) -> float:
        """The seconds that exceeded the limit: CPU time, or else wall-clock time."""
        used_s = self.used_s
        return used_s if used_s * 1_000 > self._most_ms else time.monotonic() - self._wall

    @property
    def over(self) -> bool:
        """Whether it has taken too long."""
        return self.used_s * 1_000 > self._most_ms or (time.monotonic() - self._wall) * 1_000 > WALL * self._most_ms


class Watch:
    """One for each database file. Its thread runs while there are statements."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[WatchedStatement] = set()
        self._thread: threading.Thread | None = None
        self._halted = threading.Event()

    @contextmanager
    def over(self, connection: sqlite3.Connection, most_ms: int) -> Iterator[WatchedStatement]:
        """Watch a connection for the block; `QueryTooCostly` when a statement took too long and was interrupted."""
        if self._halted.is_set():
            raise stopping()
        run = WatchedStatement(connection, most_ms)
        with self._lock:
            self._running.add(run)
            if self._thread is None:
                self._thread = threading.Thread(target=self._look, name="milepost-watch", daemon=True)
                self._thread.start()
        try:
            yield run
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", None)
            if code == sqlite3.SQLITE_TOOBIG or str(error) == "integer overflow":
                raise too_much_text() from error
            if code != sqlite3.SQLITE_INTERRUPT:
                raise
            if self._halted.is_set():
                raise stopping() from None
            raise too_long(run.taken_s) from None
        finally:
            with self._lock:  # from here on the connection is not interrupted
                self._running.discard(run)

    def halt(self) -> None:
        """Interrupt the running statements, and let no further ones begin."""
        self._halted.set()

    def _look(self) -> None:
        idle = 0
        while idle < REST and not (self._halted.is_set() and idle):
            self._halted.wait(LOOK_S)
            with self._lock:
                idle = 0 if self._running else idle + 1
                for run in self._running:
                    if not run.interrupted and (self._halted.is_set() or run.over):
                        run.interrupted = True
                        run.connection.interrupt()
                if idle >= REST or (self._halted.is_set() and idle):
                    self._thread = None
                    return


def too_long(seconds: float) -> QueryTooCostly:
    """The error for a statement that took too long."""
    return QueryTooCostly(
        "QUERY_MS",
        int(seconds * 1_000),
        limits.QUERY_MS,
        "milliseconds of a predicate, an order or a priority function",
    )


def too_much_text() -> QueryTooCostly:
    """The error for a text that is too long for an expression that uses it; see `query.sql.lengths`."""
    maximum = limits.QUERY_VALUE_BYTES
    what = "bytes of text that a predicate, an order or a priority function goes over in one message"
    return QueryTooCostly("QUERY_VALUE_BYTES", maximum + 1, maximum, what)


def stopping() -> TransactionAborted:
    """The error for a statement that was refused or interrupted because the process is ending."""
    return TransactionAborted("the broker is stopping, and looks for no more messages: run the transaction again")
