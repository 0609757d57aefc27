"""The clauses of JPMQ's queries: the variables that `from` binds, and `select`, `where` and `order by`.

The variables of a `from` clause, and the references between them, form a directed graph. Every variable must be
reachable from the message: one that is not is *free*, and refused. Free variables would make a query test every pair of
nodes; with the rule, it only follows references.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from milepost import limits
from milepost.query import ast, kinds, typed
from milepost.query.kinds import BOOLEAN, DOUBLE, INTEGER, NULL, Scalar
from milepost.query.location import Location, described, shown, unknown
from milepost.query.scope import Scope, VariableScope
from milepost.query.typed import ROOT, Binding, Const, Typed, scalar

if TYPE_CHECKING:
    from milepost.query.checker import Checker
    from milepost.schema.messagetype import MessageType


def exists(checker: Checker, select: ast.Select) -> Typed:
    """A query as a predicate: whether some binding of its variables makes `where` true."""
    clauses = _checked(checker, select, None)
    _require_unordered(checker, select)
    where = clauses.where or Const(True, BOOLEAN)
    if not clauses.bindings:
        return typed.IsTrue(where, True) if clauses.where else where
    return typed.Fold("any", clauses.bindings, None, typed.IsTrue(where, True), BOOLEAN)


def selection(checker: Checker, select: ast.Select) -> typed.Selection:
    """A query that returns rows."""
    clauses = _checked(checker, select, None)
    order = tuple(
        typed.Sorting(checker.scalar(item.expression, clauses.scope), item.descending) for item in select.orders
    )
    return typed.Selection((*clauses.bindings, *clauses.followed), clauses.where, clauses.columns, order)


def ordering(checker: Checker, select: ast.Select) -> tuple[typed.Sorting, ...]:
    """The keys by which a query orders messages: those of `order by`, or else the selected values."""
    clauses = _checked(checker, select, None)
    if select.where is not None:
        checker.fail("'where' selects messages, and does not order them: move it to the selection", select.where.at)
    several = (*clauses.bindings, *clauses.followed)
    if several:
        checker.fail(
            "a message has one place in an order, and this query gives several rows for it: put what follows a "
            "reference into count(select …), min(select …) or the like",
            select.at,
        )
    items = select.orders or tuple(ast.OrderItem(item) for item in select.selected)
    if not items:
        checker.fail("this query has no order: end it with 'order by …'", select.at)
    return tuple(sorting(checker, item, clauses.scope) for item in items)


def sorting(checker: Checker, item: ast.OrderItem, scope: Scope) -> typed.Sorting:
    """One key of an order of messages."""
    key = checker.scalar(item.expression, scope)
    if key.kind == NULL:
        checker.fail("null alone orders nothing", item.expression.at)
    return typed.Sorting(key, item.descending)


def subquery(checker: Checker, node: ast.Call, select: ast.Select, outer: Scope) -> Typed:
    """An aggregate of a query."""
    clauses = _checked(checker, select, outer)
    _require_unordered(checker, select)
    bindings = (*clauses.bindings, *clauses.followed)
    columns = clauses.columns
    if node.name == "count" and not select.selected:
        return typed.Fold("count", bindings, clauses.where, None, INTEGER)
    if len(columns) != 1 or not select.selected:
        checker.fail(f"{node.name} takes a query that selects one thing, and this one selects {len(columns)}", node.at)
    (body,) = columns
    if node.name == "count":
        counted = body if isinstance(body.kind, Scalar) else None
        return typed.Fold("count", bindings, clauses.where, counted, INTEGER)
    if not isinstance(body.kind, Scalar):
        what = select.selected[0]
        checker.fail(
            f"{node.name} takes values, and {shown(what)} is {described(body.kind)}; select an attribute", what.at
        )
    return aggregated(checker, node, bindings, clauses.where, body)


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
    if node.name in ("sum", "avg"):
        if not kinds.is_number(kind):
            checker.fail(f"{node.name} takes numbers, and this is {described(kind)}", node.at)
        kind = DOUBLE if node.name == "avg" else kinds.summed(kind)
    return typed.Fold(node.name, bindings, where, body, kind)


@dataclass(frozen=True, slots=True)
class _Clauses:
    scope: Scope
    bindings: tuple[Binding, ...]  # of the from clause
    followed: tuple[Binding, ...]  # of selected references: each stands for all of its nodes
    where: Typed | None
    columns: tuple[Typed, ...]


def _checked(checker: Checker, select: ast.Select, outer: Scope | None) -> _Clauses:
    message_type = checker.schema.message_type
    if message_type is None:
        checker.fail(
            "select works on message types; here any(list, …), count(list, …) and the like do its work", select.at
        )
    limits.require("QUERY_DEPTH", len(select.sources), "variables in a from clause")
    scope, bindings = _From(checker, select, outer, message_type).bound()
    # A selected reference gets a variable of its own. The numbers are reserved before anything else is checked:
    # otherwise the variables of quantifiers in `where` and `select` would get the same numbers.
    first = scope.variables
    scope = VariableScope(outer, first + len(select.selected), scope.locations)
    where = None if select.where is None else checker.boolean(select.where, scope, "where")
    columns: list[Typed] = []
    followed: list[Binding] = []
    if not select.selected:
        columns = [scope.locations[source.variable].read for source in select.sources]
    for item in select.selected:
        column = checker.any(item, scope)
        if isinstance(column, typed.ReadPath) and isinstance(column.kind, kinds.Nodes):
            binding = Binding(first + len(followed), column)
            followed.append(binding)
            column = typed.ReadPath(binding.variable, (), kinds.NodeKind(column.kind.target))
        columns.append(column)
    return _Clauses(scope, bindings, tuple(followed), where, tuple(columns))


def _require_unordered(checker: Checker, select: ast.Select) -> None:
    if select.orders:
        checker.fail("order by has no meaning here: only a query of its own gives rows to order", select.at)


class _From:
    """Turns a `from` clause into bindings."""

    def __init__(self, checker: Checker, select: ast.Select, outer: Scope | None, message_type: MessageType) -> None:
        self.checker = checker
        self.sources = select.sources
        self.outer = outer
        self.message_type = message_type
        self.anchor = f"mt_{message_type.name}"
        self.next = ROOT + 1 if outer is None else outer.variables
        self.locations: dict[str, Location] = {}
        self.bindings: list[Binding] = []

    def bound(self) -> tuple[VariableScope, tuple[Binding, ...]]:
        """The variables, and the bindings, each after the one it starts from."""
        self._require_distinct()
        waiting = [source for source in self.sources if not self._is_anchor(source)]
        if not self.locations:
            self.checker.fail(f"a query begins with its message: from {self.anchor} m, m.root …", self.sources[0].at)
        # The clause may be written in any order; each round binds the variables that earlier rounds made reachable.
        while ready := [source for source in waiting if source.path.name in self.locations]:
            waiting = [source for source in waiting if source.path.name not in self.locations]
            for source in ready:
                self._bind(source)
        if waiting:
            self._free(waiting)
        locations = {source.variable: self.locations[source.variable] for source in self.sources}
        return VariableScope(self.outer, self.next, locations), tuple(self.bindings)

    def _require_distinct(self) -> None:
        seen = set()
        for source in self.sources:
            if source.variable in seen:
                self.checker.fail(f"two variables are called {shown(source.variable)!r}", source.at)
            seen.add(source.variable)

    def _is_anchor(self, source: ast.FromItem) -> bool:
        if source.path.steps or source.path.name.lower() != self.anchor.lower():
            return False
        if self.locations:
            self.checker.fail(f"{self.anchor} stands in a from clause once: a query is about one message", source.at)
        root = Location.root(self.checker.schema)
        self.locations[source.variable] = replace(root, type=kinds.Message(), written=source.variable)
        return True

    def _bind(self, source: ast.FromItem) -> None:
        scope = VariableScope(None, self.next, self.locations)
        location = self.checker.location(source.path, scope)
        if isinstance(location.type, kinds.Nodes):
            element = replace(location.element(self.next), written=source.variable)
            self.bindings.append(Binding(self.next, location.read))
            self.locations[source.variable] = element
            self.next += 1
        elif isinstance(location.type, kinds.NodeKind):
            self.locations[source.variable] = replace(location, written=source.variable)
        else:
            message = f"a variable goes through a reference, and {shown(source.path)} is {described(location.kind)}"
            self.checker.fail(message, source.at)

    def _free(self, waiting: list[ast.FromItem]) -> None:
        source = waiting[0]
        declared = {other.variable for other in self.sources}
        if not source.path.steps:
            if source.path.name.lower().startswith("mt_"):
                self.checker.fail(
                    f"the messages here are of type {self.anchor}, not {shown(source.path.name)}", source.at
                )
            message = f"{shown(source.variable)!r} is a free variable: nothing leads to it from {self.anchor}"
            self.checker.fail(f"{message}{self._way(source)}", source.at)
        if source.path.name not in declared:
            message = unknown(source.path.name, sorted(declared), f"there is no variable {shown(source.path.name)!r}")
            self.checker.fail(message, source.at)
        names = shown(", ".join(repr(other.variable) for other in waiting))
        self.checker.fail(f"free variables that no path from {self.anchor} leads to: {names}", source.at)

    def _way(self, source: ast.FromItem) -> str:
        """How to reach the node type that a free variable names."""
        ways = [
            f"{variable}.{name} {source.variable}"
            for variable, location in self.locations.items()
            for name, kind in location.members.items()
            if kind == kinds.Nodes(source.path.name)
        ]
        return f"; write {' or '.join(ways)}" if ways else ""
