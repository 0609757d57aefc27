"""Schemas as Spark types, and the Spark types of expressions.

::

    bool            BooleanType             float           FloatType            date         DateType
    int8            ByteType                double          DoubleType           timestamp    TimestampType
    int16, uint8    ShortType               decimal(p,s)    DecimalType(p,s)     uuid         StringType, canonical text
    int, uint16     IntegerType             string          StringType           dynamic      StringType, JSON text
    long, uint32    LongType                bytes           BinaryType           T?           T
    uint64          DecimalType(20,0)       ident           LongType             *(T)*        ArrayType(T)

    [a: T, …]             StructType: a T, …
    {a: T | b: [] | …}    StructType: case StringType, a T, …      no field for a case that carries nothing

Every field is nullable: Spark trusts a type that is not nullable without a check, and outer joins make nulls anyway. A
recursive reference is stored as a dynamic value, so it is JSON text here; Spark has no recursive types.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import types as s

from milepost.query.kinds import Scalar
from milepost.schema.types import Atom, Dynamic, Field, List, Optional, Ref, Schema, Tuple, Type, Variant

CASE: Final = "case"  # the field of a variant that holds the name of the case
UINT64_DIGITS: Final = 20

_OF_ATOM: Final[Mapping[str, s.DataType]] = {
    "bool": s.BooleanType(),
    "int8": s.ByteType(),
    "int16": s.ShortType(),
    "int": s.IntegerType(),
    "long": s.LongType(),
    "uint8": s.ShortType(),
    "uint16": s.IntegerType(),
    "uint32": s.LongType(),
    "uint64": s.DecimalType(UINT64_DIGITS, 0),
    "float": s.FloatType(),
    "double": s.DoubleType(),
    "string": s.StringType(),
    "bytes": s.BinaryType(),
    "date": s.DateType(),
    "timestamp": s.TimestampType(),
    "uuid": s.StringType(),
    "ident": s.LongType(),
}
# The other kinds have the names of atoms.
_OF_KIND: Final = {**_OF_ATOM, "boolean": s.BooleanType(), "integer": s.LongType()}


def struct_type(schema: Schema) -> s.StructType:
    """The row type of a DataFrame with messages of a schema; for a message type, one array for each node type."""
    found = field_type(schema.type, schema)
    assert isinstance(found, s.StructType)
    return found


def field_type(kind: Type, schema: Schema) -> s.DataType:
    """The Spark type of a type inside a schema."""
    match kind:
        case Atom("decimal", precision, scale):
            return s.DecimalType(precision, scale)
        case Atom(name):
            return _OF_ATOM[name]
        case Dynamic():
            return s.StringType()
        case Ref(name):
            return s.StringType() if name in schema.recursive else field_type(schema.resolve(kind), schema)
        case Optional(inner):
            return field_type(inner, schema)
        case List(item):
            return s.ArrayType(field_type(item, schema), True)
        case Tuple(fields):
            return s.StructType([s.StructField(item.name, field_type(item.type, schema), True) for item in fields])
        case Variant(cases):
            carrying = [item for item in cases if carries(item, schema)]
            return s.StructType(
                [
                    s.StructField(case_field(kind), s.StringType(), True),
                    *(s.StructField(item.name, field_type(item.type, schema), True) for item in carrying),
                ]
            )


def case_field(variant: Variant) -> str:
    """The field that holds the name of a variant's case: `case`, with as many `_` as needed to be unique.

    Names that differ only in case count as equal, as they do for Spark by default.
    """
    taken = {item.name.lower() for item in variant.cases}
    name = CASE
    while name in taken:
        name += "_"
    return name


def carries(case: Field, schema: Schema) -> bool:
    """Whether a case of a variant holds a value, and so has a field of its own."""
    kind = case.type
    while isinstance(kind, Ref) and kind.name not in schema.recursive:
        kind = schema.resolve(kind)
    return kind != Tuple(())


def spark_type(kind: Scalar) -> s.DataType:
    """The Spark type of an expression of a kind.

    An integer is a long. But an expression that may have the value of a uint64 (the field itself, `coalesce`, `min` and
    `max` of it) is a DecimalType(20,0): `result_type` gives the type of an expression.
    """
    return s.DecimalType(kind.precision, kind.scale) if kind.name == "decimal" else _OF_KIND[kind.name]
