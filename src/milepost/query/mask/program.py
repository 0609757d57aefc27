"""The typed AST as functions of a frame: vectors of values for most expressions, masks for logic.

A mask answers "in which rows is this known to be true (or false)?" and is all that a predicate needs in the end. So
logic is compiled twice. As a mask, `and` is an intersection of masks and no null is ever counted; as a vector, where
someone must know null from false, it costs a little more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from milepost.query import typed
from milepost.query.kinds import DOUBLE, Scalar
from milepost.query.mask import doubles, exact, reading
from milepost.query.mask.comparing import Membership, compared, comparison, constants_of, doubling
from milepost.query.mask.folding import fold
from milepost.query.mask.frame import Frame
from milepost.query.mask.functions import function
from milepost.query.mask.text import matcher
from milepost.query.mask.vector import Bools, Part, Vector, both, gathered, machine, merged, spread
from milepost.query.typed import Typed

Evaluate: TypeAlias = Callable[[Frame], Vector | None]
Holds: TypeAlias = Callable[[Frame], Bools]


class Program:
    """Compiles the parts of one query. Equal paths are read once in a frame."""

    def __init__(self) -> None:
        self._paths: dict[typed.Read, int] = {}

    # Masks

    def holds(self, node: Typed, wanted: bool = True) -> Holds:
        """In which rows a boolean is known to be `wanted`."""
        match node:
            case typed.Not(operand):
                return self.holds(operand, not wanted)
            case typed.IsTrue(operand, value):
                inside = self.holds(operand, value)
                return inside if wanted else lambda frame: ~inside(frame)
            case typed.And(terms):
                return self._every(terms, True) if wanted else self._some(terms, False)
            case typed.Or(terms):
                return self._some(terms, True) if wanted else self._every(terms, False)
            case typed.IsNull(operand):
                null = self._null(operand)
                return null if wanted else lambda frame: ~null(frame)
        evaluate = self.vector(node)

        def holds(frame: Frame) -> Bools:
            vector = evaluate(frame)
            if vector is None:
                return np.zeros(frame.n, np.bool_)
            values = spread(vector, frame.n, node.kind)  # type: ignore[arg-type]
            values = values if wanted else ~values
            return values if vector.known is None else values & vector.known  # type: ignore[no-any-return]

        return holds

    def _every(self, terms: tuple[Typed, ...], wanted: bool) -> Holds:
        first, *rest = [self.holds(term, wanted) for term in terms]

        def holds(frame: Frame) -> Bools:
            found = first(frame)
            for term in rest:
                if not found.any():  # a few microseconds at most, and often the rest is dear
                    break
                found = found & term(frame)
            return found

        return holds

    def _some(self, terms: tuple[Typed, ...], wanted: bool) -> Holds:
        first, *rest = [self.holds(term, wanted) for term in terms]

        def holds(frame: Frame) -> Bools:
            found = first(frame)
            for term in rest:
                found = found | term(frame)
            return found

        return holds

    def _null(self, node: Typed) -> Holds:
        if isinstance(node, typed.Read) and not isinstance(node.kind, Scalar):
            return lambda frame: ~reading.present(node, frame)
        evaluate = self.vector(node)

        def null(frame: Frame) -> Bools:
            vector = evaluate(frame)
            if vector is None:
                return np.ones(frame.n, np.bool_)
            return np.zeros(frame.n, np.bool_) if vector.known is None else ~vector.known

        return null

    # Vectors

    def vector(self, node: Typed) -> Evaluate:
        """The values of an expression."""
        match node:
            case typed.Const(value, kind):
                constant = None if value is None else Vector(machine(value, kind))
                return lambda frame: constant
            case typed.Read():
                return self._read(node)
            case typed.Header(name):
                return lambda frame: _header(name, frame)
            case typed.CaseName():
                return lambda frame: reading.case_name(node, frame)
            case typed.Negate() | typed.Convert() | typed.Arithmetic():
                return self._calculation(node)
            case typed.Call("coalesce"):
                return self._coalesce(node)
            case typed.Call():
                return self._call(node)
            case typed.Compare(sign, left, right):
                compare = comparison(sign, _kind(left), _kind(right))
                one, other = self.vector(left), self.vector(right)
                return lambda frame: compared(compare, one(frame), other(frame))
            case typed.Between():
                return self._between(node)
            case typed.In():
                return self._in(node)
            case typed.Like(operand, pattern):
                return self._like(operand, matcher(pattern))
            case typed.IsNull() | typed.IsTrue():
                holds = self.holds(node)
                return lambda frame: Vector(holds(frame))
            case typed.Not(operand):
                return self._not(operand)
            case typed.And(terms):
                return self._junction(terms, True)
            case typed.Or(terms):
                return self._junction(terms, False)
            case typed.Fold(_, _, where, body):
                return fold(
                    node, None if where is None else self.holds(where), None if body is None else self.vector(body)
                )

    def _read(self, node: typed.Read) -> Evaluate:
        number = self._paths.setdefault(node, len(self._paths))

        def evaluate(frame: Frame) -> Vector | None:
            if number not in frame.memo:
                frame.memo[number] = reading.read(node, frame)
            return frame.memo[number]  # type: ignore[no-any-return]

        return evaluate

    def _calculation(self, node: typed.Negate | typed.Convert | typed.Arithmetic) -> Evaluate:
        result = node.kind
        if isinstance(node, typed.Arithmetic):
            sign, kinds = node.operator, (_kind(node.left), _kind(node.right))
            one, other = self.vector(node.left), self.vector(node.right)
            left_double, right_double = doubling(kinds[0]), doubling(kinds[1])
            scales = (kinds[0].scale, kinds[1].scale)

            def calculate(frame: Frame) -> Vector | None:
                left, right = one(frame), other(frame)
                if left is None or right is None:
                    return None
                if result != DOUBLE:
                    return exact.calculated(sign, left, right, scales, result)
                known = both(left.known, right.known)
                return doubles.calculated(sign, left_double(left.values), right_double(right.values), known)

            return calculate
        operand, kind = self.vector(node.operand), _kind(node.operand)

        def change(frame: Frame) -> Vector | None:
            vector = operand(frame)
            if vector is None:
                return None
            if isinstance(node, typed.Negate):
                return Vector(-vector.values, vector.known) if result == DOUBLE else exact.negated(vector, result)
            if result == DOUBLE:
                return Vector(exact.doubled(vector.values, kind.scale), vector.known)
            return exact.bounded(exact.raised(vector.values, result.scale - kind.scale), vector.known, result)

        return change

    def _call(self, node: typed.Call) -> Evaluate:
        parts = [self.vector(argument) for argument in node.arguments]
        call = function(node)
        kind = _kind(node.arguments[0])

        def evaluate(frame: Frame) -> Vector | None:
            arguments = []
            for part in parts:
                vector = part(frame)
                if vector is None:
                    return None
                arguments.append(vector)
            if all(argument.constant for argument in arguments):  # the name of a case, the same for the whole group
                arguments[0] = Vector(spread(arguments[0], frame.n, kind), arguments[0].known)
            return call(arguments, frame.n)

        return evaluate

    def _coalesce(self, node: typed.Call) -> Evaluate:
        parts = [self.vector(argument) for argument in node.arguments]

        def evaluate(frame: Frame) -> Vector | None:
            left = np.ones(frame.n, np.bool_)
            found: list[Part] = []
            for part in parts:
                vector = part(frame)
                if vector is None:
                    continue
                if not found and vector.known is None:
                    return Vector(spread(vector, frame.n, node.kind))
                mine = np.flatnonzero(left if vector.known is None else left & vector.known)
                if len(mine):
                    found.append(Part(mine, Vector(gathered(spread(vector, frame.n, node.kind), mine))))
                    left[mine] = False
                if not left.any():
                    break
            return merged(found, frame.n, node.kind)

        return evaluate

    def _between(self, node: typed.Between) -> Evaluate:
        operand, low, high = self.vector(node.operand), self.vector(node.low), self.vector(node.high)
        kind = _kind(node.operand)
        above = comparison(">=", kind, _kind(node.low))
        below = comparison("<=", kind, _kind(node.high))

        def evaluate(frame: Frame) -> Vector | None:
            values = operand(frame)
            if values is None:
                return None
            ends = [compared(above, values, low(frame)), compared(below, values, high(frame))]
            return conjunction(ends, frame.n)

        return evaluate

    def _in(self, node: typed.In) -> Evaluate:
        kind = _kind(node.operand)
        operand = self.vector(node.operand)
        constants, others, null = constants_of(kind, node.items)
        member = Membership(kind, constants) if constants else None
        items = [(self.vector(item), comparison("=", kind, _kind(item))) for item in others]

        def evaluate(frame: Frame) -> Vector | None:
            values = operand(frame)
            if values is None:
                return None
            found: list[Vector | None] = []
            if member is not None:
                # A constant operand beside items that are not: it still needs rows to be looked for in.
                found.append(Vector(member(spread(values, frame.n, kind)), values.known))
            found += [compared(equal, values, item(frame)) for item, equal in items]
            return disjunction([*found, None] if null else found, frame.n)

        return evaluate

    def _like(self, node: Typed, matches: Callable[..., Bools]) -> Evaluate:
        operand = self.vector(node)

        def evaluate(frame: Frame) -> Vector | None:
            texts = operand(frame)
            return None if texts is None else Vector(matches(spread(texts, frame.n, _kind(node))), texts.known)

        return evaluate

    def _not(self, node: Typed) -> Evaluate:
        operand = self.vector(node)

        def evaluate(frame: Frame) -> Vector | None:
            vector = operand(frame)
            return None if vector is None else Vector(~spread(vector, frame.n, _kind(node)), vector.known)

        return evaluate

    def _junction(self, terms: tuple[Typed, ...], conjoined: bool) -> Evaluate:
        parts = [self.vector(term) for term in terms]
        join = conjunction if conjoined else disjunction
        return lambda frame: join([part(frame) for part in parts], frame.n)


def conjunction(vectors: list[Vector | None], n: int) -> Vector | None:
    """`and` of three values each: known where one is false, or where all are known."""
    return _joined(vectors, n, decisive=False)


def disjunction(vectors: list[Vector | None], n: int) -> Vector | None:
    """`or` of three values each: known where one is true, or where all are known."""
    return _joined(vectors, n, decisive=True)


def _joined(vectors: list[Vector | None], n: int, decisive: bool) -> Vector | None:
    there = [vector for vector in vectors if vector is not None]
    if not there:
        return None
    decided: Bools | None = None  # where one vector has the decisive value
    known: Bools | None = None if len(there) == len(vectors) else np.zeros(n, np.bool_)  # where all are known
    for vector in there:
        values = vector.values if isinstance(vector.values, np.ndarray) else np.full(n, vector.values, np.bool_)
        values = values if decisive else ~values
        values = values if vector.known is None else values & vector.known
        decided = values if decided is None else decided | values
        known = both(known, vector.known)
    assert decided is not None
    return Vector(decided if decisive else ~decided, None if known is None else known | decided)


def _header(name: str, frame: Frame) -> Vector | None:
    vector = frame.origin.header.get(name)
    if vector is None or frame.messages is None:
        return vector
    known = None if vector.known is None else vector.known[frame.messages]
    return Vector(gathered(vector.values, frame.messages), known)


def _kind(node: Typed) -> Scalar:
    assert isinstance(node.kind, Scalar)
    return node.kind
