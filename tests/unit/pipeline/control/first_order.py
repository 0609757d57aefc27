"""The model of a plant itself, to test a design against its mathematics."""

from __future__ import annotations

from collections import deque

import numpy as np

from milepost.pipeline.control.model import Model


class FirstOrder:
    """y(k+1) = a·y(k) + b·u(k-delay) + c + disturbance, with noise on the measurement."""

    def __init__(self, model: Model, start: float = 0.0, noise: float = 0.0, seed: int = 0) -> None:
        self.model = model
        self.y = start
        self.disturbance = 0.0
        self._noise = noise
        self._random = np.random.default_rng(seed)
        self._under_way: deque[float] | None = None

    def measure(self) -> float:
        """The measurement of y, with noise."""
        return self.y + self._noise * float(self._random.standard_normal())

    def step(self, u: float) -> float:
        """One interval with input `u`. Returns y after it. Before the first input, the first one counts as applied."""
        if self._under_way is None:
            self._under_way = deque([u] * self.model.delay)
        self._under_way.append(u)
        self.y = self.model.next(self.y, self._under_way.popleft()) + self.disturbance
        return self.y
