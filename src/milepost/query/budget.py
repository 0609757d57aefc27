"""What evaluating a query may cost: steps, which are counted while it runs.

A query whose cost grows with the product of list lengths is right to write, and cheap where the lists are short. So
nothing is refused for how it looks: each evaluation has a budget, by the number and the size of its messages, and ends
with `QueryTooCostly` when that is spent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from milepost import limits
from milepost.errors import QueryTooCostly

if TYPE_CHECKING:
    from milepost.batch import Batch


class Budget:
    """Steps that are left."""

    __slots__ = ("_left", "_limit", "_steps")

    def __init__(self, steps: int, limit: str) -> None:
        """`limit` names the constant that the error is to name."""
        self._left = self._steps = steps
        self._limit = limit

    @classmethod
    def of(cls, batch: Batch, rows: int) -> Budget:
        """For evaluating some rows of a batch, all at once."""
        steps, limit = _shared(rows)
        return cls(steps + limits.QUERY_BYTE_STEPS * len(batch.data), limit)

    @classmethod
    def one_by_one(cls, batch: Batch, rows: int) -> Budget:
        """For evaluating some rows of a batch, one after the other: each step takes longer, and so there are fewer."""
        steps, limit = _shared(rows)
        return cls(steps // limits.QUERY_ROW_STEPS + len(batch.data), limit)

    def spend(self, steps: int) -> None:
        """Take steps off the budget; raises `QueryTooCostly` when it has not so many."""
        self._left -= steps
        if self._left < 0:
            raise QueryTooCostly(
                self._limit,
                getattr(limits, self._limit) - self._left,
                getattr(limits, self._limit),
                "steps of evaluating a query, beyond those for the size of its messages",
            )


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
