"""Compiled queries that return rows."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from milepost.query import ast, clauses
from milepost.query.checker import Checker
from milepost.query.expression import CompiledText, Predicate
from milepost.query.fields import fields
from milepost.query.kinds import Kind
from milepost.query.parser import parse
from milepost.query.python import Moment, rows
from milepost.query.source import type_error
from milepost.query.typed import Selection
from milepost.schema.types import Schema


class CompiledQuery(CompiledText):
    """A `select` over the messages of one type."""

    root: Selection

    def __init__(self, text: str, schema: Schema, tree: ast.Select, root: Selection) -> None:
        super().__init__(text, schema, root)
        self.tree = tree  # as written

    @property
    def types(self) -> tuple[Kind, ...]:
        """The kinds of a row's values: scalars, and nodes or the message where a variable is selected."""
        return tuple(column.kind for column in self.root.columns)

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """The paths of the fields that it reads, sorted."""
        return fields(self.schema, self.root)

    @cached_property
    def predicate(self) -> Predicate:
        """Whether some binding of the query's variables makes `where` true."""
        tree = ast.Select(self.tree.selected, self.tree.sources, self.tree.where, at=self.tree.at)
        return Predicate(str(tree), self.schema, tree, clauses.exists(Checker(self.text, self.schema), tree))

    def rows(self, message: Any, header: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """The rows for one message, in the order of the query."""
        found: list[tuple[Any, ...]] = self._rows(Moment(message, header))
        return found

    @cached_property
    def _rows(self) -> Any:
        return rows(self.root)

    def __str__(self) -> str:
        return str(self.tree)

    def __repr__(self) -> str:
        return f"<Query {str(self)!r} over {self.schema.name}>"


def parse_query(text: str, schema: Schema) -> CompiledQuery:
    """A query, which begins with `select`.

    Raises `QuerySyntaxError`, `QueryTypeError` or `LimitExceeded`.
    """
    tree = parse(text)
    if not isinstance(tree, ast.Select):
        raise type_error("a query begins with 'select'; this is an expression", text, tree.at)
    return CompiledQuery(text, schema, tree, clauses.selection(Checker(text, schema), tree))
