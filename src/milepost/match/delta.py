"""The newest entries of an index, which are in no order yet: each row is tested against all of them.

Entries wait in lists until somebody takes a snapshot. Few are then written behind those that a snapshot before has
seen, into arrays with room for them; so a subscription costs microseconds to add, and snapshots share the arrays.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from milepost.match import ways
from milepost.match.form import Clause
from milepost.match.segment import ALIVE, Postings

ENTRIES: Final = 512  # scanned for every row: 0.7 microseconds
STAGED: Final = 16_384  # entries that wait for a snapshot before they become a segment all the same
_TERMS: Final = 4  # of a posting, on average, that there is room for

_WIDTH: Final = 37  # of a segment's row, and where the number of postings is, as `scan` has them
_POSTINGS: Final = 23


class Delta:
    """Entries by number, as in a segment. It becomes a segment with the same numbers."""

    def __init__(self, number: int) -> None:
        self.number: Final = number
        self.died = np.full(ENTRIES, ALIVE, np.int64)
        self.dead = 0
        self._targets: list[int] = []
        self._entries: list[int] = []  # of postings
        self._ways: list[int] = []
        self._starts: list[int] = [0]
        self._columns: list[int] = []
        self._lows: list[int] = []
        self._highs: list[int] = []
        self._arrays: tuple[Any, ...] | None = None
        self._written = (0, 0, 0)  # entries, postings and terms that the arrays hold

    def __len__(self) -> int:
        return len(self._targets)

    @property
    def postings(self) -> int:
        return len(self._entries)

    @property
    def full(self) -> bool:
        """Whether it must become a segment before more is added."""
        return len(self._targets) >= STAGED

    @property
    def small(self) -> bool:
        """Whether it may be scanned, and is not to become a segment for a snapshot."""
        return len(self._entries) <= ENTRIES and len(self._columns) <= _TERMS * ENTRIES

    def add(self, target: int, postings: list[tuple[int, Clause]]) -> int:
        """A new entry; its number."""
        entry = len(self._targets)
        if entry == len(self.died):
            # A snapshot that has the old array is older than whatever dies from now on.
            self.died = np.concatenate([self.died, np.full(entry, ALIVE, np.int64)])
            self._arrays = None
        self._targets.append(target)
        for way, clause in postings:
            self._entries.append(entry)
            self._ways.append(way)
            for column, low, high in clause:
                self._columns.append(column)
                self._lows.append(low)
                self._highs.append(high)
            self._starts.append(len(self._columns))
        return entry

    def unordered(self) -> tuple[Any, Postings]:
        """Targets and postings, to make a segment of."""
        return np.array(self._targets, np.int32), Postings(
            np.array(self._entries, np.int32), np.array(self._ways, np.uint8), np.array(self._starts, np.int32),
            np.array(self._columns, np.int32), np.array(self._lows, np.int64), np.array(self._highs, np.int64),
        )  # fmt: skip

    def row(self) -> tuple[Any, tuple[Any, ...]]:
        """What `probe` takes for a segment, and the arrays it refers to: all postings are looked at always.

        The access term is the first term, unless it is a negated one, and once more among the rest, with all others.
        """
        if self._arrays is None:
            self._arrays = (
                np.zeros(ENTRIES, np.int32), np.zeros(ENTRIES, np.uint8), np.full(ENTRIES, -(1 << 63), np.int64),
                np.full(ENTRIES, ALIVE, np.int64), np.zeros(ENTRIES, np.uint8),
                np.full(ENTRIES, -(1 << 63), np.int64), np.full(ENTRIES, ALIVE, np.int64),
                np.zeros(ENTRIES + 1, np.int32),
                np.zeros(_TERMS * ENTRIES, np.int32), np.zeros(_TERMS * ENTRIES, np.int64),
                np.zeros(_TERMS * ENTRIES, np.int64), np.zeros(ENTRIES, np.int32), self.died,
            )  # fmt: skip
            self._written = (0, 0, 0)
            self._base = [array.__array_interface__["data"][0] for array in self._arrays]
        entry, column, low, high, _, _, _, start, columns, lows, highs, targets, _ = self._arrays
        entries, postings, terms = self._written
        if entries < len(self._targets):
            targets[entries : len(self._targets)] = self._targets[entries:]
            columns[terms : len(self._columns)] = self._columns[terms:]
            lows[terms : len(self._columns)] = self._lows[terms:]
            highs[terms : len(self._columns)] = self._highs[terms:]
            entry[postings : len(self._entries)] = self._entries[postings:]
            start[postings : len(self._starts)] = self._starts[postings:]
            for posting in range(postings, len(self._entries)):
                begin = self._starts[posting]
                if self._ways[posting] != ways.ALWAYS:  # the access term is a positive one
                    column[posting] = self._columns[begin]
                    low[posting], high[posting] = self._lows[begin], self._highs[begin]
            self._written = (len(self._targets), len(self._entries), len(self._columns))
        row = np.zeros(_WIDTH, np.int64)
        row[: len(self._base)] = self._base
        row[_POSTINGS] = len(self._entries)
        return row, self._arrays
