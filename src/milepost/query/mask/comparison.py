"""Comparisons of vectors, by the kinds of both sides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from milepost.query.kinds import BOOLEAN, BYTES, DOUBLE, INTEGER, STRING, Scalar, is_exact
from milepost.query.mask import exact
from milepost.query.mask.arithmetic import doubling
from milepost.query.mask.text import bools
from milepost.query.mask.vector import Bools, Vector, array, both, machine
from milepost.query.typed import MIRRORED, Const, Typed

Comparison = Callable[[Any, Any], Any]

_ARROW: Final[dict[str, Any]] = {
    "=": pc.equal, "<>": pc.not_equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal,
}  # fmt: skip
FEW: Final = 4  # up to so many constants of an `in`, comparing with each is faster than a set


def comparison(sign: str, left: Scalar, right: Scalar) -> Comparison:
    """A comparison of values; where one side is null, its result is arbitrary."""
    if left in (STRING, BYTES):
        compare = _ARROW[sign]

        def compare_texts(a: Any, b: Any) -> Any:
            found = compare(a, b)
            return found.as_py() if isinstance(found, pa.Scalar) else bools(found)

        return compare_texts
    if DOUBLE in (left, right):
        if left == INTEGER:
            return lambda a, b: exact.compared_with_double(sign, a, b)
        if right == INTEGER:
            return lambda a, b: exact.compared_with_double(MIRRORED[sign], b, a)
        a_double, b_double = doubling(left), doubling(right)
        return lambda a, b: exact.COMPARE[sign](a_double(a), b_double(b))
    compare = exact.COMPARE[sign]
    if is_exact(left) and left.scale != right.scale:
        scales = (left.scale, right.scale)
        return lambda a, b: exact.compared(compare, a, b, scales)
    return lambda a, b: compare(a, b)


def compared(compare: Comparison, left: Vector | None, right: Vector | None) -> Vector | None:
    """Two vectors compared."""
    if left is None or right is None:
        return None
    return Vector(compare(left.values, right.values), both(left.known, right.known))


class Membership:
    """`in` with constants of the operand's own kind: prepared once, used for every batch."""

    def __init__(self, kind: Scalar, constants: list[Const]) -> None:
        self._kind = kind
        self._few = [machine(item.value, kind) for item in constants] if len(constants) <= FEW else None
        self._set = array([item.value for item in constants], kind)
        self._equal = comparison("=", kind, kind)

    def __call__(self, values: Any) -> Bools:
        """Which values are among the constants."""
        if self._few is not None:
            found = self._equal(values, self._few[0])
            for item in self._few[1:]:
                found = found | self._equal(values, item)
            return found  # type: ignore[no-any-return]
        if isinstance(values, pa.Array):
            return bools(pc.is_in(values, value_set=self._set))
        if values.dtype == np.uint64 and self._kind != BOOLEAN:
            # With int64 on the other side, NumPy would turn both into doubles.
            return np.isin(values, self._set[self._set >= 0].astype(np.uint64))
        return np.isin(values, self._set)


def constants_of(kind: Scalar, items: tuple[Typed, ...]) -> tuple[list[Const], list[Typed], bool]:
    """The items of an `in`: constants of the operand's kind, others, and whether one of the items is null."""
    known = [item for item in items if not (isinstance(item, Const) and item.value is None)]
    constants = [item for item in known if isinstance(item, Const) and item.kind == kind]
    others = [item for item in known if not (isinstance(item, Const) and item.kind == kind)]
    return constants, others, len(known) < len(items)
