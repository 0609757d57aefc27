"""The model of what is controlled: one number measured and one number set, once an interval.

``y(k+1) = a·y(k) + b·u(k-delay) + c``

A first-order model with a delay is simple, and sufficient. A queue is an integrator (a near 1, b the bytes that an
event leaves in it); a server that finds its own balance has a below 1. The integral part of a controller compensates
for what the model leaves out. `c` is the operating point; for a result queue it is what the combiner removes in an
interval. Gains do not depend on it, but a controller that knows it can start near its final input.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from milepost.errors import ConfigError

MAX_DELAY = 8
"""Intervals. A loop that sees its effect later than this needs a longer interval, not a longer model."""


@dataclass(frozen=True, slots=True)
class Model:
    """`a` has no unit, `b` is units of y per unit of u, `c` units of y per interval, `delay` whole intervals.

    `delay` counts the intervals between a decision and its effect *beyond* the one that every sampled loop has: with
    delay 0 the decision of interval k is seen in the measurement of interval k+1.
    """

    a: float
    b: float
    c: float = 0.0
    delay: int = 0

    def __post_init__(self) -> None:
        if not all(math.isfinite(value) for value in (self.a, self.b, self.c)):
            raise ConfigError(f"a model's a, b and c are finite numbers, not {self.a}, {self.b}, {self.c}")
        if self.b == 0:
            raise ConfigError("a model with b = 0 says that the input has no effect, so it cannot be controlled")
        if isinstance(self.delay, bool) or not isinstance(self.delay, int) or not 0 <= self.delay <= MAX_DELAY:
            raise ConfigError(f"a model's delay is 0 to {MAX_DELAY} whole intervals, not {self.delay!r}")

    def next(self, y: float, u: float) -> float:
        """y(k+1) from y(k) and u(k-delay)."""
        return self.a * y + self.b * u + self.c

    def input_for(self, y: float) -> float:
        """The constant input that holds the measurement at `y`."""
        return ((1 - self.a) * y - self.c) / self.b

    @property
    def steady_gain(self) -> float:
        """Units of y per unit of u in the steady state; infinite for a pure integrator."""
        return math.inf if self.a == 1 else self.b / (1 - self.a)

    def as_dict(self) -> dict[str, float]:
        """Plain numbers, for JSON. `from_dict` is the inverse."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, float]) -> Model:
        return cls(values["a"], values["b"], values["c"], int(values["delay"]))
