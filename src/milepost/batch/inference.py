"""The schema of data that has none yet: an Arrow schema, a frame, a dataclass, a few rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import is_dataclass
from typing import Any, Final

import pyarrow as pa
from pyarrow import types as kinds

from milepost.batch.arrow import ABSENT, KIND, SCHEMA, arrow_schema
from milepost.batch.batch import Batch
from milepost.batch.from_arrow import as_table
from milepost.errors import SchemaError
from milepost.schema import types as t
from milepost.schema.dataclass import from_dataclass
from milepost.schema.flat import field_of
from milepost.schema.text import parse


def schema_of(source: Any, name: str = "message") -> t.Schema:
    """The schema of a batch, or the one that fits a frame, an Arrow table or schema, a dataclass, or some rows.

    Arrow made by `Batch.to_arrow` carries its schema. For other tables and for rows, a field is optional when a value
    is missing; for an Arrow schema without data, when it is nullable.
    """
    if isinstance(source, Batch):
        return source.schema
    if isinstance(source, type) and is_dataclass(source):
        return from_dataclass(source)
    if isinstance(source, pa.Schema):
        return _schema(source, name, None)
    if hasattr(source, "__arrow_c_stream__"):
        table = as_table(source)
    elif hasattr(source, "__arrow_c_array__"):
        table = pa.table(pa.record_batch(source))
    elif isinstance(source, Mapping):
        table = pa.table(dict(source))
    else:
        return _of_rows(source, name)
    return _schema(table.schema, name, table.combine_chunks())


def _of_rows(source: Iterable[Any], name: str) -> t.Schema:
    rows = list(source)
    if not rows:
        raise SchemaError("no rows to take a schema from; give at least one, or an Arrow schema")
    if is_dataclass(rows[0]):
        return from_dataclass(type(rows[0]))
    try:
        names = list(dict.fromkeys(name for row in rows for name in row))
        table = pa.table({name: [field_of(row, name) for row in rows] for name in names})
    except (TypeError, ValueError, AttributeError, pa.ArrowException) as reason:
        raise SchemaError(f"the rows have no schema in common: {reason}") from None
    return _schema(table.schema, name, table)


def _schema(schema: pa.Schema, name: str, table: pa.Table | None) -> t.Schema:
    if schema.metadata and SCHEMA in schema.metadata:
        made = parse(schema.metadata[SCHEMA].decode())
        if arrow_schema(made).equals(schema):  # else the columns were changed since
            return made
    fields = []
    for number, field in enumerate(schema):
        data = None if table is None else list(table.column(number).chunks)
        fields.append(_field(field, data, field.name))
    return t.Schema(name, t.Tuple(tuple(fields)))


def _field(field: pa.Field, data: list[pa.Array] | None, path: str) -> t.Field:
    kind = _type(field, data, path)
    missing = field.nullable if data is None else any(chunk.null_count for chunk in data)
    optional = missing and field.nullable and not isinstance(kind, t.Optional)
    return t.Field(field.name, t.Optional(kind) if optional else kind)


def _type(field: pa.Field, data: list[pa.Array] | None, path: str) -> t.Type:
    kind = field.type
    if isinstance(kind, pa.BaseExtensionType):
        if kind.extension_name == "arrow.uuid":
            return t.UUID
        kind = kind.storage_type
    if kinds.is_dictionary(kind):
        kind = kind.value_type
    mark = (field.metadata or {}).get(KIND, b"").decode()
    if mark in ("uuid", "ident"):
        return t.ATOMS[mark]
    if mark:
        return t.DYNAMIC
    if kind.id in _ATOMS:
        return _ATOMS[kind.id]
    if kinds.is_decimal128(kind):
        return t.decimal(kind.precision, kind.scale)
    if kinds.is_timestamp(kind):
        return t.TIMESTAMP
    if kinds.is_struct(kind):
        return t.Tuple(tuple(_children(kind, data, path)))
    if kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind):
        inside = None if data is None else [chunk.flatten() for chunk in data]
        return t.List(_field(kind.value_field, inside, f"{path}[]").type)
    if kinds.is_union(kind):
        cases = [item for item in _children(kind, data, path) if item.name != ABSENT]
        made = t.Variant(tuple(cases))
        return t.Optional(made) if len(cases) < kind.num_fields else made
    hint = _HINTS.get(kind.id, "")
    raise SchemaError(f"{path}: no type of a message fits a column of {kind}; convert it first{hint}")


def _children(kind: pa.DataType, data: list[pa.Array] | None, path: str) -> Iterable[t.Field]:
    for number in range(kind.num_fields):
        field = kind.field(number)
        if field.name == ABSENT:
            yield t.Field(ABSENT, t.Tuple(()))
            continue
        inside = None if data is None else [_present(chunk, number) for chunk in data]
        yield _field(field, inside, f"{path}.{field.name}")


def _present(array: pa.Array, number: int) -> pa.Array:
    """A member of the structs that are present: the members of a null struct are null, whatever their type."""
    if isinstance(array, pa.StructArray) and array.null_count:
        array = array.drop_null()
    return array.field(number)


_ATOMS: Final[dict[int, t.Atom]] = {
    kind.id: atom
    for atom, of in {
        t.BOOL: [pa.bool_()],
        t.INT8: [pa.int8()], t.INT16: [pa.int16()], t.INT32: [pa.int32()], t.INT64: [pa.int64()],
        t.UINT8: [pa.uint8()], t.UINT16: [pa.uint16()], t.UINT32: [pa.uint32()], t.UINT64: [pa.uint64()],
        t.FLOAT: [pa.float16(), pa.float32()], t.DOUBLE: [pa.float64()],
        t.STRING: [pa.string(), pa.large_string(), pa.string_view()],
        t.BYTES: [pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(1)],
        t.DATE: [pa.date32(), pa.date64()],
    }.items()
    for kind in of
}  # fmt: skip
_HINTS: Final = {
    pa.null().id: "; it has no value that shows its type",
    pa.duration("us").id: " to a number of microseconds",
    pa.time64("us").id: " to a number of microseconds",
}
