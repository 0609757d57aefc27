"""Partial results, kept instead of rows: one for each group and aggregate.

A partial is one to five columns. `lift` makes the partials of single rows, `merge` combines the partials of a group in
the given order, and `finish` computes the result. `merge` is a fold from the left with a neutral start: merging a
stored partial with later rows gives, bit for bit, the same as merging all rows at once. So no result depends on how a
stream is cut into micro-batches. (For the same reason sums of doubles are in the order of the rows, and not the more
accurate sums of a tree.)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from milepost.errors import ConfigError
from milepost.pipeline.tier2 import exact, sketch
from milepost.pipeline.tier2.columns import Bools, Ints, as_type, comparable, ints, numbers, ranges, taken, valid
from milepost.pipeline.tier2.keys import canonical

Parts = list[pa.Array]


@dataclass(frozen=True)
class Partial(ABC):
    """The partial results of one function over one column of type `kind`."""

    kind: pa.DataType
    types: list[pa.DataType]  # of its columns
    finished: pa.DataType  # the type of the result
    sign: int = 1  # -1 for the greatest and the last value

    @abstractmethod
    def lift(self, column: pa.Array) -> Parts:
        """The partial of each single row."""

    @abstractmethod
    def merge(self, parts: Parts, codes: Ints, groups: int) -> Parts:
        """One partial for each group; `codes` has the group of each given partial."""

    def result(self, function: str) -> pa.DataType:
        """The type of the result of `function`."""
        return self.finished

    def finish(self, parts: Parts, function: str, quantile: float | None) -> pa.Array:
        return parts[0]


class ValueCount(Partial):
    """The number of values."""

    def lift(self, column: pa.Array) -> Parts:
        return [_present(column)]

    def merge(self, parts: Parts, codes: Ints, groups: int) -> Parts:
        return [_added(ints(parts[0]), codes, groups)]


class Sum(Partial):
    """Sum and number of values, for `sum` and `avg`: exact limbs for integers and decimals, a double for floats."""

    @property
    def _limbs(self) -> bool:
        return bool(self.types[0] == pa.int64())

    def lift(self, column: pa.Array) -> Parts:
        if self._limbs:
            return [*map(pa.array, exact.split(column)), _present(column)]
        return [pa.array(numbers(column).astype(np.float64, copy=False)), _present(column)]

    def merge(self, parts: Parts, codes: Ints, groups: int) -> Parts:
        counts = _added(ints(parts[-1]), codes, groups)
        if self._limbs:
            limbs = [ints(_added(ints(limb), codes, groups)) for limb in parts[:-1]]
            return [*map(pa.array, exact.carry(limbs)), counts]
        sums = np.zeros(groups)
        with np.errstate(invalid="ignore", over="ignore"):  # infinities of both signs make NaN, which reads as null
            np.add.at(sums, codes, numbers(parts[0]))
        return [pa.array(sums), counts]

    def result(self, function: str) -> pa.DataType:
        return pa.float64() if function == "avg" else self.finished

    def finish(self, parts: Parts, function: str, quantile: float | None) -> pa.Array:
        counts = ints(parts[-1])
        if self._limbs:
            total = exact.to_arrow([ints(limb) for limb in parts[:-1]], self.kind, counts == 0)
            if function == "sum":
                return total
            missing = ~total.is_valid().to_numpy(zero_copy_only=False)
            sums = total.cast(pa.float64(), safe=False).fill_null(0.0).to_numpy()
        else:
            sums = parts[0].to_numpy()
            missing = (counts == 0) | np.isnan(sums)
        if function == "avg":
            sums = sums / np.maximum(counts, 1)
        return pa.array(sums, mask=missing)


class Extreme(Partial):
    """The least or the greatest value."""

    def lift(self, column: pa.Array) -> Parts:
        return [canonical(column)]

    def merge(self, parts: Parts, codes: Ints, groups: int) -> Parts:
        values = parts[0]
        if not _scattered(self.kind):
            return [self._ranked(values, codes, groups)]
        found = numbers(values)
        rows = valid(values)
        if rows is not None:
            found, codes = found[rows], codes[rows]
        merged = np.full(groups, self._worst(found.dtype), found.dtype)
        (np.minimum if self.sign > 0 else np.maximum).at(merged, codes, found)
        missing = np.bincount(codes, minlength=groups) == 0
        return [as_type(np.where(missing, found.dtype.type(0), merged), self.kind, missing if missing.any() else None)]

    def _worst(self, dtype: np.dtype[Any]) -> Any:
        if dtype.kind == "f":
            return self.sign * np.inf
        return np.iinfo(dtype).max if self.sign > 0 else np.iinfo(dtype).min

    def _ranked(self, values: pa.Array, codes: Ints, groups: int) -> pa.Array:
        """For types that NumPy does not compare: by the ranks of the distinct values."""
        encoded = values.dictionary_encode()
        order = pc.array_sort_indices(encoded.dictionary)
        rank = np.empty(len(order), np.int64)
        rank[order.to_numpy()] = np.arange(len(order))
        ranked = replace(self, kind=pa.int64())
        merged = ranked.merge([_gathered(rank, encoded.indices)], codes, groups)[0]
        return encoded.dictionary.take(order).take(merged)


class End(Partial):
    """The first or the last value."""

    def lift(self, column: pa.Array) -> Parts:
        return [column]

    def merge(self, parts: Parts, codes: Ints, groups: int) -> Parts:
        rows = np.arange(len(codes), dtype=np.int64)
        present = valid(parts[0])
        if present is not None:
            rows, codes = rows[present], codes[present]
        place = np.full(groups, len(parts[0]) if self.sign > 0 else -1, np.int64)
        (np.minimum if self.sign > 0 else np.maximum).at(place, codes, rows)
        missing = (place < 0) | (place == len(parts[0]))
        return [taken(parts[0], place, missing if missing.any() else None)]


class Sketch(Partial):
    """A sketch: lists of the used buckets and their counts."""

    def lift(self, column: pa.Array) -> Parts:
        present = valid(column)
        values = column.cast(pa.float64(), safe=False) if pa.types.is_decimal(column.type) else column
        found = numbers(values)
        lengths = np.ones(len(column), np.int64) if present is None else present.astype(np.int64)
        buckets = sketch.bucket(found if present is None else found[present])
        return [_lists(lengths, pa.array(buckets)), _lists(lengths, pa.array(np.ones(len(buckets), np.int64)))]

    def merge(self, parts: Parts, codes: Ints, groups: int) -> Parts:
        inner = np.repeat(codes, _lengths(parts[0]))
        found, buckets, counts = sketch.merge(inner, ints(parts[0].flatten()), ints(parts[1].flatten()))
        lengths = np.bincount(found, minlength=groups)
        return [_lists(lengths, pa.array(buckets)), _lists(lengths, pa.array(counts))]

    def finish(self, parts: Parts, function: str, quantile: float | None) -> pa.Array:
        assert quantile is not None
        buckets, counts = ints(parts[0].flatten()), ints(parts[1].flatten())
        found = sketch.quantiles(_lengths(parts[0]), buckets, counts, quantile)
        return pa.array(found, mask=np.isnan(found))


class Distinct(Partial):
    """The distinct values themselves: exact, and bounded by the bound of the whole state."""

    def lift(self, column: pa.Array) -> Parts:
        lengths = ints(_present(column))
        return [_lists(lengths, canonical(column.drop_null()))]

    def merge(self, parts: Parts, codes: Ints, groups: int) -> Parts:
        values = parts[0].flatten()
        encoded = values.dictionary_encode()
        size = max(len(encoded.dictionary), 1)
        pairs = np.repeat(codes, _lengths(parts[0])) * size + encoded.indices.to_numpy()
        pairs = np.unique(pairs)
        lengths = np.bincount(pairs // size, minlength=groups)
        return [_lists(lengths, encoded.dictionary.take(pa.array(pairs % size)))]

    def finish(self, parts: Parts, function: str, quantile: float | None) -> pa.Array:
        return pa.array(_lengths(parts[0]))


def partial(function: str, kind: pa.DataType) -> Partial:
    """The partial that `function` over a column of type `kind` needs. Raises `ConfigError` when there is none."""
    whole, double, limbs = pa.int64(), pa.float64(), exact.limbs_of(kind)
    composite = not comparable(kind) or pa.types.is_null(kind)
    match function:
        case "count":
            return ValueCount(kind, [whole], whole)
        case "first" | "last":
            return End(kind, [kind], kind, 1 if function == "first" else -1)
        case "sum" | "avg" if limbs:
            exactly = whole if pa.types.is_integer(kind) else pa.decimal128(38, kind.scale)
            return Sum(kind, [whole] * (limbs + 1), exactly)
        case "sum" | "avg" if pa.types.is_floating(kind):
            return Sum(kind, [double, whole], double)
        case "quantile" if limbs or pa.types.is_floating(kind):
            return Sketch(kind, [pa.list_(whole), pa.list_(whole)], double)
        case "min" | "max" if not composite:
            return Extreme(kind, [kind], kind, 1 if function == "min" else -1)
        case "distinct" if not composite:
            return Distinct(kind, [pa.list_(kind)], whole)
    raise ConfigError(f"there is no {function} of {kind}")


def family(function: str) -> str:
    """The family of a function. Functions of one family over one column share a partial."""
    return {"avg": "sum"}.get(function, function)


def weight(part: pa.Array) -> Ints | None:
    """The number of values in each list of a column of lists; None for other columns."""
    return _lengths(part) if pa.types.is_list(part.type) else None


def take(part: pa.Array, rows: Ints) -> pa.Array:
    """Some rows of a partial's column. NumPy gathers lists of numbers, because it is faster than Arrow at that."""
    if not pa.types.is_list(part.type) or part.null_count:
        return taken(part, rows)
    offsets = part.offsets.to_numpy().astype(np.int64)
    starts, stops = offsets[rows], offsets[rows + 1]
    return _lists(stops - starts, part.values.take(pa.array(ranges(starts, stops))))


def _scattered(kind: pa.DataType) -> bool:
    of = pa.types
    simple = (of.is_integer, of.is_boolean, of.is_float32, of.is_float64, of.is_timestamp, of.is_date, of.is_time)
    return any(each(kind) for each in simple)


def _present(column: pa.Array) -> pa.Array:
    rows = valid(column)
    return pa.array(np.ones(len(column), np.int64) if rows is None else rows.astype(np.int64))


def _added(values: Ints, codes: Ints, groups: int) -> pa.Array:
    sums = np.zeros(groups, np.int64)
    np.add.at(sums, codes, values)
    return pa.array(sums)


def _gathered(values: Ints, indices: pa.Array) -> pa.Array:
    present = valid(indices)
    if not len(values):
        return pa.nulls(len(indices), pa.int64())
    return pa.array(values[numbers(indices)], mask=None if present is None else ~present)


def _lengths(lists: pa.Array) -> Ints:
    lengths: Ints = np.diff(lists.offsets.to_numpy()).astype(np.int64)
    return lengths


def _lists(lengths: Ints | Bools, values: pa.Array) -> pa.Array:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if offsets[-1] >= 1 << 31:
        raise OverflowError("more than 2³¹ values in the lists of one column; admit fewer rows")
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), values)
