"""The newest entries of an index, not sorted yet: each row is tested against all of them.

Entries wait in lists until the next snapshot. If they are few, they are then appended to arrays with spare room, after
the entries of earlier snapshots. So adding a subscription costs microseconds, and snapshots share the arrays.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from milepost.match.access import ALWAYS
from milepost.match.form import Clause
from milepost.match.segment import ALIVE, Postings, address

ENTRIES: Final = 512  # scanned for every row: 0.7 microseconds
STAGED: Final = 16_384  # entries that may wait for a snapshot; more become a segment without one
_TERMS: Final = 4  # terms of a posting, on average, for which there is room

_WIDTH: Final = 37  # of a segment's row, and the place of the number of postings, as in `scan`
_POSTINGS: Final = 23


class Delta:
    """Entries by number. They become a segment with the same numbers."""

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
        """Whether it must become a segment before more entries are added."""
        return len(self._targets) >= STAGED

    @property
    def small(self) -> bool:
        """Whether a snapshot may scan it, so that it need not become a segment first."""
        return len(self._entries) <= ENTRIES and len(self._columns) <= _TERMS * ENTRIES

    def add(self, target: int, postings: list[tuple[int, Clause]]) -> int:
        """Add an entry and return its number."""
        entry = len(self._targets)
        if entry == len(self.died):
            # A snapshot with the old array is older than every entry that dies from now on.
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
        """Targets and postings, to build a segment from."""
        return np.array(self._targets, np.int32), Postings(
            np.array(self._entries, np.int32), np.array(self._ways, np.uint8), np.array(self._starts, np.int32),
            np.array(self._columns, np.int32), np.array(self._lows, np.int64), np.array(self._highs, np.int64),
        )  # fmt: skip

    def row(self) -> tuple[Any, tuple[Any, ...]]:
        """The row of a segment for `probe`, and the arrays it refers to: all postings are always scanned.

        The access term is the first term, unless it is negated. It is also among the rest, with all others.
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
            self._base = [address(array) for array in self._arrays]
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
                if self._ways[posting] != ALWAYS:  # the access term is positive
                    column[posting] = self._columns[begin]
                    low[posting], high[posting] = self._lows[begin], self._highs[begin]
            self._written = (len(self._targets), len(self._entries), len(self._columns))
        row = np.zeros(_WIDTH, np.int64)
        row[: len(self._base)] = self._base
        row[_POSTINGS] = len(self._entries)
        return row, self._arrays
