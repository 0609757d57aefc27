"""Numbers in Spark: longs, decimals and doubles, calculated as the reference does.

Spark keeps 38 digits of a decimal. If the exact type of a result has more, Spark drops places, down to six, and rounds.
Inside one operation it calculates with more digits, and cuts only the result. So results whose places Spark keeps are
left to it; the others are calculated in *units* of the last place, without any places: nothing is rounded there, and a
result that is too large is null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql import types as s

from milepost import limits
from milepost.query import kinds
from milepost.query.kinds import DECIMAL_BOUND, INTEGER, Scalar
from milepost.query.spark.types import UINT64_DIGITS, spark_type
from milepost.query.spark.value import DOUBLE, LONG, Value, whole

DIGITS: Final = limits.DECIMAL_DIGITS
UNITS: Final = s.DecimalType(DIGITS, 0)
WIDE: Final = s.DecimalType(UINT64_DIGITS, 0)  # the type of integers that may be a uint64
_KEPT_PLACES: Final = 6  # places that Spark never drops
_NEGATED_DIGITS: Final = 34  # Spark rounds longer decimals when it negates them
_QUOTIENT_DIGITS: Final = 30  # of a quotient, for its remainder; from about 35 on, Spark may fail
_EXACT_DOUBLE_DIGITS: Final = 15  # numbers of so many digits are exact doubles, and one division rounds once

_TRIED: Final[Mapping[str, Callable[[Column, Column], Column]]] = {
    "+": f.try_add, "-": f.try_subtract, "*": f.try_multiply, "%": f.try_mod, "/": f.try_divide,
}  # fmt: skip


def calculation(operator: str, left: Value, right: Value, result: Scalar) -> Value:
    """An arithmetic operation."""
    if result == kinds.DOUBLE:
        return _of_doubles(operator, doubled(left), doubled(right))
    if result == INTEGER:
        return _of_integers(operator, left, right)
    return _of_decimals(operator, left, right, result)


def _of_doubles(operator: str, left: Column, right: Column) -> Value:
    if operator in "/%":  # null by zero
        return Value(number(_TRIED[operator](left, right)), DOUBLE)
    plain = {"+": left + right, "-": left - right, "*": left * right}
    return Value(number(plain[operator]), DOUBLE)


def number(column: Column) -> Column:
    """A double; NaN is null."""
    return f.nanvl(column, f.lit(None).cast("double"))


def _of_integers(operator: str, left: Value, right: Value) -> Value:
    calculate = _TRIED[operator]
    if left.type == right.type == LONG:
        return Value(calculate(left.column, right.column), LONG)
    return Value(calculate(left.to(WIDE), right.to(WIDE)).try_cast("bigint"), LONG)


def _of_decimals(operator: str, left: Value, right: Value, result: Scalar) -> Value:
    kind = spark_type(result)
    a, b = as_decimal(left), as_decimal(right)
    if operator == "%":
        return Value(b.once(lambda divisor: _remainder(a, divisor)).to(kind), kind)
    if operator == "*":
        digits = a.precision + b.precision + 1
    else:
        digits = max(a.precision - a.scale, b.precision - b.scale) + result.scale + 1
    if digits <= DIGITS or result.scale <= _KEPT_PLACES:
        return Value(_TRIED[operator](a.column, b.column).try_cast(kind.simpleString()), kind)
    if operator == "*":
        return Value(from_units(f.try_multiply(units(a), units(b)), result.scale).try_cast(kind.simpleString()), kind)
    other = units(b) if operator == "+" else f.try_subtract(whole(0).column, units(b))
    sides = [(a.scale, units(a)), (b.scale, other)]
    (few, small), (many, large) = sorted(sides, key=lambda side: side[0])
    total = _sum_of_units(Value(small, UNITS), Value(large, UNITS), many - few)
    return Value(from_units(total, result.scale).try_cast(kind.simpleString()), kind)


def _remainder(a: Value, b: Value) -> Value:
    """The remainder. Spark's `%` is exact, but raises if the quotient is too long: then `(a % (b * 10**k)) % b`."""
    longest = a.precision - a.scale + b.scale  # digits of the quotient
    for places in range((longest - 1) // _QUOTIENT_DIGITS * _QUOTIENT_DIGITS, 0, -_QUOTIENT_DIGITS):
        a = _reduced(a, b, places)
    return _modulo(a, b)


def _reduced(a: Value, b: Value, places: int) -> Value:
    if places <= b.scale:  # the same number in larger units
        scale = b.scale - places
        return _modulo(a, Value(from_units(units(b), scale), s.DecimalType(DIGITS, scale)))
    larger = Value(f.try_multiply(units(b), whole(10 ** (places - b.scale)).column), UNITS)
    # A divisor that does not fit into 38 digits is larger than any number: the remainder is the number itself.
    return a.once(lambda x: Value(f.coalesce(_modulo(x, larger).to(x.type), x.column), x.type))


def _modulo(a: Value, b: Value) -> Value:
    scale = max(a.scale, b.scale)
    kind = s.DecimalType(min(a.precision - a.scale, b.precision - b.scale) + scale, scale)
    return Value(f.try_mod(a.column, b.column), kind)


def as_decimal(value: Value) -> Value:
    """An exact number as a decimal."""
    if isinstance(value.type, s.DecimalType):
        return value
    kind = s.DecimalType(value.precision, 0)
    return Value(value.column.cast(kind.simpleString()), kind, value.leaf)


def units(value: Value) -> Column:
    """An exact number in units of its last place, as a decimal of 38 digits without places.

    By way of text, since a multiplication would drop places.
    """
    value = as_decimal(value)
    if value.scale == 0:
        return value.to(UNITS)
    return f.translate(f.format_number(value.column, value.scale), ",.", "").try_cast(UNITS.simpleString())


def from_units(column: Column, scale: int) -> Column:
    """The inverse of `units`, with 38 digits."""
    if scale == 0:
        return column
    return f.concat(column.cast("string"), f.lit(f"E-{scale}")).try_cast(s.DecimalType(DIGITS, scale).simpleString())


def _sum_of_units(small: Value, large: Value, places: int) -> Column:
    """`small * 10**places + large`, null when it does not fit."""
    if places == 0:
        return f.try_add(small.column, large.column)
    return small.once(lambda x: large.once(lambda y: Value(_shifted_sum(x.column, y.column, places), UNITS))).column


def _shifted_sum(x: Column, y: Column, places: int) -> Column:
    """`x * 10**places + y`, where the product may be too large although the sum is not.

    Then `y` has the other sign, and 10**38 is moved from one to the other, in two steps, since it has a digit too many.
    """
    bound = 10 ** (DIGITS - places)  # from here on, the product does not fit
    most, one = whole(DECIMAL_BOUND - 1).column, whole(1).column
    limit = whole(bound).column

    def shifted(column: Column) -> Column:
        half = places // 2  # 10**38 cannot be a literal either
        return f.try_multiply(f.try_multiply(column, whole(10**half).column), whole(10 ** (places - half)).column)

    above = f.try_add(shifted(f.try_subtract(x, limit)), f.try_add(f.try_add(y, most), one))
    below = f.try_add(shifted(f.try_add(x, limit)), f.try_subtract(f.try_subtract(y, most), one))
    return (
        f.when((x >= limit) & (y < whole(0).column), above)
        .when((x <= whole(-bound).column) & (y > whole(0).column), below)
        .otherwise(f.try_add(shifted(x), y))
    )


def doubled(value: Value) -> Column:
    """The nearest double.

    Spark divides a short decimal's units by a power of ten, which rounds twice if the units are not an exact double.
    Parsing its text rounds once.
    """
    if value.type == DOUBLE or value.scale == 0 or value.precision <= _EXACT_DOUBLE_DIGITS:
        return value.to(DOUBLE)
    return value.column.cast("string").try_cast("double")


def converted(value: Value, to: Scalar) -> Value:
    """A number in another kind, null when it does not fit."""
    return Value(doubled(value) if to == kinds.DOUBLE else as_decimal(value).to(spark_type(to)), spark_type(to))


def negation(value: Value, kind: Scalar) -> Value:
    """The number with the other sign."""
    if kind == INTEGER:
        return _of_integers("-", Value(f.lit(0).cast("bigint"), LONG), value)
    return Value(_negative(value), value.type)


def _negative(value: Value) -> Column:
    if value.type == DOUBLE or value.precision <= _NEGATED_DIGITS:
        return f.negative(value.column)
    zero = whole(0).column
    if value.scale <= _KEPT_PLACES:
        return f.try_subtract(zero, value.column).try_cast(value.type.simpleString())
    return from_units(f.try_subtract(zero, units(value)), value.scale).try_cast(value.type.simpleString())


def absolute(value: Value, kind: Scalar) -> Value:
    """The number without its sign."""
    if kind == INTEGER:
        value = bounded(value)
    elif value.type == DOUBLE or value.precision <= _NEGATED_DIGITS:
        return Value(f.abs(value.column), value.type)
    zero = whole(0, value.scale).column  # with the same places, as Spark rounds before it compares
    return value.once(lambda x: Value(f.when(x.column < zero, negation(x, kind).column).otherwise(x.column), x.type))


def bounded(value: Value) -> Value:
    """An integer as a result: null beyond 64 bits with sign."""
    return Value(value.to(LONG), LONG, value.leaf)
