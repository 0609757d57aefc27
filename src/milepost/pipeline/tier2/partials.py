"""Partial results, kept instead of rows: one for each group and aggregate.

A partial is one to five columns. `lift` makes the partials of single rows, `merge` combines the partials of a group in
the given order, and `finish` computes the result. `merge` is a fold from the left with a neutral start: merging a
stored partial with later rows gives, bit for bit, the same as merging all rows at once. So no result depends on how a
stream is cut into micro-batches. (For the same reason sums of doubles are in the order of the rows, and not the more
accurate sums of a tree.)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from milepost.errors import ConfigError
from milepost.pipeline.tier2 import exact, sketch
from milepost.pipeline.tier2.columns import Bools, Ints, as_type, comparable, ints, numbers, ranges, taken, valid
from milepost.pipeline.tier2.keys import canonical

Parts = list[pa.Array]


class Partial(ABC):
    """The partial results of one function over one column of type `kind`."""

    def __init__(self, kind: pa.DataType) -> None:
        self.kind = kind

    @property
    @abstractmethod
    def types(self) -> list[pa.DataType]:
        """The types of its columns."""

    @abstractmethod
    def lift(self, column: pa.Array) -> Parts:
        """The partial of each single row."""

    @abstractmethod
    def merge(self, parts: Parts, codes: Ints, groups: int) -> Parts:
        """One partial for each group; `codes` has the group of each given partial."""

    def result(self, function: str) -> pa.DataType:
        """The type of the result of `function`."""
        return self.kind

    def finish(self, parts: Parts, function: str, quantile: float | None) -> pa.Array:
        return parts[0]


class ValueCount(Partial):
    """The number of values."""

    @property
    def types(self) -> list[pa.DataType]:
        return [pa.int64()]

    def lift(self, column: pa.Array) -> Parts:
        return [_present(column)]

    def merge(self, parts: Parts, codes: Ints, groups: int) -> Parts:
        return [_added(ints(parts[0]), codes, groups)]

    def result(self, function: str) -> pa.DataType:
        return pa.int64()


class Sum(Partial):
    """Sum and number of values, for `sum` and `avg`: exact limbs for integers and decimals, a double for floats."""

    def __init__(self, kind: pa.DataType) -> None:
        super().__init__(kind)
        self._limbs = exact.limbs_of(kind)

    @property
    def types(self) -> list[pa.DataType]:
        return [*([pa.int64()] * self._limbs or [pa.float64()]), pa.int64()]

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
        if function == "avg" or not self._limbs:
            return pa.float64()
        return pa.int64() if pa.types.is_integer(self.kind) else pa.decimal128(38, self.kind.scale)

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
    """The least (`sign` 1) or the greatest (-1) value."""

    def __init__(self, kind: pa.DataType, sign: int) -> None:
        super().__init__(kind)
        self._ufunc: Any = np.minimum if sign > 0 else np.maximum
        self._sign = sign

    @property
    def types(self) -> list[pa.DataType]:
        return [self.kind]

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
        self._ufunc.at(merged, codes, found)
        missing = np.bincount(codes, minlength=groups) == 0
        return [as_type(np.where(missing, found.dtype.type(0), merged), self.kind, missing if missing.any() else None)]

    def _worst(self, dtype: np.dtype[Any]) -> Any:
        if dtype.kind == "f":
            return self._sign * np.inf
        return np.iinfo(dtype).max if self._sign > 0 else np.iinfo(dtype).min

    def _ranked(self, values: pa.Array, codes: Ints, groups: int) -> pa.Array:
        """For types that NumPy does not compare: by the ranks of the distinct values."""
        encoded = values.dictionary_encode()
        order = pc.array_sort_indices(encoded.dictionary)
        rank = np.empty(len(order), np.int64)
        rank[order.to_numpy()] = np.arange(len(order))
        merged = self.__class__(pa.int64(), self._sign).merge([_gathered(rank, encoded.indices)], codes, groups)[0]
        return encoded.dictionary.take(order).take(merged)


class End(Partial):
    """The first (`sign` 1) or the last (-1) value."""

    def __init__(self, kind: pa.DataType, sign: int) -> None:
        super().__init__(kind)
        self._sign = sign

    @property
    def types(self) -> list[pa.DataType]:
        return [self.kind]

    def lift(self, column: pa.Array) -> Parts:
        return [column]

    def merge(self, parts: Parts, codes: Ints, groups: int) -> Parts:
        rows = np.arange(len(codes), dtype=np.int64)
        present = valid(parts[0])
        if present is not None:
            rows, codes = rows[present], codes[present]
        place = np.full(groups, len(parts[0]) if self._sign > 0 else -1, np.int64)
        (np.minimum if self._sign > 0 else np.maximum).at(place, codes, rows)
        missing = (place < 0) | (place == len(parts[0]))
        return [taken(parts[0], place, missing if missing.any() else None)]


class Sketch(Partial):
    """A sketch: lists of the used buckets and their counts."""

    @property
    def types(self) -> list[pa.DataType]:
        return [pa.list_(pa.int64()), pa.list_(pa.int64())]

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

    def result(self, function: str) -> pa.DataType:
        return pa.float64()

    def finish(self, parts: Parts, function: str, quantile: float | None) -> pa.Array:
        assert quantile is not None
        buckets, counts = ints(parts[0].flatten()), ints(parts[1].flatten())
        found = sketch.quantiles(_lengths(parts[0]), buckets, counts, quantile)
        return pa.array(found, mask=np.isnan(found))


class Distinct(Partial):
    """The distinct values themselves: exact, and bounded by the bound of the whole state."""

    @property
    def types(self) -> list[pa.DataType]:
        return [pa.list_(self.kind)]

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

    def result(self, function: str) -> pa.DataType:
        return pa.int64()

    def finish(self, parts: Parts, function: str, quantile: float | None) -> pa.Array:
        return pa.array(_lengths(parts[0]))


def partial(function: str, kind: pa.DataType) -> Partial:
    """The partial that `function` over a column of type `kind` needs. Raises `ConfigError` when there is none."""
    number = pa.types.is_floating(kind) or bool(exact.limbs_of(kind))
    if function == "count":
        return ValueCount(kind)
    if function in ("first", "last"):
        return End(kind, 1 if function == "first" else -1)
    if function in ("sum", "avg") and number:
        return Sum(kind)
    if function == "quantile" and number:
        return Sketch(kind)
    if function in ("min", "max") and not _composite(kind):
        return Extreme(kind, 1 if function == "min" else -1)
    if function == "distinct" and not _composite(kind):
        return Distinct(kind)
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


def _composite(kind: pa.DataType) -> bool:
    return not comparable(kind) or bool(pa.types.is_null(kind))


def _scattered(kind: pa.DataType) -> bool:
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return True
    return bool(pa.types.is_float32(kind) or pa.types.is_float64(kind) or _is_time(kind))


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_time(kind))


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
