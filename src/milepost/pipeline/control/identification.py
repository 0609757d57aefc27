"""System identification: what a short run, or the running loop itself, tells about a, b, c and the delay.

A run is two columns, one value an interval: the input that was applied, and the measurement at the interval's start. So
`outputs[k]` is what the controller would see when it decides `inputs[k]`. The input must move: a constant one says
nothing about b, and is refused. `excitation` makes one that moves enough.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from milepost.errors import ConfigError, InvalidValue
from milepost.pipeline.control.model import Model

DELAYS = (0, 1, 2, 3)
"""Intervals that are tried. A lane's micro-batch in flight when a decision is made accounts for one, a queue before
it for another; a loop with more should have a longer interval."""

FEWEST_SAMPLES = 12
"""Usable pairs below which three parameters and a delay are guesswork."""

VISIBLE = 3.0
"""Standard errors that b must be away from 0. Gains go with 1/b: a b out of noise makes gains without bound."""


@dataclass(frozen=True, slots=True)
class Quality:
    """How far a fitted model is to be believed.

    `r2` is the share of the *change* of y from one interval to the next that the model explains. (Of y itself a queue's
    model explains nearly everything even when b is nonsense, because tomorrow's queue is like today's.) `residual` is
    the standard deviation of what is left, in units of y; `gain_error` the standard error of b; `samples` the pairs
    used; `by_delay` the residual of the best fit at each delay tried, so that a close call can be seen.
    """

    r2: float
    residual: float
    gain_error: float
    samples: int
    by_delay: dict[int, float]


@dataclass(frozen=True, slots=True)
class Identified:
    """A model and how good it is."""

    model: Model
    quality: Quality


def identify(inputs: ArrayLike, outputs: ArrayLike, delays: Sequence[int] = DELAYS) -> Identified:
    """Fit y(k+1) = a·y(k) + b·u(k-d) + c by least squares, with the delay that leaves the least unexplained.

    NaN is a measurement or input that was missed; pairs that need it are left out. Raises `InvalidValue` when the data
    cannot tell: too short, an input that does not move, or one whose effect is not visible above the noise.
    """
    u, y = np.asarray(inputs, dtype=np.float64), np.asarray(outputs, dtype=np.float64)
    if u.ndim != 1 or u.shape != y.shape:
        raise InvalidValue(f"one input for each measurement, in two columns, not {u.shape} and {y.shape}", "inputs")
    if not delays:
        raise ConfigError("name at least one delay to try")
    longest = max(delays)
    # Every delay is fitted to the same pairs; otherwise a longer delay would win by having fewer to explain.
    k = np.arange(longest, len(u) - 1)
    known = np.isfinite(y[k]) & np.isfinite(y[k + 1])
    for delay in delays:
        known &= np.isfinite(u[k - delay])
    k = k[known]
    if len(k) < FEWEST_SAMPLES:
        raise InvalidValue(
            f"{len(k)} usable intervals do not identify a model, {FEWEST_SAMPLES} may: measure for longer", "outputs"
        )
    moved = float(np.ptp(u[k]))
    if moved <= 1e-9 * max(1.0, float(np.abs(u[k]).max())):
        raise InvalidValue(
            "the input was constant, so its effect cannot be seen: vary it (see excitation()) and measure again",
            "inputs",
        )
    fits = {delay: _fit(y[k], u[k - delay], y[k + 1], delay) for delay in delays}
    by_delay = {delay: residual for delay, (_, residual, _) in fits.items()}
    best = min(fits, key=lambda delay: (by_delay[delay], delay))
    model, residual, gain_error = fits[best]
    if model is None or abs(model.b) < VISIBLE * gain_error:
        b = 0.0 if model is None else model.b
        raise InvalidValue(
            f"the input's effect is not visible above the noise (b = {b:.4g} ± {gain_error:.2g}): "
            "vary it more, or measure for longer",
            "inputs",
        )
    change = y[k + 1] - y[k]
    spread = float(np.sum((change - change.mean()) ** 2))
    unexplained = residual**2 * max(1, len(k) - 3)
    r2 = 1.0 if spread == 0 else max(0.0, 1 - unexplained / spread)
    return Identified(model, Quality(r2, residual, gain_error, len(k), by_delay))


def excitation(low: float, high: float, samples: int, seed: int = 0, hold: int = 2) -> NDArray[np.float64]:
    """An input for an identification run: `low` and `high`, each for `hold` intervals, now the one first and now the
    other.

    Two levels move the measurement most for a given range, and the random order excites every frequency. Both come
    equally often, pair by pair, because what is measured may be a queue: coins alone would walk it to empty or full,
    where it says nothing. So `low` and `high` should lie evenly around what the lane can do, and (high - low)·hold/2
    events should fit where the queue is.
    """
    if samples < 1 or hold < 1 or not low < high:
        raise ConfigError("an excitation has at least one sample, a hold of at least one interval, and low < high")
    first = np.random.default_rng(seed).integers(0, 2, size=-(-samples // (2 * hold)))
    levels = np.column_stack((first, 1 - first)).ravel()
    return np.where(np.repeat(levels, hold)[:samples] == 1, high, low).astype(np.float64)


class Recursive:
    """The same fit, one interval at a time: recursive least squares with forgetting.

    Used beside a running controller, where three things differ from a run made for the purpose. The loop holds y
    still, so most intervals say little about b: the covariance would grow without end (and the next noise would be
    believed), so it is bounded. c is not constant (a hog changes what is taken away), and the controller answers by
    moving u; a fit with a constant c would read that as a changed b. So c is let wander, and a and b are learned from
    quick changes. And y is hundreds of megabytes where u is thousands of events: both are scaled to about 1 inside.

    `scale_output` and `scale_input` are typical sizes of y and u. `forgetting` 0.98 remembers about 50 intervals.
    """

    BOUND = 1.0
    """The largest variance of a parameter, in scaled units: ignorance, where the parameters are about 1."""

    WANDER = 1e-4
    """Variance added to c in each interval, in scaled units: 1 % of the typical y."""

    SURPRISE = 4.0
    """Standard deviations of what was foreseen beyond which c is taken to have jumped."""

    DOUBTED = 0.1
    """The share of b that becomes uncertain with each surprise."""

    QUIET = 1e-8
    """The least variance of the noise, in scaled units: 0.01 % of the typical y. Nothing real is measured better."""

    def __init__(
        self, model: Model, scale_output: float, scale_input: float, forgetting: float = 0.98, doubt: float = 0.1
    ) -> None:
        if not 0.5 <= forgetting <= 1:
            raise ConfigError(f"forgetting is between 0.5 and 1, not {forgetting}")
        if not (scale_output > 0 and scale_input > 0):
            raise ConfigError("the scales of output and input are positive")
        self._delay = model.delay
        self._forgetting = forgetting
        self._scale_y, self._scale_u = scale_output, scale_input
        self._theta = np.array([model.a, model.b * scale_input / scale_output, model.c / scale_output])
        # `doubt` is the standard deviation of what is known at the start, as a share of each parameter.
        self._p = np.diag((doubt * np.maximum(np.abs(self._theta), 0.1)) ** 2)
        self._variance = 1e-4  # of the noise, in scaled units: 1 % of y, until it is known better
        self._inputs: list[float] = []
        self._y: float | None = None
        self.samples = 0

    @property
    def model(self) -> Model | None:
        """What is believed now; None while b is no number to divide by."""
        a, b, c = self._theta
        b = b * self._scale_y / self._scale_u
        if b == 0 or not np.isfinite(self._theta).all():
            return None
        return Model(float(a), float(b), float(c * self._scale_y), self._delay)

    @property
    def gain_error(self) -> float:
        """The standard error of b, in units of y per unit of u."""
        return math.sqrt(max(0.0, float(self._p[1, 1]))) * self._scale_y / self._scale_u

    @property
    def residual(self) -> float:
        """The standard deviation of what was not foreseen, in units of y."""
        return math.sqrt(self._variance) * self._scale_y

    def observe(self, y: float | None, u: float) -> None:
        """One interval: the measurement at its start (None when missed), and the input that was then applied."""
        if y is None or not math.isfinite(y):
            self._y = None
            self._remember(u)
            return
        scaled = y / self._scale_y
        if self._y is not None and len(self._inputs) > self._delay:
            self._learn(np.array([self._y, self._inputs[-1 - self._delay], 1.0]), scaled)
        self._y = scaled
        self._remember(u)

    def _remember(self, u: float) -> None:
        self._inputs.append(u / self._scale_u)
        del self._inputs[: -1 - self._delay]

    def _learn(self, x: NDArray[np.float64], y: float) -> None:
        self._p[2, 2] += self.WANDER
        innovation = y - float(x @ self._theta)
        spread = float(x @ self._p @ x)
        if innovation**2 > self.SURPRISE**2 * (spread + self._variance):
            # Once, it is c. Again and again, it is b: each surprise leaves a little doubt about it.
            self._p[2, 2] += innovation**2
            self._p[1, 1] += (self.DOUBTED * self._theta[1]) ** 2
            spread = float(x @ self._p @ x)
        direction = self._p @ x
        gain = direction / (self._variance + spread)
        self._theta = self._theta + gain * innovation
        p = self._p - np.outer(gain, direction)
        p[:2, :2] /= self._forgetting  # a and b are forgotten slowly; c wanders anyway
        self._p = (p + p.T) / 2  # stays symmetric, whatever rounding does
        largest = float(np.diag(self._p).max())
        if largest > self.BOUND:
            self._p *= self.BOUND / largest
        # Of the surprise, the share that the noise is expected to have in it.
        noise = innovation**2 * self._variance / (self._variance + spread)
        weight = max(1 - self._forgetting, 1 / (self.samples + 10))
        self._variance = max(self.QUIET, self._variance + weight * (noise - self._variance))
        self.samples += 1


def _fit(y: NDArray[np.float64], u: NDArray[np.float64], after: NDArray[np.float64], delay: int) -> _Fit:
    """Least squares of one delay: the model (None when b is 0), the residual's deviation, the error of b.

    The change of y is fitted, not y: for a queue a is 1 and y is large, and a - 1 would drown in rounding. Columns are
    centred and scaled for the same reason; c follows from the means.
    """
    change = after - y
    scale_y, scale_u = float(y.std()) or 1.0, float(u.std()) or 1.0
    columns = np.column_stack(((y - y.mean()) / scale_y, (u - u.mean()) / scale_u))
    solution, *_ = np.linalg.lstsq(columns, change - change.mean(), rcond=None)
    left = change - change.mean() - columns @ solution
    residual = math.sqrt(float(left @ left) / max(1, len(y) - 3))
    covariance = np.linalg.pinv(columns.T @ columns)
    gain_error = residual * math.sqrt(max(0.0, float(covariance[1, 1]))) / scale_u
    a, b = 1 + float(solution[0]) / scale_y, float(solution[1]) / scale_u
    c = float(change.mean() - (a - 1) * y.mean() - b * u.mean())
    return (Model(a, b, c, delay) if b != 0 else None), residual, gain_error


_Fit = tuple[Model | None, float, float]
