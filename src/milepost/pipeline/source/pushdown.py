"""Translates those filters of Spark to predicates of the query language that have exactly the same meaning.

NaN is the difference: Spark treats it as greater than every number, the query language as missing. For doubles only
filters are taken that are false for NaN in both. The other filters stay with Spark.
"""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from math import isnan
from typing import Any, Final
from uuid import UUID

from pyspark.sql import datasource as spark

from milepost import query
from milepost.errors import MilepostError
from milepost.query.printer import literal, name
from milepost.query.spark import case_field
from milepost.schema import Schema
from milepost.schema.types import INTEGER_RANGES, Atom, Optional, Ref, Tuple, Type, Variant

_ORDER: Final[dict[type, str]] = {
    spark.GreaterThan: ">",
    spark.GreaterThanOrEqual: ">=",
    spark.LessThan: "<",
    spark.LessThanOrEqual: "<=",
}
_TEXT: Final[dict[type, str]] = {
    spark.StringStartsWith: "starts_with",
    spark.StringEndsWith: "ends_with",
    spark.StringContains: "contains",
}
_FLOATS: Final = ("float", "double")


def predicate(each: spark.Filter, schema: Schema) -> str | None:
    """A filter as text; None when no predicate has the same meaning for every row."""
    negated = isinstance(each, spark.Not)
    inner: Any = each.child if isinstance(each, spark.Not) else each
    found = _column(schema, inner.attribute)
    if found is None:
        return None
    text = _positive(inner, *found, negated)
    if text is None:
        return None
    try:
        query.compile(text, schema)
    except MilepostError:
        return None  # the types do not compare here
    return text


def _positive(each: Any, column: str, kind: Type, negated: bool) -> str | None:
    floats = isinstance(kind, Atom) and kind.kind in _FLOATS
    if isinstance(each, spark.EqualNullSafe) and each.value is not None:
        value = _literal(each.value, kind)
        # Certainly equal or not: a missing value and NaN, which equals no number, count as not equal.
        return None if value is None else f"({column} = {value}) is {'not ' if negated else ''}true"
    if isinstance(each, spark.IsNull | spark.IsNotNull | spark.EqualNullSafe):
        if floats:
            return None
        there = isinstance(each, spark.IsNotNull) is not negated
        return f"{column} is {'not ' if there else ''}null"
    if floats and negated:
        return None
    text = _comparison(each, column, kind, floats)
    return f"not ({text})" if text is not None and negated else text


def _comparison(each: Any, column: str, kind: Type, floats: bool) -> str | None:
    if isinstance(each, spark.In):
        values = [_literal(value, kind) for value in each.value]
        return None if not values or None in values else f"{column} in ({', '.join(filter(None, values))})"
    if isinstance(each, spark.EqualTo):
        value = _literal(each.value, kind)
        return None if value is None else f"{column} = {value}"
    if type(each) in _TEXT:
        if kind != Atom("string") or not isinstance(each.value, str):
            return None
        return f"{_TEXT[type(each)]}({column}, {literal('string', each.value)})"
    operator = _ORDER.get(type(each))
    if operator is None or kind == Atom("uuid") or (floats and operator.startswith(">")):
        return None
    value = _literal(each.value, kind)
    return None if value is None else f"{column} {operator} {value}"


def _column(schema: Schema, path: tuple[str, ...]) -> tuple[str, Type] | None:
    """A column of Spark as a path, and its type; None when it is not a field."""
    kind: Type = schema.type
    text = ""
    for step in path:
        kind = _bare(schema, kind)
        if isinstance(kind, Variant) and step == case_field(kind):
            return (f"case({text})", Atom("string")) if step is path[-1] else None
        fields = kind.fields if isinstance(kind, Tuple) else kind.cases if isinstance(kind, Variant) else ()
        found = next((item.type for item in fields if item.name == step), None)
        if found is None:
            return None
        kind = found
        text = f"{text}.{step}" if text else name(step)
    return text, _bare(schema, kind)


def _bare(schema: Schema, kind: Type) -> Type:
    while isinstance(kind, Optional | Ref):
        if isinstance(kind, Ref) and kind.name in schema.recursive:
            return kind
        kind = schema.resolve(kind) if isinstance(kind, Ref) else kind.type
    return kind


def _literal(value: Any, kind: Type) -> str | None:
    """A value of Spark as a literal that compares in the same way; None when there is none."""
    if not isinstance(kind, Atom):
        return None
    match kind.kind, value:
        case "bool", bool():
            return literal("bool", value)
        case "string", str():
            return literal("string", value)
        case "uuid", str():
            return _uuid(value)
        case "bytes", bytes() | bytearray():
            return literal("bytes", bytes(value))
        case "timestamp", datetime() if value.tzinfo is not None:
            return literal("timestamp", value)
        case "date", date() if not isinstance(value, datetime):
            return literal("date", value)
        case (("float" | "double"), float()) if not isnan(value) and abs(value) != float("inf"):
            return literal("double", value)
        case "decimal", Decimal() if value.is_finite():
            return literal("decimal", value)
        case other, Decimal() if other in INTEGER_RANGES and value.is_finite() and value == value.to_integral_value():
            return str(int(value))
        case other, int() if other in INTEGER_RANGES and not isinstance(value, bool):
            return str(value)
    return None


def _uuid(text: str) -> str | None:
    """Only canonical text equals the text that Spark has in the column."""
    try:
        made = UUID(text)
    except ValueError:
        return None
    return literal("uuid", made) if str(made) == text else None
