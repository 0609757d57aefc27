"""Several prepared statements in one round trip to PostgreSQL, through libpq itself.

psycopg's own pipeline takes some 25 µs of Python for each statement, to find out the types of its values and whether
it is prepared; here that is known. Six small statements take 30 µs instead of 200, the server included.
"""

from __future__ import annotations

import select
import struct
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, Final

from psycopg import Error, OperationalError, pq
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result

from milepost.storage import waits

PREPARED: Final = 1_000  # most statements kept prepared in the server, some ten kilobytes each; an LRU cache
_INT4: Final = 1 << 31
_INT8: Final = 1 << 63
_OIDS: Final = {float: 701, bool: 16, bytes: 17, str: 0, Decimal: 1700, type(None): 0}
_SIMPLE: Final = frozenset({int, *_OIDS})
_ARRAY: Final = struct.Struct(">iiIii")  # dimensions, whether there are nulls, type, length, first index
_BYTEA: Final = 17
_BYTEA_ARRAY: Final = 1001


def simple(values: Sequence[Any]) -> bool:
    """Whether all values have types that are encoded here: scalars, and lists of numbers or of bytes."""
    for value in values:
        kind = type(value)
        if kind in _SIMPLE:
            continue
        if kind is not list or not {type(item) for item in value} <= {int, type(None)} | {bytes}:
            return False
    return True


class StatementResult:
    """The whole result of a statement: rows as tuples, and the number of changed rows."""

    __slots__ = ("_at", "_rows", "rowcount")

    def __init__(self, rows: Sequence[tuple[Any, ...]], rowcount: int) -> None:
        self._rows = rows
        self._at = 0
        self.rowcount = rowcount

    def fetchall(self) -> Sequence[tuple[Any, ...]]:
        """All rows that were not fetched yet."""
        at, self._at = self._at, len(self._rows)
        return self._rows[at:] if at else self._rows

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row, or None."""
        if self._at >= len(self._rows):
            return None
        self._at += 1
        return self._rows[self._at - 1]

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self.fetchall())

    def close(self) -> None:
        """Do nothing: the result is complete."""


class StatementPipeline:
    """The prepared statements of one connection. Used by one thread, and not while psycopg uses the connection."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver
        self._connection = driver.pgconn
        self._names: OrderedDict[tuple[str, tuple[int, ...]], bytes] = OrderedDict()
        self._made = 0
        self.failed = 0  # index of the statement that failed, in the last run that failed
        self._poll = select.poll()
        self._poll.register(self._connection.socket, select.POLLIN)

    def run(self, statements: Sequence[tuple[str, Sequence[Any]]]) -> list[StatementResult]:
        """Run texts with values for `$1` and so on. Returns the results. After an error, no later statement is run."""
        self._driver.since = time.monotonic()  # `outage` ends a wait that is too long
        try:
            return self._run(statements)
        finally:
            self._driver.since = 0.0

    def _run(self, statements: Sequence[tuple[str, Sequence[Any]]]) -> list[StatementResult]:
        while len(self._names) > PREPARED:  # only here: one run may need more than `PREPARED`
            _, old = self._names.popitem(last=False)
            self._connection.exec_(b"DEALLOCATE " + old)
        ready = []
        for text, values in statements:
            types, data, formats = _written(values)
            ready.append((self._prepared(text, types), data, formats))
        connection = self._connection
        connection.enter_pipeline_mode()
        try:
            for name, data, formats in ready:
                connection.send_query_prepared(name, data, formats, 1)
            connection.pipeline_sync()
            results = self._results()
        finally:
            if connection.status == pq.ConnStatus.OK and connection.pipeline_status != pq.PipelineStatus.OFF:
                connection.exit_pipeline_mode()
        return [self._answer(result) for result in results]

    def _prepared(self, text: str, types: tuple[int, ...]) -> bytes:
        key = text, types
        name = self._names.get(key)
        if name is not None:
            self._names.move_to_end(key)
            return name
        self._made += 1
        name = b"milepost_%d" % self._made
        result = self._prepare(name, text.encode(), types)
        if result.status != pq.ExecStatus.COMMAND_OK:
            raise self._error(result)
        self._names[key] = name
        return name

    def _prepare(self, name: bytes, text: bytes, types: tuple[int, ...]) -> Any:
        """Like libpq's own call, but an event loop keeps running meanwhile."""
        self._connection.send_prepare(name, text, types)
        found: Any = None
        while (result := self._result()) is not None:
            found = result
        if found is None:
            raise OperationalError("the connection is lost")
        return found

    def _result(self) -> Any:
        """Wait for the next result; None: the statement, or the connection, has no more."""
        connection, waiter = self._connection, waits.current.get()
        while True:
            unsent = connection.flush()
            if not unsent and not connection.is_busy():
                return connection.get_result()
            if waiter is not None:
                waiter.ready(connection.socket, bool(unsent))
            else:
                self._poll.modify(connection.socket, select.POLLIN | select.POLLOUT if unsent else select.POLLIN)
                self._poll.poll()
            connection.consume_input()

    def _results(self) -> list[Any]:
        connection = self._connection
        found: list[Any] = []
        failed: Any = None
        while True:
            result = self._result()
            if result is None:
                if connection.status != pq.ConnStatus.OK:
                    raise failed or OperationalError("the connection is lost")
                continue
            status = result.status
            if status == pq.ExecStatus.PIPELINE_SYNC:
                break
            if status == pq.ExecStatus.FATAL_ERROR:
                if failed is None:
                    failed = self._error(result)
                    self.failed = len(found)
            elif status != pq.ExecStatus.PIPELINE_ABORTED:
                found.append(result)
        if failed is not None:
            raise failed
        return found

    def _error(self, result: Any) -> Error:
        """The error of a result. Without an SQLSTATE the connection broke: then it is an `OperationalError`."""
        error = error_from_result(result)
        return error if error.sqlstate is not None else OperationalError(*error.args)

    def _answer(self, result: Any) -> StatementResult:
        changed = result.command_tuples
        if result.status != pq.ExecStatus.TUPLES_OK:
            return StatementResult((), changed if changed is not None else -1)
        count = result.ntuples
        if not count:
            return StatementResult((), changed or 0)
        loader = Transformer(self._driver)
        loader.set_pgresult(result)
        return StatementResult(loader.load_rows(0, count, tuple), changed or 0)


def _written(values: Sequence[Any]) -> tuple[tuple[int, ...], list[bytes | None] | None, list[int] | None]:
    """Values as libpq takes them: their types, their encoded data, and their formats (1: binary, 0: text)."""
    if not values:
        return (), None, None
    types: list[int] = []
    data: list[bytes | None] = []
    formats: list[int] = []
    for value in values:
        kind = type(value)
        if kind is int:
            types.append(23 if -_INT4 <= value < _INT4 else 20 if -_INT8 <= value < _INT8 else 1700)
            data.append(b"%d" % value)
            formats.append(0)
            continue
        if kind is list:
            raw = any(type(item) is bytes for item in value)
            types.append(_BYTEA_ARRAY if raw else 0)
            data.append(_byte_array(value) if raw else _number_array(value))
            formats.append(int(raw))
            continue
        types.append(_OIDS[kind])
        formats.append(int(kind is bytes))
        if kind is str:
            data.append(value.encode())
        elif value is None or kind is bytes:
            data.append(value)
        elif kind is bool:
            data.append(b"t" if value else b"f")
        else:
            data.append(str(value).encode())
    return tuple(types), data, formats


def _number_array(items: Sequence[int | None]) -> bytes:
    """Numbers as text; the statement gives their type."""
    return b"{%s}" % ",".join("NULL" if item is None else str(item) for item in items).encode()


def _byte_array(items: Sequence[bytes | None]) -> bytes:
    """Bytes in binary: as text they would be twice as long."""
    parts = [_ARRAY.pack(1, int(None in items), _BYTEA, len(items), 1)]
    for item in items:
        parts += [b"\xff\xff\xff\xff"] if item is None else [len(item).to_bytes(4, "big"), item]
    return b"".join(parts)
