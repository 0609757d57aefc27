"""The typed AST as SQL: one walk, which makes values, and tests where null may count as false."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from milepost.query import typed
from milepost.query.kinds import BOOLEAN, BYTES, DOUBLE, INTEGER, STRING, Elements, Scalar
from milepost.query.number import scaled
from milepost.query.sql.comparison import Comparison
from milepost.query.sql.header import Attributes
from milepost.query.sql.lengths import PRODUCT, longest, short
from milepost.query.sql.operations import Operations
from milepost.query.sql.paths import From, PathReader, Spot
from milepost.query.sql.postgresql import Postgresql
from milepost.query.sql.sqlite import Sqlite
from milepost.query.sql.tables import Tables
from milepost.query.sql.value import Dialect, Form, Value, decoded
from milepost.query.sql.writer import ROOT as ROOT_ALIAS
from milepost.query.sql.writer import SqlWriter, chained
from milepost.query.typed import MIRRORED, ROOT, Const, Fold, Typed

_TIMES = frozenset({"year", "month", "day", "weekday", "hour", "minute", "second", "date", "days_between",
                    "seconds_between"})  # fmt: skip
_NAME = re.compile(r":(\w+)")
_ROOT = re.compile(rf"\b{ROOT_ALIAS}\.")
_ROUNDING = frozenset({"abs", "floor", "ceil", "round"})


@dataclass(frozen=True, slots=True)
class Sql:
    """An SQL expression over a queue's header table and, if it `needs_root`, the type's root table, called `r`.

    `values` has the bound values, which the text names `:v0` and so on.
    """

    text: str
    values: dict[str, Any]
    needs_root: bool
    kind: Scalar = field(default=BOOLEAN)
    form: Form = "plain"

    def plain(self, value: Any) -> Any:
        """The driver's value of the expression as a plain value."""
        found = decoded(value, self.kind, self.form)
        return found if found is None or self.kind.name != "decimal" else scaled(found, self.kind.scale)


def compile(
    root: Typed, tables: Tables, dialect: Dialect, *, message: str = "q", prefix: str = "v", where: bool = True
) -> Sql:
    """An expression over messages of a type.

    With `where`, a predicate is made for a WHERE clause: a null result may become false, which lets the database use
    its indexes. Raises `QueryError` for an expression that the database does not support. No row makes it raise.
    """
    writer = SqlWriter(tables, dialect, message, prefix)
    walk = _Walk(writer, longest(root))
    if where and root.kind == BOOLEAN:
        value = Value(walk.test(root, walk.scope), BOOLEAN)
    else:
        value = walk.value(root, walk.scope)
    writer.require_readable(value.text)
    return _sql(writer, value.text, value.kind, value.form)


def order_by(
    keys: Sequence[typed.Sorting], tables: Tables, dialect: Dialect, *, message: str = "q", prefix: str = "o"
) -> Sql:
    """The keys of an order, as after ORDER BY. Null comes after every value, so first in `desc`."""
    writer = SqlWriter(tables, dialect, message, prefix)
    walk = _Walk(writer, longest(*(item.key for item in keys)))
    terms = []
    for item in keys:
        value = walk.value(item.key, walk.scope)
        direction = "DESC" if item.descending else "ASC"
        nulls = f" NULLS {'FIRST' if item.descending else 'LAST'}"
        # The default of PostgreSQL. In SQLite it prevents the use of an index, so it is written only if needed.
        writer.require_readable(value.text)
        terms.append(f"{value.text} {direction}{nulls if value.null and writer.sqlite else ''}")
    return _sql(writer, ", ".join(terms))


def _sql(writer: SqlWriter, text: str, kind: Scalar = BOOLEAN, form: Form = "plain") -> Sql:
    """The expression, with only the values that the text uses; the text also tells whether `r` is needed."""
    values = {name: writer.values[name] for name in _NAME.findall(text)}
    return Sql(text, values, _ROOT.search(text) is not None, kind, form)


class _Walk:
    def __init__(self, writer: SqlWriter, longest: int | None) -> None:
        self._writer = writer
        self._longest = longest
        self._operations: Operations = Sqlite(writer) if writer.sqlite else Postgresql(writer)
        self._reader = PathReader(writer)
        self._attributes = Attributes(self._operations)
        self._comparing = Comparison(self._operations)
        self.scope = {ROOT: Spot.root(writer)}

    # Tests: a null result may become false

    def test(self, node: Typed, scope: dict[int, Spot]) -> str:
        match node:
            case typed.And(terms):
                return chained([self.test(term, scope) for term in terms], "AND")
            case typed.Or(terms):
                return chained([self.test(term, scope) for term in terms], "OR")
            case typed.IsTrue(operand, True):
                return self.test(operand, scope)
            case typed.Compare() | typed.Between() | typed.In():
                return self._comparison(node, scope, False)
            case typed.Fold("any" | "all"):
                return self._quantified(node, scope)
        return self.value(node, scope).text

    # Values

    def value(self, node: Typed, scope: dict[int, Spot]) -> Value:
        def part(child: Typed) -> Value:
            return self.value(child, scope)

        match node:
            case Const(value, kind):
                return self._operations.constant(value, kind)
            case typed.ReadPath():
                return self._reader.value(node, scope)
            case typed.HeaderField():
                return self._attributes.value(node)
            case typed.Negate(operand):
                return self._operations.negated(part(operand))
            case typed.Convert(operand, kind):
                return self._operations.converted(part(operand), kind)
            case typed.Arithmetic(sign, left, right, kind):
                return self._operations.arithmetic(sign, part(left), part(right), kind)
            case typed.Call():
                return self._call(node, scope)
            case typed.Fold():
                return self._fold(node, scope)
        return Value(self._truth(node, scope), BOOLEAN, null=not _never_null(node))

    def _truth(self, node: Typed, scope: dict[int, Spot]) -> str:
        match node:
            case typed.Compare() | typed.Between() | typed.In():
                return self._comparison(node, scope, True)
            case typed.Like(operand, pattern):
                value = self.value(operand, scope)
                return self._operations.like(value if short(node) else self._bounded(operand, value), pattern)
            case typed.IsNull(typed.ReadPath(kind=kind) as read) if not isinstance(kind, Scalar):
                present = self._reader.present(read, scope)
                return self._operations.never(False) if present is None else f"(NOT {present})"
            case typed.IsNull(operand):
                return f"({self.value(operand, scope).text} IS NULL)"
            case typed.IsTrue(operand, True):
                return f"({self.test(operand, scope)} IS TRUE)"
            case typed.IsTrue(operand, _):
                return f"({self.value(operand, scope).text} IS FALSE)"
            case typed.Not(operand):
                return f"(NOT {self.value(operand, scope).text})"
            case typed.And(terms):
                return chained([self.value(term, scope).text for term in terms], "AND")
            case typed.Or(terms):
                return chained([self.value(term, scope).text for term in terms], "OR")
        raise AssertionError(node)  # a case of a variant: tables have none

    # Comparisons

    def _comparison(self, node: Typed, scope: dict[int, Spot], exactly: bool) -> str:
        match node:
            case typed.Compare(sign, left, right):
                return self._compare(sign, left, right, scope, exactly)
            case typed.Between(operand, low, high):
                if _simple(operand):
                    above = self._compare(">=", operand, low, scope, exactly)
                    return f"({above} AND {self._compare('<=', operand, high, scope, exactly)})"

                def within(value: Value) -> str:
                    return f"({self._side('>=', value, low, scope)} AND {self._side('<=', value, high, scope)})"

                return self._writer.once((self.value(operand, scope),), within)
            case typed.In(operand, items):
                return self._in(operand, items, scope, exactly)
        raise AssertionError(node)

    def _compare(self, sign: str, left: Typed, right: Typed, scope: dict[int, Spot], exactly: bool) -> str:
        if isinstance(left, Const) and not isinstance(right, Const):
            left, right, sign = right, left, MIRRORED[sign]
        if isinstance(right, Const) and right.value is not None and isinstance(left, typed.HeaderField):
            found = self._attributes.compared(sign, left, right)
            if found is not None:
                return found
        value = self.value(left, scope)
        if isinstance(right, Const):
            return self._comparing.compared(sign, value, right, exactly)
        return self._operations.compared(sign, value, self.value(right, scope))

    def _side(self, sign: str, value: Value, other: Typed, scope: dict[int, Spot]) -> str:
        if isinstance(other, Const):
            return self._comparing.compared(sign, value, other, True)
        return self._operations.compared(sign, value, self.value(other, scope))

    def _in(self, operand: Typed, items: tuple[Typed, ...], scope: dict[int, Spot], exactly: bool) -> str:
        constants = [item for item in items if isinstance(item, Const)]
        if isinstance(operand, typed.HeaderField) and operand.name == "mid" and len(constants) == len(items):
            known = [item.value for item in constants if item.value is not None]
            found = self._attributes.one_of(known)
            null = self._operations.typed("NULL", BOOLEAN, "plain")
            return found if len(known) == len(items) else f"({found} OR {null})"

        def each(value: Value) -> str:
            together = self._comparing.items(value, constants, exactly) if constants else None
            others = [item for item in items if together is None or not isinstance(item, Const)]
            terms = [] if together is None else [together]
            return chained([*terms, *(self._side("=", value, item, scope) for item in others)], "OR")

        return self._writer.once((self.value(operand, scope),), each)

    # Functions

    def _call(self, node: typed.Call, scope: dict[int, Spot]) -> Value:
        name, kind = node.function, node.kind
        match node.arguments:
            case (first, Const(str() as prefix)) if name == "starts_with" and _simple(first):
                return Value(self._operations.starts_with(self.value(first, scope), prefix), BOOLEAN)
        arguments = tuple(self._bounded(argument, self.value(argument, scope)) for argument in node.arguments)
        match name, node.arguments:
            case "contains" | "position", (typed.ReadPath(), typed.ReadPath()):
                whole, part = arguments
                bounded = self._operations.bounded(part.text, (whole.text, part.text), PRODUCT)
                arguments = (whole, replace(part, text=bounded, leaf=False))
        if name == "coalesce":
            made = self._operations.alike(arguments)
            if len(made) == 1:
                return made[0]
            text = f"coalesce({', '.join(value.text for value in made)})"
            null = all(value.null for value in made)
            return Value(text, kind, made[0].form, max(value.bound for value in made), null=null)
        if name in _TIMES:
            return self._operations.time_function(name, arguments)
        if name in _ROUNDING:
            return self._operations.rounded(name, arguments[0], kind)
        constants = tuple(each.value if isinstance(each, Const) else None for each in node.arguments)
        text = self._operations.text_function(name, arguments, constants)
        return Value(text, kind, "int", 1 << 32) if kind == INTEGER else Value(text, kind)

    def _bounded(self, node: Typed, value: Value) -> Value:
        """A text of a message as an argument; a text that is too long for the expression raises."""
        if self._longest is None or not isinstance(node, typed.ReadPath) or node.kind not in (STRING, BYTES):
            return value
        return replace(value, text=self._operations.bounded(value.text, (value.text,), self._longest), leaf=False)

    # Iteration

    def _bound(self, node: Fold, scope: dict[int, Spot]) -> tuple[From, dict[int, Spot], list[str]]:
        source, inner = From(), dict(scope)
        for binding in node.bindings:
            inner[binding.variable] = self._reader.bind(binding.source, inner, source)
        return source, inner, [] if node.where is None else [self.test(node.where, inner)]

    def _quantified(self, node: Fold, scope: dict[int, Spot]) -> str:
        """`any` and `all` as a test, by EXISTS, which a database can turn into a join."""
        assert node.body is not None
        source, inner, where = self._bound(node, scope)
        if node.operator == "any":
            found = self.test(node.body, inner)
            return f"EXISTS ({source.text('1', *where, found)})"
        failing = f"({self.value(node.body, inner).text} IS NOT TRUE)"
        every = f"NOT EXISTS ({source.text('1', *where, failing)})"
        present = self._present(node, scope)
        return f"({every})" if present is None else f"({present} AND {every})"

    def _present(self, node: Fold, scope: dict[int, Spot]) -> str | None:
        first = node.bindings[0].source if node.bindings else None
        return None if first is None or not isinstance(first.kind, Elements) else self._reader.present(first, scope)

    def _fold(self, node: Fold, scope: dict[int, Spot]) -> Value:
        if node.operator == "any" and _never_null(node):
            return Value(self._quantified(node, scope), BOOLEAN, null=False)
        made = self._folded(node, scope)
        present = self._present(node, scope)
        if present is None:
            return made
        return Value(f"(CASE WHEN {present} THEN {made.text} END)", made.kind, made.form, made.bound)

    def _folded(self, node: Fold, scope: dict[int, Spot]) -> Value:
        source, inner, where = self._bound(node, scope)
        if node.body is None:
            return Value(f"({source.text('count(*)', *where)})", INTEGER, "int", 1 << 62, null=False)
        body = self.value(node.body, inner)
        if node.operator not in ("sum", "avg") and source.mentioned(body.text):
            made = self._aggregate(node.operator, body)
            return replace(made, text=f"({source.text(made.text, *where)})")
        alias = self._writer.alias("l")
        # The values get a name first: an aggregate of an outer column would belong to the outer query.
        ordered = self._operations.ordered_sums and body.kind == DOUBLE and node.operator in ("sum", "avg")
        rows = f"({source.text(f'{body.text} AS x', *where, ordered=ordered)}) {alias}"
        x = body.as_leaf(f"{alias}.x")
        match node.operator:
            case "sum":
                return self._operations.summed(x, node.kind, rows)
            case "avg":
                return self._operations.average(x, rows)
        made = self._aggregate(node.operator, x)
        return replace(made, text=f"(SELECT {made.text} FROM {rows})")

    def _aggregate(self, operator: str, x: Value) -> Value:
        """An aggregate function that writes its argument once."""
        match operator:
            case "count":
                return Value(f"count({x.text})", INTEGER, "int", 1 << 62, null=False)
            case "min" | "max":
                return Value(self._operations.extreme(operator, x), x.kind, x.form, x.bound)
        number = x.text if self._writer.sqlite else f"CAST({x.text} AS integer)"
        # 2 for true, 1 for null, 0 for false: the largest decides for `any`, the smallest for `all`.
        pick, ends = ("max", (2, "TRUE", "FALSE")) if operator == "any" else ("min", (0, "FALSE", "TRUE"))
        first, found, other = ends
        best = f"{pick}(coalesce({number} * 2, 1))"
        return Value(f"CASE {best} WHEN {first} THEN {found} WHEN 1 THEN NULL ELSE {other} END", BOOLEAN)


def _simple(node: Typed) -> bool:
    """Whether a node is a single column, so that it may be written twice."""
    return isinstance(node, typed.HeaderField) or (
        isinstance(node, typed.ReadPath) and all(isinstance(step, typed.FieldStep) for step in node.steps)
    )


def _never_null(node: Typed) -> bool:
    match node:
        case Const(value):
            return value is not None
        case typed.IsNull() | typed.IsTrue():
            return True
        case typed.Not(operand):
            return _never_null(operand)
        case typed.And(terms) | typed.Or(terms):
            return all(map(_never_null, terms))
        case typed.Fold("any" | "all", bindings, _, body):
            first_null = bool(bindings) and isinstance(bindings[0].source.kind, Elements)
            return not first_null and body is not None and _never_null(body)
    return False
