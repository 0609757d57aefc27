"""Converts between message schemas and Spark schemas.

`struct_type` of `milepost.query.spark` defines the Spark type of each message type. What Spark cannot express (a uint32
is a long there, a uuid a string, a variant a struct) is kept as text in the metadata of a column, which Spark passes
on. So a topic that is made from such a column gets the original type.
"""

from __future__ import annotations

from typing import Any, Final

from pyspark.sql import types as spark

from milepost.errors import ConfigError, SchemaError
from milepost.query.spark import struct_type
from milepost.schema import Schema
from milepost.schema import text as notation
from milepost.schema import types as message
from milepost.schema.types import Atom, Dynamic, Field, List, Optional, Ref, Tuple, Type, Variant

TYPE_KEY: Final = "milepost"  # in the metadata of a column: the text of its message type

METADATA: Final = spark.StructType(
    [
        spark.StructField("_id", spark.StringType()),  # the message ID, 32 hexadecimal digits
        spark.StructField("_log", spark.LongType()),
        spark.StructField("_offset", spark.LongType()),
        spark.StructField("_time", spark.TimestampType()),  # when the publisher put it, by the publisher's clock
        spark.StructField("_publisher", spark.LongType()),
    ]
)


def spark_schema(schema: Schema, *, metadata: bool = False) -> spark.StructType:
    """The columns that a source gives to Spark; with `metadata`, also the publisher, time and place of each message."""
    made = struct_type(schema)
    kinds = dict(_fields(schema))
    columns = spark.StructType([_column(schema, each, kinds.get(each.name)) for each in made.fields])
    return with_metadata(columns, METADATA, schema.name) if metadata else columns


def with_metadata(columns: spark.StructType, metadata: spark.StructType, name: str) -> spark.StructType:
    """The columns of messages, and of metadata. `name` is the name of the message type in errors."""
    for each in metadata.names:
        if each in columns.names:
            raise ConfigError(f"option 'includeMetadata': the messages of {name} already have a field {each!r}")
    return spark.StructType([*columns.fields, *metadata.fields])


def _fields(schema: Schema) -> list[tuple[str, Type]]:
    assert isinstance(schema.type, Tuple)
    return [(item.name, item.type) for item in schema.type.fields]


def _column(schema: Schema, field: spark.StructField, kind: Type | None) -> spark.StructField:
    data = field.dataType
    noted = dict(field.metadata or {})
    whole = None if kind is None else _whole(schema, kind.type if isinstance(kind, Optional) else kind)
    if whole is not None and whole != _kind(data, field.name):
        noted[TYPE_KEY] = str(whole)
    return spark.StructField(field.name, data, True, noted or None)


def nullable(kind: Any) -> Any:
    """The same type, with all its parts nullable."""
    match kind:
        case spark.StructType():
            return spark.StructType(
                [spark.StructField(each.name, nullable(each.dataType), True, each.metadata) for each in kind.fields]
            )
        case spark.ArrayType():
            return spark.ArrayType(nullable(kind.elementType), True)
    return kind


def _whole(schema: Schema, kind: Type) -> Type | None:
    """A type with its references resolved; None when one is recursive."""
    match kind:
        case Ref(name):
            return None if name in schema.recursive else _whole(schema, schema.resolve(kind))
        case Optional(inner):
            made = _whole(schema, inner)
            return made if made is None or isinstance(made, Optional) else Optional(made)
        case List(item):
            made = _whole(schema, item)
            return None if made is None else List(made)
        case Tuple(fields) | Variant(fields):
            parts = [(item.name, _whole(schema, item.type)) for item in fields]
            if any(part is None for _, part in parts):
                return None
            return type(kind)(tuple(Field(name, part) for name, part in parts if part is not None))
    return kind


# From Spark to Milepost


def schema_of(struct: spark.StructType, name: str) -> Schema:
    """A message schema for the rows of a DataFrame, for a new topic. `SchemaError` names the column.

    Nullable columns become optional fields.
    """
    return Schema(name, _tuple(struct, ""))


def _tuple(struct: spark.StructType, path: str) -> Tuple:
    fields = []
    for each in struct.fields:
        inside = f"{path}.{each.name}" if path else each.name
        if not message.FIELD_NAME.match(each.name):
            raise SchemaError(
                f"column {inside!r} is not a valid field name: use letters, digits and _; rename it with alias()"
            )
        noted = (each.metadata or {}).get(TYPE_KEY)
        kind = _kind(each.dataType, inside) if noted is None else _noted(noted, each.dataType, inside)
        fields.append(Field(each.name, _optional(kind) if each.nullable else kind))
    return Tuple(tuple(fields))


def _noted(text: str, data: Any, path: str) -> Type:
    """The type in a column's metadata, if it still matches the values: a cast may have kept the metadata."""
    schema = notation.parse(f"noted: [it: {text}]")
    made = struct_type(schema).fields[0].dataType
    if made != nullable(data):
        return _kind(data, path)
    return dict(_fields(schema))["it"]


def _optional(kind: Type) -> Type:
    return kind if isinstance(kind, Optional) else Optional(kind)


def _kind(data: Any, path: str) -> Type:
    match data:
        case spark.StructType():
            return _tuple(data, path)
        case spark.ArrayType():
            item = _kind(data.elementType, f"{path}[]")
            return List(_optional(item) if data.containsNull else item)
        case spark.DecimalType():
            return message.decimal(data.precision, data.scale)
        case spark.StringType():  # of any collation, char or varchar
            return message.STRING
    found = _ATOMS.get(type(data))
    if found is None:
        raise SchemaError(
            f"column {path!r} is a {data.simpleString()}, which messages do not support; "
            "cast it, or turn it into structs and arrays"
        )
    return found


_ATOMS: Final[dict[type, Atom | Dynamic]] = {
    spark.BooleanType: message.BOOL,
    spark.ByteType: message.INT8,
    spark.ShortType: message.INT16,
    spark.IntegerType: message.INT32,
    spark.LongType: message.INT64,
    spark.FloatType: message.FLOAT,
    spark.DoubleType: message.DOUBLE,
    spark.BinaryType: message.BYTES,
    spark.DateType: message.DATE,
    spark.TimestampType: message.TIMESTAMP,
    spark.TimestampNTZType: message.TIMESTAMP,  # wall time without a zone is taken as UTC
}
