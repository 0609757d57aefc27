"""The tables of a type's messages in a database: one for each level of the schema. Each row has its message's number.

The transformation that makes a batch's columns makes tables as well: atoms of nested tuples are columns, and every list
is a table of its own. A message type compiles to one list of tuples for each node type and one list of positions for
each reference, so it becomes one table for each node type and one for each reference::

    quote: [symbol: string, legs: *([price: double, tags: *(string)*])*]      mt7_0        mid, symbol
                                                                              mt7_1_legs   mid, pos, owner, price
                                                                              mt7_2_tags   mid, pos, owner, (element)

    NODE order; id: IDENT; lines: REFERENCE TO line; END;                     mt8_1_order  mid, pos, id
    NODE line; amount: INTEGER; END;                                          mt8_2_lines  mid, pos, owner, target
                                                                              mt8_3_line   mid, pos, amount

`mid` is the number M of the message ID S/T/M, unique in the store. `pos` counts the elements of one list of a message,
over all owners, from 0 on; `owner` is the `pos` of the element that the list belongs to, 0 at the top. Elements of an
owner are consecutive, so `pos` also has their order. `target` is the `pos` of a node. The root node has `pos` 0.

Names contain only numbers and safe letters, so that no name from outside gets into SQL unchanged. The part of a field's
name in them is only for people who look into the database.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from milepost.errors import SchemaError
from milepost.schema.messagetype import Reference
from milepost.schema.types import Atom, List, Optional, Ref, Schema, Tuple, Type

NAME_CHARS: Final = 24  # of a field's name in a name: with its prefix well below PostgreSQL's limit of 63
COLUMNS_MOST: Final = 1_500  # of one table: PostgreSQL's limit is 1,600, SQLite's 2,000
TABLES_MOST: Final = 250  # of one type: each takes some five milliseconds to make, and blocks other writes
NARROW_DIGITS: Final = 18  # of a decimal that fits a signed 64-bit number of its units

# The types of values in each database. Dates are days and timestamps microseconds since 1970, UUIDs their 16 bytes; an
# unsigned 64-bit number is stored minus 2**63, which keeps its order. SQLite: a decimal of up to 18 digits is the
# number of its units, a longer one that number plus 10**38 in 39 digits of text, which keeps its order too; doubles
# have no declared type, because -0.0 would lose its sign, and NaN, for which SQLite has no number, is the text 'NaN'.
# PostgreSQL: decimals are numerics, with their places.
SQLITE: Final = {
    "bool": "INTEGER", "float": "", "double": "", "string": "TEXT", "bytes": "BLOB", "uuid": "BLOB",
}  # fmt: skip
POSTGRESQL: Final = {
    "bool": "BOOLEAN", "float": "DOUBLE PRECISION", "double": "DOUBLE PRECISION",
    "string": 'TEXT COLLATE "C"', "bytes": "BYTEA", "uuid": "BYTEA", "date": "INTEGER",
    "int8": "SMALLINT", "uint8": "SMALLINT", "int16": "SMALLINT", "uint16": "INTEGER", "int": "INTEGER",
}  # fmt: skip


@dataclass(frozen=True)
class SqlColumn:
    """A column: the value at a path from the table's element, or whether the tuple or list there is present."""

    name: str  # in SQL
    path: tuple[str, ...]  # () for the element itself
    type: Atom | None  # None: whether the optional tuple or list at the path is present; a boolean, never null
    optional: bool = False  # the value, or a tuple around it, may be absent: then it is null

    def declared(self, dialect: str) -> str:
        """The column in CREATE TABLE."""
        return f"{self.name} {sql_type(self.type, dialect)}".rstrip()


@dataclass(frozen=True)
class SqlTable:
    """The elements of one list, or the messages themselves."""

    name: str  # in SQL
    path: tuple[str, ...]  # names from the message down to the list, () for the messages themselves
    columns: tuple[SqlColumn, ...]
    parent: SqlTable | None = None  # its `pos` is the `owner` here; None for a table with one row for each message
    target: str | None = None  # of a reference: the node type whose positions are in its only column
    optional: bool = False  # the list itself may be absent: the parent has a column for its presence

    @property
    def top(self) -> bool:
        """Whether there is one row for each message, by `mid` alone."""
        return not self.path

    @property
    def owned(self) -> bool:
        """Whether there is a column `owner`: not for lists of the message itself."""
        return self.parent is not None and bool(self.parent.path)

    @property
    def keys(self) -> tuple[str, ...]:
        """The key columns, which come before the content."""
        return ("mid",) if self.top else ("mid", "pos", "owner") if self.owned else ("mid", "pos")

    @cached_property
    def by_path(self) -> dict[tuple[str, ...], SqlColumn]:
        """Columns with values, by path."""
        return {column.path: column for column in self.columns if column.type is not None}

    @cached_property
    def presence(self) -> dict[tuple[str, ...], SqlColumn]:
        """Columns for the presence of a tuple or list, by path."""
        return {column.path: column for column in self.columns if column.type is None}

    def create(self, dialect: str) -> str:
        """The CREATE TABLE statement."""
        wide = "INTEGER" if dialect == "sqlite" else "BIGINT"
        keys = [f"{key} {wide if key == 'mid' else 'INTEGER'} NOT NULL" for key in self.keys]
        parts = [*keys, *(column.declared(dialect) for column in self.columns)]
        parts.append("PRIMARY KEY (mid)" if self.top else "PRIMARY KEY (mid, pos)")
        return f"CREATE TABLE {self.name} ({', '.join(parts)}){' WITHOUT ROWID' if dialect == 'sqlite' else ''}"


@dataclass(frozen=True)
class Tables:
    """The tables of a schema, in the order of the schema; a parent comes before its children."""

    schema: Schema
    number: int  # of the type in the store: the prefix of all names
    all: tuple[SqlTable, ...] = field(init=False)

    def __post_init__(self) -> None:
        found: list[SqlTable] = []
        _Maker(self.schema, self.number, found).message()
        object.__setattr__(self, "all", tuple(found))

    @cached_property
    def by_path(self) -> dict[tuple[str, ...], SqlTable]:
        """Tables by path."""
        return {table.path: table for table in self.all}

    @property
    def top(self) -> SqlTable | None:
        """The table of the messages themselves; a message type has none."""
        return self.by_path.get(())

    @cached_property
    def root(self) -> SqlTable:
        """The table with the root of each message: the messages themselves, or the root node (`pos` 0)."""
        message_type = self.schema.message_type
        return self.by_path[() if message_type is None else (message_type.root,)]

    @cached_property
    def indexes(self) -> tuple[tuple[SqlTable, SqlColumn], ...]:
        """The columns that have an index, by the type's definition."""
        return tuple(self._indexed(path) for path in self.schema.indexes)

    def _indexed(self, path: str) -> tuple[SqlTable, SqlColumn]:
        names = tuple(path.split("."))
        for cut in range(len(names), -1, -1):
            table = self.by_path.get(names[:cut])
            column = table.by_path.get(names[cut:]) if table is not None else None
            if table is not None and column is not None:
                return table, column
        raise SchemaError(f"{self.schema.name}: an index on {path}, which is no attribute with a value")

    def create(self, dialect: str) -> list[str]:
        """The statements that create the tables and the indexes."""
        return [
            *(table.create(dialect) for table in self.all),
            *(
                f"CREATE INDEX {table.name}_{column.name} ON {table.name} ({column.name}, mid)"
                for table, column in dict.fromkeys(self.indexes)
            ),
        ]

    def drop(self) -> list[str]:
        """The statements that drop the tables."""
        return [f"DROP TABLE {table.name}" for table in self.all]


class _Maker:
    def __init__(self, schema: Schema, number: int, found: list[SqlTable]) -> None:
        self._schema = schema
        self._number = number
        self._found = found

    def message(self) -> None:
        kind = self._bare(self._schema.type)
        if not isinstance(kind, Tuple):
            raise SchemaError(f"{self._schema.name}: a queue holds tuples and message types, not {kind}")
        if self._schema.message_type is None:
            self._table((), kind, None, None, False)
        else:
            for item in kind.fields:
                assert isinstance(item.type, List)
                self._table((item.name,), item.type.item, None, None, False)

    def _table(
        self, path: tuple[str, ...], kind: Type, parent: SqlTable | None, target: str | None, optional: bool
    ) -> None:
        columns: list[SqlColumn] = []
        below: list[tuple[tuple[str, ...], List, bool]] = []
        self._columns((), kind, False, columns, below, path)
        if len(columns) > COLUMNS_MOST or len(self._found) >= TABLES_MOST:
            raise SchemaError(
                f"{self._schema.name}: a queue holds types with up to {COLUMNS_MOST} attributes in one node, and up to "
                f"{TABLES_MOST} node types, references and lists; split it"
            )
        name = f"mt{self._number}_{len(self._found)}{''.join('_' + _plain(word) for word in path[-1:])}"
        table = SqlTable(name, path, tuple(columns), parent, target, optional)
        self._found.append(table)
        for inner, item, missing in below:
            self._table((*path, *inner), item.item, table, self._target(path, inner), missing)

    def _columns(
        self,
        path: tuple[str, ...],
        kind: Type,
        optional: bool,
        columns: list[SqlColumn],
        below: list[tuple[tuple[str, ...], List, bool]],
        at: tuple[str, ...],
    ) -> None:
        bare = self._bare(kind)
        missing = isinstance(bare, Optional)
        if isinstance(bare, Optional):
            bare = self._bare(bare.type)
        name = f"c{len(columns)}{''.join('_' + _plain(word) for word in path[-1:])}"
        if isinstance(bare, Atom):
            columns.append(SqlColumn(name, path, bare, optional or missing))
        elif isinstance(bare, Tuple):
            if missing:
                columns.append(SqlColumn(name, path, None))
            for item in bare.fields:
                self._columns((*path, item.name), item.type, optional or missing, columns, below, at)
        elif isinstance(bare, List):
            if not path:
                raise SchemaError(f"{self._schema.name}: {'.'.join(at)} is a list of lists; put a tuple between them")
            if missing:
                columns.append(SqlColumn(name, path, None))
            below.append((path, bare, missing))
        else:
            where = ".".join((*at, *path)) or self._schema.name
            raise SchemaError(
                f"{self._schema.name}: a queue cannot hold {where}, of type {bare}: its tables take atoms, tuples and "
                "lists; a message type (DEFINE MESSAGETYPE) takes references as well"
            )

    def _bare(self, kind: Type) -> Type:
        while isinstance(kind, Ref):
            if kind.name in self._schema.recursive:
                raise SchemaError(
                    f"{self._schema.name}: a queue cannot hold {kind.name}, which contains itself; make it a node of "
                    "a message type (DEFINE MESSAGETYPE), which may refer to itself"
                )
            kind = self._schema.resolve(kind)
        return kind

    def _target(self, path: tuple[str, ...], inner: tuple[str, ...]) -> str | None:
        message_type = self._schema.message_type
        if message_type is None:
            return None
        member = message_type.node(path[0]).member(inner[0])
        assert isinstance(member, Reference)
        return member.target


def sql_type(kind: Atom | None, dialect: str) -> str:
    """The declared type of a column; None is the kind of a presence column."""
    name = "bool" if kind is None else kind.kind
    if dialect == "sqlite":
        if kind is not None and name == "decimal":
            return "INTEGER" if kind.precision <= NARROW_DIGITS else "TEXT"
        return SQLITE.get(name, "INTEGER")
    if kind is not None and name == "decimal":
        return f"NUMERIC({kind.precision}, {kind.scale})"
    return POSTGRESQL.get(name, "BIGINT")


def _plain(word: str) -> str:
    return re.sub(r"[^a-z0-9_]", "_", word.lower())[:NAME_CHARS]
