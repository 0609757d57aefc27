"""Decides whether to believe the running loop when it contradicts the model, and by how much.

b can really change: events grow, or a rule lets more of them through, and each leaves more bytes in the result queue.
But a loop that works well gives poor evidence, because nothing moves. A wrong estimate of a small b makes large gains,
and large gains are the accident in the paper. So a change of b is adopted only when it is large (a loop tolerates a
factor of 1.5 either way), well determined, and lasting, and by at most a factor of two at a time. a and the delay stay,
because within a loop they cannot be separated from the controller.
"""

from __future__ import annotations

from milepost.errors import ConfigError
from milepost.pipeline.control.identification import Recursive
from milepost.pipeline.control.model import Model

TOLERATED = 1.5
"""The factor by which b may be wrong before gains are placed again; see `placement.gain_margin`."""

CERTAIN = 0.15
"""The largest standard error of b, as a share of b, at which it counts as known."""

LASTING = 5
"""Intervals for which b must be wrong before the change is adopted."""

DWELL = 20
"""Intervals between two changes: four settling times, so that each change is judged by its own effect."""

LARGEST_STEP = 2.0
"""The largest factor by which b may change at once."""


class Adaptation:
    """Observes measurements and inputs, and occasionally returns a changed model."""

    def __init__(self, model: Model, scale_output: float, scale_input: float, forgetting: float = 0.98) -> None:
        if not (scale_output > 0 and scale_input > 0):
            raise ConfigError("an adaptive controller needs a reference and a start above 0, which give the scales")
        self.model = model
        self.recursive = Recursive(model, scale_output, scale_input, forgetting)
        self._off = 0
        self._since = 0

    def observe(self, y: float | None, u: float) -> Model | None:
        """Observe one interval, as `Recursive.observe`. Returns a new model when one is adopted, else None."""
        self.recursive.observe(y, u)
        self._since += 1
        found = self.recursive.model
        if found is None or not self._credible(found):
            self._off = 0
            return None
        self._off += 1
        if self._off < LASTING or self._since < DWELL:
            return None
        ratio = min(max(found.b / self.model.b, 1 / LARGEST_STEP), LARGEST_STEP)
        self.model = Model(self.model.a, self.model.b * ratio, self.model.c, self.model.delay)
        self._off = self._since = 0
        return self.model

    def _credible(self, found: Model) -> bool:
        ratio = found.b / self.model.b
        if ratio <= 0 or self.recursive.gain_error > CERTAIN * abs(found.b):
            return False
        return ratio > TOLERATED or ratio < 1 / TOLERATED
