"""Calls: functions of the table in `functions`, and aggregates of lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from milepost.query import ast, clauses, kinds, subnet, typed
from milepost.query.functions import AGGREGATES, FUNCTIONS, NETWORK, SPECIAL, matching, usage
from milepost.query.kinds import IDENT, INTEGER, NULL, Scalar
from milepost.query.literal import folded
from milepost.query.location import described, shown, unknown
from milepost.query.scope import ElementScope, Scope
from milepost.query.typed import Binding, Const, Typed, scalar
from milepost.schema.types import Variant

if TYPE_CHECKING:
    from milepost.query.checker import Checker

_Arguments: TypeAlias = tuple[ast.Expression, ...]


def call(checker: Checker, node: ast.Call, scope: Scope) -> Typed:
    """The typed form of a call."""
    if node.name in AGGREGATES:
        return _aggregate(checker, node, scope)
    if isinstance(node.arguments, ast.Select):
        checker.fail(f"only {', '.join(AGGREGATES)} take a query", node.at)
    if node.name == "case":
        return _case(checker, node, node.arguments, scope)
    if node.name == "coalesce":
        return _coalesce(checker, node, node.arguments, scope)
    return _function(checker, node, node.arguments, scope)


def _function(checker: Checker, node: ast.Call, arguments: _Arguments, scope: Scope) -> Typed:
    function = FUNCTIONS.get(node.name)
    if function is None:
        names = (*FUNCTIONS, *SPECIAL, *AGGREGATES)
        checker.fail(unknown(node.name, names, f"there is no function {shown(node.name)!r}"), node.at)
    given = tuple(checker.scalar(argument, scope) for argument in arguments)
    given_kinds = tuple(scalar(argument) for argument in given)
    result = matching(function, given_kinds)
    if result is None:
        listed = ", ".join(str(kind) for kind in given_kinds)
        checker.fail(f"{usage(function)} does not take ({shown(listed)})", node.at)
    for parameter, argument, value in zip(function.signatures[0].parameters, arguments, given, strict=False):
        if parameter == NETWORK:
            _require_network(checker, node, argument, value)
    return Const(None, result) if NULL in given_kinds else typed.Call(node.name, given, result)


def _require_network(checker: Checker, node: ast.Call, argument: ast.Expression, value: Typed) -> None:
    if not isinstance(value, Const):
        checker.fail(f"the network of {node.name} is a literal, such as '10.0.0.0/8'", argument.at)
    try:
        subnet.network(value.value)
    except ValueError as error:
        checker.fail(str(error), argument.at)


def _coalesce(checker: Checker, node: ast.Call, arguments: _Arguments, scope: Scope) -> Typed:
    if not arguments:
        checker.fail("coalesce takes at least one argument", node.at)
    given = [checker.scalar(argument, scope) for argument in arguments]
    kind = kinds.common(scalar(argument) for argument in given)
    if kind is None:
        listed = ", ".join(dict.fromkeys(str(argument.kind) for argument in given))
        checker.fail(f"the arguments of coalesce have no type in common: {shown(listed)}", node.at)
    looked_at: list[Typed] = []
    for argument in given:
        if argument.kind != NULL:
            looked_at.append(_converted(argument, kind))
        if isinstance(argument, Const) and argument.value is not None:
            break  # later arguments are never evaluated
    if not looked_at:
        return given[0]
    return looked_at[0] if isinstance(looked_at[0], Const) else typed.Call("coalesce", tuple(looked_at), kind)


def _converted(node: Typed, kind: Scalar) -> Typed:
    same = node.kind == kind or {node.kind, kind} == {IDENT, INTEGER}
    return node if same else folded(typed.Convert(node, kind))


def _case(checker: Checker, node: ast.Call, arguments: _Arguments, scope: Scope) -> Typed:
    if len(arguments) != 1:
        checker.fail("case takes one variant", node.at)
    found = checker.any(arguments[0], scope)
    match found:
        case typed.ReadPath(_, _, kinds.Structure(Variant())):
            return typed.CaseName(found)
    checker.fail(f"only a variant has cases, and {shown(arguments[0])} is {described(found.kind)}", arguments[0].at)


def _aggregate(checker: Checker, node: ast.Call, scope: Scope) -> Typed:
    if isinstance(node.arguments, ast.Select):
        return clauses.subquery(checker, node, node.arguments, scope)
    if not 1 <= len(node.arguments) <= 2 or not isinstance(node.arguments[0], ast.Path):
        checker.fail(f"{node.name} takes a list and an expression for its elements: {node.name}(list, …)", node.at)
    path, of_each = node.arguments[0], node.arguments[1] if len(node.arguments) == 2 else None
    location = checker.location(path, scope)
    element = checker.element(location, scope, path)
    bindings = (Binding(element.variable, location.entered()),)
    inner = ElementScope(scope, element)
    if node.name == "count":
        where = None if of_each is None else checker.boolean(of_each, inner, "count")
        return typed.Fold("count", bindings, where, None, INTEGER)
    if of_each is not None:
        return clauses.aggregated(checker, node, bindings, None, checker.scalar(of_each, inner))
    if not isinstance(element.kind, Scalar):
        checker.fail(f"{node.name} needs to know what of each element: {node.name}({shown(path)}, …)", node.at)
    return clauses.aggregated(checker, node, bindings, None, element.read)
