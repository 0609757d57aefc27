"""Load balancing: the share of the events that each lane gets, so that all lanes respond equally fast.

The combiner waits for the slowest lane, so one slow lane slows everything. To minimise the differences between response
times outright is a hard problem; to drive each of them to their common mean is regulatory control, and ends at the same
place. For two lanes one PI controller of the difference is enough; for more it is LQR.

Units. Response times are taken in intervals, and weights relative to a fair share (1 is fair, whatever the number of
lanes). In these units a lane that is behind has the model R(k+1) = R(k) + ρ·v(k) - 1, ρ being its utilisation at a fair
share: every interval brings ρ·v intervals of work, of which one gets done. So b is about 1 where balancing matters,
whatever the machine and the events. A lane with room to spare responds less to its weight, and the loop is then slower,
not less stable.
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
from milepost.pipeline.control.placement import Gains, design

LANE = Model(a=1.0, b=1.0, delay=0)
"""A lane near its limit, in the units above. The weights act on the events of the very next interval, and the response
times of `response.py` look at what is pending, not at what is done: no delay beyond the loop's own."""

SETTLING = 10.0
"""Intervals. Slower than flow control on purpose: where both act, the faster should find the slower one standing still.
And a lane with room to spare is no integrator, its response follows its weight at once: gains should leave margin for
that. In the simulation 6 intervals bring no better delays through a hog than 10."""

FLOOR = 0.05
"""The least weight, as a share of a fair one. A lane that gets nothing is not measured, and would never be found
well."""

HORIZON = 4.0
"""Mean response times, at least, that balancing takes to settle. When backlogs are long, a weight acts on events
whose turn comes later, and correcting faster than that swings all events to one lane and then to the other. The
combiner merges by time, so that lanes which take turns do the work of one. (Three lanes at their limit, a hog on one,
both controllers: of 7.2 million events that came in the simulation 1.9 million were still waiting at the end without
this, and none with it.)"""

TOLERANCE = 0.05
"""Differences of response time that count as none, as a share of the mean: micro-batches jitter by about that, and
weights should not follow jitter."""


class Balancer:
    """Weights of `lanes` lanes, which sum to 1.

    `interval` is in seconds, `settling` in intervals; `models` are the lanes' models in the module's units, when they
    are known better than `LANE`; `floor` is a share of a fair weight, `tolerance` of the mean response time.
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
        """The weights now; they sum to 1."""
        return [float(share) for share in self._shares / self._shares.sum()]

    def step(self, response_times: Sequence[float | None]) -> list[float]:
        """The weights of the next interval, out of each lane's response time in seconds.

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
        # Shrunk towards 0 rather than cut off, so that the edge of the tolerance is no step. Then the mean is 0 again.
        off = np.sign(off) * np.maximum(np.abs(off) - self.tolerance * abs(mean), 0.0)
        off[known] -= off[known].mean()
        basis = self.gains.basis
        level = basis.T @ off
        change = level - (level if self._level is None else self._level)
        self._level = level
        # Slower by a factor, of an integrator: the proportional gain less by the factor, the integral one by its
        # square.
        slower = min(1.0, self.settling / (HORIZON * mean)) if mean > 0 else 1.0
        wanted = -(slower * self.gains.on_change @ change + slower**2 * self.gains.on_level @ level)
        for gain, past in zip(self.gains.on_past, self._changes, strict=True):
            wanted -= gain @ past
        before = self._shares
        moved = np.where(known, basis @ wanted, 0.0)
        moved[known] -= moved[known].mean()
        self._shares = self._bounded(before + moved, known)
        # As in `regulator.py`, what is remembered is what was applied: nothing winds up at the floor.
        self._changes = [basis.T @ (self._shares - before), *self._changes][: len(self._changes)]
        return self.weights

    def state(self) -> dict[str, Any]:
        """What it remembers, as plain values."""
        return {
            "shares": self._shares.tolist(),
            "level": None if self._level is None else self._level.tolist(),
            "changes": [change.tolist() for change in self._changes],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` gave, of a balancer made with the same arguments."""
        shares = np.asarray(state["shares"], dtype=np.float64)
        if shares.shape != (self.lanes,) or len(state["changes"]) != len(self._changes):
            raise ConfigError("a balancer's state is of another number of lanes: start it anew")
        self._shares = shares
        self._level = None if state["level"] is None else np.asarray(state["level"], dtype=np.float64)
        self._changes = [np.asarray(change, dtype=np.float64) for change in state["changes"]]

    def _bounded(self, shares: NDArray[np.float64], known: NDArray[np.bool_]) -> NDArray[np.float64]:
        """The nearest shares that are at least the floor, where the known ones keep their sum."""
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
                return self._shares  # the known lanes have no more than their floors: leave them be
            held = float(bounded[known & ~free].sum())
            bounded[free] += (total - held - float(bounded[free].sum())) / np.count_nonzero(free)


def _gains(models: Sequence[Model], settling: float) -> LqrGains:
    """LQR's for many lanes; for two, those of one PI controller of the difference, in the same form."""
    if len(models) != 2:
        if len(models) == 1:
            none = np.zeros((0, 0))
            return LqrGains(np.zeros((1, 0)), none, none, (), 0.0, 0.0)
        return lqr(models, settling)
    first, second = models
    if first.delay != second.delay:
        raise ConfigError("two lanes are balanced with one delay for both")
    # R1 - R2 as the weight moves from one lane to the other; lanes of unlike models meet half-way.
    between = Model((first.a + second.a) / 2, (first.b + second.b) / 2, 0.0, first.delay)
    gains = design(between, settling)
    return _as_matrices(gains)


def _as_matrices(gains: Gains) -> LqrGains:
    """A PI controller as 1 x 1 matrices. Its error is 0 - difference, so its law is the one of `LqrGains` as it
    stands.
    """
    feedback = tuple(np.array([[value]]) for value in gains.feedback)
    return LqrGains(
        directions(2), np.array([[gains.proportional]]), np.array([[gains.integral]]), feedback, math.nan, math.nan
    )
