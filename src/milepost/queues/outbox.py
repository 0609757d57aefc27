"""Enqueue in a database transaction of the caller's own: the outbox pattern without an outbox table.

::

    with psycopg.connect(url) as connection:
        connection.execute("UPDATE accounts SET balance = balance - 10 WHERE id = 7")
        milepost.queues.enqueue(connection, "orders", order)

The queues are in the caller's own PostgreSQL. The same COMMIT commits the caller's writes and its messages, without a
broker. Waiting dequeues see the messages within a second.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final

from psycopg import RawCursor
from psycopg.errors import InsufficientPrivilege, UndefinedTable
from psycopg.rows import tuple_row

from milepost.batch import Batch
from milepost.client.queue_session import batch_of
from milepost.errors import InvalidValue, MilepostError, NoTransaction, StoreError, WrongType
from milepost.query import enforce
from milepost.query.header import EPOCH_US, LANE_BITS
from milepost.queues import catalogue, rows, statements
from milepost.queues.catalogue import Queue, QueueCatalogue, TypeEntry
from milepost.queues.messages import insert_headers, make_groups
from milepost.queues.numbers import OUTBOX_LANE, mid
from milepost.queues.states import NEVER_US
from milepost.storage.pipeline import StatementResult
from milepost.storage.postgresql import SCHEMA
from milepost.storage.session import Check, Session
from milepost.storage.statement import Statement

_AHEAD: Final = 0x6F757462  # advisory lock while the numbers catch up with the clock
BEHIND_US: Final = 1_000_000  # microseconds that the numbers may be behind the clock


def enqueue(
    connection: Any,
    queue: str,
    messages: Any,
    type: str | None = None,
    *,
    priority: float | None = None,
    not_before: datetime | None = None,
    expires: datetime | None = None,
) -> list[str]:
    """Put messages into a queue, in the current transaction of `connection`. Returns their IDs.

    `connection` is a psycopg or SQLAlchemy connection to the PostgreSQL database of the brokers' store; the user needs
    rights on its schema `milepost`. `messages` are as for `Transaction.enqueue`.
    Raises as a client's `enqueue` does, before anything is written.
    """
    with _borrowed(connection) as session:
        known = catalogue.load(session)
        place = known.queue(queue)
        kind = _kind(known, place, type)
        batch = _batch(kind, messages)
        if priority is not None and not math.isfinite(priority):
            raise InvalidValue(f"priority {priority}: takes a finite number")
        first, process = session.row(statements.OUTBOX_TRANSACTION)
        numbers = _numbers(session, len(batch) + (not first))
        t = int(first) if first else numbers.pop(0)
        if not first:
            session.row(statements.SET_OUTBOX_TRANSACTION, number=str(t))
        rows.store(session, batch, kind.tables, numbers)
        if priority is not None and priority != place.priority and not place.prioritized:
            catalogue.prioritize(session, place)
        insert_headers(
            session, place, kind, numbers, s=process, t=t, priority=priority, log="c", owner=0,
            due_us=_micros(not_before) or 0, ends_us=_micros(expires) or NEVER_US,
        )  # fmt: skip
        if place.group:
            make_groups(session, place, [process if place.group == "s" else t])
        return [mid(process, t, number) for number in numbers]


class _Borrowed(Session):
    """A session on the caller's connection, in the caller's transaction. The caller limits the time of statements."""

    dialect = "postgresql"

    def __init__(self, driver: Any) -> None:
        self._driver = driver
        self.left_s = 0.0  # not used

    def _asked(self, statement: Statement, values: dict[str, Any]) -> StatementResult:
        text, names = statement.numbered
        return self._run(text, [values[name] for name in names])

    def _run(self, text: str, values: Sequence[Any]) -> StatementResult:
        cursor = RawCursor(self._driver, row_factory=tuple_row)
        cursor.execute(text.encode(), values)
        return StatementResult(cursor.fetchall() if cursor.description is not None else (), cursor.rowcount)

    def later_text(self, text: str, values: Any, check: Check | None = None) -> None:
        answer = self._run(text, values)
        if check is not None:
            check(answer)


@contextmanager
def _borrowed(connection: Any) -> Iterator[Session]:
    """The caller's connection, with the queues' tables in its search path."""
    driver = connection
    if hasattr(connection, "exec_driver_sql"):  # SQLAlchemy's
        if not connection.in_transaction():
            raise NoTransaction("this connection is in no transaction: begin one, and enqueue in it")
        driver = connection.connection.driver_connection
    if not hasattr(driver, "pgconn") or not hasattr(driver, "cursor") or hasattr(driver, "__aenter__"):
        raise InvalidValue(
            f"messages cannot be enqueued on a {type(connection).__name__}: take a psycopg connection, or SQLAlchemy's "
            "with the driver psycopg; of an asynchronous one of SQLAlchemy, connection.run_sync"
        )
    if driver.autocommit and not driver.info.transaction_status:
        raise NoTransaction("this connection is in no transaction: begin one, and enqueue in it")
    session = _Borrowed(driver)
    (before, _) = session.row(statements.SET_PATH, path=SCHEMA)
    try:
        yield session
    except MilepostError:  # nothing was written: the transaction continues, with its own search path
        session.row(statements.SET_PATH, path=before)
        raise
    except (InsufficientPrivilege, UndefinedTable) as error:
        raise StoreError(
            f"this role cannot write to queues here ({error.diag.message_primary}): see that a broker has its store in "
            f"this database, and grant the role what it needs on the schema {SCHEMA} (docs/operations.md)"
        ) from error
    else:
        session.row(statements.SET_PATH, path=before)


def _kind(known: QueueCatalogue, queue: Queue, name: str | None) -> TypeEntry:
    if name is not None:
        return known.taken_by(queue, name)
    if len(queue.functions) > 1:
        names = ", ".join(known.types[number].name for number in queue.functions)
        raise WrongType(f"queue {queue.name!r} takes several types: name one of {names}")
    return known.types[next(iter(queue.functions))]


def _batch(kind: TypeEntry, messages: Any) -> Batch:
    if isinstance(messages, Batch):
        if messages.schema.fingerprint != kind.schema.fingerprint:
            raise WrongType(f"this batch is of {messages.schema.name}, not of {kind.name} as it is declared")
        enforce(messages)
        return messages
    return batch_of(kind.schema, messages)


def _numbers(session: Session, count: int) -> list[int]:
    """Numbers of the outbox's lane, near the clock. A sequence gives each value once, committed or not."""
    found = [row[0] for row in session.rows(statements.NEXT_NUMBERS, count=count)]
    (tick,) = session.row(statements.OUTBOX_CLOCK, since=EPOCH_US)
    if found[0] < tick - BEHIND_US:  # the sequence was not used for a while
        session.row(statements.LOCK_NUMBERS, lock=_AHEAD)
        session.row(statements.CATCH_UP, tick=tick, near=BEHIND_US // 2)
        session.row(statements.UNLOCK_NUMBERS, lock=_AHEAD)
        found = [row[0] for row in session.rows(statements.NEXT_NUMBERS, count=count)]
    return [number << LANE_BITS | OUTBOX_LANE for number in found]


def _micros(moment: datetime | None) -> int | None:
    if moment is None:
        return None
    if moment.tzinfo is None:
        raise InvalidValue(f"{moment}: say the time zone, as in datetime.now(UTC)")
    return int(moment.timestamp() * 1e6)
