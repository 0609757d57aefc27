"""From a batch to a value for each of its rows: one evaluation for each group, scattered to the rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC
from typing import Any, Final, NamedTuple, TypeVar
from uuid import UUID

import numpy as np
import pyarrow as pa

from milepost.batch import Batch
from milepost.batch.column import object_array
from milepost.query.budget import Budget, require
from milepost.query.header import ATTRIBUTES
from milepost.query.kinds import DATE, DOUBLE, TIMESTAMP, Scalar
from milepost.query.kinds import UUID as UUID_KIND
from milepost.query.mask.compiler import MaskCompiler
from milepost.query.mask.frame import Origin, RowFrame
from milepost.query.mask.vector import (
    Array,
    Bools,
    Index,
    PartialVector,
    TooMuch,
    Vector,
    from_list,
    gathered,
    merged,
    spread,
)
from milepost.query.number import scaled
from milepost.query.typed import Typed, cost, scalar

_TIMESTAMPS: Final = np.dtype("datetime64[us]")

HeaderColumns = Mapping[str, Any]  # attribute -> a sequence with one value a row, None where it is absent
Answer = TypeVar("Answer")


class RowValues(NamedTuple):
    """A value for each row; `known` marks the rows that have one, and is None when all do.

    `values` holds numbers and booleans as such, dates and timestamps as `datetime64`, and other values as objects. The
    value of a row without one is arbitrary.
    """

    values: Array
    known: Bools | None

    def to_pylist(self) -> list[Any]:
        """The plain values, None for null."""
        values = self.values.tolist()
        if self.values.dtype == _TIMESTAMPS:
            values = [value.replace(tzinfo=UTC) for value in values]
        if self.known is None:
            return values  # type: ignore[no-any-return]
        return [value if known else None for value, known in zip(values, self.known.tolist(), strict=True)]


def mask(node: Typed) -> Callable[[Batch, HeaderColumns | None], Bools]:
    """A predicate as a function from a batch to the rows for which it is true."""
    holds = MaskCompiler().holds(node)
    steps = cost(node)

    def rows(batch: Batch, header: HeaderColumns | None = None) -> Bools:
        parts = _evaluated(holds, batch, header, steps)
        if len(parts) == 1 and parts[0][0] is None:
            return parts[0][1]
        found = np.zeros(len(batch), np.bool_)
        for places, values in parts:
            found[slice(None) if places is None else places] = values
        return found

    return rows


def column(node: Typed) -> Callable[[Batch, HeaderColumns | None], RowValues]:
    """An expression as a function from a batch to its value in each row."""
    evaluate = MaskCompiler().vector(node)
    steps = cost(node)
    kind = scalar(node)

    def values(batch: Batch, header: HeaderColumns | None = None) -> RowValues:
        n = len(batch)
        everywhere = np.arange(n)
        parts = [
            PartialVector(everywhere if rows is None else rows, found)
            for rows, found in _evaluated(evaluate, batch, header, steps)
        ]
        vector = merged(parts, n, kind)
        if vector is None:
            return RowValues(np.full(n, None, object), np.zeros(n, np.bool_))
        return RowValues(_public(spread(vector, n, kind), kind), vector.known)

    return values


def column_of(values: list[Any], kind: Scalar) -> RowValues:
    """Row values from a list of values, None for null."""
    vector = from_list(values, kind)
    return RowValues(_public(vector.values, kind), vector.known)


def _evaluated(
    evaluate: Callable[[RowFrame], Answer], batch: Batch, header: HeaderColumns | None, steps: int
) -> list[tuple[Index | None, Answer]]:
    """The results for each group with its rows; None for the rows if the batch has only one group.

    `steps` is the cost of one row, without its lists and texts.
    """
    answers: list[tuple[Index | None, Answer]] = []
    budget = Budget.of(batch, len(batch))
    budget.spend(steps * len(batch))
    for group in batch.groups:
        origin = Origin(batch.schema, group.block, _header(header, group.rows, len(batch)), budget)
        for rows, answer in _in_pieces(evaluate, origin, None):
            if group.rows is not None:
                rows = group.rows if rows is None else group.rows[rows]
            answers.append((rows, answer))
    return answers


def _in_pieces(
    evaluate: Callable[[RowFrame], Answer], origin: Origin, rows: Index | None
) -> list[tuple[Index | None, Answer]]:
    """The result for all rows; if the combinations of elements exceed the limit, from halves of the rows."""
    try:
        return [(rows, evaluate(RowFrame.outermost(origin, rows)))]
    except TooMuch as error:
        every = np.arange(origin.block.n) if rows is None else rows
        if len(every) == 1:
            require(*error.args)
        half = len(every) // 2
        return [*_in_pieces(evaluate, origin, every[:half]), *_in_pieces(evaluate, origin, every[half:])]


def _header(header: HeaderColumns | None, rows: Index | None, n: int) -> dict[str, Vector]:
    """The header's columns for the rows of one group."""
    found = {}
    for name, values in (header or {}).items():
        kind = ATTRIBUTES[name]
        if len(values) != n:
            raise ValueError(f"{len(values)} values of {name} for {n} rows")
        vector = _header_vector(values, kind)
        if rows is not None:
            vector = Vector(gathered(vector.values, rows), None if vector.known is None else vector.known[rows])
        found[name] = vector
    return found


def _header_vector(values: Any, kind: Scalar) -> Vector:
    if isinstance(values, np.ndarray) and values.dtype.kind in "fiu" and kind.name in ("double", "integer"):
        values = values.astype(np.float64) if kind == DOUBLE else values
        known = ~np.isnan(values) if kind == DOUBLE else None
        return Vector(values, known)
    plain = values.tolist() if isinstance(values, np.ndarray | pa.Array) else list(values)
    if kind == DOUBLE:
        plain = [None if value is None or value != value else float(value) for value in plain]
    return from_list(plain, kind)


def _public(values: Any, kind: Scalar) -> Array:
    """The values of a vector in the form of `RowValues`."""
    if isinstance(values, pa.Array):
        return object_array(values.to_pylist())
    if kind == DATE:
        return values.astype("datetime64[D]")  # type: ignore[no-any-return]
    if kind == TIMESTAMP:
        return values.astype("datetime64[us]")  # type: ignore[no-any-return]
    if kind == UUID_KIND:
        # NumPy drops zero bytes at the end of S16 values.
        return object_array([UUID(bytes=value.ljust(16, b"\0")) for value in values.tolist()])
    if kind.name == "decimal":
        return object_array([scaled(value, kind.scale) for value in values.tolist()])
    return values  # type: ignore[no-any-return]
