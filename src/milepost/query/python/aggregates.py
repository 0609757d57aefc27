"""Quantifiers and aggregates: one value from all combinations of the bindings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from typing import Any, Final

from milepost.query.kinds import DOUBLE, Nodes, Scalar
from milepost.query.number import bounded
from milepost.query.python.arithmetic import calculation, doubled
from milepost.query.python.moment import Evaluate, Moment, Value
from milepost.query.python.paths import number, read
from milepost.query.typed import Binding, Fold, cost, scalar


def fold(node: Fold, where: Evaluate | None, body: Evaluate | None) -> Evaluate:
    """An aggregate; the parts are compiled already."""
    first = read(node.bindings[0].source) if node.bindings else None
    never_null = isinstance(node.bindings[0].source.kind, Nodes) if node.bindings else True
    over = combinations(node.bindings, 1 + cost(node.where, node.body))
    finish = _finish(node)

    def evaluate(moment: Moment) -> Value:
        if not never_null and first is not None and first(moment) is None:
            return None
        values = (
            True if body is None else body(moment) for _ in over(moment) if where is None or where(moment) is True
        )
        return finish(values)

    return evaluate


def combinations(bindings: tuple[Binding, ...], steps: int) -> Callable[[Moment], Iterator[None]]:
    """Sets the variables of a moment to each combination in turn; the last binding changes fastest.

    `steps` is the cost of one combination.
    """
    last = len(bindings) - 1
    sources = [(binding.variable, read(binding.source)) for binding in bindings]

    def over(moment: Moment, level: int = 0) -> Iterator[None]:
        if level == len(sources):
            yield
            return
        variable, source = sources[level]
        for element in source(moment) or ():
            moment.count(steps if level == last else 1)
            moment.variables[variable] = element
            yield from over(moment, level + 1)

    return over


def _junction(decisive: bool) -> Callable[[Iterable[bool | None]], bool | None]:
    def joined(values: Iterable[bool | None]) -> bool | None:
        unknown = False
        for value in values:
            if value is decisive:
                return decisive
            unknown |= value is None
        return None if unknown else not decisive

    return joined


# `and` and `or` in three-valued logic
conjunction: Final = _junction(False)
disjunction: Final = _junction(True)


def _known(values: Iterable[Value]) -> Iterator[Any]:
    return (value for value in values if value is not None)


def _sum(kind: Scalar) -> Callable[[Iterable[Value]], Value]:
    def total(values: Iterable[Value]) -> Value:
        known = list(_known(values))
        if not known:
            return None
        if kind == DOUBLE:
            # Add the values in order, without `sum`, which compensates for rounding in newer Pythons.
            return number(reduce(lambda a, b: a + b, known, 0.0))
        return bounded(sum(known), kind)

    return total


def _average(kind: Scalar) -> Callable[[Iterable[Value]], Value]:
    total = _sum(kind)
    divide = calculation("/", DOUBLE, DOUBLE, DOUBLE)
    to_double = doubled(kind)

    def average(values: Iterable[Value]) -> Value:
        known = list(_known(values))
        added = total(known)
        return None if added is None else divide(to_double(added), float(len(known)))

    return average


_PLAIN: Final[dict[str, Callable[[Iterable[Value]], Value]]] = {
    "any": disjunction,
    "all": conjunction,
    "count": lambda values: sum(1 for _ in _known(values)),
    "min": lambda values: min(_known(values), default=None),
    "max": lambda values: max(_known(values), default=None),
}


def _finish(node: Fold) -> Callable[[Iterable[Value]], Value]:
    if node.operator in _PLAIN:
        return _PLAIN[node.operator]
    assert node.body is not None
    return _sum(node.kind) if node.operator == "sum" else _average(scalar(node.body))
