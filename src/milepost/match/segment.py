"""Segments: the parts of an index. Immutable but for one array, `died`.

An *entry* is a subscription (or a group of them, see `group`): its target, and when it died. A *posting* is one way to
an entry: an entry of `x in (1, 2)` has two. Postings are sorted by how they are found::

    equalities           by cluster: a column and a code; a hash table leads to it
    ranges               by bucket of a grid, see below
    always scanned       clauses without an access term

Each posting has two of its terms beside it, so that scanning a cluster is a pass over few arrays, and refers to the
rest. These two are stored twice, exactly and *near*, in 16 bits each; a scan reads the exact ones only where the near
ones do not decide. In a large cluster, postings with the same two columns are neighbours, cut into blocks. Entries are
numbered in the order of their postings, so that the pass reads them in order too.

A grid divides the codes of a column into ranks, at the quantiles of the ends of its intervals. An interval is on the
level on which it covers at most five buckets of 2^level ranks, in the bucket of its low end. So it is in one place, and
a search for the intervals around a code reads five adjacent buckets of each level.

Removing an entry writes the moment into `died`. A snapshot has its own moment and skips entries that had died by then,
so later removals do not change it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias, cast

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int32]
Longs: TypeAlias = npt.NDArray[np.int64]

ALIVE: Final = (1 << 63) - 1  # `died` of a living entry


class Postings(NamedTuple):
    """Postings that are not sorted yet: entry, way, and terms, the access term of each first."""

    entry: Ints
    way: npt.NDArray[np.uint8]
    start: Ints  # of each posting's terms, and their end
    columns: Ints
    lows: Longs
    highs: Longs


class Segment:
    """Sorted postings, and their entries."""

    def __init__(self, number: int, targets: Ints, died: Longs, postings: Postings, columns: int) -> None:
        from milepost.match.builder import build

        made = build(*postings, columns, len(targets))
        self.arrays: Final[tuple[Any, ...]] = made[:27]
        self.moved: Final = made[27]  # the new number of each entry
        self.equal: Final = int(made[28])  # postings that are found by equality
        exact = int(made[29])  # whether near codes are exact
        self.number: Final = number
        self.targets: Final = np.empty_like(targets)
        self.targets[self.moved] = targets
        self.died: Final = np.empty_like(died)
        self.died[self.moved] = died
        self.dead = 0  # counted by the index
        (
            self._entry, self._column, self._low, self._high, self._second_column, self._second_low, self._second_high,
            self._rest, self._rest_column, self._rest_low, self._rest_high, self._slots, self._clusters,
            self._equal_columns, self._keys, self._grids, self._bounds, self._buckets, least, greatest,
            near_low, near_high, near_second_low, near_second_high, scales, cluster_blocks, blocks,
        ) = self.arrays  # fmt: skip
        # Whether each posting has an entry of its own, of the same number, and no further terms.
        count = len(targets)
        plain = len(self._entry) == count > 0 and self._entry[-1] == count - 1 and not len(self._rest_column)
        ranges = int(self._buckets[-1]) - self.equal if len(self._buckets) else 0
        self.ranges: Final = ranges
        self.row: Final = np.array(
            [
                *(address(array) for array in self.arrays[:11]), address(self.targets), address(self.died),
                address(self._slots), len(self._slots) - 1, address(self._clusters),
                address(self._equal_columns), len(self._equal_columns),
                address(self._grids), len(self._grids), address(self._bounds), address(self._buckets),
                self.equal + ranges, len(self._entry), 1, address(least), address(greatest),
                address(near_low), address(near_high), address(near_second_low), address(near_second_high),
                address(scales), exact, address(cluster_blocks), address(blocks), plain, 1,
            ],
            np.int64,
        )  # fmt: skip
        self.merging = False

    def __len__(self) -> int:
        return len(self._entry)

    @property
    def clusters(self) -> int:
        """The number of clusters and buckets."""
        return len(self._keys) + len(self._buckets)

    @property
    def bytes(self) -> int:
        return sum(int(array.nbytes) for array in self.arrays) + self.targets.nbytes + self.died.nbytes

    def numbers(self, columns: Sequence[int]) -> Longs:
        """The codes in terms over the given columns, with repetitions."""
        mine = np.array([*columns, *(~column for column in columns)], np.int32)
        return np.concatenate(
            [
                self._low[np.isin(self._column, mine)],
                self._second_low[np.isin(self._second_column, mine)],
                self._rest_low[np.isin(self._rest_column, mine)],
                self._keys[np.isin(self._keys[:, 0], mine), 1],
            ]
        )

    def unfolded(self, kept: Ints) -> Postings:
        """The postings of the entries for which `kept` has a new number."""
        from milepost.match.builder import unfold

        rest = (self._clusters, self._keys, self.equal, self.ranges, kept)
        return Postings(*cast(Any, unfold)(*self.arrays[:11], *rest))


def joined(parts: Sequence[Postings]) -> Postings:
    """The postings of all parts, in order."""
    if len(parts) == 1:
        return parts[0]
    starts = []
    terms = 0
    for part in parts:
        starts.append(part.start[:-1] + np.int32(terms))
        terms += int(part.start[-1])
    starts.append(np.array([terms], np.int32))
    all_parts: Any = zip(*parts, strict=True)
    return Postings(*map(np.concatenate, all_parts))._replace(start=np.concatenate(starts))


def address(array: npt.NDArray[Any]) -> int:
    """Where the values of an array are in memory."""
    found: int = array.__array_interface__["data"][0]
    return found


class Merge:
    """The merge of several segments into one, without dead entries. `run` may be on another thread."""

    def __init__(self, sources: Sequence[Segment], number: int, columns: int) -> None:
        self.sources = sources
        self._number = number
        self._columns = columns
        self._kept: list[npt.NDArray[np.intp]] = []
        self.result: Segment | None = None
        self.failure: BaseException | None = None
        for source in sources:
            source.merging = True

    def run(self) -> None:
        """Build the segment. `finish` marks entries that die meanwhile."""
        try:
            parts, targets = [], []
            entries = 0
            for source in self.sources:
                kept = np.flatnonzero(source.died == ALIVE)
                numbers = np.full(len(source.died), -1, np.int32)
                numbers[kept] = np.arange(entries, entries + len(kept), dtype=np.int32)
                parts.append(source.unfolded(numbers))
                targets.append(source.targets[kept])
                self._kept.append(kept)
                entries += len(kept)
            died = np.full(entries, ALIVE, np.int64)
            self.result = Segment(self._number, np.concatenate(targets), died, joined(parts), self._columns)
        except BaseException as error:  # a thread's exception would be lost
            self.failure = error

    def finish(self) -> Segment:
        """The segment, with entries marked that died while it was built. On the thread that owns the index."""
        if self.failure is not None:
            raise self.failure
        assert self.result is not None
        died = [source.died[kept] for source, kept in zip(self.sources, self._kept, strict=True)]
        self.result.died[self.result.moved] = np.concatenate(died)
        self.result.dead = int(np.count_nonzero(self.result.died != ALIVE))
        return self.result
