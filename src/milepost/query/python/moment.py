"""The moment of an evaluation: a message, the variables bound so far, and the header."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from milepost import limits
from milepost.query.budget import Budget, require

Value: TypeAlias = Any  # a plain value, a decimal as units of the last place; None for null


class Moment:
    """The variables by number, the message first, and the remaining budget.

    `budget` is shared with other messages of the same batch; without one, the message has the budget of a batch.
    """

    __slots__ = ("budget", "header", "seen", "variables")

    def __init__(self, message: Any, header: Mapping[str, Any] | None = None, budget: Budget | None = None) -> None:
        self.variables: dict[int, Any] = {0: message}
        self.header = header or {}
        self.seen = 0
        self.budget = Budget(limits.QUERY_BATCH_STEPS, "QUERY_BATCH_STEPS") if budget is None else budget

    def count(self, steps: int) -> None:
        """Count one more combination and its cost: nested quantifiers over a long list could run for hours."""
        self.seen += 1
        if self.seen > limits.QUERY_BINDINGS:
            require("QUERY_BINDINGS", self.seen, "combinations of elements in one message")
        self.budget.spend(steps)


Evaluate: TypeAlias = Callable[[Moment], Value]
