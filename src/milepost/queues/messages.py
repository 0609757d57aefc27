"""Messages in the tables of a store: write headers; read, move and remove messages."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from milepost.batch import Batch
from milepost.operations.steps import Got, Group
from milepost.query import expression, sql, typed
from milepost.query.kinds import DOUBLE
from milepost.query.sql import Tables
from milepost.query.sql.value import Dialect
from milepost.queues import catalogue, rows, statements, states
from milepost.queues.catalogue import Queue, QueueCatalogue, TypeEntry
from milepost.queues.selection import Head, root_of
from milepost.schema import Schema
from milepost.storage.database import Session
from milepost.storage.statement import Statement

FUNCTION_S: Final = 50e-6  # seconds for the priority function of each message, added to the limit of the operation


def last_number(session: Session, known: QueueCatalogue, s: int) -> int:
    """The highest number that a writer's messages have in ordered queues, in the column of their order; 0: none."""
    ordered = [queue.number for queue in known.queues.values() if queue.group == "s"]
    if not ordered:
        return 0
    highest = 0
    for (number,) in session.rows(statements.QUEUES_OF_WRITER, queues=session.numbers(ordered), s=s):
        queue = known.queues[number]
        (found,) = session.row(statements.about(statements.HIGHEST_OF_WRITER, queue.table, queue.arrival[0]), s=s)
        highest = max(highest, found)
    return highest


def insert_headers(
    session: Session, queue: Queue, kind: TypeEntry, mids: list[int], *, s: int, t: int, priority: float | None,
    log: str, owner: int, due_us: int, ends_us: int,
) -> None:  # fmt: skip
    """Write the headers of messages whose content is stored. Without a priority, the queue determines it."""
    function = queue.functions[kind.number] if priority is None else None
    statement, values = _inserting(queue.table, kind.schema, kind.number, function, session.dialect)
    write = session.later
    if function is not None:
        # A client wrote the function: run it now, so that only this enqueue can fail because of it.
        write = session.bounded  # type: ignore[assignment]
        session.left_s += len(mids) * FUNCTION_S
    write(
        statement, mids=session.numbers(mids), s=s, t=t, type=kind.number,
        priority=float(queue.priority if priority is None else priority), lsf=log, owner=owner, due_us=due_us,
        ends_us=ends_us, **values,
    )  # fmt: skip


_BEGIN: Final = """
    begun AS (
        INSERT INTO queue_transactions (number, s, instance, client, log, state, operations, messages, lease_us)
        VALUES (:number, :s, :instance, :client, :log, :state,
            1 / CASE WHEN (SELECT version FROM queue_catalogue) = :version THEN 1 ELSE 0 END,
            :messages, {now} + :keep_us))"""


def beginning(queue: Queue, kind: TypeEntry, priority: float | None) -> Statement | None:
    """PostgreSQL: begin, enqueue and commit in one statement: the transaction's row, content and headers.

    It raises when the catalogue does not have the version `version`, and when the transaction exists already. None
    with a priority function: that reads the content, which has to be stored before.
    """
    if priority is None and queue.functions[kind.number] is not None:
        return None
    return _beginning(queue.table, kind.schema, kind.number)


@lru_cache(maxsize=statements.CACHED)
def _beginning(table: str, schema: Schema, number: int) -> Statement:
    tables = Tables(schema, number)
    contents = ", ".join(
        f"t{at} AS ({rows.insert_named(each, names)})"
        for at, (each, names) in enumerate(zip(tables.all, rows.value_names(tables), strict=True))
    )
    return Statement(
        f"WITH {_BEGIN}, {contents} "
        f"INSERT INTO {table} (mid, s, t, type, priority, lsf, owner, aborts, due_us, ends_us) "
        "SELECT e.value, :s, :number, :type, CAST(:priority AS double precision), 'c', 0, 0, :due_us, :ends_us "
        "FROM {each mids} e"
    )


@lru_cache(maxsize=statements.CACHED)
def committing(logged: tuple[tuple[str, str], ...], grouped: bool, tables: tuple[tuple[Schema, int], ...]) -> Statement:
    """PostgreSQL: commit a transaction from remembered state in one statement, which raises if that state is wrong.

    `logged` are kinds and header tables, `tables` the types of its taken messages, whose numbers are values m0, m1, …
    """
    parts = [
        "ended AS (UPDATE queue_transactions SET state = 'c', lease_us = {now} + :lease_us "
        "WHERE number = :owner AND state = 'a' AND operations = :operations RETURNING 1)",
        "cleared AS (DELETE FROM queue_log WHERE transaction_number = :owner)",
    ]
    ends = [states.ending_text(states.COMMIT[kind], table) for kind, table in logged]
    if grouped:
        ends.append(statements.RELEASE_TEXT)
    for at, (schema, number) in enumerate(tables):
        ends += [f"DELETE FROM {table.name} WHERE mid {{in m{at}}}" for table in Tables(schema, number).all]
    parts += [f"p{at} AS ({text})" for at, text in enumerate(ends)]
    return Statement(f"WITH {', '.join(parts)} SELECT 1 / count(*) FROM ended")


@lru_cache(maxsize=statements.CACHED)
def _inserting(
    table: str, schema: Schema, number: int, function: str | None, dialect: Dialect
) -> tuple[Statement, dict[str, Any]]:
    """The statement that writes headers, with a priority function if there is one, and the values of that."""
    real = "CAST(:priority AS double precision)" if dialect == "postgresql" else ":priority"
    priority, source, values = real, "{each mids} e", {}
    if function is not None:
        # Converted to a double by the query: the tables store decimals and large numbers in other forms.
        tables = Tables(schema, number)
        made = sql.compile(typed.Convert(expression(function, schema).root, DOUBLE), tables, dialect, prefix="p")
        # An infinite result is no priority: clients cannot give one, and it could not be transferred.
        infinite = "CAST('Infinity' AS double precision)" if dialect == "postgresql" else "9e999"
        priority = f"coalesce(nullif(nullif({made.text}, {infinite}), -{infinite}), {real})"
        values = made.values
        source = (
            "(SELECT value AS mid, value AS value, CAST(:s AS bigint) AS s, CAST(:t AS bigint) AS t, "
            "CAST(NULL AS double precision) AS priority, 0 AS aborts FROM {each mids} e) q"
        )
        if made.needs_root:
            source += f" JOIN {root_of(tables)}"
    value = "q.mid" if function is not None else "e.value"
    text = (
        f"INSERT INTO {table} (mid, s, t, type, priority, lsf, owner, aborts, due_us, ends_us) "
        f"SELECT {value}, :s, :t, :type, {priority}, :lsf, :owner, 0, :due_us, :ends_us FROM {source}"
    )
    return Statement(text), values


def got(session: Session, known: QueueCatalogue, found: list[Head]) -> Got:
    """Messages with their content. Reads each table once; consecutive messages of one type are a group."""
    whole: dict[int, list[int]] = {}
    for head in found:
        whole.setdefault(head.type, []).append(head.mid)
    batches = {
        number: rows.load(session, known.types[number].schema, known.types[number].tables, mids)
        for number, mids in whole.items()
    }
    groups: list[Group] = []
    read = dict.fromkeys(whole, 0)
    for number, run in groupby(found, key=lambda head: head.type):
        heads = list(run)
        kind = known.types[number]
        mids = [head.mid for head in heads]
        start, read[number] = read[number], read[number] + len(mids)
        batch = batches[number]
        if len(mids) < len(batch):
            batch = batch.slice(start, read[number])
        groups.append(
            Group(
                kind.name, kind.schema, batch, mids, [head.s for head in heads], [head.t for head in heads],
                [head.priority for head in heads], [head.aborts for head in heads],
            )
        )  # fmt: skip
    return Got(groups)


def owned_texts(known: QueueCatalogue, queue: Queue) -> list[str]:
    """The statements that read the content of a transaction's taken messages, for each table of each accepted type."""
    return [
        rows.select_owned(table, queue.table) for number in queue.functions for table in known.types[number].tables.all
    ]


def got_owned(
    known: QueueCatalogue,
    queue: Queue,
    taken: Sequence[Sequence[Any]],
    found: Sequence[Sequence[Sequence[Any]]],
    plain: bool,
) -> Got:
    """Messages of an unordered queue, by priority, from their headers and the rows of `owned_texts`."""
    heads = sorted(taken, key=itemgetter(0))  # by number
    if heads[0][4] != heads[-1][4] or len({head[4] for head in heads}) > 1:
        heads.sort(key=lambda head: head[4], reverse=queue.direction == "desc")  # a stable sort
    by_type: dict[int, dict[str, Sequence[Sequence[Any]]]] = {}
    at = 0
    for number in queue.functions:
        tables = known.types[number].tables.all
        by_type[number] = {table.name: found[at + place] for place, table in enumerate(tables)}
        at += len(tables)
    groups: list[Group] = []
    numbers = {head[3] for head in heads}
    for number, some in groupby(heads, key=itemgetter(3)) if len(numbers) > 1 else ((heads[0][3], heads),):
        mids, s, t, _, priorities, aborts = map(list, zip(*some, strict=True))
        kind = known.types[number]
        values = None
        if plain and len(numbers) == 1:
            values = rows.plain(kind.tables, mids, list(by_type[number].values()))
        content = partial(_content, kind, mids, by_type[number], len(numbers) > 1)
        made = content if plain else content()
        groups.append(Group(kind.name, kind.schema, made, mids, s, t, priorities, aborts, values))
    return Got(groups)


def _content(kind: TypeEntry, mids: list[int], found: dict[str, Sequence[Sequence[Any]]], some: bool) -> Batch:
    """The content of messages; `some`: the rows include those of other messages."""
    if some:
        wanted = set(mids)
        found = {name: [row for row in each if row[0] in wanted] for name, each in found.items()}
    return rows.gather(kind.schema, kind.tables, mids, found, "postgresql")


def discard(session: Session, known: QueueCatalogue, queue: Queue, mids: list[int]) -> None:
    """Delete committed messages."""
    removed = session.rows(statements.about(statements.REMOVE_HEADERS, queue.table), mids=session.numbers(mids))
    found = sorted(removed, key=lambda row: row[1])
    for number, group in groupby(found, key=lambda row: row[1]):
        rows.remove(session, known.types[number].tables, [row[0] for row in group])


def move(session: Session, source: Queue, target: Queue, mids: list[int], aborts: str = "0") -> None:
    """Move committed messages to another queue; their numbers and content stay."""
    numbers = session.numbers(mids)
    session.run(statements.copy_headers(source.table, target.table, aborts), mids=numbers)
    moved = session.rows(statements.about(statements.REMOVE_COPIED, source.table), mids=numbers)
    if target.group:
        make_groups(session, target, [row[0] if target.group == "s" else row[1] for row in moved])
    if not target.prioritized and any(row[2] != target.priority for row in moved):
        catalogue.prioritize(session, target)  # changes its version; this transaction does not read it again


def make_groups(session: Session, queue: Queue, members: list[int]) -> None:
    """Make sure that the groups of new messages in a queue exist: their writers or blocks."""
    distinct = sorted(set(members))
    values = {"queue": queue.number, "members": session.numbers(distinct)}
    if session.dialect != "postgresql":
        session.later(statements.MAKE_GROUPS, **values)
        return

    def check(result: Any) -> None:
        if result.rowcount != len(distinct):  # a group was removed between the two statements
            session.run(statements.MAKE_GROUPS, **values)

    session.later(statements.MAKE_MISSING_GROUPS, **values)
    session.later(statements.KEEP_GROUPS, check, **values)
