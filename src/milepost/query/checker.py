"""AST to typed AST: every name is looked up in the schema, every type checked, every constant calculated.

An error shows the position in the text, both types where two clash, and what to write instead where that is known.
"""

from __future__ import annotations

from typing import Final, NoReturn

from milepost import limits
from milepost.query import ast, calls, kinds, like, typed
from milepost.query.header import ATTRIBUTES
from milepost.query.kinds import BOOLEAN, DATE, DOUBLE, INTEGER, NULL, STRING, TIMESTAMP, Scalar
from milepost.query.literal import adapted, constant, folded
from milepost.query.location import Location, WrongStep, described, shown, unknown
from milepost.query.printer import literal
from milepost.query.scope import ElementScope, Scope
from milepost.query.source import syntax_error, type_error
from milepost.query.typed import Const, Typed, scalar
from milepost.schema.types import Schema, Tuple, Variant

_VERBS: Final = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide", "%": "divide"}
_ADVICE: Final = {
    ("+", "string"): "; strings are joined with ||",
    ("-", "date"): "; use days_between",
    ("-", "timestamp"): "; use seconds_between",
}


class Checker:
    """Checks one query; `clauses` does so for `select`."""

    def __init__(self, text: str, schema: Schema) -> None:
        self.text = text
        self.schema = schema

    def scope(self) -> Scope:
        """The outermost names of a plain predicate."""
        return ElementScope(None, Location.root(self.schema))

    def scalar(self, node: ast.Expression, scope: Scope) -> Typed:
        """The typed form of an expression that has a value, not a structure."""
        found = self.any(node, scope)
        if not isinstance(found.kind, Scalar):
            self.fail(
                f"{shown(node)} is {described(found.kind)}, and not a single value{_way(node, found.kind)}", node.at
            )
        return found

    def boolean(self, node: ast.Expression, scope: Scope, user: str) -> Typed:
        """The typed form of an expression that must be boolean; `user` is the operator that needs it."""
        found = self.scalar(node, scope)
        if found.kind == NULL:
            return Const(None, BOOLEAN)
        if found.kind != BOOLEAN:
            self.fail(f"{user} takes true or false, and {shown(node)} is {described(found.kind)}", node.at)
        return found

    def any(self, node: ast.Expression, scope: Scope) -> Typed:
        """The typed form of an expression, which may be a structure."""
        return folded(self._typed(node, scope))

    def _typed(self, node: ast.Expression, scope: Scope) -> Typed:
        match node:
            case ast.Literal():
                return constant(node)
            case ast.Path():
                return self._path(node, scope)
            case ast.Minus(operand):
                return self._minus(node, self.scalar(operand, scope))
            case ast.Binary(operator, left, right):
                left_typed, right_typed = self.scalar(left, scope), self.scalar(right, scope)
                if operator == "||":
                    return self._concatenation(node, left_typed, right_typed)
                if operator in _VERBS:
                    return self._arithmetic(node, left_typed, right_typed)
                return self.comparison(operator, left_typed, right_typed, node.at)
            case ast.Chain("and", terms):
                return typed.And(tuple(self.boolean(term, scope, "'and'") for term in terms))
            case ast.Chain(_, terms):
                return typed.Or(tuple(self.boolean(term, scope, "'or'") for term in terms))
            case ast.Negation(operand):
                return typed.Not(self.boolean(operand, scope, "'not'"))
            case ast.Between():
                return _negated(node.negated, self._between(node, scope))
            case ast.In(_, ast.Path() as path):
                return _negated(node.negated, self._in_path(node, path, scope))
            case ast.In(_, tuple() as items):
                return _negated(node.negated, self._in_items(node, items, scope))
            case ast.Like():
                return _negated(node.negated, self._like(node, scope))
            case ast.Is():
                return _negated(node.negated, self._is(node, scope))
            case ast.Call():
                return calls.call(self, node, scope)
            case _:
                raise AssertionError(node)

    # Names

    def location(self, path: ast.Path, scope: Scope) -> Location:
        """The location at the end of a path."""
        location = self._first(path, scope)
        for step, at in zip(path.steps, path.places, strict=True):
            location = self._step(location, step, at)
        return location

    def _first(self, path: ast.Path, scope: Scope) -> Location:
        try:
            return scope.find(path.name)
        except WrongStep as error:
            quoted = self.text[path.at : path.at + 1] == '"'
            hint = f"; a string is written {shown(literal('string', path.name))}" if quoted else ""
            self.fail(f"{error}{hint}", path.at)

    def _step(self, location: Location, step: str | int, at: int) -> Location:
        try:
            return location.step(step)
        except WrongStep as error:
            self.fail(str(error), at)

    def _path(self, path: ast.Path, scope: Scope) -> Typed:
        match path.steps:
            case [str() as name, *rest] if name in ATTRIBUTES:
                if isinstance(self._first(path, scope).type, kinds.Message):
                    if rest:
                        self.fail(
                            f"{path.name}.{name} is {described(ATTRIBUTES[name])}, which has no parts", path.places[1]
                        )
                    return typed.HeaderField(name, ATTRIBUTES[name])
        return self.location(path, scope).read

    def element(self, location: Location, scope: Scope, path: ast.Path) -> Location:
        """The location of a new variable that takes each element of the list at the end of a path."""
        try:
            return location.element(scope.variables)
        except WrongStep as error:
            self.fail(str(error), path.at)

    # Numbers and strings

    def _minus(self, node: ast.Minus, operand: Typed) -> Typed:
        kind = scalar(operand)
        if kind == NULL:
            return operand
        if not kinds.is_number(kind):
            self.fail(f"only a number has a sign, and {shown(node.operand)} is {described(kind)}", node.at)
        return typed.Negate(operand, kind)

    def _arithmetic(self, node: ast.Binary, left: Typed, right: Typed) -> Typed:
        sides = (scalar(left), scalar(right))
        for kind in sides:
            if kind != NULL and not kinds.is_number(kind):
                advice = _ADVICE.get((node.operator, kind.name), "")
                self.fail(f"cannot {_VERBS[node.operator]} {sides[0]} and {sides[1]}{advice}", node.at)
        result = self._result(node, *sides)
        if NULL in sides:
            return Const(None, result)
        if result == DOUBLE:
            left, right = adapted(left, DOUBLE, exact=False), adapted(right, DOUBLE, exact=False)
        return typed.Arithmetic(node.operator, left, right, result)

    def _result(self, node: ast.Binary, left: Scalar, right: Scalar) -> Scalar:
        if node.operator == "/" or DOUBLE in (left, right):
            return DOUBLE
        if {left, right} <= {INTEGER, NULL}:
            return INTEGER
        scale = left.scale + right.scale if node.operator == "*" else max(left.scale, right.scale)
        if scale > limits.DECIMAL_DIGITS:
            self.fail(
                f"multiplying {left} by {right} would leave {scale} digits after the point, and a decimal has "
                f"{limits.DECIMAL_DIGITS} at most; multiply one side by 1e0 to calculate with doubles",
                node.at,
            )
        whole = [kinds.whole_digits(kind) for kind in (left, right) if kind != NULL]
        return kinds.decimal((sum(whole) if node.operator == "*" else max(whole) + 1) + scale, scale)

    def _concatenation(self, node: ast.Binary, left: Typed, right: Typed) -> Typed:
        sides = (scalar(left), scalar(right))
        if not {*sides} <= {STRING, NULL}:
            self.fail(f"|| joins strings, not {sides[0]} and {sides[1]}", node.at)
        return Const(None, STRING) if NULL in sides else typed.Call("||", (left, right), STRING)

    # Tests

    def comparison(self, operator: str, left: Typed, right: Typed, at: int) -> Typed:
        """Two values compared; a constant takes the kind of the other side where that keeps the meaning."""
        left, right = self._alike(left, right, at)
        if NULL in (left.kind, right.kind):
            return Const(None, BOOLEAN)
        return typed.Compare(operator, left, right)

    def _alike(self, left: Typed, right: Typed, at: int) -> tuple[Typed, Typed]:
        kind, other = scalar(left), scalar(right)
        if NULL not in (kind, other) and not kinds.comparable(kind, other):
            self.fail(f"cannot compare {kind} with {other}{_comparison_advice(left, right)}", at)
        if isinstance(left, typed.CaseName) and isinstance(right, Const) and right.value is not None:
            self._require_case(left, right.value, at)
        if isinstance(right, typed.CaseName) and isinstance(left, Const) and left.value is not None:
            self._require_case(right, left.value, at)
        return adapted(left, other), adapted(right, kind)

    def _require_case(self, node: typed.CaseName, name: str, at: int) -> None:
        kind = node.variant.kind
        assert isinstance(kind, kinds.Structure)
        assert isinstance(kind.type, Variant)
        names = [case.name for case in kind.type.cases]
        if name not in names:
            self.fail(unknown(name, names, f"there is no case {shown(name)!r}"), at)

    def _between(self, node: ast.Between, scope: Scope) -> Typed:
        operand = self.scalar(node.operand, scope)
        low, high = self.scalar(node.low, scope), self.scalar(node.high, scope)
        _, low = self._alike(operand, low, node.low.at)
        _, high = self._alike(operand, high, node.high.at)
        kind = scalar(operand)
        if kind == NULL or low.kind == high.kind == NULL:
            return Const(None, BOOLEAN)
        # One end may be null while the other decides, so a null only takes the operand's kind.
        low, high = (Const(None, kind) if end.kind == NULL else end for end in (low, high))
        return typed.Between(operand, low, high)

    def _in_items(self, node: ast.In, items: tuple[ast.Expression, ...], scope: Scope) -> Typed:
        operand = self.scalar(node.operand, scope)
        kind = scalar(operand)
        found = []
        for item in items:
            value = self.any(item, scope)
            if isinstance(value.kind, kinds.Elements):
                self.fail(
                    f"{shown(item)} is a list; write {shown(node.operand)} in {shown(item)}, without parentheses",
                    item.at,
                )
            if not isinstance(value.kind, Scalar):
                self.fail(f"{shown(item)} is {described(value.kind)}, and not a single value", item.at)
            _, value = self._alike(operand, value, item.at)
            found.append(Const(None, kind) if value.kind == NULL else value)
        return Const(None, BOOLEAN) if kind == NULL else typed.In(operand, tuple(found))

    def _in_path(self, node: ast.In, path: ast.Path, scope: Scope) -> Typed:
        operand = self.any(node.operand, scope)
        location = self.location(path, scope)
        if isinstance(location.type, kinds.Nodes):
            self.fail(f"{shown(path)} is a reference; let a variable go through it: from …, {shown(path)} x", node.at)
        element = self.element(location, scope, path)
        if not (isinstance(operand.kind, Scalar) and isinstance(element.kind, Scalar)):
            kind = element.kind if isinstance(operand.kind, Scalar) else operand.kind
            self.fail(f"'in' compares single values, and not {described(kind)}; write any({shown(path)}, …)", node.at)
        body = self.comparison("=", element.read, operand, node.at)
        return typed.Fold("any", (typed.Binding(element.variable, location.entered()),), None, body, BOOLEAN)

    def _like(self, node: ast.Like, scope: Scope) -> Typed:
        operand = self.scalar(node.operand, scope)
        if operand.kind not in (STRING, NULL):
            self.fail(f"like takes a string, and {shown(node.operand)} is {described(operand.kind)}", node.at)
        try:
            pattern = like.compiled(node.pattern, node.escape)
        except like.WrongPattern as error:
            raise syntax_error(str(error), self.text, node.at) from None
        return Const(None, BOOLEAN) if operand.kind == NULL else typed.Like(operand, pattern)

    def _is(self, node: ast.Is, scope: Scope) -> Typed:
        if node.what is not None:
            word = "is true" if node.what else "is false"
            return typed.IsTrue(self.boolean(node.operand, scope, f"'{word}'"), node.what)
        operand = self.any(node.operand, scope)
        if isinstance(operand.kind, kinds.Nodes):
            self.fail(
                f"a reference is never null, but it may be empty: write count({shown(node.operand)}) = 0", node.at
            )
        if isinstance(operand.kind, kinds.NodeKind | kinds.Message):
            self.fail(f"{shown(node.operand)} is {described(operand.kind)}, and never null", node.at)
        return typed.IsNull(operand)

    def fail(self, message: str, at: int) -> NoReturn:
        """Refuse the query."""
        raise type_error(message, self.text, at)


def _negated(negated: bool, node: Typed) -> Typed:
    return typed.Not(folded(node)) if negated else node


def _way(node: ast.Expression, kind: kinds.Kind) -> str:
    """What to write instead of a structure."""
    match kind:
        case kinds.Elements() | kinds.Nodes():
            return f"; write count({shown(node)}) or any({shown(node)}, …)"
        case kinds.Structure(Variant()):
            return f"; write case({shown(node)}), or name a case"
        case kinds.Structure(Tuple()) | kinds.NodeKind():
            return "; name one of its fields"
        case _:
            return ""


def _comparison_advice(left: Typed, right: Typed) -> str:
    sides = {left.kind, right.kind}
    if sides == {DATE, TIMESTAMP}:
        return "; write date(…) of the timestamp"
    if STRING in sides and (word := next((kind for kind in sides if kind in (DATE, TIMESTAMP, kinds.UUID)), None)):
        return f"; a {word} is written {word} '…'"
    return ""
