"""Values: columns whose type is known without asking Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql import types as s

from milepost.query.instant import days, microseconds
from milepost.query.kinds import Scalar
from milepost.query.number import scaled
from milepost.query.spark.types import spark_type

LONG: Final = s.LongType()
DOUBLE: Final = s.DoubleType()
BOOLEAN: Final = s.BooleanType()
STRING: Final = s.StringType()
DATE: Final = s.DateType()


@dataclass(frozen=True, slots=True)
class Value:
    """A column of scalars: doubles are never NaN, and types are those of `spark_type`.

    An integer that may exceed 63 bits is a decimal without places.
    """

    column: Column
    type: s.DataType
    leaf: bool = False  # a constant or a field: may be written several times

    @property
    def precision(self) -> int:
        """Digits of an exact number."""
        return self.type.precision if isinstance(self.type, s.DecimalType) else _LONG_DIGITS

    @property
    def scale(self) -> int:
        """Digits of an exact number after the point."""
        return self.type.scale if isinstance(self.type, s.DecimalType) else 0

    def to(self, kind: s.DataType) -> Column:
        """The column in another type; null where it does not fit, whatever the session's settings."""
        return self.column if kind == self.type else self.column.try_cast(kind.simpleString())

    def once(self, use: Callable[[Value], Value]) -> Value:
        """The result of `use`, which may write the value several times; it is still evaluated once.

        Otherwise, nested calls that use their argument twice would double the expression at each level. Spark has no
        `let`, but a lambda over an array of one element works like one.
        """
        if self.leaf:
            return use(self)
        types: list[s.DataType] = []

        def inner(column: Column) -> Column:
            made = use(Value(column, self.type, True))
            types.append(made.type)
            return made.column

        column = f.get(f.transform(f.array(self.column), inner), f.lit(0))
        return Value(column, types[0])


_LONG_DIGITS: Final = 19


def constant(value: Any, kind: Scalar) -> Value:
    """A constant of the typed AST. No value becomes part of a text that Spark would parse."""
    if value is None:
        return Value(f.lit(None).cast(spark_type(kind).simpleString()), spark_type(kind), True)
    match kind.name:
        case "integer" | "ident":
            return Value(f.lit(value).cast("bigint"), LONG, True)
        case "decimal":
            # A constant may have more digits than its kind, which it may have taken from the other operand.
            return whole(value, kind.scale)
        case "date":
            # Python's dates reach Spark through java.sql.Date, which uses another calendar before 1582.
            return Value(f.date_from_unix_date(f.lit(days(value))), DATE, True)
        case "timestamp":
            return Value(f.timestamp_micros(f.lit(microseconds(value)).cast("bigint")), spark_type(kind), True)
        case "uuid":
            return Value(f.lit(str(value)), STRING, True)
        case _:
            return Value(f.lit(value), spark_type(kind), True)


def whole(units: int, scale: int = 0) -> Value:
    """A constant decimal, from units of its last place."""
    kind = s.DecimalType(max(len(str(abs(units))), scale, 1), scale)
    return Value(f.lit(scaled(units, scale)), kind, True)


def joined(columns: Sequence[Column], join: Callable[[Column, Column], Column]) -> Column:
    """Columns joined as a balanced tree: a chain of thousands would exhaust the stack of Spark's analyzer."""
    if len(columns) == 1:
        return columns[0]
    middle = len(columns) // 2
    return join(joined(columns[:middle], join), joined(columns[middle:], join))


def every(columns: Sequence[Column]) -> Column:
    """`and` in three-valued logic."""
    return joined(columns, lambda a, b: a & b)


def some(columns: Sequence[Column]) -> Column:
    """`or` in three-valued logic."""
    return joined(columns, lambda a, b: a | b)
