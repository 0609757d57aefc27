"""Tables for enrich steps: read once, whole, before Spark starts, so that problems are reported early.

They are read here and not by Spark because the driver has the files and databases, and executors may not; and because a
join that must not change the number of events has to know that keys are unique.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from milepost.batch.arrow import arrow_schema
from milepost.batch.inference import schema_of
from milepost.errors import ConfigError, MilepostError, SchemaError, did_you_mean
from milepost.extras import extra, require
from milepost.pipeline.definition.step import Enrich
from milepost.query import kinds, parse_schema, subnet
from milepost.query.kinds import Scalar
from milepost.query.location import described
from milepost.query.subnet import Network
from milepost.schema import types as t
from milepost.schema.types import Atom, Optional, Schema

ROWS: Final = 5_000_000  # of one table: every executor holds it whole, and receives it with each micro-batch
SHOWN: Final = 5  # most keys that an error names

_KEYS: Final[Mapping[str, pa.DataType]] = {
    "string": pa.string(), "integer": pa.int64(), "ident": pa.int64(), "date": pa.date32(), "uuid": pa.string(),
}  # fmt: skip


@dataclass(frozen=True)
class Lookup:
    """A table as tier 1 needs it: unique keys, and the values to add."""

    source: str  # for errors: the file, or the database without its password
    name: str  # for rejects, which must not depend on the machine: the file or table without its folder
    keys: pa.Array | None  # of the type of the events' field; None when rows are found by subnet
    networks: tuple[Network, ...] | None
    values: pa.Table  # one column for each added field
    types: Mapping[str, Atom]  # of the fields

    @property
    def rows(self) -> int:
        """The number of rows that can be found."""
        return int(self.values.num_rows)


def load(step: Enrich, by: Scalar) -> Lookup:
    """Read a step's table. `by` is the kind of the events' field. Raises `ConfigError`."""
    source = step.table if step.url is None else _without_password(step.url)
    assert source is not None
    name = Path(step.table).name if step.table is not None else "the query"
    if step.subnet is not None and by != kinds.STRING:
        raise ConfigError(f"an address must be a string, and {step.by} is {described(by)}")
    if step.subnet is None and by.name not in _KEYS:
        raise ConfigError(f"{step.by} is {described(by)}, which cannot be a key; keys are {', '.join(_KEYS)}")
    declared = None if step.schema is None else _declared(step.schema)
    key = pa.string() if step.subnet is not None else _KEYS[by.name]
    table = _read(step, source, key, declared)
    for column in (step.column, *step.take.values()):
        if column not in table.column_names:
            near = did_you_mean(column, table.column_names) or f"; there are {', '.join(table.column_names)}"
            raise ConfigError(f"{source} has no column {column!r}{near}")
    if table.num_rows > ROWS:
        raise ConfigError(f"{source} has {table.num_rows:,} rows, and a table for enrich has at most {ROWS:,}")
    keys = _as(table.column(step.column), key, source, step.column)
    there = keys.is_valid()
    table, keys = table.filter(there), keys.filter(there)  # a row without a key cannot be found
    types = {field: _type(table.column(column), source, column, declared) for field, column in step.take.items()}
    values = pa.table(
        {field: _as(table.column(column), _arrow(types[field]), source, column) for field, column in step.take.items()}
    )
    if step.subnet is not None:
        networks = _networks(keys, source, step.column)
        return Lookup(source, name, None, networks, values, types)
    if by == kinds.UUID:
        keys = _uuids(keys, source, step.column)
    _require_unique(keys, source, step.column)
    return Lookup(source, name, keys.combine_chunks(), None, values, types)


# Reading


def _read(step: Enrich, source: str, key: pa.DataType, declared: Schema | None) -> pa.Table:
    try:
        match step.source_format:
            case "parquet":
                from pyarrow import parquet

                assert step.table is not None
                return parquet.read_table(_file(step.table))
            case "csv":
                assert step.table is not None
                return _csv(_file(step.table), {step.column: key} | _arrow_types(declared))
            case _:
                return _sql(step, source)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {source}: {error}") from None


def _file(path: str) -> str:
    if not Path(path).is_file():
        raise ConfigError(
            f"there is no file {path}; relative names are resolved against the folder of the pipeline's file"
        )
    return path


def _csv(path: str, types: Mapping[str, pa.DataType]) -> pa.Table:
    from pyarrow import csv

    # Only an empty cell is null: NA is a country, and null may be a host.
    options = csv.ConvertOptions(
        column_types=dict(types), null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
    )
    return csv.read_csv(path, convert_options=options)


def _sql(step: Enrich, source: str) -> pa.Table:
    with extra("tables in databases need", "spark"):
        from sqlalchemy import MetaData, Table, create_engine, select, text
        from sqlalchemy.exc import SQLAlchemyError
    assert step.url is not None
    if step.url.startswith("postgresql://"):
        require("tables in PostgreSQL need", "server", "psycopg")
    try:
        engine = create_engine(step.url.replace("postgresql://", "postgresql+psycopg://", 1))
        try:
            with engine.connect() as connection:
                if step.query is not None:
                    found = connection.execute(text(step.query))
                else:
                    assert step.table is not None
                    schema, _, name = step.table.rpartition(".")
                    table = Table(name, MetaData(), schema=schema or None, autoload_with=connection)
                    found = connection.execute(select(table))
                names, rows = list(found.keys()), found.fetchmany(ROWS + 1)
        finally:
            engine.dispose()
    except (SQLAlchemyError, ImportError) as error:
        said = str(getattr(error, "orig", None) or error).splitlines() or [type(error).__name__]
        raise ConfigError(f"cannot read {source}: {said[0]}") from None
    return pa.table({name: [row[number] for row in rows] for number, name in enumerate(names)})


def _without_password(url: str) -> str:
    head, at, tail = url.rpartition("@")
    scheme, _, user = head.partition("://")
    return f"{scheme}://{user.partition(':')[0]}@{tail}" if at else url


# Types


def _declared(text: str) -> Schema:
    try:
        return parse_schema(text)
    except MilepostError as error:
        raise ConfigError(f"schema: {error}") from None


def _arrow_types(declared: Schema | None) -> dict[str, pa.DataType]:
    return {} if declared is None else {field.name: field.type for field in arrow_schema(declared)}


def _arrow(kind: Atom) -> pa.DataType:
    return arrow_schema(Schema("value", t.Tuple((t.Field("it", Optional(kind)),)))).field(0).type


def _type(column: pa.ChunkedArray, source: str, name: str, declared: Schema | None) -> Atom:
    """The type of a column's values as a field of events."""
    try:
        schema = schema_of(pa.schema([pa.field("it", column.type)])) if declared is None else declared
    except SchemaError as error:
        raise ConfigError(f"{source}, column {name!r}: {error}; give its type with schema =") from None
    wanted = "it" if declared is None else name
    assert isinstance(schema.type, t.Tuple)
    found = next((item.type for item in schema.type.fields if item.name == wanted), None)
    if found is None:
        raise ConfigError(f"schema: it has no {name!r}, which 'take' names")
    inner = found.type if isinstance(found, Optional) else found
    if not isinstance(inner, Atom):
        raise ConfigError(f"{source}, column {name!r}: only single values can be taken, and this is {inner}")
    return inner


def _as(column: pa.ChunkedArray, kind: pa.DataType, source: str, name: str) -> pa.ChunkedArray:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if column.type == kind:
        return column
    try:
        if pa.types.is_timestamp(column.type) and column.type.tz is None and pa.types.is_timestamp(kind):
            column = column.cast(pa.timestamp(column.type.unit, "UTC"))  # without a zone: taken as UTC
        return column.cast(kind)
    except pa.ArrowException as error:
        raise ConfigError(f"{source}, column {name!r}: {column.type} cannot be read as {kind}: {error}") from None


# Keys


def _require_unique(keys: pa.ChunkedArray, source: str, name: str) -> None:
    counts = pc.value_counts(keys)
    twice = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")
    if len(twice):
        shown = ", ".join(str(value) for value in twice.slice(0, SHOWN).to_pylist())
        more = f" and {len(twice) - SHOWN:,} more" if len(twice) > SHOWN else ""
        raise ConfigError(
            f"{source} has {'a key' if len(twice) == 1 else f'{len(twice):,} keys'} more than once in {name!r}: "
            f"{shown}{more}; each such event would be duplicated"
        )


def _uuids(keys: pa.ChunkedArray, source: str, name: str) -> pa.ChunkedArray:
    try:
        return pa.chunked_array([pa.array([str(uuid.UUID(text)) for text in keys.to_pylist()], pa.string())])
    except ValueError as error:
        raise ConfigError(f"{source}, column {name!r}: {error}") from None


def _networks(keys: pa.ChunkedArray, source: str, name: str) -> tuple[Network, ...]:
    wrong: list[str] = []
    found: list[Network] = []
    for text in keys.to_pylist():
        try:
            found.append(subnet.network(text))
        except ValueError as error:
            wrong.append(str(error))
    if wrong:
        more = f"; and {len(wrong) - 1:,} more" if len(wrong) > 1 else ""
        raise ConfigError(f"{source}, column {name!r}: {wrong[0]}{more}")
    if len(set(found)) < len(found):
        _require_unique(pa.chunked_array([pa.array(map(str, found), pa.string())]), source, name)
    return tuple(found)
