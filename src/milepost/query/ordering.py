"""Compiled orders, by which a reader wants the messages of a queue sorted."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, cmp_to_key
from typing import Any

from milepost.query import ast, clauses
from milepost.query.checker import Checker
from milepost.query.expression import CompiledText
from milepost.query.parser import parse_ordering
from milepost.query.python import Moment, compiled
from milepost.query.python.selection import compared
from milepost.query.typed import Sorting
from milepost.schema.types import Schema


class Ordering(CompiledText):
    """One or several keys, each ascending or descending. Null sorts after every value, so first in `desc`."""

    def __init__(self, text: str, schema: Schema, keys: tuple[Sorting, ...]) -> None:
        super().__init__(text, schema, keys)
        self.keys = keys  # typed, for back ends

    def key(self, message: Any, header: Mapping[str, Any] | None = None) -> Any:
        """A sort key for messages: `sorted(messages, key=order.key)`. `header` is as for expressions."""
        moment = Moment(message, header)
        return self._comparable([evaluate(moment) for evaluate in self._evaluate])

    @cached_property
    def _evaluate(self) -> list[Any]:
        return [compiled(item.key) for item in self.keys]

    @cached_property
    def _comparable(self) -> Any:
        signs = [-1 if item.descending else 1 for item in self.keys]
        return cmp_to_key(lambda left, right: compared(left, right, signs))

    def __repr__(self) -> str:
        return f"<Ordering {self.text!r} over {self.schema.name}>"


def ordering(text: str, schema: Schema) -> Ordering:
    """An order from a text: keys as after `order by`, "count(lines) desc, id".

    A query with `order by` works too, if it returns one row for each message. Raises `QuerySyntaxError`,
    `QueryTypeError` or `LimitExceeded`.
    """
    tree = parse_ordering(text)
    checker = Checker(text, schema)
    if isinstance(tree, ast.Select):
        return Ordering(text, schema, clauses.ordering(checker, tree))
    scope = checker.scope()
    return Ordering(text, schema, tuple(clauses.sorting(checker, item, scope) for item in tree))
