"""The rows of a batch as rows of a type's tables, and back.

Both directions work on columns: NumPy or the interpreter's own C code handles each value.

SQLite gets rows, for a prepared statement that its driver runs in C. PostgreSQL gets one array for each column, as
text, for all tables in one round trip; COPY is not faster if the server is near, and takes two round trips for each
table if it is not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import count
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from milepost.batch import Batch, graph
from milepost.batch.block import OFFSET, Block
from milepost.batch.columns import Columns, pack_bits
from milepost.batch.format import format_of
from milepost.batch.layout import Layout
from milepost.batch.plain_rows import PlainRows
from milepost.errors import CorruptLog, InvalidValue, MalformedBatch
from milepost.query.sql.tables import SqlColumn, SqlTable, Tables, sql_type
from milepost.queues import physical
from milepost.schema.flat import AtomShape, ListShape, Shape, TupleShape
from milepost.schema.types import BYTES, STRING, Atom, Schema, Tuple
from milepost.storage.database import Session

Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_] | None

PLANS: Final = 256  # types whose places in batches are cached
INDEXED_BYTES: Final = 2_500  # of text with an index: PostgreSQL allows 2,704 for it, the message's number and a header


class _Leaf(NamedTuple):
    """A column of a table, and its place in a block."""

    column: SqlColumn
    shape: AtomShape | None  # None: the column only tells whether a value is present
    guards: tuple[int, ...]  # validity bits that must all be set for it to be present, its own last
    indexed: bool


class _Level(NamedTuple):
    """A table, and the block with its elements."""

    table: SqlTable
    layout: Layout
    parent: int | None  # the level whose elements own these; None: the messages themselves do
    list: ListShape | None  # in the parent's block; None: these are the messages themselves
    guards: tuple[int, ...]  # of the list, in the parent's block
    leaves: tuple[_Leaf, ...]


def _levels(tables: Tables) -> tuple[_Level, ...]:
    return _planned(tables.schema, tables.number)  # a schema's hash is cached, that of its tables is not


@lru_cache(maxsize=PLANS)
def _planned(schema: Schema, number: int) -> tuple[_Level, ...]:
    tables = Tables(schema, number)
    messages = format_of(schema).layout()
    levels: list[_Level] = []
    at: dict[tuple[str, ...], int] = {}
    for table in tables.all:
        parent = None if table.parent is None else at[table.parent.path]
        layout = messages if parent is None else levels[parent].layout
        shape: ListShape | None = None
        guards: tuple[int, ...] = ()
        if not table.top:
            steps = table.path[len(table.parent.path) if table.parent is not None else 0 :]
            inside, guards = _walk(layout.root, steps)
            assert isinstance(inside, ListShape)
            shape, layout = inside, layout.items[inside.slot]
        at[table.path] = len(levels)
        leaves = tuple(_leaf(layout.root, column, (table, column) in tables.indexes) for column in table.columns)
        levels.append(_Level(table, layout, parent, shape, guards, leaves))
    return tuple(levels)


def _leaf(root: Shape, column: SqlColumn, indexed: bool) -> _Leaf:
    shape, guards = _walk(root, column.path)
    assert (column.type is None) != isinstance(shape, AtomShape)
    return _Leaf(column, shape if isinstance(shape, AtomShape) else None, guards, indexed)


def _walk(shape: Shape, path: Sequence[str]) -> tuple[Shape, tuple[int, ...]]:
    """The shape at a path, and the validity bits along it."""
    guards: list[int] = []
    for name in (*path, None):
        assert isinstance(shape, AtomShape | TupleShape | ListShape)
        if shape.valid is not None:
            guards.append(shape.valid)
        if name is not None:
            assert isinstance(shape, TupleShape)
            shape = shape.fields[name]
    return shape, tuple(guards)


def _present(block: Block, guards: tuple[int, ...]) -> Mask:
    there: Mask = None
    for slot in guards:
        there = block.bits(slot) if there is None else there & block.bits(slot)
    return there


class _Elements(NamedTuple):
    """The elements of one level."""

    block: Block
    starts: Numbers  # index of each message's first element, and the end
    pos: Numbers


def pour(batch: Batch, tables: Tables, mids: Sequence[int], dialect: str) -> list[tuple[SqlTable, list[list[Any]]]]:
    """For each table its columns, `keys` before `columns`, with values for the driver.

    `mids` are the numbers of the batch's rows. `InvalidValue`, with the row, for text that contains U+0000 or is too
    long for its index: the database would refuse it too, but together with the whole group's transaction.
    """
    if not _alike(batch.schema, tables.schema):
        raise InvalidValue(f"a batch of {batch.schema.name} of another version; see read_as()")
    if len(mids) != len(batch):
        raise InvalidValue(f"{len(mids)} numbers for {len(batch)} rows")
    levels = _levels(tables)
    numbers = np.asarray(mids, np.int64)
    messages = batch.groups[0].block
    elements: list[_Elements] = []
    made: list[tuple[SqlTable, list[list[Any]]]] = []
    for level in levels:
        owner: Numbers | None = None
        if level.list is None:
            block, starts = messages, np.arange(messages.n + 1)
        else:
            above = None if level.parent is None else elements[level.parent]
            outer = messages if above is None else above.block
            offsets, block = outer.list(level.list)
            if _hidden(outer, level.guards, offsets):
                # Batches from outside may have elements in absent lists. They are not visible, so they are dropped.
                return pour(Batch.from_flat(batch.schema, batch._flat_pylist()), tables, mids, dialect)
            starts = (offsets if above is None else offsets[above.starts]).astype(np.int64)
            if level.table.owned:
                assert above is not None
                owner = np.repeat(above.pos, np.diff(offsets))
        counts = np.diff(starts)
        pos = np.arange(block.n) - np.repeat(starts[:-1], counts)
        elements.append(_Elements(block, starts, pos))
        columns = [numbers.tolist() if level.table.top else np.repeat(numbers, counts).tolist()]
        if not level.table.top:
            columns.append(pos.tolist())
        if owner is not None:
            columns.append(owner.tolist())
        columns += [_column(block, leaf, starts, dialect) for leaf in level.leaves]
        made.append((level.table, columns))
    return made


def _alike(one: Schema, other: Schema) -> bool:
    """Whether batches of two schemas have the same columns; checks and indexes may differ."""
    return one == other or (one.type == other.type and one.definitions == other.definitions)


def _hidden(block: Block, guards: tuple[int, ...], offsets: npt.NDArray[np.int32]) -> bool:
    there = _present(block, guards)
    return there is not None and bool((np.diff(offsets)[~there] != 0).any())


def _column(block: Block, leaf: _Leaf, starts: Numbers, dialect: str) -> list[Any]:
    there = _present(block, leaf.guards)
    if leaf.shape is None:
        assert there is not None
        return physical.listed(there.view(np.int8) if dialect == "sqlite" else there)
    kind = leaf.shape.type
    if kind == STRING and (bad := physical.first_nul(block, leaf.shape, there)) is not None:
        raise _refusal("text in a queue cannot hold the character U+0000", leaf.shape, starts, bad)
    if leaf.indexed and kind in (STRING, BYTES):
        bad = physical.first_long(block, leaf.shape, there, INDEXED_BYTES)
        if bad is not None:
            raise _refusal(f"a value with an index has up to {INDEXED_BYTES} bytes", leaf.shape, starts, bad)
    return physical.poured(block, leaf.shape, there, dialect)


def _refusal(what: str, shape: AtomShape, starts: Numbers, element: int) -> InvalidValue:
    return InvalidValue(what, shape.path, int(np.searchsorted(starts, element, side="right")) - 1)


def gather(
    schema: Schema, tables: Tables, mids: Sequence[int], found: Mapping[str, Sequence[Sequence[Any]]], dialect: str
) -> Batch:
    """A batch of the messages `mids`, in that order, from rows of their tables, in any order.

    `found` has the rows of each table by its name, with columns in the order of `pour`; a table without rows may be
    missing. `CorruptLog` when rows are missing, or belong to no message.
    """
    form = format_of(schema)
    wanted = np.asarray(mids, np.int64)
    messages = Columns(form.layout(), len(wanted))
    levels: list[tuple[Columns, Numbers]] = []  # with the start of each message
    for level in _levels(tables):
        table = level.table
        rows, message = _sorted(table, wanted, found.get(table.name, ()))
        columns: list[Sequence[Any]] = list(zip(*rows, strict=True)) or [()] * (len(table.keys) + len(table.columns))
        starts = np.zeros(len(wanted) + 1, np.int64)
        np.cumsum(np.bincount(message, minlength=len(wanted)), out=starts[1:])
        if level.list is None:
            if not np.array_equal(message, np.arange(len(wanted))):
                raise _missing(table)
            made = messages
        else:
            made = Columns(level.layout, len(rows))
            pos = np.array(columns[1], np.int64)
            if not np.array_equal(pos, np.arange(len(rows)) - starts[message]):
                raise _missing(table)
            outer, first = (messages, None) if level.parent is None else levels[level.parent]
            owner = message
            if table.owned:
                assert first is not None
                owner = first[message] + np.array(columns[2], np.int64)
                if len(owner) and bool((owner[1:] < owner[:-1]).any() or owner[-1] >= outer.n):
                    raise _missing(table)
            offsets = np.zeros(outer.n + 1, OFFSET)
            np.cumsum(np.bincount(owner, minlength=outer.n), out=offsets[1:])
            outer.lists[level.list.slot] = offsets, made
        levels.append((made, starts))
        for leaf, values in zip(level.leaves, columns[len(table.keys) :], strict=True):
            if leaf.shape is None:
                made.bits[leaf.guards[-1]] = pack_bits(values)
            else:
                physical.gathered(made, leaf.shape, values, leaf.column.optional, dialect)
    batch = Batch.assemble(form, len(wanted), {0: (messages, None)}, None)
    try:
        graph.check(batch)
    except MalformedBatch as error:
        raise CorruptLog(f"the tables of {schema.name} do not hold what was written: {error}") from None
    return batch


def _sorted(table: SqlTable, wanted: Numbers, rows: Sequence[Sequence[Any]]) -> tuple[Sequence[Sequence[Any]], Numbers]:
    """Rows sorted by message, in the order of `wanted`, then by position; and the index of each row's message."""
    mid = np.array([row[0] for row in rows], np.int64)
    if not len(mid):
        return (), mid
    by_number = np.argsort(wanted)
    place = np.searchsorted(wanted, mid, sorter=by_number)
    if not len(wanted) or bool((wanted[by_number[np.minimum(place, len(wanted) - 1)]] != mid).any()):
        raise CorruptLog(f"{table.name}: rows of messages that nobody asked for")
    message = by_number[place].astype(np.int64, copy=False)
    if table.top:
        order = np.argsort(message, kind="stable")
    else:
        order = np.lexsort(([row[1] for row in rows], message))
    if bool((order[1:] < order[:-1]).any()):
        rows, message = [rows[at] for at in order.tolist()], message[order]
    return rows, message


def _missing(table: SqlTable) -> CorruptLog:
    return CorruptLog(f"{table.name}: rows are missing, or there are two of one")


# Statements, with the driver's own placeholders


def insert(table: SqlTable, dialect: str) -> str:
    """Its values are a row on SQLite, for `executemany`; on PostgreSQL an array for each column, as text."""
    if dialect == "sqlite":
        return f"{_into(table)} VALUES ({', '.join('?' * len(_names(table)))})"
    return _unnested(table, (f"${place}" for place in count(1)))


def insert_named(table: SqlTable, names: Sequence[str]) -> str:
    """The same for PostgreSQL, with named values for a `Statement`; see `poured`."""
    return _unnested(table, (f":{name}" for name in names))


def _into(table: SqlTable) -> str:
    return f"INSERT INTO {table.name} ({', '.join(_names(table))})"


def _unnested(table: SqlTable, signs: Iterable[str]) -> str:
    kinds = ["bigint", *("integer" for _ in table.keys[1:]), *(_plain_type(column.type) for column in table.columns)]
    arrays = (f"CAST({sign} AS {kind}[])" for sign, kind in zip(signs, kinds, strict=False))
    return f"{_into(table)} SELECT * FROM unnest({', '.join(arrays)})"


def value_names(tables: Tables) -> tuple[tuple[str, ...], ...]:
    """For each table, a value name for each of its columns, `keys` before `columns`."""
    return _value_names(tables.schema, tables.number)


@lru_cache(maxsize=PLANS)
def _value_names(schema: Schema, number: int) -> tuple[tuple[str, ...], ...]:
    return tuple(
        tuple(f"c{at}_{place}" for place in range(len(table.keys) + len(table.columns)))
        for at, table in enumerate(Tables(schema, number).all)
    )


def poured(batch: Batch | PlainRows, tables: Tables, mids: Sequence[int]) -> dict[str, str]:
    """The rows of a batch, for statements of `insert_named`: the array of each column, by `value_names`."""
    made: Sequence[Sequence[Sequence[Any]]]
    if isinstance(batch, PlainRows):
        made = [_loose(batch, tables, mids)]
    else:
        made = [columns for _, columns in pour(batch, tables, mids, "postgresql")]
    return {
        name: physical.array(values)
        for columns, names in zip(made, value_names(tables), strict=True)
        for name, values in zip(names, columns, strict=True)
    }


def _loose(rows: PlainRows, tables: Tables, mids: Sequence[int]) -> list[Sequence[Any]]:
    """The columns of plain rows. These are ASCII without U+0000; only text that is too long for an index is refused."""
    (table,) = tables.all
    for column, values in zip(table.columns, rows.columns, strict=True):
        if (table, column) in tables.indexes and column.type == STRING:
            for row, value in enumerate(values):
                if value is not None and len(value) > INDEXED_BYTES:
                    path = ".".join(column.path)
                    raise InvalidValue(f"a value with an index has up to {INDEXED_BYTES} bytes", path, row)
    return [mids, [0] * len(mids), *rows.columns] if len(table.keys) > 1 else [mids, *rows.columns]


def select(table: SqlTable, dialect: str) -> str:
    """Its value is the numbers of messages: see `_numbers`."""
    return f"SELECT {', '.join(_names(table))} FROM {table.name} WHERE mid {_AMONG[dialect]}"


def delete(table: SqlTable, dialect: str) -> str:
    """Its value is the numbers of messages: see `_numbers`."""
    return f"DELETE FROM {table.name} WHERE mid {_AMONG[dialect]}"


def _names(table: SqlTable) -> list[str]:
    return [*table.keys, *(column.name for column in table.columns)]


def _plain_type(kind: Atom | None) -> str:
    """The SQL type without collation and digits, which the column has."""
    return "numeric" if kind is not None and kind.kind == "decimal" else sql_type(kind, "postgresql").split(" COLL")[0]


_AMONG: Final = {"sqlite": "IN (SELECT value FROM json_each(?))", "postgresql": "= ANY(CAST($1 AS bigint[]))"}


def select_owned(table: SqlTable, header: str) -> str:
    """PostgreSQL: the rows of all messages that the transaction `$1` has taken out of a queue."""
    owned = f"ARRAY(SELECT mid FROM {header} WHERE owner = $1 AND owner <> 0 AND lsf = 'd')"
    return f"SELECT {', '.join(_names(table))} FROM {table.name} WHERE mid = ANY({owned})"


class _Texts(NamedTuple):
    insert: str
    select: str
    delete: str


@lru_cache(maxsize=2 * PLANS)
def _texts(schema: Schema, number: int, dialect: str) -> dict[str, _Texts]:
    return {
        table.name: _Texts(insert(table, dialect), select(table, dialect), delete(table, dialect))
        for table in Tables(schema, number).all
    }


def _numbers(mids: Sequence[int], dialect: str) -> str:
    return json.dumps(list(mids)) if dialect == "sqlite" else physical.array(mids)


def store(session: Session, batch: Batch, tables: Tables, mids: Sequence[int]) -> None:
    """Write the rows of a batch into the tables. Raises as `pour` does, before anything is written."""
    dialect = session.dialect
    texts = _texts(tables.schema, tables.number, dialect)
    for table, columns in pour(batch, tables, mids, dialect):
        if not columns[0]:
            continue
        if dialect == "sqlite":
            session.later_text(texts[table.name].insert, list(zip(*columns, strict=True)))
        else:
            session.later_text(texts[table.name].insert, [physical.array(values) for values in columns])


def load(session: Session, schema: Schema, tables: Tables, mids: Sequence[int]) -> Batch:
    """The messages `mids` as a batch, in that order. `CorruptLog` when one is missing."""
    dialect = session.dialect
    texts = _texts(tables.schema, tables.number, dialect)
    found = session.all_rows([text.select for text in texts.values()], (_numbers(mids, dialect),))
    return gather(schema, tables, mids, dict(zip(texts, found, strict=True)), dialect)


# Kinds of values that have the same form in PostgreSQL and in plain messages.
_SAME: Final = frozenset({
    "bool", "float", "double", "string", "bytes", "int8", "uint8", "int16", "uint16", "int", "uint32", "long", "ident",
})  # fmt: skip


@lru_cache(maxsize=PLANS)
def _plain_maker(schema: Schema, number: int) -> Callable[[Iterable[Sequence[Any]]], list[dict[str, Any]]] | None:
    """A function that makes plain messages of rows, for a type with one row for each message and values of `_SAME`.

    It is generated for the type, as a dict display: 20 µs for a hundred messages. With `zip` it would be 100 µs, which
    is a twentieth of the time to dequeue them.
    """
    tables = Tables(schema, number)
    (only, *more) = tables.all
    message_type = schema.message_type
    if (
        more
        or not isinstance(schema.type, Tuple)
        or (not only.top if message_type is None else only is not tables.root)
    ):
        return None
    if any(column.type is None or column.type.kind not in _SAME or len(column.path) != 1 for column in only.columns):
        return None
    items = ", ".join(f"n{at}: row[{len(only.keys) + at}]" for at in range(len(only.columns)))
    names = {f"n{at}": column.path[0] for at, column in enumerate(only.columns)}
    made: Callable[[Iterable[Sequence[Any]]], list[dict[str, Any]]]
    made = eval(f"lambda rows: [{{{items}}} for row in rows]", names)  # noqa: S307 - numbers of columns only
    return made


def plain(tables: Tables, mids: list[int], found: Sequence[Sequence[Sequence[Any]]]) -> list[dict[str, Any]] | None:
    """The messages `mids` as plain values, directly from the rows of their tables; None if that is not possible."""
    made = _plain_maker(tables.schema, tables.number)
    if made is None or len(found[0]) != len(mids):
        return None
    by_number = {row[0]: row for row in found[0]}
    if len(by_number) != len(mids):
        return None
    try:
        return made([by_number[mid] for mid in mids])
    except KeyError:
        return None


def remove(session: Session, tables: Tables, mids: Sequence[int]) -> None:
    """Delete the rows of messages from the tables; missing messages are ignored."""
    dialect = session.dialect
    wanted = (_numbers(mids, dialect),)
    for text in _texts(tables.schema, tables.number, dialect).values():
        session.later_text(text.delete, wanted)
