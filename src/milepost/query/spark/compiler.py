"""The typed AST as columns: one walk, from the inside out."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql import types as s

from milepost.errors import QueryError
from milepost.query import ast, typed
from milepost.query.expression import Expression, expression
from milepost.query.expression import compile as predicate
from milepost.query.kinds import Scalar
from milepost.query.parser import parse
from milepost.query.selection import CompiledQuery
from milepost.query.spark.aggregates import fold
from milepost.query.spark.arithmetic import WIDE, calculation, converted, negation
from milepost.query.spark.comparison import comparison
from milepost.query.spark.functions import call
from milepost.query.spark.paths import Variables
from milepost.query.spark.pattern import like
from milepost.query.spark.route import Route, digits, require
from milepost.query.spark.types import UINT64_DIGITS, spark_type
from milepost.query.spark.value import BOOLEAN, DOUBLE, Value, constant, every, some
from milepost.query.typed import Typed, scalar
from milepost.schema.types import Schema


def column(
    query: Expression | CompiledQuery | str, schema: Schema | None = None, *, under: str | None = None
) -> Column:
    """An expression or a predicate as a column of DataFrames whose rows are `struct_type(schema)`.

    A text needs its schema. With `under`, the message is the struct column of that name, not the row; where the column
    is null, every field is. Needs a running Spark. Raises `QueryTypeError` for a query that Spark cannot express, and
    the errors of `query.expression`. Evaluating the column raises nothing, whatever the data and the settings.
    """
    meant = check(query, schema, under=under)
    return _compiled(meant.root, Variables(Route(meant.schema), under, {})).to(result_type(meant))


def check(
    query: Expression | CompiledQuery | str, schema: Schema | None = None, *, under: str | None = None
) -> Expression:
    """The query, if `column` can take it; raises the errors of `column`. Needs no running Spark."""
    meant = _meant(query, schema)
    require(meant.text, meant.schema, meant.root, under)
    return meant


def result_type(query: Expression | CompiledQuery | str, schema: Schema | None = None) -> s.DataType:
    """The type of `column` for the same query. Needs no running Spark."""
    meant = _meant(query, schema)
    route = Route(meant.schema)
    if meant.type.name in ("integer", "ident") and digits(route, meant.root, route.start()) == UINT64_DIGITS:
        return WIDE
    return spark_type(meant.type)


def _meant(query: Expression | CompiledQuery | str, schema: Schema | None) -> Expression:
    if isinstance(query, str):
        if schema is None:
            raise QueryError(f"the text {query[:60]!r} needs a schema for its names: pass schema=")
        return predicate(query, schema) if isinstance(parse(query), ast.Select) else expression(query, schema)
    if schema is not None and schema.fingerprint != query.schema.fingerprint:
        raise QueryError(f"the query was compiled for {query.schema.name}, not for {schema.name}")
    return query.predicate if isinstance(query, CompiledQuery) else query


def _compiled(node: Typed, frame: Variables) -> Value:
    def part(child: Typed) -> Value:
        return _compiled(child, frame)

    match node:
        case typed.Const(value, kind):
            return constant(value, kind)
        case typed.ReadPath():
            return frame.read(node)
        case typed.CaseName(variant):
            return frame.case_name(variant)
        case typed.Negate(operand, kind):
            return negation(part(operand), kind)
        case typed.Convert(operand, kind):
            return converted(part(operand), kind)
        case typed.Arithmetic(operator, left, right, kind):
            return calculation(operator, part(left), part(right), kind)
        case typed.Call(name, arguments, kind):
            return call(name, arguments, tuple(map(part, arguments)), kind)
        case typed.Compare(operator, left, right):
            return comparison(operator, part(left), part(right), scalar(left), scalar(right))
        case typed.Between(operand):
            return part(operand).once(lambda value: _between(node, value, frame))
        case typed.In(operand):
            return _in(node, part(operand), frame)
        case typed.Like(operand, pattern):
            return like(part(operand), pattern)
        case typed.IsNull(typed.ReadPath(kind=kind) as read) if not isinstance(kind, Scalar):
            return Value(~frame.present(read).column, BOOLEAN)
        case typed.IsNull(operand):
            return Value(part(operand).column.isNull(), BOOLEAN)
        case typed.IsTrue(operand, wanted):
            truth = part(operand).column
            return Value(f.coalesce(truth if wanted else ~truth, f.lit(False)), BOOLEAN)
        case typed.Not(operand):
            return Value(~part(operand).column, BOOLEAN)
        case typed.And(terms):
            return Value(every([part(term).column for term in terms]), BOOLEAN)
        case typed.Or(terms):
            return Value(some([part(term).column for term in terms]), BOOLEAN)
        case typed.Fold():
            return fold(node, frame, _compiled)
    raise AssertionError(node)  # a header field: `require` has refused it


def _between(node: typed.Between, value: Value, frame: Variables) -> Value:
    kind = scalar(node.operand)
    above = comparison(">=", value, _compiled(node.low, frame), kind, scalar(node.low))
    below = comparison("<=", value, _compiled(node.high, frame), kind, scalar(node.high))
    return Value(above.column & below.column, BOOLEAN)


def _in(node: typed.In, value: Value, frame: Variables) -> Value:
    items = [_like(value, _compiled(item, frame)) for item in node.items]
    if all(item.type == value.type and item.leaf for item in items):
        return Value(value.column.isin(*(item.column for item in items)), BOOLEAN)
    kind = scalar(node.operand)

    def equal(operand: Value) -> Value:
        pairs = zip(items, node.items, strict=True)
        return Value(some([comparison("=", operand, item, kind, scalar(each)).column for item, each in pairs]), BOOLEAN)

    return value.once(equal)


def _like(value: Value, item: Value) -> Value:
    """A constant in the type of the other side, if that only has more digits: then Spark can use a set."""
    exact = isinstance(value.type, s.DecimalType) and item.type != DOUBLE and item.leaf
    if exact and item.scale == value.scale and item.precision <= value.precision:
        return Value(item.to(value.type), value.type, True)
    return item
