"""The evaluation of predicates: in which rows of a batch they hold, and whether that takes long."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from milepost.batch import Batch
from milepost.errors import QueryError, QueryTooCostly
from milepost.query import Predicate
from milepost.schema.types import Schema

FEW: Final = 8  # up to so many rows, a predicate is evaluated row by row, 5 µs each; a mask takes at least 75 µs
EVALUATIONS: Final = 32  # predicates that are evaluated for a batch within some milliseconds
EVALUATED_ROWS: Final = 50_000  # the same, times rows

Rows: TypeAlias = npt.NDArray[np.int32]


def is_long(evaluations: int, rows: int) -> bool:
    """Whether evaluating so many predicates for so many rows may take longer than some milliseconds."""
    return evaluations > EVALUATIONS or evaluations * rows > EVALUATED_ROWS


def require_schema(schema: Schema, batch: Batch) -> None:
    """Raise `QueryError` unless a batch has the schema of an index."""
    if batch.schema is not schema and batch.schema.fingerprint != schema.fingerprint:
        raise QueryError(
            f"the index is for {schema.name} ({schema.fingerprint:016x}), and the batch is of "
            f"{batch.schema.name} ({batch.schema.fingerprint:016x})"
        )


def views_of(batch: Batch) -> dict[int, Any]:
    """The rows of a small batch by number, made once for all predicates; empty for a larger batch."""
    return {row: batch[row] for row in range(len(batch))} if len(batch) <= FEW else {}


def satisfying(predicate: Predicate, batch: Batch, rows: Rows | None, views: dict[int, Any]) -> Rows:
    """The rows in which a predicate holds, of the given ones or of all. `views` comes from `views_of`."""
    if (views or (rows is not None and len(rows) <= FEW)) and not predicate.folds:
        some = list(views) if rows is None else rows.tolist()
        return np.array([r for r in some if predicate.test(views[r] if views else batch[r]) is True], np.int32)
    if rows is not None and len(rows) <= FEW and len(batch) > FEW:
        try:
            answers = predicate.test_few(batch, rows.tolist())
            return rows[np.array([answer is True for answer in answers], np.bool_)]
        except QueryTooCostly:
            pass  # long lists: all rows at once may still be within the budget
    mask = predicate.mask(batch)
    return (np.flatnonzero(mask) if rows is None else rows[mask[rows]]).astype(np.int32)
