"""Constants: the value of a literal, its kind beside another operand, and constant folding.

A constant in the kind of the other operand makes equal queries equal (`price > 1.5` and `price > 1.50`) and comparisons
cheap, so a literal is adapted wherever this cannot change a result.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from milepost.query import ast, kinds, typed
from milepost.query.kinds import BOOLEAN, DOUBLE, IDENT, INT64_MAX, INT64_MIN, INTEGER, Scalar
from milepost.query.number import nearest_double, unscaled
from milepost.query.python import evaluated
from milepost.query.typed import Const, Typed, children, scalar


def constant(node: ast.Literal) -> Const:
    """The typed form of a literal."""
    match node.value:
        case bool():
            return Const(node.value, BOOLEAN)
        case int() as value:
            if INT64_MIN <= value <= INT64_MAX:
                return Const(value, INTEGER)
            return Const(value, kinds.decimal(len(str(abs(value))), 0))
        case Decimal() as value:
            exponent = value.as_tuple().exponent
            assert isinstance(exponent, int)
            digits = len(value.as_tuple().digits)
            return Const(unscaled(value, -exponent), kinds.decimal(digits, -exponent))
        case value:
            return Const(value, _OF_LITERAL[node.kind])


_OF_LITERAL: Final = {
    kind.name: kind for kind in (DOUBLE, kinds.STRING, kinds.BYTES, kinds.DATE, kinds.TIMESTAMP, kinds.UUID, kinds.NULL)
}


def adapted(node: Typed, other: kinds.Kind, *, exact: bool = True) -> Typed:
    """A constant number in the kind of the other operand; any other node unchanged.

    Unless `exact` is false, only where the value does not change.
    """
    if not (isinstance(node, Const) and isinstance(other, Scalar)) or node.value is None or node.kind == other:
        return node
    value, kind = node.value, node.kind
    if kinds.is_exact(kind) and other == DOUBLE:
        # A decimal is compared with a double as a double, an integer exactly.
        number = nearest_double(value, kind.scale)
        return Const(number, DOUBLE) if kind.name == "decimal" or not exact or int(number) == value else node
    if kind == DOUBLE and other == INTEGER and exact:
        if value.is_integer() and INT64_MIN <= value <= INT64_MAX:
            return Const(int(value), INTEGER)
    elif kind == INTEGER and other == IDENT:
        return Const(value, IDENT)
    elif kinds.is_exact(kind) and kinds.is_exact(other):
        whole, rest = divmod(value * 10**other.scale, 10**kind.scale)
        if not rest and (other != INTEGER or INT64_MIN <= whole <= INT64_MAX) and abs(whole) < kinds.DECIMAL_BOUND:
            return Const(whole, other)
    return node


def folded(node: Typed) -> Typed:
    """The constant value of a node, calculated by the reference; the node itself when it reads anything."""
    if isinstance(node, _NEVER_FOLDED):
        return node
    for child in children(node):
        if not isinstance(child, Const):
            return node
    return Const(evaluated(node), scalar(node))


_NEVER_FOLDED: Final = (Const, typed.ReadPath, typed.HeaderField, typed.Fold)
