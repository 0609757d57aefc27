"""The operations that SQLite and PostgreSQL write differently."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

from milepost.query.instant import DAY_MICROSECONDS
from milepost.query.kinds import DATE, DOUBLE, INTEGER, Scalar, summed
from milepost.query.like import Pattern
from milepost.query.sql.value import BIAS, TAME, Value, encoded, form_of, has_units
from milepost.query.sql.writer import SqlWriter

FIRST_DAY: Final = 719_162  # days from 0001-01-01, the first date, to 1970-01-01: added, they make every day positive
FIRST_MICROSECOND: Final = FIRST_DAY * DAY_MICROSECONDS
_LAST_CODE: Final = 0x10FFFF
_SURROGATES: Final = (0xD800, 0xDFFF)  # not characters: skipped when a code point is incremented

_OF_TIME: Final = {"hour": (3_600_000_000, 24), "minute": (60_000_000, 60), "second": (1_000_000, 60)}


class Operations(ABC):
    """The operations of one database. A value that is no leaf is written once, or goes into `SqlWriter.once`."""

    ordered_sums: ClassVar[bool]  # whether a sum of doubles needs an ORDER BY for the order of the elements
    fence: ClassVar[str]  # at the end of a subquery: keeps the planner from inlining its expressions

    def __init__(self, writer: SqlWriter) -> None:
        self.writer: Final = writer

    # Constants

    def constant(self, value: Any, kind: Scalar) -> Value:
        """A constant, in its natural form."""
        form = form_of(kind, self.writer.dialect)
        bound = abs(value) if has_units(kind) and value is not None else 0
        if value is None:
            return Value(self.typed("NULL", kind, form), kind, form, 0, True)
        tame = kind == DOUBLE and (value == 0 or 1 / TAME <= abs(value) <= TAME)
        name = self.writer.bind(encoded(value, kind, form))
        return Value(self.typed(name, kind, form), kind, form, bound, True, False, tame)

    @abstractmethod
    def typed(self, text: str, kind: Scalar, form: str) -> str:
        """A bound value, or NULL, with its type where the database cannot infer it."""

    def never(self, truth: bool) -> str:
        """A constant boolean."""
        return "TRUE" if truth else "FALSE"

    # Numbers

    @abstractmethod
    def double(self, value: Value) -> Value:
        """The nearest double."""

    @abstractmethod
    def arithmetic(self, sign: str, left: Value, right: Value, result: Scalar) -> Value:
        """+ - * / %."""

    @abstractmethod
    def negated(self, value: Value) -> Value:
        """The number with the other sign."""

    @abstractmethod
    def converted(self, value: Value, kind: Scalar) -> Value:
        """A number in another kind, null when it does not fit."""

    @abstractmethod
    def compared(self, sign: str, left: Value, right: Value) -> str:
        """A comparison of two values of comparable kinds."""

    @abstractmethod
    def alike(self, values: Sequence[Value]) -> list[Value]:
        """Values of one kind in one form."""

    # Strings

    @abstractmethod
    def bounded(self, text: str, lengths: Sequence[str], most: int) -> str:
        """A text. If the product of the `lengths` of texts is over `most`, the statement raises instead.

        It raises an integer overflow on SQLite and a division by zero on PostgreSQL. Both depend on the text: otherwise
        they would be calculated once, before the first row.
        """

    @abstractmethod
    def text_function(self, name: str, arguments: tuple[Value, ...], constants: tuple[Any, ...]) -> str:
        """A function of strings; `constants` has the values of constant arguments."""

    def like(self, value: Value, pattern: Pattern) -> str:
        """Whether a string matches a pattern; a plain text or a prefix is a comparison, which can use an index."""
        pieces = pattern.pieces
        if pieces is not None and value.leaf:
            if not pattern.runs:
                return f"({value.text} = {self.writer.bind(''.join(pieces))})"
            if len(pieces) == 2 and not pieces[1]:
                return self.starts_with(value, pieces[0])
        return self.matches(value, pattern)

    @abstractmethod
    def matches(self, value: Value, pattern: Pattern) -> str:
        """`like` for all other patterns."""

    def starts_with(self, value: Value, prefix: str) -> str:
        """Whether a string begins with a text, as a range, so that an index can be used."""
        if not prefix:
            return self.known(value, True)
        after = _successor(prefix)
        low = f"{value.text} >= {self.writer.bind(prefix)}"
        return f"({low} AND {value.text} < {self.writer.bind(after)})" if after else f"({low})"

    def known(self, value: Value, truth: bool) -> str:
        """A constant boolean that is null where the value is."""
        if not value.null:
            return self.never(truth)
        return f"(CASE WHEN {value.text} IS NOT NULL THEN {self.never(truth)} END)"

    # Functions of numbers and times

    @abstractmethod
    def rounded(self, name: str, value: Value, result: Scalar) -> Value:
        """abs, floor, ceil and round."""

    @abstractmethod
    def part_of_day(self, name: str, days: str) -> str:
        """The year, month or day of a number of days."""

    def time_function(self, name: str, arguments: tuple[Value, ...]) -> Value:
        """The functions of dates and timestamps."""
        value = arguments[0]
        if name == "days_between":
            return Value(f"({arguments[1].text} - {value.text})", INTEGER, "int", 1 << 32)
        if name == "seconds_between":
            difference = Value(f"({arguments[1].text} - {value.text})", INTEGER, "int", 1 << 62)
            return Value(f"({self.double(difference).text} / 1000000)", DOUBLE, tame=True)
        if name in _OF_TIME:
            unit, most = _OF_TIME[name]
            since = f"({value.text} + {FIRST_MICROSECOND}) / {unit}"
            return Value(f"({self.modulo(since, most)})", INTEGER, "int", most)
        day = value.text
        if value.kind != DATE:
            day = f"(({value.text} + {FIRST_MICROSECOND}) / {DAY_MICROSECONDS} - {FIRST_DAY})"
        if name == "date":
            return Value(day, DATE)
        if name == "weekday":
            return Value(f"({self.modulo(f'({day} + {FIRST_DAY})', 7)} + 1)", INTEGER, "int", 7)
        return Value(self.part_of_day(name, day), INTEGER, "int", 9_999)

    @abstractmethod
    def modulo(self, text: str, by: int) -> str:
        """The remainder of a whole number that is not negative."""

    # Aggregates

    @abstractmethod
    def extreme(self, name: str, value: Value) -> str:
        """The smallest or the largest value."""

    @abstractmethod
    def sum(self, value: Value, result: Scalar) -> Value:
        """The aggregate function of a sum; it may write its argument several times."""

    def summed(self, value: Value, result: Scalar, source: str) -> Value:
        """The sum of `value` over the rows of `source`, the text after FROM."""
        made = self.sum(value, result)
        return replace(made, text=f"(SELECT {made.text} FROM {source})")

    def average(self, value: Value, source: str) -> Value:
        """The average of `value` over the rows of `source`, the text after FROM."""
        alias = self.writer.alias("l")
        total = self.sum(value, summed(value.kind))
        both = f"SELECT {total.text} AS x, count({value.text}) AS n FROM {source}{self.fence}"
        number = Value(f"{alias}.n", INTEGER, "int", BIAS, True)
        quotient = self.arithmetic("/", total.as_leaf(f"{alias}.x"), number, DOUBLE)
        return Value(f"(SELECT {quotient.text} FROM ({both}) {alias})", DOUBLE)


def exact_result(sign: str, left: Value, right: Value, result: Scalar) -> tuple[int, int, int]:
    """The powers of ten that bring both sides to one scale, and the bound of the result's units."""
    if sign == "*":
        return 0, 0, left.bound * right.bound
    up_left, up_right = result.scale - left.kind.scale, result.scale - right.kind.scale
    a, b = left.bound * 10**up_left, right.bound * 10**up_right
    return up_left, up_right, min(a, b) if sign == "%" else a + b


def _successor(text: str) -> str | None:
    """The smallest text after all texts that begin with this one; None when there is none."""
    while text:
        code = ord(text[-1]) + 1
        if code <= _LAST_CODE:
            first, last = _SURROGATES
            return text[:-1] + chr(last + 1 if first <= code <= last else code)
        text = text[:-1]
    return None
