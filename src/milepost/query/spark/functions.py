"""The functions of the language in Spark. Times are calculated as numbers, without the session's time zone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from string import ascii_lowercase, ascii_uppercase
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql import types as s

from milepost.query import subnet
from milepost.query.kinds import Scalar
from milepost.query.spark.address import in_subnet
from milepost.query.spark.arithmetic import WIDE, absolute, bounded
from milepost.query.spark.types import spark_type
from milepost.query.spark.value import BOOLEAN, DATE, DOUBLE, LONG, STRING, Value, whole
from milepost.query.typed import Const, Typed

_ALL_WHOLE: Final = float(1 << 53)  # doubles from here on have no fraction
_MOST: Final = (1 << 31) - 1  # more characters than a string in Spark has
_DAY: Final = 86_400  # seconds


def call(name: str, arguments: tuple[Typed, ...], values: tuple[Value, ...], kind: Scalar) -> Value:
    """A function of the table, or `||`; `values` are its arguments as columns."""
    if name == "coalesce":
        return _coalesce(values, kind)
    if name == "in_subnet":
        network = arguments[1]
        assert isinstance(network, Const)
        return in_subnet(values[0], subnet.network(network.value))
    if name in _BY_TYPE:
        return _BY_TYPE[name](values[0], kind)
    if name == "substring":
        return _substring(*values)
    function, result = _PLAIN[name]
    return Value(function(*(value.column for value in values)), result)


def _coalesce(values: tuple[Value, ...], kind: Scalar) -> Value:
    wide = kind.name != "decimal" and any(isinstance(value.type, s.DecimalType) for value in values)
    common = WIDE if wide else spark_type(kind)
    return Value(f.coalesce(*(value.to(common) for value in values)), common)


# Numbers


def _rounding(
    of_double: Callable[[Column], Column], of_decimal: Callable[[Column], Column]
) -> Callable[[Value, Scalar], Value]:
    def rounding(value: Value, kind: Scalar) -> Value:
        if kind.name == "integer":
            return bounded(value)
        if kind.name == "decimal":
            return Value(of_decimal(value.column).try_cast(spark_type(kind).simpleString()), spark_type(kind))
        return value.once(lambda x: Value(_with_fraction(x.column, of_double), DOUBLE))

    return rounding


def _with_fraction(x: Column, rounded: Callable[[Column], Column]) -> Column:
    return f.when(f.abs(x) < f.lit(_ALL_WHOLE), rounded(x).cast("double")).otherwise(x)


def _half_away(x: Column) -> Column:
    size = f.abs(x)
    down = f.floor(size).cast("double")
    nearest = f.when(size - down >= f.lit(0.5), down + f.lit(1.0)).otherwise(down)
    return f.when(x < f.lit(0.0), f.negative(nearest)).otherwise(nearest)


# Strings


def _substring(text: Value, start: Value, length: Value | None = None) -> Value:
    if length is None:
        return start.once(lambda x: Value(_from(text.column, x.to(WIDE)), STRING))
    return start.once(lambda x: length.once(lambda n: Value(_part(text.column, x.to(WIDE), n.to(WIDE)), STRING)))


def _from(text: Column, start: Column) -> Column:
    return f.when(start.isNotNull(), f.substr(text, _position(start), f.lit(_MOST)))


def _part(text: Column, start: Column, length: Column) -> Column:
    """The characters from `start` up to `start + length` (excluded), both of which may be far outside the text."""
    begin, end = _position(start), _position(f.try_add(start, length))
    return f.when(start.isNotNull() & (length >= whole(0).column), f.substr(text, begin, end - begin))


def _position(column: Column) -> Column:
    """A position for Spark: an int, from 1."""
    return f.least(f.greatest(column, whole(1).column), whole(_MOST).column).try_cast("int")


# Times


def _date(time: Column) -> Column:
    # Seconds are whole, so a quotient that is not a whole number of days is far from one, and `floor` is right.
    return f.date_from_unix_date(f.floor(f.unix_seconds(time) / f.lit(float(_DAY))).try_cast("int"))


def _of_day(part: Callable[[Column], Column]) -> Callable[[Value, Scalar], Value]:
    def of_day(value: Value, kind: Scalar) -> Value:
        day = value.column if value.type == DATE else _date(value.column)
        return Value(part(day).cast("bigint"), LONG)

    return of_day


def _clock(modulus: int, unit: int) -> Callable[[Column], Column]:
    return lambda time: f.floor(f.pmod(f.unix_seconds(time), f.lit(modulus)) / f.lit(float(unit)))


def _seconds_between(start: Column, end: Column) -> Column:
    return f.try_subtract(f.unix_micros(end), f.unix_micros(start)).cast("double") / f.lit(1e6)


_BY_TYPE: Final[Mapping[str, Callable[[Value, Scalar], Value]]] = {
    "abs": absolute,
    "floor": _rounding(f.floor, f.floor),
    "ceil": _rounding(f.ceil, f.ceil),
    "round": _rounding(_half_away, lambda x: f.round(x, 0)),
    "year": _of_day(f.year),
    "month": _of_day(f.month),
    "day": _of_day(f.dayofmonth),
    "weekday": _of_day(lambda day: f.weekday(day) + f.lit(1)),
}
_PLAIN: Final[Mapping[str, tuple[Callable[..., Column], s.DataType]]] = {
    "||": (f.concat, STRING),
    "length": (lambda text: f.length(text).cast("bigint"), LONG),
    "lower": (lambda text: f.translate(text, ascii_uppercase, ascii_lowercase), STRING),
    "upper": (lambda text: f.translate(text, ascii_lowercase, ascii_uppercase), STRING),
    "trim": (f.trim, STRING),
    "ltrim": (f.ltrim, STRING),
    "rtrim": (f.rtrim, STRING),
    "starts_with": (f.startswith, BOOLEAN),
    "ends_with": (f.endswith, BOOLEAN),
    "contains": (f.contains, BOOLEAN),
    "position": (lambda text, part: f.position(part, text).cast("bigint"), LONG),
    "hour": (_clock(_DAY, 3_600), LONG),
    "minute": (_clock(3_600, 60), LONG),
    "second": (_clock(60, 1), LONG),
    "date": (_date, DATE),
    "days_between": (lambda start, end: f.datediff(end, start).cast("bigint"), LONG),
    "seconds_between": (_seconds_between, DOUBLE),
}
