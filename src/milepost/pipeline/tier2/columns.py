"""Arrow columns as the engine reads them: one array each, NaN as null, and their numbers for NumPy.

Equality is as in queries: NaN reads as null, and -0.0 is 0.0.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from milepost.errors import ConfigError, did_you_mean

Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]
State: TypeAlias = dict[str, pa.Table]  # of one rule
MOMENT: Final = pa.timestamp("us", tz="UTC")  # the type of every emitted time


def field(rule: str, schema: pa.Schema, name: str) -> pa.DataType:
    """The type of a column's values. Raises `ConfigError` when there is no such column."""
    if schema.names.count(name) != 1:
        raise ConfigError(f"rule {rule!r}: its rows have no column {name!r}{did_you_mean(name, schema.names)}")
    kind = schema.field(name).type
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind) or pa.types.is_run_end_encoded(kind):
        raise ConfigError(f"rule {rule!r}: {name!r} is a {kind}, of which Arrow cannot take rows; cast it")
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def moments(values: object) -> pa.Array:
    """Microseconds as the type of emitted times."""
    return pa.array(values, pa.int64()).view(MOMENT)


def comparable(kind: pa.DataType) -> bool:
    """Whether values of this type can be compared and sorted. False for types with parts, and where Arrow cannot
    sort.
    """
    if isinstance(kind, pa.BaseExtensionType) or pa.types.is_nested(kind) or pa.types.is_union(kind):
        return False
    return not (pa.types.is_float16(kind) or pa.types.is_interval(kind))


def column(table: pa.Table, name: str) -> pa.Array:
    """A column as one array, without its dictionary, with NaN as null."""
    return readable(whole(table.column(name)))


def whole(chunked: pa.ChunkedArray) -> pa.Array:
    """A column as one array, without its dictionary."""
    array = chunked.combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # strings of more than 2 GiB, which Arrow leaves in chunks
        raise OverflowError("a column of more than 2 GiB in one micro-batch; admit fewer rows")
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def readable(array: pa.Array) -> pa.Array:
    """The column with NaN as null."""
    if pa.types.is_floating(array.type):
        nan = pc.is_nan(array)
        if pc.any(nan).as_py():
            return pc.if_else(nan, pa.scalar(None, array.type), array)
    return array


def numbers(array: pa.Array) -> npt.NDArray[Any]:
    """The values of a fixed-width column except decimals; 0 where it is null. Times are their number of units."""
    kind = array.type
    if pa.types.is_temporal(kind):
        array = array.view(pa.int64() if kind.bit_width == 64 else pa.int32())
    elif pa.types.is_boolean(kind):
        array = array.cast(pa.int8())
    if array.null_count:
        array = array.fill_null(0)
    found: npt.NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return found + 0.0 if found.dtype.kind == "f" else found  # -0.0 + 0.0 is 0.0


def as_type(values: npt.NDArray[Any], kind: pa.DataType, missing: Bools | None = None) -> pa.Array:
    """The inverse of `numbers`."""
    if pa.types.is_boolean(kind):
        return pa.array(values.astype(np.bool_), mask=missing)
    array = pa.array(values, mask=missing)
    return array if array.type == kind else array.view(kind)


def valid(array: pa.Array) -> Bools | None:
    """Which values are not null; None when no value is null."""
    if not array.null_count:
        return None
    found: Bools = array.is_valid().to_numpy(zero_copy_only=False)
    return found


def ints(array: pa.Array) -> Ints:
    """The values of an int64 column without nulls, without a copy."""
    found: Ints = array.to_numpy(zero_copy_only=True)
    return found


def taken(array: pa.Array, rows: Ints, missing: Bools | None = None) -> pa.Array:
    """Some rows of a column; null where `missing`."""
    return array.take(pa.array(rows, mask=missing))


def joined(arrays: list[pa.Array]) -> pa.Array:
    """The columns concatenated."""
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def ranges(starts: Ints, stops: Ints) -> Ints:
    """All numbers of the ranges, one range after the other."""
    lengths = stops - starts
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    found: Ints = np.arange(total, dtype=np.int64) + np.repeat(starts - (ends - lengths), lengths)
    return found
