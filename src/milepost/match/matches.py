"""What a snapshot answers: the keys of each row, and the same by connection."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from milepost.errors import MilepostError


@dataclass(frozen=True, slots=True, eq=False)
class Deliveries:
    """For each connection its rows, ascending and once each, and for each of these rows the keys that want it.

    The rows of connection `owners[i]` are `rows[starts[i]:starts[i + 1]]`; the keys of `rows[j]` there are
    `marks[mark_offsets[j]:mark_offsets[j + 1]]`, in no order. Connections are in ascending order.
    """

    owners: npt.NDArray[np.int32]
    starts: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]
    mark_offsets: npt.NDArray[np.int64]
    marks: npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class Matches:
    """Which rows satisfy which keys: those of row i are `keys[offsets[i]:offsets[i + 1]]`, in no order.

    `failed` has the keys whose predicate could not be evaluated, each with the reason; they match nothing.
    """

    offsets: npt.NDArray[np.int64]
    keys: npt.NDArray[np.int32]
    failed: tuple[tuple[int, MilepostError], ...] = ()

    def by_owner(self, owners: npt.NDArray[np.int32]) -> Deliveries:
        """The rows of each connection, where `owners[key]`, not negative, is the number of the key's connection."""
        from milepost.match.grouping import regroup

        if len(self.keys) and int(self.keys.max()) >= len(owners):
            raise ValueError(f"key {self.keys.max()} has no owner among {len(owners)}")
        return Deliveries(*regroup(self.offsets, self.keys, np.ascontiguousarray(owners, np.int32)))
