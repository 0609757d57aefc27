"""The aggregates of a window, as `compute` writes them: one function over one expression."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from milepost.pipeline.definition.shape import of_kind, type_of
from milepost.query import ast, kinds
from milepost.query.checker import Checker
from milepost.query.expression import Expression
from milepost.query.location import described, shown, unknown
from milepost.query.parser import parse
from milepost.query.source import type_error
from milepost.schema import types as t
from milepost.schema.types import Optional, Schema, Type

# The arguments of each function: "any" value, a "number", or a number or time ("measure"); and its usage.
FUNCTIONS: Final[Mapping[str, str]] = {
    "count": "count() of all events, or count(x) of those in which x is not null",
    "sum": "sum(x) of a number",
    "min": "min(x)",
    "max": "max(x)",
    "avg": "avg(x) of a number, a double",
    "first": "first(x): of the earliest event in which x is not null",
    "last": "last(x): of the latest",
    "quantile": "quantile(x, 0.99) of a number, a double",
    "distinct": "distinct(x): how many different values",
}


@dataclass(frozen=True)
class WindowAggregate:
    """A checked aggregate. The argument is an expression over events; None counts events."""

    name: str
    function: str
    argument: Expression | None
    quantile: float | None
    type: Type


def read_aggregate(name: str, text: str, schema: Schema) -> WindowAggregate:
    """Parse an aggregate over events of a schema. Raises `QueryError` with the place."""
    tree = parse(text)
    if not isinstance(tree, ast.Call) or tree.name not in FUNCTIONS or isinstance(tree.arguments, ast.Select):
        what = f"there is no aggregate {tree.name!r}" if isinstance(tree, ast.Call) else "this is no aggregate"
        names = tree.name if isinstance(tree, ast.Call) and tree.name not in FUNCTIONS else ""
        hint = "; calculate with aggregates in 'having' and 'emit', by their names" if not names else ""
        raise type_error(unknown(names, FUNCTIONS, what) + hint, text, tree.at)
    function, arguments = tree.name, tree.arguments
    wanted = {"count": (0, 1), "quantile": (2,)}.get(function, (1,))
    if len(arguments) not in wanted:
        raise type_error(f"it is written {FUNCTIONS[function]}", text, tree.at)
    argument = _argument(text, arguments[0], schema) if arguments else None
    quantile = _quantile(text, arguments[1]) if function == "quantile" else None
    if argument is None:
        return WindowAggregate(name, function, None, None, t.INT64)
    if function in ("sum", "avg", "quantile") and not kinds.is_number(argument.type):
        raise type_error(
            f"{function} takes a number, and {shown(arguments[0])} is {described(argument.type)}", text, arguments[0].at
        )
    return WindowAggregate(name, function, argument, quantile, _result(function, argument))


def _argument(text: str, tree: ast.Expression, schema: Schema) -> Expression:
    checker = Checker(text, schema)  # not `expression` of its text: places in errors refer to the whole text
    root = checker.scalar(tree, checker.scope())
    if root.kind == kinds.NULL:
        raise type_error("null alone has no type", text, tree.at)
    return Expression(str(tree), schema, tree, root)


def _quantile(text: str, tree: ast.Expression) -> float:
    value = tree.value if isinstance(tree, ast.Literal) else None
    if not isinstance(value, Decimal | float | int) or isinstance(value, bool) or not 0 <= value <= 1:
        raise type_error("the quantile is a number from 0 to 1, as in quantile(x, 0.99)", text, tree.at)
    return float(value)


def _result(function: str, argument: Expression) -> Type:
    """The type of the result. It is optional except for counts: a window without any value has no result."""
    match function:
        case "count" | "distinct":
            return t.INT64
        case "avg" | "quantile":
            return Optional(t.DOUBLE)
        case "sum":
            kind = argument.type
            return Optional(t.decimal(38, kind.scale) if kind.name == "decimal" else of_kind(kind))
        case _:
            found = type_of(argument)
            return found if isinstance(found, Optional) else Optional(found)
