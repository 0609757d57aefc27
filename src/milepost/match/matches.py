"""The result of a match: the keys of each row, and the same by connection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from milepost import kernels
from milepost.errors import MilepostError


@dataclass(frozen=True, slots=True, eq=False)
class Deliveries:
    """For each connection its rows, ascending and unique, and for each of these rows the matching keys.

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
    """Which rows satisfy which keys: the keys of row i are `keys[offsets[i]:offsets[i + 1]]`, in no order.

    `failed` has the keys whose predicate could not be evaluated, each with the reason; they match nothing.
    """

    offsets: npt.NDArray[np.int64]
    keys: npt.NDArray[np.int32]
    failed: tuple[tuple[int, MilepostError], ...] = ()

    def take(self, rows: npt.NDArray[np.intp]) -> Matches:
        """The matches of some rows, whose numbers must ascend."""
        counts = np.diff(self.offsets)
        kept = np.zeros(len(counts), np.bool_)
        kept[rows] = True
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts[rows])])
        return Matches(offsets, self.keys[np.repeat(kept, counts)], self.failed)

    def by_owner(self, owners: npt.NDArray[np.int32]) -> Deliveries:
        """The rows of each connection; `owners[key]`, not negative, is the number of the key's connection."""
        if len(self.keys) and int(self.keys.max()) >= len(owners):
            raise ValueError(f"key {self.keys.max()} has no owner among {len(owners)}")
        assembly = kernels.at_hand("match", "assembly")
        regroup = _regrouped if assembly is None else assembly.regroup
        return Deliveries(*regroup(self.offsets, self.keys, np.ascontiguousarray(owners, np.int32)))


def _regrouped(offsets: npt.NDArray[np.int64], keys: npt.NDArray[np.int32], owners: npt.NDArray[np.int32]) -> Any:
    """The result of the kernel `regroup`, without the kernel."""
    owner_of = owners[keys]
    order = np.argsort(owner_of, kind="stable")  # stable: the pairs of each owner stay in the order of rows
    owner_of = owner_of[order]
    row_of = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))[order]
    first = np.ones(len(order), np.bool_)  # the first pair of an owner
    first[1:] = owner_of[1:] != owner_of[:-1]
    fresh = first.copy()  # the first pair of a row and owner
    fresh[1:] |= row_of[1:] != row_of[:-1]
    places = np.flatnonzero(fresh)
    starts = np.append(np.cumsum(fresh)[first] - 1, len(places))
    return owner_of[first], starts, row_of[places], np.append(places, len(order)), keys[order]
