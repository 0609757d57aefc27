"""The typed AST as closures: one for each node, from the inside out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from milepost.query import typed
from milepost.query.python.aggregates import conjunction, disjunction, fold
from milepost.query.python.arithmetic import calculation, comparison, converted, negation
from milepost.query.python.functions import LIKE_CHARS, OF_TEXT, function
from milepost.query.python.moment import Evaluate, Moment, Value
from milepost.query.python.paths import case_name, header, read
from milepost.query.typed import Typed, scalar


def compiled(node: Typed) -> Evaluate:
    """A node as a function of a moment."""
    match node:
        case typed.Const(value):
            return lambda moment: value
        case typed.ReadPath():
            return read(node)
        case typed.HeaderField():
            return header(node)
        case typed.CaseName():
            return case_name(node)
        case typed.Negate(operand, kind):
            return _strict(negation(kind), operand)
        case typed.Convert(operand, kind):
            return _strict(converted(scalar(operand), kind), operand)
        case typed.Arithmetic(operator, left, right, kind):
            return _strict(calculation(operator, scalar(left), scalar(right), kind), left, right)
        case typed.Compare(operator, left, right):
            return _strict(comparison(operator, scalar(left), scalar(right)), left, right)
        case typed.Call("coalesce", arguments):
            return _coalesce(tuple(compiled(argument) for argument in arguments))
        case typed.Call(name, arguments):
            called = function(name, tuple(scalar(argument) for argument in arguments))
            return _strict(called, *arguments) if name not in OF_TEXT else _metered(called, OF_TEXT[name], *arguments)
        case typed.Between():
            return _between(node)
        case typed.In():
            return _in(node)
        case typed.Like(operand, pattern):
            return _metered(pattern.matches, LIKE_CHARS, operand)
        case typed.IsNull(operand):
            value_of = compiled(operand)
            return lambda moment: value_of(moment) is None
        case typed.IsTrue(operand, wanted):
            truth = compiled(operand)
            return lambda moment: truth(moment) is wanted
        case typed.Not(operand):
            return _strict(lambda value: not value, operand)
        case typed.And(terms):
            parts = tuple(compiled(term) for term in terms)
            return lambda moment: conjunction(part(moment) for part in parts)
        case typed.Or(terms):
            parts = tuple(compiled(term) for term in terms)
            return lambda moment: disjunction(part(moment) for part in parts)
        case typed.Fold(_, _, where, body):
            return fold(node, None if where is None else compiled(where), None if body is None else compiled(body))


def evaluated(node: Typed) -> Value:
    """The value of an expression that reads nothing."""
    return compiled(node)(Moment(None))


def _strict(operation: object, *operands: Typed) -> Evaluate:
    """An operation that is null if an operand is."""
    assert callable(operation)
    parts = tuple(compiled(operand) for operand in operands)

    def evaluate(moment: Moment) -> Value:
        values = []
        for part in parts:
            value = part(moment)
            if value is None:
                return None
            values.append(value)
        return operation(*values)

    return evaluate


def _metered(operation: Callable[..., Any], chars: int, *operands: Typed) -> Evaluate:
    """An operation on text, which spends one step for each `chars` characters."""
    parts = tuple(compiled(operand) for operand in operands)

    def evaluate(moment: Moment) -> Value:
        values = []
        size = 0
        for part in parts:
            value = part(moment)
            if value is None:
                return None
            values.append(value)
            if isinstance(value, str | bytes):
                size += len(value)
        if size >= chars:
            moment.budget.spend(size // chars)
        return operation(*values)

    return evaluate


def _coalesce(parts: tuple[Evaluate, ...]) -> Evaluate:
    def evaluate(moment: Moment) -> Value:
        for part in parts:
            value = part(moment)
            if value is not None:
                return value
        return None

    return evaluate


def _between(node: typed.Between) -> Evaluate:
    operand, low, high = compiled(node.operand), compiled(node.low), compiled(node.high)
    above = comparison(">=", scalar(node.operand), scalar(node.low))
    below = comparison("<=", scalar(node.operand), scalar(node.high))

    def evaluate(moment: Moment) -> bool | None:
        value, start, end = operand(moment), low(moment), high(moment)
        if value is None:
            return None
        return conjunction((None if start is None else above(value, start), None if end is None else below(value, end)))

    return evaluate


def _in(node: typed.In) -> Evaluate:
    operand = compiled(node.operand)
    kind = scalar(node.operand)
    # Thousands of constants are one look-up: they add nothing to the cost of a query.
    constants, others = set(), []
    for item in node.items:
        if isinstance(item, typed.Const) and item.kind == kind and item.value is not None:
            constants.add(item.value)
        else:
            others.append(item)
    items = [(compiled(item), comparison("=", kind, scalar(item))) for item in others]

    def evaluate(moment: Moment) -> bool | None:
        value = operand(moment)
        if value is None:
            return None
        if value in constants:
            return True
        return disjunction(None if (other := item(moment)) is None else equal(value, other) for item, equal in items)

    return evaluate
