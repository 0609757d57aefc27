"""Comparisons in Spark. Numbers of different types are compared exactly, where Spark would round one of them first."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql import types as s

from milepost.query.kinds import Scalar
from milepost.query.python.arithmetic import COMPARISONS
from milepost.query.spark.arithmetic import DIGITS, as_decimal, doubled
from milepost.query.spark.value import BOOLEAN, DOUBLE, LONG, Value, whole
from milepost.query.typed import MIRRORED

_INT64: Final = float(1 << 63)


def comparison(sign: str, left: Value, right: Value, left_kind: Scalar, right_kind: Scalar) -> Value:
    """A comparison of two values of these kinds."""
    if left.type == right.type:
        return Value(COMPARISONS[sign](left.column, right.column), BOOLEAN)
    if left.type != DOUBLE and right.type != DOUBLE:
        return _of_exact(sign, as_decimal(left), as_decimal(right))
    if "decimal" in (left_kind.name, right_kind.name):
        return Value(COMPARISONS[sign](doubled(left), doubled(right)), BOOLEAN)
    if left.type == DOUBLE:
        sign, left, right = MIRRORED[sign], right, left
    return left.once(lambda x: right.once(lambda y: Value(_exactly(sign, x, y.column), BOOLEAN)))


def _of_exact(sign: str, left: Value, right: Value) -> Value:
    """A comparison of decimals, in a type that both fit into, if there is one.

    If not, and the one with fewer places does not fit the other's type, its sign decides: it is beyond every value of
    the other.
    """
    compare = COMPARISONS[sign]
    scale = max(left.scale, right.scale)
    digits = max(left.precision - left.scale, right.precision - right.scale) + scale
    if digits <= DIGITS:
        kind = s.DecimalType(digits, scale)
        return Value(compare(left.to(kind), right.to(kind)), BOOLEAN)
    if left.scale > right.scale:
        return _of_exact(MIRRORED[sign], right, left)
    kind = s.DecimalType(DIGITS, scale)

    def compared(x: Value, y: Value) -> Value:
        side = f.when(y.column.isNotNull(), compare(x.column, whole(0, x.scale).column))
        return Value(f.coalesce(compare(x.to(kind), y.to(kind)), side), BOOLEAN)

    return left.once(lambda x: right.once(lambda y: compared(x, y)))


def _exactly(sign: str, x: Value, y: Column) -> Column:
    """A comparison of an integer with a double, which is rounded in the direction that does not change the result."""
    compare = COMPARISONS[sign]
    zero, one = f.lit(0), f.lit(1)
    rounded = f.ceil(y) if sign in ("<", ">=") else f.floor(y)
    near = compare(x.column, rounded)
    if sign in ("=", "<>"):  # a double with a fraction equals no integer
        near = f.when(rounded.cast("double") == y, near).otherwise(f.lit(sign == "<>"))
    known = x.column.isNotNull() & y.isNotNull()
    found = f.when(~known, f.lit(None).cast("boolean")).when(y < f.lit(-_INT64), compare(one, zero))
    if x.type == LONG:
        return found.when(y >= f.lit(_INT64), compare(zero, one)).otherwise(near)
    # Doubles from 2**63 on are whole, and so are their differences from 2**63.
    high = f.try_add(f.floor(y - f.lit(_INT64)).cast(x.type.simpleString()), whole(1 << 63).column)
    return (
        found.when(y >= f.lit(2 * _INT64), compare(zero, one))
        .when(y >= f.lit(_INT64), compare(x.column, high))
        .otherwise(near)
    )
