"""Aggregates: the kind of argument that each takes, and the kind of its value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from milepost import limits
from milepost.query import ast, kinds, typed
from milepost.query.kinds import BOOLEAN, DOUBLE, NULL
from milepost.query.location import described
from milepost.query.typed import Binding, Const, Typed, scalar

if TYPE_CHECKING:
    from milepost.query.checker import Checker


def aggregated(
    checker: Checker, node: ast.Call, bindings: tuple[Binding, ...], where: Typed | None, body: Typed
) -> Typed:
    """An aggregate other than `count` over a body, with the kind of its value."""
    kind = scalar(body)
    if node.name in ("any", "all"):
        if kind not in (BOOLEAN, NULL):
            checker.fail(f"{node.name} takes a predicate, and this is {described(kind)}", node.at)
        return typed.Fold(node.name, bindings, where, Const(None, BOOLEAN) if kind == NULL else body, BOOLEAN)
    if kind == NULL:
        return body
    if node.name in ("min", "max"):
        return typed.Fold(node.name, bindings, where, body, kind)
    if not kinds.is_number(kind):
        checker.fail(f"{node.name} takes numbers, and this is {described(kind)}", node.at)
    if node.name == "avg":
        return typed.Fold("avg", bindings, where, body, DOUBLE)
    widest = kinds.decimal(limits.DECIMAL_DIGITS, kind.scale) if kind.name == "decimal" else kind
    return typed.Fold("sum", bindings, where, body, widest)
