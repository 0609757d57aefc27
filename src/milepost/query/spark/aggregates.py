"""Quantifiers and aggregates in Spark: one value from an array of the values of all elements."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql import types as s

from milepost.query import kinds
from milepost.query.spark.arithmetic import DIGITS, UNITS, doubled, from_units, number, units
from milepost.query.spark.paths import Spot, Variables
from milepost.query.spark.types import spark_type
from milepost.query.spark.value import BOOLEAN, DOUBLE, LONG, Value, whole
from milepost.query.typed import Binding, Fold, Typed, scalar

Compile = Callable[[Typed, Variables], Value]

_LENGTH_DIGITS = 10  # of the greatest length of an array
_SUMMED = s.DecimalType(DIGITS - 1, 0)


def fold(node: Fold, frame: Variables, compile: Compile) -> Value:
    """An aggregate over all combinations of its bindings."""
    values, kind = _Values(node, compile).all(frame)
    match node.operator:
        case "any":
            return Value(f.array_contains(values, f.lit(True)), BOOLEAN)
        case "all":
            return Value(~f.array_contains(values, f.lit(False)), BOOLEAN)
        case "count":
            return Value(f.array_size(values).cast("bigint"), LONG)
        case "min":
            return Value(f.array_min(values), kind)
        case "max":
            return Value(f.array_max(values), kind)
        case "sum":
            return _sum(values, kind, node.kind)
    assert node.body is not None
    return _average(values, kind, scalar(node.body))


class _Values:
    """The values of a fold's body."""

    def __init__(self, node: Fold, compile: Compile) -> None:
        self.node = node
        self.compile = compile
        self.kind: s.DataType = BOOLEAN

    def all(self, frame: Variables) -> tuple[Column, s.DataType]:
        """The array of all values, and the type of one."""
        values = self._over(self.node.bindings, frame)
        if self.node.operator == "count" and self.node.body is not None:
            values = f.filter(values, lambda value: value.isNotNull())
        return values, self.kind

    def _over(self, bindings: tuple[Binding, ...], frame: Variables) -> Column:
        if not bindings:
            alone = f.array(self._body(frame))
            return alone if self.node.where is None else f.filter(alone, lambda _: self._where(frame))
        first, *others = bindings
        elements, stop = frame.elements(first.source)

        def inside(element: Column) -> Variables:
            return frame.bind(first.variable, Spot(element, stop))

        if others:
            return f.flatten(f.transform(elements, lambda element: self._over(tuple(others), inside(element))))
        if self.node.where is not None:
            elements = f.filter(elements, lambda element: self._where(inside(element)))
        if self.node.body is None:
            return elements
        return f.transform(elements, lambda element: self._body(inside(element)))

    def _where(self, frame: Variables) -> Column:
        assert self.node.where is not None
        return self.compile(self.node.where, frame).column

    def _body(self, frame: Variables) -> Column:
        if self.node.body is None:
            return f.lit(True)
        value = self.compile(self.node.body, frame)
        self.kind = value.type
        return value.column


def _sum(values: Column, kind: s.DataType, result: kinds.Scalar) -> Value:
    if kind == DOUBLE:
        return Value(number(_added(values, DOUBLE, lambda total, value: total + value)), DOUBLE)
    if result.name == "integer":
        # Only the final sum has to fit, so it is calculated in a type that holds any sum of integers.
        exact = f.transform(values, lambda value: value.cast(_SUMMED.simpleString()))
        return Value(_added(exact, _SUMMED, _exactly(_SUMMED)).try_cast("bigint"), LONG)
    assert isinstance(kind, s.DecimalType)
    made = spark_type(result)
    if kind.precision + _LENGTH_DIGITS < DIGITS:
        room = s.DecimalType(DIGITS - 1, kind.scale)
        exact = f.transform(values, lambda value: value.cast(room.simpleString()))
        return Value(_added(exact, room, _exactly(room)).try_cast(made.simpleString()), made)
    all_units = f.transform(values, lambda value: units(Value(value, kind, True)))
    return Value(
        from_units(_sum_of_units(Value(all_units, s.ArrayType(UNITS))), kind.scale).try_cast(made.simpleString()), made
    )


def _added(values: Column, kind: s.DataType, add: Callable[[Column, Column], Column]) -> Column:
    """The sum of the values that are not null, in order; null when there are none."""
    return f.aggregate(
        values, f.lit(None).cast(kind.simpleString()), lambda total, value: f.coalesce(add(total, value), total, value)
    )


def _exactly(kind: s.DataType) -> Callable[[Column, Column], Column]:
    return lambda total, value: f.try_add(total, value).try_cast(kind.simpleString())


def _sum_of_units(values: Value) -> Column:
    """The sum of numbers of 38 digits, in halves: intermediate sums may be too large although the final one is not."""
    half = whole(10 ** (DIGITS // 2))

    def low(value: Column) -> Column:
        return f.try_mod(value, half.column).cast(_SUMMED.simpleString())

    def high(value: Column) -> Column:
        return f.try_divide(f.try_subtract(value, low(value)), half.column).cast(_SUMMED.simpleString())

    def total(part: Callable[[Column], Column]) -> Callable[[Value], Value]:
        return lambda array: Value(_added(f.transform(array.column, part), _SUMMED, _exactly(_SUMMED)), _SUMMED)

    def put_together(lows: Value, highs: Value) -> Value:
        return _carried(lows, highs).once(lambda up: Value(_joined(lows.column, up.column, half.column), UNITS))

    def _carried(lows: Value, highs: Value) -> Value:
        return Value(f.try_add(highs.column, high(lows.column)).cast(_SUMMED.simpleString()), _SUMMED)

    def _joined(lows: Column, up: Column, unit: Column) -> Column:
        # Both halves get the same sign, so that the upper one is never larger than the whole.
        rest = low(lows)
        zero, one = whole(0).column, whole(1).column
        same = f.try_add(f.try_multiply(up, unit), rest)
        above = f.try_add(f.try_multiply(f.try_subtract(up, one), unit), f.try_add(rest, unit))
        below = f.try_add(f.try_multiply(f.try_add(up, one), unit), f.try_subtract(rest, unit))
        return (
            f.when((up > zero) & (rest < zero), above).when((up < zero) & (rest > zero), below).otherwise(same)
        ).try_cast(UNITS.simpleString())

    return values.once(
        lambda array: total(low)(array).once(
            lambda lows: total(high)(array).once(lambda highs: put_together(lows, highs))
        )
    ).column


def _average(values: Column, kind: s.DataType, of: kinds.Scalar) -> Value:
    known = Value(f.filter(values, lambda value: value.isNotNull()), s.ArrayType(kind))

    def divided(array: Value) -> Value:
        total = doubled(_sum(array.column, kind, kinds.summed(of)))
        return Value(number(f.try_divide(total, f.array_size(array.column).cast("double"))), DOUBLE)

    return known.once(divided)
