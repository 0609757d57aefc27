"""Vectors: the values of an expression in every row, in a form for NumPy and Arrow.

::

    boolean              bool array
    integer, ident       array of any integer type
    decimal              int64 array, or objects (Python's integers) where that is too narrow: units of the last place
    double               float64 array
    string, bytes        Arrow array without nulls
    date, timestamp      array of days, of microseconds
    uuid                 array of 16 bytes each (S16: compared byte by byte, as their order is defined)

A constant has one value of the same form in place of the array; only literals and names of cases are constants. An
expression that is null in every row has no vector: where a function here returns or takes `Vector | None`, None means
that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from milepost import limits
from milepost.query import instant
from milepost.query.kinds import BOOLEAN, BYTES, DATE, DOUBLE, STRING, TIMESTAMP, Scalar, is_exact
from milepost.query.kinds import UUID as UUID_KIND

Bools: TypeAlias = npt.NDArray[np.bool_]
Index: TypeAlias = npt.NDArray[np.int64]
Packed: TypeAlias = npt.NDArray[np.uint8]  # bools, eight in a byte
Array: TypeAlias = npt.NDArray[Any]


@dataclass(slots=True)
class Vector:
    """Values; `known` marks the ones that are not null, and is None when all are. The value of a null is arbitrary."""

    values: Any
    known: Bools | None = None

    @property
    def constant(self) -> bool:
        """Whether there is one value for all rows."""
        return not isinstance(self.values, np.ndarray | pa.Array)


def both(left: Bools | None, right: Bools | None) -> Bools | None:
    """Known where both are."""
    if left is None:
        return right
    return left if right is None else left & right


def machine(value: Any, kind: Scalar) -> Any:
    """A single value in the form of vectors."""
    if kind == STRING:
        return pa.scalar(value, pa.string())
    if kind == BYTES:
        return pa.scalar(value, pa.binary())
    if kind == DATE:
        return instant.days(value)
    if kind == TIMESTAMP:
        return instant.microseconds(value)
    return np.bytes_(value.bytes) if kind == UUID_KIND else value


def array(values: list[Any], kind: Scalar) -> Any:
    """Values, none of them null, as the array of a vector."""
    if kind == STRING:
        return pa.array(values, pa.string())
    if kind == BYTES:
        return pa.array(values, pa.binary())
    if is_exact(kind):
        return integers(values)
    dtype = {BOOLEAN: "?", DOUBLE: "f8", UUID_KIND: "S16"}.get(kind, "i8")
    return np.array([machine(value, kind) for value in values], dtype)


def integers(values: list[int]) -> Array:
    """Integers in an int64 array where they fit, otherwise as objects."""
    try:
        return np.array(values, np.int64)
    except OverflowError:
        return np.array(values, object)


def blank(kind: Scalar) -> Any:
    """Some value of a kind, for rows that are null."""
    if kind in (STRING, BYTES):
        return "" if kind == STRING else b""
    return UUID(int=0) if kind == UUID_KIND else instant.EPOCH if kind in (DATE, TIMESTAMP) else 0


def from_list(values: list[Any], kind: Scalar) -> Vector:
    """A vector from values, None for null."""
    known = np.array([value is not None for value in values], np.bool_)
    filler = blank(kind)
    filled = values if known.all() else [filler if value is None else value for value in values]
    return Vector(array(filled, kind), None if known.all() else known)


def spread(vector: Vector, n: int, kind: Scalar) -> Any:
    """The values of a vector as an array of n; a constant is repeated."""
    if not vector.constant:
        return vector.values
    if kind in (STRING, BYTES):
        return pa.repeat(vector.values, n)
    if is_exact(kind):
        return np.repeat(integers([vector.values]), n)
    dtype = {BOOLEAN: "?", DOUBLE: "f8", UUID_KIND: "S16"}.get(kind, "i8")
    return np.full(n, vector.values, dtype)


class TooMuch(Exception):
    """Evaluating so many messages at once exceeds a limit for one message; the caller tries with fewer.

    Its arguments are those of `budget.require`.
    """


def require(limit: str, amount: int, what: str) -> None:
    """Raise `TooMuch` beyond a limit."""
    if amount > getattr(limits, limit):
        raise TooMuch(limit, amount, what)


def gathered(values: Any, index: Index) -> Any:
    """The values at the given places."""
    if not isinstance(values, pa.Array):
        return values[index]
    offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    if len(index) * int(offsets[-1] - offsets[0]) > limits.QUERY_VALUE_BYTES:  # an upper bound: count only above it
        require("QUERY_VALUE_BYTES", int(np.diff(offsets)[index].sum(dtype=np.int64)), "text repeated for elements")
    return values.take(pa.array(index))


@dataclass(slots=True)
class PartialVector:
    """A vector for some of the rows."""

    rows: Index
    vector: Vector | None


def merged(parts: list[PartialVector], n: int, kind: Scalar) -> Vector | None:
    """One vector of n rows from vectors of some rows each; rows in no part are null."""
    filled = [(part.rows, part.vector) for part in parts if part.vector is not None]
    if not filled:
        return None
    known = np.zeros(n, np.bool_)
    for rows, vector in filled:
        known[rows] = True if vector.known is None else vector.known
    arrays = [spread(vector, len(rows), kind) for rows, vector in filled]
    return Vector(_scattered([rows for rows, _ in filled], arrays, n), None if known.all() else known)


def _scattered(rows: list[Index], arrays: list[Any], n: int) -> Any:
    if isinstance(arrays[0], pa.Array):
        order = np.zeros(n, np.int64)
        start = 0
        for places, values in zip(rows, arrays, strict=True):
            order[places] = np.arange(start, start + len(values))
            start += len(values)
        # A row in no part takes the first value; without any value, all rows are null.
        return pa.concat_arrays(arrays).take(pa.array(order)) if start else pa.array([""] * n, arrays[0].type)
    dtypes = {values.dtype for values in arrays}
    # uint64 and int64 together would become float64 and lose digits.
    dtype = dtypes.pop() if len(dtypes) == 1 else np.result_type(*dtypes) if not _mixed(dtypes) else np.dtype(object)
    whole = np.zeros(n, dtype)
    for places, values in zip(rows, arrays, strict=True):
        whole[places] = values
    return whole


def _mixed(dtypes: set[np.dtype[Any]]) -> bool:
    kinds = {dtype.kind for dtype in dtypes}
    return "O" in kinds or {"i", "u"} <= kinds
