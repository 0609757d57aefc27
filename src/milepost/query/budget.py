"""The budget of an evaluation: steps, which are counted while it runs.

A query whose cost grows with the product of list lengths is legitimate, and cheap where the lists are short. So no
query is refused for its form: each evaluation has a budget, by the number and the size of its messages, and ends with
`QueryTooCostly` when that is spent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from milepost import limits
from milepost.errors import QueryTooCostly

if TYPE_CHECKING:
    from milepost.batch import Batch


class Budget:
    """The remaining steps."""

    __slots__ = ("_left", "_limit")

    def __init__(self, steps: int, limit: str) -> None:
        """`limit` is the name of the constant for the error."""
        self._left = steps
        self._limit = limit

    @classmethod
    def of(cls, batch: Batch, rows: int) -> Budget:
        """The budget for evaluating some rows of a batch at once."""
        steps, limit = _shared(rows)
        return cls(steps + limits.QUERY_BYTE_STEPS * len(batch.data), limit)

    @classmethod
    def one_by_one(cls, batch: Batch, rows: int) -> Budget:
        """The budget for evaluating some rows of a batch one by one: fewer steps, since each takes longer."""
        steps, limit = _shared(rows)
        return cls(steps // limits.QUERY_ROW_STEPS + len(batch.data), limit)

    def spend(self, steps: int) -> None:
        """Take steps off the budget. Raises `QueryTooCostly` when it has too few."""
        self._left -= steps
        if self._left < 0:
            spent = getattr(limits, self._limit) - self._left
            require(self._limit, spent, "steps of evaluating a query, beyond those for the size of its messages")


def require(limit: str, value: int, what: str) -> None:
    """Raise `QueryTooCostly` when `value` is over the constant named `limit`; `what` opens the message."""
    maximum = getattr(limits, limit)
    if value > maximum:
        raise QueryTooCostly(limit, value, maximum, what)


def _shared(rows: int) -> tuple[int, str]:
    alone = rows * limits.QUERY_STEPS
    if alone < limits.QUERY_BATCH_STEPS:
        return alone, "QUERY_STEPS"
    return limits.QUERY_BATCH_STEPS, "QUERY_BATCH_STEPS"
