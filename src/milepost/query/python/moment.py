"""What an expression is evaluated against: a message, the variables bound so far, and the header."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from milepost import limits

Value: TypeAlias = Any  # of the plain form, decimals as units of the last place; None for null


class Moment:
    """The variables by number, the message first, and what the evaluation may still spend."""

    __slots__ = ("header", "seen", "variables")

    def __init__(self, message: Any, header: Mapping[str, Any] | None = None) -> None:
        self.variables: dict[int, Any] = {0: message}
        self.header = header or {}
        self.seen = 0

    def count(self) -> None:
        """Note one more element; nested quantifiers over a long list would otherwise run for ever."""
        self.seen += 1
        if self.seen > limits.QUERY_BINDINGS:
            limits.require("QUERY_BINDINGS", self.seen, "combinations of elements in one message")


Evaluate: TypeAlias = Callable[[Moment], Value]
