"""The rows of a query for one message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cmp_to_key
from typing import Any, TypeAlias

from milepost.query.kinds import Scalar
from milepost.query.number import scaled
from milepost.query.python.aggregates import combinations
from milepost.query.python.compiler import compiled
from milepost.query.python.moment import Moment, Value
from milepost.query.typed import Selection, Typed, cost

_Keyed: TypeAlias = tuple[list[Value], tuple[Any, ...]]  # the sort keys, and the row


def rows(selection: Selection) -> Callable[[Moment], list[tuple[Any, ...]]]:
    """A function from a moment to the rows of a query, in its order."""
    keys_of = [item.key for item in selection.order]
    over = combinations(selection.bindings, 1 + cost(selection.where, *selection.columns, *keys_of))
    where = None if selection.where is None else compiled(selection.where)
    columns = [(compiled(column), column) for column in selection.columns]
    keys = [compiled(key) for key in keys_of]
    signs = [-1 if item.descending else 1 for item in selection.order]

    def compare(left: _Keyed, right: _Keyed) -> int:
        return compared(left[0], right[0], signs)

    by_keys = cmp_to_key(compare)

    def evaluate(moment: Moment) -> list[tuple[Any, ...]]:
        found: list[_Keyed] = []
        for _ in over(moment):
            if where is None or where(moment) is True:
                row = tuple(plain(column(moment), node) for column, node in columns)
                found.append(([key(moment) for key in keys], row))
        if keys:
            found.sort(key=by_keys)
        return [row for _, row in found]

    return evaluate


def compared(left: Sequence[Value], right: Sequence[Value], signs: Sequence[int]) -> int:
    """The order of two rows of keys: negative, zero or positive; a sign is -1 where a key descends."""
    for a, b, sign in zip(left, right, signs, strict=True):
        if order := sign * _order(a, b):
            return order
    return 0


def _order(left: Value, right: Value) -> int:
    """Negative, zero or positive; null is greater than every value."""
    if left is None or right is None:
        return (left is None) - (right is None)
    return int(left > right) - int(left < right)


def plain(value: Value, node: Typed) -> Any:
    """A value of the language as a plain value."""
    kind = node.kind
    if value is not None and isinstance(kind, Scalar) and kind.name == "decimal":
        return scaled(value, kind.scale)
    return value
