"""Load balancing: the share of the events that each lane gets, so that all lanes respond equally fast.

The combiner waits for the slowest lane, so one slow lane slows the whole pipeline. Minimising the differences between
response times directly is a hard problem. Driving each of them to their common mean is regulatory control, and has the
same result. For two lanes one PI controller of the difference is enough; more lanes use LQR.

Units: response times are in intervals, and weights are relative to a fair share (1 is fair, whatever the number of
lanes). In these units a lane with a backlog has the model R(k+1) = R(k) + ρ·v(k) - 1, where ρ is its utilisation at a
fair share: every interval brings ρ·v intervals of work, and one interval of work gets done. So b is about 1 where
balancing matters, whatever the machine and the events. A lane with spare capacity responds less to its weight, which
makes the loop slower, not less stable.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milepost.errors import ConfigError
from milepost.pipeline.control.flow import INTERVAL
from milepost.pipeline.control.lqr import LqrGains, directions, lqr
from milepost.pipeline.control.model import Model
from milepost.pipeline.control.placement import design

LANE = Model(a=1.0, b=1.0, delay=0)
"""A lane near its limit, in the units above. Weights act on the events of the next interval, and the response times of
`response.py` measure pending events, not finished ones: there is no delay beyond the loop's own.
"""

SETTLING = 10.0
"""Intervals. Slower than flow control on purpose: where both act, the faster loop should see the slower one as
constant. And a lane with spare capacity is not an integrator, since its response follows its weight at once: gains
should leave margin for that. In the simulation 6 intervals give no better delays under a hog than 10.
"""

FLOOR = 0.05
"""The least weight, as a share of a fair one. A lane that gets nothing is not measured, so its recovery would never be
seen.
"""

HORIZON = 4.0
"""Mean response times that balancing takes to settle, at least. With a long backlog, a weight acts on events that are
processed later; correcting faster than that swings all events to one lane and then to the other. The combiner merges by
time, so lanes that take turns do the work of one. (Three lanes at their limit, a hog on one, both controllers: of 7.2
million events in the simulation 1.9 million were still waiting at the end without this, and none with it.)
"""

TOLERANCE = 0.05
"""Differences of response time that are ignored, as a share of the mean: micro-batches vary by about that, and weights
should not follow this noise.
"""


class Balancer:
    """Weights of `lanes` lanes, which sum to 1.

    `interval` is in seconds, `settling` in intervals. `models` are the lanes' models in the module's units, when they
    are known better than `LANE`. `floor` is a share of a fair weight, `tolerance` of the mean response time.
    """

    def __init__(
        self,
        lanes: int,
        *,
        interval: float = INTERVAL,
        settling: float = SETTLING,
        models: Sequence[Model] | None = None,
        floor: float = FLOOR,
        tolerance: float = TOLERANCE,
    ) -> None:
        if lanes < 1:
            raise ConfigError(f"a pipeline has at least one lane, not {lanes}")
        if not 0 < floor < 1:
            raise ConfigError(f"the floor is a share of a fair weight, above 0 and below 1, not {floor}")
        if not (interval > 0 and tolerance >= 0):
            raise ConfigError("an interval is a positive number of seconds, and a tolerance is not negative")
        models = [LANE] * lanes if models is None else list(models)
        if len(models) != lanes:
            raise ConfigError(f"{lanes} lanes have {lanes} models, not {len(models)}")
        self.lanes, self.interval, self.floor, self.tolerance = lanes, interval, floor, tolerance
        self.settling = settling
        self.gains = _gains(models, settling)
        self._shares = np.ones(lanes)  # v: relative to a fair share; their mean is 1
        self._level: NDArray[np.float64] | None = None
        self._changes = [np.zeros(max(0, lanes - 1)) for _ in self.gains.on_past]  # newest first

    @property
    def weights(self) -> list[float]:
        """The current weights; they sum to 1."""
        return [float(share) for share in self._shares / self._shares.sum()]

    def step(self, response_times: Sequence[float | None]) -> list[float]:
        """The weights of the next interval, from each lane's response time in seconds.

        None or NaN is a lane without a measurement: it keeps its weight, and the others are driven to their own mean.
        """
        if len(response_times) != self.lanes:
            raise ConfigError(f"{self.lanes} lanes have {self.lanes} response times, not {len(response_times)}")
        times = np.array([math.nan if time is None else float(time) for time in response_times]) / self.interval
        known = np.isfinite(times)
        if self.lanes < 2 or np.count_nonzero(known) < 2:
            self._changes = [np.zeros(self.lanes - 1), *self._changes][: len(self._changes)]
            return self.weights
        mean = float(times[known].mean())
        off = np.where(known, times - mean, 0.0)
        # Shrink towards 0 instead of cutting off, so that there is no step at the edge of the tolerance. Then make the
        # mean 0 again.
        off = np.sign(off) * np.maximum(np.abs(off) - self.tolerance * abs(mean), 0.0)
        off[known] -= off[known].mean()
        basis = self.gains.basis
        level = basis.T @ off
        change = level - (level if self._level is None else self._level)
        self._level = level
        # To slow an integrating loop by a factor, divide the proportional gain by the factor and the integral gain by
        # its square.
        slower = min(1.0, self.settling / (HORIZON * mean)) if mean > 0 else 1.0
        wanted = -(slower * self.gains.on_change @ change + slower**2 * self.gains.on_level @ level)
        for gain, past in zip(self.gains.on_past, self._changes, strict=True):
            wanted -= gain @ past
        before = self._shares
        moved = np.where(known, basis @ wanted, 0.0)
        moved[known] -= moved[known].mean()
        self._shares = self._bounded(before + moved, known)
        # As in `regulator.py`, only applied values are remembered, so nothing winds up at the floor.
        self._changes = [basis.T @ (self._shares - before), *self._changes][: len(self._changes)]
        return self.weights

    def state(self) -> dict[str, Any]:
        """Everything it remembers, as plain values."""
        return {
            "shares": self._shares.tolist(),
            "level": None if self._level is None else self._level.tolist(),
            "changes": [change.tolist() for change in self._changes],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` returned for a balancer with the same arguments."""
        shares = np.asarray(state["shares"], dtype=np.float64)
        if shares.shape != (self.lanes,) or len(state["changes"]) != len(self._changes):
            raise ConfigError("the state of a balancer has another number of lanes; start with a new balancer")
        self._shares = shares
        self._level = None if state["level"] is None else np.asarray(state["level"], dtype=np.float64)
        self._changes = [np.asarray(change, dtype=np.float64) for change in state["changes"]]

    def _bounded(self, shares: NDArray[np.float64], known: NDArray[np.bool_]) -> NDArray[np.float64]:
        """The nearest shares that are at least the floor, with the sum of the known ones unchanged."""
        total = float(self._shares[known].sum())
        free = known.copy()
        bounded = shares.copy()
        while True:
            low = free & (bounded < self.floor)
            if not low.any():
                return bounded
            bounded[low] = self.floor
            free &= ~low
            if not free.any():
                return self._shares  # the known lanes have no more than their floors, so they stay
            held = float(bounded[known & ~free].sum())
            bounded[free] += (total - held - float(bounded[free].sum())) / np.count_nonzero(free)


def _gains(models: Sequence[Model], settling: float) -> LqrGains:
    """The gains of LQR for many lanes; for two lanes, the gains of one PI controller of the difference in the same
    form.
    """
    if len(models) != 2:
        if len(models) == 1:
            none = np.zeros((0, 0))
            return LqrGains(np.zeros((1, 0)), none, none, (), 0.0, 0.0)
        return lqr(models, settling)
    first, second = models
    if first.delay != second.delay:
        raise ConfigError("two lanes are balanced with one delay for both")
    # The effect on R1 - R2 of moving weight from one lane to the other; for unlike models the mean of both.
    between = Model((first.a + second.a) / 2, (first.b + second.b) / 2, 0.0, first.delay)
    gains = design(between, settling)
    # As 1 x 1 matrices. The error of the PI controller is 0 - difference, so its law is the law of `LqrGains`.
    feedback = tuple(np.array([[value]]) for value in gains.feedback)
    return LqrGains(
        directions(2), np.array([[gains.proportional]]), np.array([[gains.integral]]), feedback, math.nan, math.nan
    )
