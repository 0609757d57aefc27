"""Quantifiers and aggregates: elements are rows of an inner frame, and each outer row gets one value from them.

The elements of row i are the rows from `splits[i]` up to `splits[i + 1]` of the inner frame. Sums over such runs are
differences of running totals, so a run may be empty. NumPy's `reduceat` returns the first element of the *next* run for
an empty one, so it is used only where no run is empty.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from milepost.query.kinds import BYTES, DOUBLE, INTEGER, STRING, UUID, Nodes, Scalar, summed
from milepost.query.mask import exact
from milepost.query.mask.frame import RowFrame
from milepost.query.mask.paths import numbers
from milepost.query.mask.spot import Spot, follow
from milepost.query.mask.vector import Bools, Index, PartialVector, Vector, both, gathered, merged, require, spread
from milepost.query.typed import Binding, Fold, cost, scalar
from milepost.schema.flat import AtomShape, ListShape

Evaluate = Callable[[RowFrame], Vector | None]
Holds = Callable[[RowFrame], Bools]


def fold(node: Fold, where: Holds | None, body: Evaluate | None) -> Evaluate:
    """An aggregate; the parts are compiled already."""
    further = node.bindings[1:]
    finish = _FINISH[node.operator]
    body_kind = INTEGER if node.body is None else scalar(node.body)
    steps = cost(node.where, node.body)
    sorts = node.operator in ("min", "max") and body_kind in (STRING, BYTES, UUID)

    def over(frame: RowFrame, spot: Spot) -> Vector | None:
        lists = spot.present()
        inner, splits = expanded(frame, node.bindings[0], spot)
        for binding in further:
            inner, splits = _deeper(inner, binding, splits)
        result = finished(inner, splits)
        return None if result is None else Vector(result.values, both(lists, result.known))

    def finished(inner: RowFrame, splits: Index) -> Vector | None:
        inner.origin.spend(inner.n * (steps + (inner.n.bit_length() if sorts else 0)))
        kept = None if where is None else where(inner)
        if body is None:
            return Vector(_counted(kept, splits))
        return finish(_Runs(body(inner), kept, splits, inner.n, body_kind), node.kind)

    def evaluate(frame: RowFrame) -> Vector | None:
        if not frame.n:
            return None
        if not node.bindings:  # a query about the root node only: one combination for each message
            return finished(frame, np.arange(frame.n + 1))
        source = node.bindings[0].source
        spots = follow(frame.spot(source.variable), source.steps)
        if len(spots) == 1 and spots[0].rows is None:
            return over(frame, spots[0])
        parts = []
        for spot in spots:
            assert spot.rows is not None
            parts.append(PartialVector(spot.rows, over(frame.within(spot.rows), spot)))
        return merged(parts, frame.n, node.kind)

    return evaluate


def _deeper(frame: RowFrame, binding: Binding, splits: Index) -> tuple[RowFrame, Index]:
    """The frame of one more binding. Only references have further ones, and there are no variants on their paths."""
    if not frame.n:  # no elements; the inner expression still needs a spot for its variable
        nowhere = np.zeros(0, np.int64)
        frame.bind(binding.variable, Spot(frame.origin.block, frame.origin.block.layout.root, nowhere))
        return frame, splits
    (spot,) = follow(frame.spot(binding.source.variable), binding.source.steps)
    inner, inner_splits = expanded(frame, binding, spot)
    return inner, inner_splits[splits]


def expanded(frame: RowFrame, binding: Binding, spot: Spot) -> tuple[RowFrame, Index]:
    """The inner frame in which a variable takes each element of the lists at a spot, and its runs."""
    assert isinstance(spot.shape, ListShape)
    offsets, block = spot.block.list(spot.shape)
    if spot.index is None and spot.known is None:
        splits = offsets.astype(np.int64)
        starts = None  # all elements of the block, in order
    else:
        starts = spot.chosen(offsets[:-1]).astype(np.int64)
        sizes = spot.chosen(offsets[1:]) - starts
        if spot.known is not None:
            sizes = np.where(spot.known, sizes, 0)
        splits = np.zeros(len(sizes) + 1, np.int64)
        np.cumsum(sizes, out=splits[1:])
    n = int(splits[-1])
    require("QUERY_BINDINGS", n, "combinations of elements in one message")
    frame.origin.spend(n)
    inner = RowFrame(frame.origin, n, frame, lambda: np.repeat(np.arange(frame.n), np.diff(splits)))
    index = None
    if starts is not None:
        # Element k of run i is element starts[i] + k of the block, and row splits[i] + k here.
        index = np.arange(n) + np.repeat(starts - splits[:-1], np.diff(splits))
    kind = binding.source.kind
    if isinstance(kind, Nodes):
        shape = block.layout.root
        assert isinstance(shape, AtomShape)
        positions = block.values(shape) if index is None else block.values(shape)[index]
        firsts, block = frame.origin.nodes(kind.target)
        messages = inner.parents if frame.messages is None else frame.messages[inner.parents]
        index = firsts[messages] + positions
    inner.bind(binding.variable, Spot(block, block.layout.root, index))
    return inner, splits


def _counted(kept: Bools | None, splits: Index) -> Index:
    """How many rows of each run are kept."""
    if kept is None:
        return np.diff(splits)
    totals = np.zeros(len(kept) + 1, np.int64)
    np.cumsum(kept, out=totals[1:])
    return np.diff(totals[splits])


@dataclass(frozen=True, slots=True)
class _Runs:
    """The values of a body by run, without the values that are not kept or null."""

    _body: Vector | None
    _kept: Bools | None
    _splits: Index
    _n: int
    kind: Scalar

    def truths(self, wanted: bool) -> Bools:
        """Which runs have a value equal to `wanted`."""
        if self._body is None:
            return np.zeros(len(self._splits) - 1, np.bool_)
        values = spread(self._body, self._n, self.kind)
        return _counted(both(both(values if wanted else ~values, self._body.known), self._kept), self._splits) > 0

    def nulls(self) -> Bools | None:
        """Which runs have a null."""
        if self._body is None:
            unknown = np.ones(self._n, np.bool_)
        elif self._body.known is None:
            return None
        else:
            unknown = ~self._body.known
        return _counted(both(unknown, self._kept), self._splits) > 0

    def known(self) -> tuple[Any, Index]:
        """The values that are kept and known, and their runs."""
        assert self._body is not None
        values = spread(self._body, self._n, self.kind)
        kept = both(self._body.known, self._kept)
        if kept is None:
            return values, self._splits
        splits = np.zeros(len(self._splits), np.int64)
        np.cumsum(_counted(kept, self._splits), out=splits[1:])
        return gathered(values, np.flatnonzero(kept)), splits

    @property
    def empty(self) -> bool:
        """Whether the body is null everywhere."""
        return self._body is None

    def __len__(self) -> int:
        return len(self._splits) - 1


def _quantifier(decisive: bool) -> Callable[[_Runs, Scalar], Vector]:
    """`any` is decided by one true value, `all` by one false value; null otherwise if there is a null."""

    def finish(runs: _Runs, kind: Scalar) -> Vector:
        decided = runs.truths(decisive)
        nulls = runs.nulls()
        values = decided if decisive else ~decided
        return Vector(values, None if nulls is None else decided | ~nulls)

    return finish


def _count(runs: _Runs, kind: Scalar) -> Vector:
    if runs.empty:
        return Vector(np.zeros(len(runs), np.int64))
    return Vector(np.diff(runs.known()[1]))


def _sum(runs: _Runs, kind: Scalar) -> Vector | None:
    if runs.empty:
        return None
    values, splits = runs.known()
    sizes = np.diff(splits)
    some = sizes > 0
    if kind == DOUBLE:
        # Adds the values in order, as the language defines; `add.reduce` would add in pairs.
        owners = np.repeat(np.arange(len(sizes)), sizes)
        with np.errstate(invalid="ignore", over="ignore"):
            totals = np.bincount(owners, values, len(sizes)).astype(np.float64, copy=False)
        return Vector(totals, both(some, numbers(totals)))
    low, high = exact.bounds(values)
    if exact.in_int64(min(low, 0) * len(values), max(high, 0) * len(values)):
        running = np.zeros(len(values) + 1, np.int64)
        np.cumsum(values, out=running[1:], dtype=np.int64)
        return Vector(np.diff(running[splits]), some)
    units = values.tolist()  # sums beyond 64 bits: Python's integers, one by one
    sums = [sum(units[start:end]) for start, end in pairwise(splits.tolist())]
    return exact.bounded(np.array(sums, object), some, kind)


def _average(runs: _Runs, kind: Scalar) -> Vector | None:
    of = runs.kind
    total = _sum(runs, summed(of))
    if total is None:
        return None
    counts = np.diff(runs.known()[1])
    added = total.values if of == DOUBLE else exact.doubled(total.values, of.scale)
    with np.errstate(invalid="ignore", divide="ignore"):
        values = added / counts
    return Vector(values, both(total.known, numbers(values)))


def _extreme(least: bool) -> Callable[[_Runs, Scalar], Vector | None]:
    reduce = np.minimum if least else np.maximum

    def finish(runs: _Runs, kind: Scalar) -> Vector | None:
        if runs.empty:
            return None
        values, splits = runs.known()
        sizes = np.diff(splits)
        some = sizes > 0
        if not some.any():
            return None
        starts = splits[:-1][some]
        if kind in (STRING, BYTES, UUID):
            # Replace the values by their ranks, which are numbers in the same order.
            order = _sorted(values)
            ranks = np.empty(len(order), np.int64)
            ranks[order] = np.arange(len(order))
            places = np.zeros(len(sizes), np.int64)
            places[some] = order[reduce.reduceat(ranks, starts)]
            return Vector(gathered(values, places), some)
        found = np.zeros(len(sizes), values.dtype)
        found[some] = reduce.reduceat(values, starts)
        return Vector(found, some)

    return finish


def _sorted(values: Any) -> Index:
    if isinstance(values, pa.Array):
        return pc.sort_indices(values).to_numpy().astype(np.int64)  # type: ignore[no-any-return]
    return np.argsort(values)


_FINISH: Final[dict[str, Callable[[_Runs, Scalar], Vector | None]]] = {
    "any": _quantifier(True),
    "all": _quantifier(False),
    "count": _count,
    "sum": _sum,
    "min": _extreme(True),
    "max": _extreme(False),
    "avg": _average,
}
