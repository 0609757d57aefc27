"""A snapshot of an index: immutable, for any thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from milepost.batch import Batch
from milepost.errors import MilepostError
from milepost.match.columns import CodeColumns, Codes
from milepost.match.evaluation import Rows, is_long, require_schema, satisfying, views_of
from milepost.match.group import PredicateGroup
from milepost.match.matches import Matches
from milepost.match.texts import TextTable
from milepost.query import Predicate

MANY_ROWS: Final = 64  # from here on `sweep` pays, which sorts rows first
MANY_POSTINGS: Final = 30_000  # fewer stay in the processor's caches
_EXPECTED: Final = 16.0  # targets of a row, as a first estimate


@dataclass(frozen=True, slots=True, eq=False)
class FrozenGroups:
    """The groups at one moment: the arrays of their keys, and the predicates to evaluate. Immutable once in use."""

    table: Codes  # for `assemble`
    held: dict[int, Keys]  # keeps the arrays alive whose addresses are in the table
    evaluated: dict[int, Predicate]
    unindexed: list[int]  # groups that no entry points to; all of them are evaluated

    def after(self, changed: Mapping[int, PredicateGroup | None], size: int) -> FrozenGroups:
        """The groups after some have changed or were removed; numbers are below `size`."""
        room = len(self.table)
        table = self.table.copy() if size <= room else np.zeros((2 * size, 3), np.int64)
        table[:room] = self.table
        held, evaluated, unindexed = self.held.copy(), self.evaluated, self.unindexed
        # Predicates change more rarely than keys, so these are copied only when predicates change; all at once.
        other = [
            number
            for number, group in changed.items()
            if group is None or number not in held or evaluated.get(number) is not group.predicate
        ]
        if other:
            evaluated = {number: each for number, each in evaluated.items() if number not in changed}
            unindexed = [number for number in unindexed if number not in changed]
        for number, group in changed.items():
            if group is None:
                held.pop(number, None)
                table[number] = 0
                continue
            held[number] = group.keys, group.died, group.count
            table[number] = group.row()
            if other and group.evaluated:
                evaluated[number] = group.predicate
            if other and not group.indexed:
                unindexed.append(number)
        return FrozenGroups(table, held, evaluated, unindexed)

    def keys(self, number: int, now: int) -> list[int]:
        """The keys of a group."""
        keys, died, count = self.held[number]
        return keys[:count][died[:count] > now].tolist()  # type: ignore[no-any-return]


Keys = tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], int]
NO_GROUPS: Final = FrozenGroups(np.zeros((0, 3), np.int64), {}, {}, [])


class Snapshot:
    """The subscriptions at one moment."""

    def __init__(
        self, now: int, columns: CodeColumns, table: TextTable, segments: Codes, held: list[Any], groups: FrozenGroups
    ) -> None:
        from milepost.match import assembly, probe
        from milepost.match.scan import ALWAYS_END as POSTINGS

        self._now = now
        self._columns = columns
        self._width = max(1, len(columns))
        self._table = table
        self._segments = segments
        self._held = held  # keeps the arrays alive whose addresses are in `segments`
        self._groups = groups
        self._postings = int(segments[:, POSTINGS].sum())
        self._expected = _EXPECTED
        self._probe = probe.probe
        self._sweep = probe.sweep
        self._split = assembly.split
        self._assemble = assembly.assemble

    @property
    def evaluations(self) -> int:
        """Distinct predicates that may have to be evaluated for a batch: the cost of a match besides the index."""
        return len(self._groups.evaluated)

    def long(self, rows: int) -> bool:
        """Whether a match of so many rows may take longer than some milliseconds."""
        return is_long(self.evaluations, rows)

    def match(self, batch: Batch, pause: Callable[[], None] | None = None) -> Matches:
        """Which rows satisfy which keys. `pause` is called between evaluations, so that other threads can run."""
        require_schema(self._columns.schema, batch)
        offsets, targets = self._found(batch)
        if not self._groups.held:
            return Matches(offsets, targets)
        return self._with_groups(batch, offsets, targets, pause)

    def _found(self, batch: Batch) -> tuple[npt.NDArray[np.int64], Rows]:
        """The targets of the entries that hold in each row."""
        n = len(batch)
        if not n or not len(self._segments):
            return np.zeros(n + 1, np.int64), np.zeros(0, np.int32)
        codes = self._columns.codes(batch, self._width, self._table)
        ask = self._sweep if n >= MANY_ROWS and self._postings >= MANY_POSTINGS else self._probe
        offsets, targets = ask(self._segments, self._now, codes, int(self._expected * n))
        self._expected = 1.1 * len(targets) / n
        return offsets, targets

    def _with_groups(
        self, batch: Batch, offsets: npt.NDArray[np.int64], targets: Rows, pause: Callable[[], None] | None
    ) -> Matches:
        groups = self._groups
        numbers, starts, rows = self._split(offsets, targets, len(groups.table))
        failed: list[tuple[int, MilepostError]] = []
        if groups.evaluated:
            holding: list[tuple[int, Any]] = []
            views = views_of(batch)
            bounds = starts.tolist()
            found: list[tuple[int, Any]] = [
                (number, rows[bounds[i] : bounds[i + 1]]) for i, number in enumerate(numbers.tolist())
            ]
            for number, mine in [*found, *((number, None) for number in groups.unindexed)]:
                predicate = groups.evaluated.get(number)
                if predicate is not None:
                    if pause is not None:
                        pause()
                    try:
                        mine = satisfying(predicate, batch, mine, views)
                    except MilepostError as error:  # it holds in no row
                        failed += [(key, error) for key in groups.keys(number, self._now)]
                        continue
                if len(mine):
                    holding.append((number, mine))
            numbers = np.array([number for number, _ in holding], np.int32)
            starts = np.zeros(len(holding) + 1, np.int64)
            np.cumsum([len(mine) for _, mine in holding], out=starts[1:])
            rows = np.concatenate([mine for _, mine in holding]) if holding else np.zeros(0, np.int32)
        matched, keys = self._assemble(offsets, targets, numbers, starts, rows, groups.table, self._now)
        return Matches(matched, keys, tuple(failed))
