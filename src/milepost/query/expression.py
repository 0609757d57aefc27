"""Compiled predicates and expressions, which can be compared, printed and evaluated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from milepost.errors import QueryError
from milepost.query import ast, clauses, typed
from milepost.query.budget import Budget
from milepost.query.checker import Checker
from milepost.query.fields import fields
from milepost.query.kinds import NULL, Scalar
from milepost.query.parser import parse, read
from milepost.query.python import Moment, compiled, plain
from milepost.query.shape import SHAPES, split_text
from milepost.query.source import type_error
from milepost.query.typed import Typed, UnfoldStep
from milepost.schema.types import Schema

if TYPE_CHECKING:
    from milepost.batch import Batch
    from milepost.query.mask import RowValues
    from milepost.query.mask.vector import Bools


class CompiledText:
    """A text compiled for the messages of one schema.

    Two are equal when their typed ASTs are: white space, the case of keywords, names of variables and needless
    parentheses make no difference. So many subscribers can share one predicate.
    """

    def __init__(self, text: str, schema: Schema, root: Any) -> None:
        self.text = text
        self.schema = schema
        self.root = root  # the typed AST, for back ends

    def __getstate__(self) -> dict[str, Any]:
        cached = {name for cls in type(self).__mro__ for name, it in vars(cls).items() if type(it) is cached_property}
        return {name: value for name, value in self.__dict__.items() if name not in cached}  # without the closures

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CompiledText):
            return NotImplemented
        return self.schema.fingerprint == other.schema.fingerprint and bool(self.root == other.root)

    @cached_property
    def _hash(self) -> int:
        return hash((self.schema.fingerprint, self.root))

    def __hash__(self) -> int:
        return self._hash


class Expression(CompiledText):
    """An expression of a scalar type over the messages of one schema."""

    root: Typed

    def __init__(self, text: str, schema: Schema, tree: ast.Expression | ast.Select | None, root: Typed) -> None:
        """Without a tree, the text must be one that parses; it is parsed on the first access to `tree`."""
        super().__init__(text, schema, root)
        self._tree = tree

    @property
    def tree(self) -> ast.Expression | ast.Select:
        """The query as written."""
        if self._tree is None:
            self._tree = parse(self.text)
        return self._tree

    @property
    def type(self) -> Scalar:
        """The type of the value."""
        return typed.scalar(self.root)

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """The paths of the fields that it reads, sorted."""
        return fields(self.schema, self.root)

    def value(self, message: Any, header: Mapping[str, Any] | None = None) -> Any:
        """The value for one message, a plain value, a row of a batch or a node; None for null.

        `header` has the administrative attributes, as far as they are known.
        """
        return plain(self._evaluate(Moment(message, header)), self.root)

    def column(self, batch: Batch, header: Mapping[str, Any] | None = None) -> RowValues:
        """The value for each row of a batch; `header` has one sequence for each attribute."""
        self._require_schema(batch)
        if self._row_by_row:
            from milepost.query.mask import column_of

            return column_of([self._evaluate(moment) for moment in self._moments(batch, header)], self.type)
        found: RowValues = self._column(batch, header)
        return found

    @cached_property
    def _evaluate(self) -> Any:
        return compiled(self.root)

    @cached_property
    def _column(self) -> Any:
        from milepost.query.mask import column

        return column(self.root)

    @cached_property
    def _row_by_row(self) -> bool:
        """Whether a path goes through a recursive reference: a batch stores its value row by row, not in columns."""
        return any(
            isinstance(step, UnfoldStep)
            for node in typed.walk(self.root)
            if isinstance(node, typed.ReadPath)
            for step in node.steps
        )

    def _moments(self, batch: Batch, header: Mapping[str, Any] | None) -> Iterator[Moment]:
        values = header or {}
        budget = Budget.one_by_one(batch, len(batch))
        budget.spend(typed.cost(self.root) * len(batch))
        for row, message in enumerate(batch.to_pylist()):
            yield Moment(message, {name: column[row] for name, column in values.items()}, budget)

    @cached_property
    def folds(self) -> bool:
        """Whether it iterates over lists: then the cost depends on their lengths, and masks bound it."""
        return any(isinstance(node, typed.Fold) for node in typed.walk(self.root))

    def _require_schema(self, batch: Batch) -> None:
        if batch.schema is not self.schema and batch.schema.fingerprint != self.schema.fingerprint:
            raise QueryError(
                f"the query was compiled for {self.schema.name} ({self.schema.fingerprint:016x}), and the batch is of "
                f"{batch.schema.name} ({batch.schema.fingerprint:016x}); compile it for the batch's schema"
            )

    def __str__(self) -> str:
        return str(self.tree)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {str(self)!r} over {self.schema.name}>"


class Predicate(Expression):
    """An expression that is true, false or null."""

    def test(self, message: Any, header: Mapping[str, Any] | None = None) -> bool | None:
        """The answer for one message: a plain value, a row of a batch or a node."""
        answer: bool | None = self._evaluate(Moment(message, header))
        return answer

    def mask(self, batch: Batch, header: Mapping[str, Any] | None = None) -> Bools:
        """The rows of a batch for which the answer is true; `header` has one sequence for each attribute."""
        self._require_schema(batch)
        if self._row_by_row:
            import numpy as np

            return np.array([self._evaluate(moment) is True for moment in self._moments(batch, header)], np.bool_)
        rows: Bools = self._mask(batch, header)
        return rows

    def test_few(self, batch: Batch, rows: list[int]) -> list[bool | None]:
        """The answers for a few rows of a batch, where that is cheaper than a mask for all rows.

        Raises `QueryTooCostly` where it is not: `mask` may still be within its budget.
        """
        budget = Budget.one_by_one(batch, len(rows))
        return [self._evaluate(Moment(batch[row], None, budget)) for row in rows]

    @cached_property
    def _mask(self) -> Any:
        from milepost.query.mask import mask

        return mask(self.root)


def compile(text: str, schema: Schema) -> Predicate:
    """A predicate: an expression that is true or false, or a query, which is true if it finds a row.

    Raises `QuerySyntaxError`, `QueryTypeError` or `LimitExceeded`.
    """
    parts = split_text(text)
    if parts is not None and (known := SHAPES.root(parts, text, schema)) is not None:
        return Predicate(text, schema, None, known)
    reading = read(text)
    tree = reading.tree
    checker = Checker(text, schema)
    if isinstance(tree, ast.Select):
        return Predicate(text, schema, tree, clauses.exists(checker, tree))
    root = checker.boolean(tree, checker.scope(), "a predicate")
    if parts is not None:
        SHAPES.learn(parts, text, schema, reading)
    return Predicate(text, schema, tree, root)


def compile_known(text: str, schema: Schema, most: int) -> Predicate | None:
    """The result of `compile` for a text of at most `most` characters and of a known shape; else None."""
    parts = split_text(text) if len(text) <= most else None
    known = SHAPES.root(parts, text, schema) if parts is not None else None
    return None if known is None else Predicate(text, schema, None, known)


def expression(text: str, schema: Schema) -> Expression:
    """An expression of any scalar type, such as a priority or an order.

    Raises `QuerySyntaxError`, `QueryTypeError` or `LimitExceeded`.
    """
    tree = parse(text)
    if isinstance(tree, ast.Select):
        raise type_error("a query returns rows, not one value; put it into count(…), sum(…) or the like", text, tree.at)
    checker = Checker(text, schema)
    root = checker.scalar(tree, checker.scope())
    if root.kind == NULL:
        raise type_error("null alone has no type", text, tree.at)
    return Expression(text, schema, tree, root)
