"""The control law: error in, input out, once an interval. Flow control and the balancing of two lanes use it.

It is written in differences, as equation (4) of the paper, and it remembers only *applied* inputs: after limits, and
after corrections by `applied`. There is no separate sum that could wind up. While the input is at its limit, the next
one is computed from the limit, and leaves it in the interval in which the error asks for it. The feedback of a delayed
loop needs applied inputs too: it predicts the effect of inputs that are not visible yet, and only applied inputs have
an effect.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from milepost.errors import ConfigError
from milepost.pipeline.control.model import MAX_DELAY
from milepost.pipeline.control.placement import Gains


class Regulator:
    """u(k) = u(k-1) + (KP+KI)·e(k) - KP·e(k-1) - Σ Fi·(u(k-i) - u(k-i-1)), kept within `limits`."""

    def __init__(self, gains: Gains, limits: tuple[float, float], start: float) -> None:
        low, high = limits
        if not low < high or math.isnan(low) or math.isnan(high):
            raise ConfigError(f"limits are a lower and a higher number, not {low} and {high}")
        self.gains = gains  # may be replaced: gains act on the next change of the input, so the input does not jump
        self.limits = (float(low), float(high))
        self._error: float | None = None
        self._inputs = [self._clamped(start)] * (2 + MAX_DELAY)  # newest last; as many as any gains can use

    @property
    def input(self) -> float:
        """The last input: as computed, or as corrected by `applied`."""
        return self._inputs[-1]

    @property
    def saturated(self) -> bool:
        """Whether the last input is at a limit."""
        return self.input <= self.limits[0] or self.input >= self.limits[1]

    def step(self, error: float) -> float:
        """The next input."""
        gains = self.gains
        before = error if self._error is None else self._error  # at the start nothing has changed yet
        change = gains.integral * error + gains.proportional * (error - before)
        for age, factor in enumerate(gains.feedback, start=1):
            change -= factor * (self._inputs[-age] - self._inputs[-age - 1])
        self._error = error
        return self.hold(self.input + change)

    def hold(self, value: float) -> float:
        """Use `value` as the next input, within the limits. Called alone when there is no error to act on."""
        self._inputs = [*self._inputs[1:], self._clamped(value)]
        return self.input

    def applied(self, value: float, ago: int = 0) -> None:
        """Correct the input of `ago` intervals back (0: the last) to the amount that was really applied.

        A smaller amount means that there was nothing more to apply. Later inputs that are still to be applied are
        expected to shrink alike; otherwise they would grow with each decision, based on inputs that never happened.
        """
        if not 0 <= ago <= MAX_DELAY:
            raise ConfigError(f"inputs are remembered for {MAX_DELAY} intervals, so {ago} is too far back")
        value = self._clamped(value)
        at = len(self._inputs) - 1 - ago
        less = value < self._inputs[at]
        self._inputs[at] = value
        if less:
            self._inputs[at + 1 :] = [min(later, value) for later in self._inputs[at + 1 :]]

    def state(self) -> dict[str, Any]:
        """Everything it remembers, as plain values."""
        return {"error": self._error, "inputs": list(self._inputs), "gains": self.gains.as_dict()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore what `state` returned."""
        self.gains = Gains.from_dict(state["gains"])
        inputs = [float(value) for value in state["inputs"]]
        if len(inputs) != len(self._inputs):
            raise ConfigError("the state of a regulator has another version; start with a new regulator")
        self._inputs = inputs
        self._error = None if state["error"] is None else float(state["error"])

    def _clamped(self, value: float) -> float:
        return min(max(float(value), self.limits[0]), self.limits[1])
