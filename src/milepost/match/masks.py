"""Matching without kernels, until they are compiled: each distinct predicate is evaluated for each batch.

The results are the same as those of the index. The time grows with the number of predicates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from milepost.batch import Batch
from milepost.errors import MilepostError
from milepost.match.evaluation import Rows, is_long, require_schema, satisfying, views_of
from milepost.match.matches import Matches
from milepost.query import Predicate
from milepost.schema.types import Schema


class Masks:
    """The predicates of an index and their keys, while there are no kernels."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._predicates: dict[int, Predicate] = {}
        self._keys: dict[Predicate, dict[int, None]] = {}  # in order
        self._frozen: dict[Predicate, tuple[int, ...]] = {}  # the same, as in the last snapshot
        self._changed: set[Predicate] = set()  # since then

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: int, predicate: Predicate) -> None:
        self._predicates[key] = predicate
        self._keys.setdefault(predicate, {})[key] = None
        self._changed.add(predicate)

    def remove(self, key: int) -> None:
        predicate = self._predicates.pop(key)
        keys = self._keys[predicate]
        del keys[key]
        if not keys:
            del self._keys[predicate]
        self._changed.add(predicate)

    def items(self) -> list[tuple[int, Predicate]]:
        """All subscriptions."""
        return list(self._predicates.items())

    def snapshot(self) -> MaskSnapshot:
        """The current subscriptions."""
        for predicate in self._changed:
            self._frozen.pop(predicate, None)
            if predicate in self._keys:
                self._frozen[predicate] = tuple(self._keys[predicate])
        self._changed.clear()
        return MaskSnapshot(self._schema, self._frozen.copy())


class MaskSnapshot:
    """The subscriptions at one moment; it has the methods of `Snapshot`."""

    def __init__(self, schema: Schema, keys: Mapping[Predicate, tuple[int, ...]]) -> None:
        self._schema = schema
        self._keys = keys

    @property
    def evaluations(self) -> int:
        """Distinct predicates; all are evaluated."""
        return len(self._keys)

    def long(self, rows: int) -> bool:
        """Whether a match of so many rows may take longer than some milliseconds."""
        return is_long(self.evaluations, rows)

    def match(self, batch: Batch, pause: Callable[[], None] | None = None) -> Matches:
        """Which rows satisfy which keys. `pause` is called between evaluations, so that other threads can run."""
        require_schema(self._schema, batch)
        views = views_of(batch)
        found: list[tuple[Rows, tuple[int, ...]]] = []
        failed: list[tuple[int, MilepostError]] = []
        for predicate, keys in self._keys.items():
            if pause is not None:
                pause()
            try:
                rows = satisfying(predicate, batch, None, views)
            except MilepostError as error:
                failed += [(key, error) for key in keys]
                continue
            if len(rows):
                found.append((rows, keys))
        return Matches(*_by_row(found, len(batch)), tuple(failed))


def _by_row(found: list[tuple[Rows, tuple[int, ...]]], count: int) -> tuple[npt.NDArray[np.int64], Rows]:
    """Where the keys of each of `count` rows start, and the keys."""
    offsets = np.zeros(count + 1, np.int64)
    if not found:
        return offsets, np.zeros(0, np.int32)
    rows = np.concatenate([np.repeat(mine, len(keys)) for mine, keys in found])
    keys = np.concatenate([np.tile(np.array(keys, np.int32), len(mine)) for mine, keys in found])
    np.cumsum(np.bincount(rows, minlength=count), out=offsets[1:])
    return offsets, keys[np.argsort(rows, kind="stable")]
