"""The administrative attributes in a queue's header table (mid, s, t, priority, aborts): `mid` there is M of S/T/M.

M also has the time: microseconds since 2024, and 12 bits of the broker that made it. So a time is compared as a range
of numbers, for which the primary key can be used, and a message ID as its three numbers.
"""

from __future__ import annotations

import re
from typing import Final

from milepost.query.header import EPOCH_US, LANE_BITS
from milepost.query.instant import microseconds
from milepost.query.kinds import DOUBLE, INT64_MAX, INTEGER, STRING, TIMESTAMP
from milepost.query.sql.operations import Operations
from milepost.query.sql.value import Value, not_nan
from milepost.query.sql.writer import chained
from milepost.query.typed import Const, HeaderField

_MID: Final = re.compile(r"(0|[1-9][0-9]{0,18})/(0|[1-9][0-9]{0,18})/(0|[1-9][0-9]{0,18})")


class Attributes:
    """Reads and compares the attributes."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations
        self._writer = operations.writer
        self._row = operations.writer.message

    def value(self, node: HeaderField) -> Value:
        """An attribute."""
        q = self._row
        match node.name:
            case "priority":
                column = f"{q}.priority"
                if self._writer.sqlite:  # SQLite stores NaN as null in a column of doubles
                    return Value(column, DOUBLE, leaf=True, raw=column)
                return Value(not_nan(column, "postgresql"), DOUBLE, leaf=True, raw=column)
            case "abort_count":
                return Value(f"{q}.aborts", INTEGER, "int", INT64_MAX, True, False)
            case "enqueued_at":
                return Value(f"({q}.mid / {1 << LANE_BITS} + {EPOCH_US})", TIMESTAMP, leaf=True, null=False)
            case "mid":
                parts = " || '/' || ".join(f"CAST({q}.{part} AS text)" for part in ("s", "t", "mid"))
                text = f"({parts})" if self._writer.sqlite else f'(({parts}) COLLATE "C")'
                return Value(text, STRING, leaf=True, null=False)
        schema = self._writer.tables.schema
        name = schema.name if schema.message_type is None else schema.message_type.name
        return self._operations.constant(name, STRING)

    def compared(self, sign: str, node: HeaderField, constant: Const) -> str | None:
        """A comparison of an attribute with a constant by other columns; None where it needs the attribute's value."""
        if node.name == "enqueued_at":
            return self._at(sign, (microseconds(constant.value) - EPOCH_US) << LANE_BITS)
        if node.name == "mid" and sign in ("=", "<>"):
            equal = self.one_of([constant.value])
            return equal if sign == "=" else f"(NOT {equal})"
        return None

    def _at(self, sign: str, first: int) -> str:
        """A comparison of the time; `first` is the first M of a microsecond."""
        after = first + (1 << LANE_BITS)
        match sign:
            case "<" | ">=":
                return self._beside(sign, first)
            case "<=":
                return self._beside("<", after)
            case ">":
                return self._beside(">=", after)
            case "=":
                return f"({self._at('>=', first)} AND {self._at('<=', first)})"
        return f"({self._at('<', first)} OR {self._at('>', first)})"

    def _beside(self, sign: str, number: int) -> str:
        """Whether M is `<` or `>=` a number, which may be outside the numbers that M can be."""
        if not 0 < number <= INT64_MAX:
            return self._operations.never((number > 0) == (sign == "<"))
        return f"({self._row}.mid {sign} {self._writer.bind(number)})"

    def one_of(self, texts: list[str]) -> str:
        """Whether the message ID is one of these texts; texts that are not a message ID never match."""
        found = [tuple(map(int, match.groups())) for text in texts if (match := _MID.fullmatch(text))]
        known = [numbers for numbers in found if max(numbers) <= INT64_MAX]
        if not known:
            return self._operations.never(False)
        bind, q = self._writer.bind, self._row
        terms = [f"({q}.mid = {bind(m)} AND {q}.s = {bind(s)} AND {q}.t = {bind(t)})" for s, t, m in known]
        if len(terms) == 1:
            return terms[0]
        return f"({q}.mid IN ({', '.join(bind(m) for *_, m in known)}) AND {chained(terms, 'OR')})"
