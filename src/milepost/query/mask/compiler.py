"""The typed AST as functions of a frame: vectors of values for most expressions, masks for logic.

A mask answers "in which rows is this true (or false)?", which is all that a predicate needs in the end. So logic is
compiled in two ways. As a mask, `and` is an intersection and needs no nulls. As a vector, for operators that must
distinguish null from false, it costs a little more.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Final, TypeAlias

import numpy as np

from milepost.query import typed
from milepost.query.kinds import BOOLEAN, BYTES, STRING, Scalar
from milepost.query.mask import paths
from milepost.query.mask.aggregates import fold
from milepost.query.mask.arithmetic import calculation, conversion, negation
from milepost.query.mask.comparison import Membership, compared, comparison, constants_of
from milepost.query.mask.frame import RowFrame
from milepost.query.mask.functions import function
from milepost.query.mask.text import matcher, text_bytes
from milepost.query.mask.vector import Bools, PartialVector, Vector, both, gathered, machine, merged, spread
from milepost.query.typed import Typed, scalar

Evaluate: TypeAlias = Callable[[RowFrame], Vector | None]
Holds: TypeAlias = Callable[[RowFrame], Bools]

LIKE_CHARS: Final = 128  # of a pattern: every so many add a step for each byte of text


class MaskCompiler:
    """Compiles the parts of one query. Equal paths are read once in a frame."""

    def __init__(self) -> None:
        self._paths: dict[typed.ReadPath, int] = {}

    # Masks

    def holds(self, node: Typed, wanted: bool = True) -> Holds:
        """In which rows a boolean is `wanted`, and not null."""
        match node:
            case typed.Not(operand):
                return self.holds(operand, not wanted)
            case typed.IsTrue(operand, value):
                inside = self.holds(operand, value)
                return inside if wanted else lambda frame: ~inside(frame)
            case typed.And(terms):
                return self._conjunction(terms) if wanted else self._some(terms, False)
            case typed.Or(terms):
                return self._some(terms, True) if wanted else self._every(terms, False)
            case typed.IsNull(operand):
                null = self._null(operand)
                return null if wanted else lambda frame: ~null(frame)
        evaluate = self.vector(node)

        def holds(frame: RowFrame) -> Bools:
            vector = evaluate(frame)
            if vector is None:
                return np.zeros(frame.n, np.bool_)
            values: Bools = spread(vector, frame.n, BOOLEAN)
            values = values if wanted else ~values
            return values if vector.known is None else values & vector.known

        return holds

    def _conjunction(self, terms: tuple[Typed, ...]) -> Holds:
        """`and`, which checks the validity of all columns in its simple terms together."""
        unchecked = _Unchecked()
        simple = [unchecked.vector(term) for term in terms if _needs_all(term)]
        others = [term for term in terms if not _needs_all(term)]
        rest = self._every(tuple(others), True) if others else None
        if not simple:
            assert rest is not None
            return rest

        def holds(frame: RowFrame) -> Bools:
            frame.pending.clear()
            found: Bools | None = None
            for term in simple:
                vector = term(frame)
                if vector is None:
                    return np.zeros(frame.n, np.bool_)
                values: Bools = spread(vector, frame.n, BOOLEAN)
                values = values if vector.known is None else values & vector.known
                found = values if found is None else found & values
                if not found.any():  # costs a microsecond, and often saves much more
                    return found
            assert found is not None
            if frame.pending:
                valid = reduce(np.bitwise_and, frame.pending)
                found = found & np.unpackbits(valid, count=frame.n, bitorder="little").view(np.bool_)
            return found if rest is None or not found.any() else found & rest(frame)

        return holds

    def _every(self, terms: tuple[Typed, ...], wanted: bool) -> Holds:
        first, *rest = [self.holds(term, wanted) for term in terms]

        def holds(frame: RowFrame) -> Bools:
            found = first(frame)
            for term in rest:
                if not found.any():
                    break
                found = found & term(frame)
            return found

        return holds

    def _some(self, terms: tuple[Typed, ...], wanted: bool) -> Holds:
        first, *rest = [self.holds(term, wanted) for term in terms]

        def holds(frame: RowFrame) -> Bools:
            found = first(frame)
            for term in rest:
                found = found | term(frame)
            return found

        return holds

    def _null(self, node: Typed) -> Holds:
        if isinstance(node, typed.ReadPath) and not isinstance(node.kind, Scalar):
            return lambda frame: ~paths.present(node, frame)
        evaluate = self.vector(node)

        def null(frame: RowFrame) -> Bools:
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
            case typed.ReadPath():
                return self._read(node)
            case typed.HeaderField(name):
                return lambda frame: _header(name, frame)
            case typed.CaseName():
                return lambda frame: paths.case_name(node, frame)
            case typed.Negate(operand, kind):
                return self._changed(operand, negation(kind))
            case typed.Convert(operand, kind):
                return self._changed(operand, conversion(scalar(operand), kind))
            case typed.Arithmetic():
                return self._arithmetic(node)
            case typed.Call("coalesce"):
                return self._coalesce(node)
            case typed.Call():
                return self._call(node)
            case typed.Compare(sign, left, right):
                compare = comparison(sign, scalar(left), scalar(right))
                one, other = self.vector(left), self.vector(right)
                return lambda frame: compared(compare, one(frame), other(frame))
            case typed.Between():
                return self._between(node)
            case typed.In():
                return self._in(node)
            case typed.Like(operand, pattern):
                return self._like(operand, matcher(pattern), 1 + len(pattern.characters) // LIKE_CHARS)
            case typed.IsNull() | typed.IsTrue():
                holds = self.holds(node)
                return lambda frame: Vector(holds(frame))
            case typed.Not(operand):
                return self._not(operand)
            case typed.And(terms):
                return self._junction(terms, False)
            case typed.Or(terms):
                return self._junction(terms, True)
            case typed.Fold(_, _, where, body):
                return fold(
                    node, None if where is None else self.holds(where), None if body is None else self.vector(body)
                )

    def _read(self, node: typed.ReadPath) -> Evaluate:
        number = self._paths.setdefault(node, len(self._paths))
        copied = node.kind in (STRING, BYTES)  # reading text inside an iteration copies it for each element

        def evaluate(frame: RowFrame) -> Vector | None:
            if number not in frame.memo:
                vector = frame.memo[number] = paths.read(node, frame)
                if vector is not None and copied and frame.outer is not None:
                    frame.origin.spend(text_bytes(vector, frame.n))
            return frame.memo[number]

        return evaluate

    def _arithmetic(self, node: typed.Arithmetic) -> Evaluate:
        one, other = self.vector(node.left), self.vector(node.right)
        calculate = calculation(node.operator, scalar(node.left), scalar(node.right), node.kind)

        def evaluate(frame: RowFrame) -> Vector | None:
            left, right = one(frame), other(frame)
            return None if left is None or right is None else calculate(left, right)

        return evaluate

    def _changed(self, node: Typed, change: Callable[[Vector], Vector]) -> Evaluate:
        operand = self.vector(node)

        def evaluate(frame: RowFrame) -> Vector | None:
            vector = operand(frame)
            return None if vector is None else change(vector)

        return evaluate

    def _call(self, node: typed.Call) -> Evaluate:
        parts = [self.vector(argument) for argument in node.arguments]
        call = function(node)
        kind = scalar(node.arguments[0])
        texts = [place for place, each in enumerate(node.arguments) if each.kind in (STRING, BYTES)]

        def evaluate(frame: RowFrame) -> Vector | None:
            arguments = []
            for part in parts:
                vector = part(frame)
                if vector is None:
                    return None
                arguments.append(vector)
            if all(argument.constant for argument in arguments):  # the name of a case, the same for the whole group
                arguments[0] = Vector(spread(arguments[0], frame.n, kind), arguments[0].known)
            if texts:
                frame.origin.spend(sum(text_bytes(arguments[place], frame.n) for place in texts))
            return call(arguments, frame)

        return evaluate

    def _coalesce(self, node: typed.Call) -> Evaluate:
        parts = [self.vector(argument) for argument in node.arguments]

        def evaluate(frame: RowFrame) -> Vector | None:
            left = np.ones(frame.n, np.bool_)
            found: list[PartialVector] = []
            for part in parts:
                vector = part(frame)
                if vector is None:
                    continue
                if not found and vector.known is None:
                    return Vector(spread(vector, frame.n, node.kind))
                mine = np.flatnonzero(left if vector.known is None else left & vector.known)
                if len(mine):
                    found.append(PartialVector(mine, Vector(gathered(spread(vector, frame.n, node.kind), mine))))
                    left[mine] = False
                if not left.any():
                    break
            return merged(found, frame.n, node.kind)

        return evaluate

    def _between(self, node: typed.Between) -> Evaluate:
        operand, low, high = self.vector(node.operand), self.vector(node.low), self.vector(node.high)
        kind = scalar(node.operand)
        above = comparison(">=", kind, scalar(node.low))
        below = comparison("<=", kind, scalar(node.high))

        def evaluate(frame: RowFrame) -> Vector | None:
            values = operand(frame)
            if values is None:
                return None
            ends = [compared(above, values, low(frame)), compared(below, values, high(frame))]
            return _joined(ends, frame.n, False)

        return evaluate

    def _in(self, node: typed.In) -> Evaluate:
        kind = scalar(node.operand)
        operand = self.vector(node.operand)
        constants, others, null = constants_of(kind, node.items)
        member = Membership(kind, constants) if constants else None
        items = [(self.vector(item), comparison("=", kind, scalar(item))) for item in others]

        def evaluate(frame: RowFrame) -> Vector | None:
            values = operand(frame)
            if values is None:
                return None
            found: list[Vector | None] = []
            if member is not None:
                # A constant operand with items that are not constant: spread it over the rows.
                found.append(Vector(member(spread(values, frame.n, kind)), values.known))
            found += [compared(equal, values, item(frame)) for item, equal in items]
            return _joined([*found, None] if null else found, frame.n, True)

        return evaluate

    def _like(self, node: Typed, matches: Callable[..., Bools], steps: int) -> Evaluate:
        operand = self.vector(node)

        def evaluate(frame: RowFrame) -> Vector | None:
            texts = operand(frame)
            if texts is None:
                return None
            frame.origin.spend(steps * text_bytes(texts, frame.n))
            return Vector(matches(spread(texts, frame.n, STRING)), texts.known)

        return evaluate

    def _not(self, node: Typed) -> Evaluate:
        operand = self.vector(node)

        def evaluate(frame: RowFrame) -> Vector | None:
            vector = operand(frame)
            return None if vector is None else Vector(~spread(vector, frame.n, BOOLEAN), vector.known)

        return evaluate

    def _junction(self, terms: tuple[Typed, ...], decisive: bool) -> Evaluate:
        parts = [self.vector(term) for term in terms]
        return lambda frame: _joined([part(frame) for part in parts], frame.n, decisive)


class _Unchecked(MaskCompiler):
    """Leaves the validity check of plain columns to the caller, in `RowFrame.pending`."""

    def _read(self, node: typed.ReadPath) -> Evaluate:
        def evaluate(frame: RowFrame) -> Vector | None:
            vector, valid = paths.unchecked(node, frame)
            if valid is not None:
                frame.pending.append(valid)
            return vector

        return evaluate


def _needs_all(node: Typed) -> bool:
    """Whether a term tests only columns and constants, and can be true only where all its columns have a value."""
    match node:
        case typed.Compare(_, left, right):
            operands: tuple[Typed, ...] = (left, right)
        case typed.Between(operand, low, high):
            operands = (operand, low, high)
        case typed.Like(operand):
            operands = (operand,)
        case typed.In(operand, items):
            return isinstance(operand, typed.ReadPath) and all(isinstance(item, typed.Const) for item in items)
        case _:
            return False
    return all(isinstance(operand, typed.ReadPath | typed.Const) for operand in operands)


def _joined(vectors: list[Vector | None], n: int, decisive: bool) -> Vector | None:
    """`and` (false decides) or `or` (true decides): known where one vector decides, or where all are known."""
    there = [vector for vector in vectors if vector is not None]
    if not there:
        return None
    decided: Bools | None = None  # where one vector has the decisive value
    known: Bools | None = None if len(there) == len(vectors) else np.zeros(n, np.bool_)  # where all are known
    for vector in there:
        values: Bools = spread(vector, n, BOOLEAN)
        values = values if decisive else ~values
        values = values if vector.known is None else values & vector.known
        decided = values if decided is None else decided | values
        known = both(known, vector.known)
    assert decided is not None
    return Vector(decided if decisive else ~decided, None if known is None else known | decided)


def _header(name: str, frame: RowFrame) -> Vector | None:
    vector = frame.origin.header.get(name)
    if vector is None or frame.messages is None:
        return vector
    known = None if vector.known is None else vector.known[frame.messages]
    return Vector(gathered(vector.values, frame.messages), known)
