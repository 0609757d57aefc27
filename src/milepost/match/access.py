"""The access term of a clause: the term that, by estimate, the fewest messages satisfy.

The messages are not known in advance. The best hint is the constants of the subscriptions: a column with many
different constants probably has many values, and an interval is narrow if few of the ends seen so far lie in it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import Final

from milepost.match.codes import GREATEST, LEAST, NULL
from milepost.match.form import Clause

# How a posting is found: always, by the value of a column, or by an interval of a column's values
ALWAYS: Final = 0
EQUAL: Final = 1
RANGE: Final = 2

VALUES: Final = 1024  # different values of a column that are counted; with more, it is selective enough
ENDS: Final = 512  # ends of intervals kept for a column
FOLLOW: Final = 61  # of so many further ends one replaces another; odd, since low and high ends alternate
FEWEST: Final = 16  # values that a column is assumed to have at least
OPEN: Final = 0.3  # share of the messages that satisfy an interval with one end, at least
NULLS: Final = 0.1  # share of the messages that lack an optional value


class _Column:
    __slots__ = ("ends", "lot", "seen", "values")

    def __init__(self) -> None:
        self.values: set[int] = set()
        self.ends: list[int] = []
        self.seen = 0
        self.lot = 1  # a fixed seed, so that the same subscriptions make the same index

    def note(self, end: int) -> None:
        self.seen += 1
        if len(self.ends) < ENDS:
            insort(self.ends, end)
        elif self.seen % FOLLOW == 0:  # slowly follow the newer subscriptions
            self.lot = (self.lot * 1103515245 + 12345) & 0x7FFFFFFF
            del self.ends[(self.lot >> 8) % ENDS]
            insort(self.ends, end)


class Chooser:
    """Remembers the constants of subscriptions, and chooses access terms."""

    def __init__(self) -> None:
        self._columns: dict[int, _Column] = {}

    def chosen(self, clause: Clause) -> tuple[int, Clause]:
        """The way to a clause, and its terms: the access term first, then the others from the narrowest on."""
        if not clause:
            return ALWAYS, clause
        weights = [self._share(*term) for term in clause]
        order = sorted(range(len(clause)), key=weights.__getitem__)
        column, low, high = clause[order[0]]
        way = ALWAYS if column < 0 else EQUAL if low == high else RANGE
        return way, tuple(clause[i] for i in order)

    def _share(self, column: int, low: int, high: int) -> float:
        """An estimate of the share of messages that satisfy a term. Also records the term's constants."""
        if column < 0:
            return 2.0  # never an access term
        known = self._columns.get(column)
        if known is None:
            known = self._columns[column] = _Column()
        if low == high:
            if low == NULL:
                return NULLS
            if len(known.values) < VALUES:
                known.values.add(low)
            return 1.0 / max(len(known.values), FEWEST)
        if low == LEAST or high == GREATEST:
            if low == LEAST and high == GREATEST:
                return 1.0
            known.note(high if low == LEAST else low)
        else:
            known.note(low)
            known.note(high)
        ends = known.ends
        inside = (bisect_right(ends, high) - bisect_left(ends, low) + 0.5) / (len(ends) + 1)
        return max(inside, OPEN) if low == LEAST or high == GREATEST else inside
