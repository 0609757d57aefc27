"""System identification: estimates a, b, c and the delay from a short run, or from the running loop.

A run is two columns with one value an interval: the input that was applied, and the measurement at the start of the
interval. So `outputs[k]` is what the controller would see when it decides `inputs[k]`. The input must vary: a constant
input says nothing about b, and is refused. `excitation` makes one that varies enough.
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
"""Delays that are tried, in intervals. A micro-batch in flight at the decision accounts for one, a queue before it for
another. A loop with a longer delay should have a longer interval.
"""

FEWEST_SAMPLES = 12
"""Fewer usable pairs do not determine three parameters and a delay."""

VISIBLE = 3.0
"""Standard errors by which b must differ from 0. Gains are proportional to 1/b, so a b made of noise gives huge
gains.
"""


@dataclass(frozen=True, slots=True)
class Quality:
    """How reliable a fitted model is.

    `r2` is the share of the *change* of y from one interval to the next that the model explains. (Of y itself the model
    of a queue explains nearly everything even when b is nonsense, because the queue changes little in an interval.)
    `residual` is the standard deviation of the rest, in units of y; `gain_error` the standard error of b; `samples` the
    number of pairs used; `by_delay` the residual of the best fit for each delay tried, which shows a close call.
    """

    r2: float
    residual: float
    gain_error: float
    samples: int
    by_delay: dict[int, float]


@dataclass(frozen=True, slots=True)
class Identified:
    """A model and its quality."""

    model: Model
    quality: Quality


def identify(inputs: ArrayLike, outputs: ArrayLike, delays: Sequence[int] = DELAYS) -> Identified:
    """Fit y(k+1) = a·y(k) + b·u(k-d) + c by least squares, with the delay that leaves the smallest residual.

    NaN is a missing measurement or input; pairs that need it are left out. Raises `InvalidValue` when the data do not
    determine a model: too few, a constant input, or an effect that is not visible above the noise.
    """
    u, y = np.asarray(inputs, dtype=np.float64), np.asarray(outputs, dtype=np.float64)
    if u.ndim != 1 or u.shape != y.shape:
        raise InvalidValue(
            f"inputs and outputs need one value each for every interval, not shapes {u.shape} and {y.shape}", "inputs"
        )
    if not delays:
        raise ConfigError("name at least one delay to try")
    longest = max(delays)
    # Fit every delay to the same pairs; otherwise a longer delay would win because it has fewer pairs to explain.
    k = np.arange(longest, len(u) - 1)
    known = np.isfinite(y[k]) & np.isfinite(y[k + 1])
    for delay in delays:
        known &= np.isfinite(u[k - delay])
    k = k[known]
    if len(k) < FEWEST_SAMPLES:
        raise InvalidValue(
            f"{len(k)} usable intervals do not identify a model; measure for at least {FEWEST_SAMPLES}", "outputs"
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
    """An input for an identification run: `low` and `high`, each for `hold` intervals, in random order within each
    pair.

    Two levels move the measurement most for a given range, and the random order excites every frequency. Both levels
    come equally often, because the measurement may be a queue: independent random levels would let it drift to empty or
    full, where it carries no information. So `low` and `high` should lie evenly around the lane's capacity, and the
    queue should have room for (high - low)·hold/2 events.
    """
    if samples < 1 or hold < 1 or not low < high:
        raise ConfigError("an excitation has at least one sample, a hold of at least one interval, and low < high")
    first = np.random.default_rng(seed).integers(0, 2, size=-(-samples // (2 * hold)))
    levels = np.column_stack((first, 1 - first)).ravel()
    return np.where(np.repeat(levels, hold)[:samples] == 1, high, low).astype(np.float64)


class Recursive:
    """The same fit, one interval at a time: recursive least squares with forgetting.

    It runs beside a controller, which differs from an identification run in three ways. The loop holds y constant, so
    most intervals say little about b: the covariance would grow without bound, and the next noise would be believed, so
    the covariance is bounded. c is not constant, since a hog changes what is removed, and the controller responds by
    moving u; a fit with a constant c would read that as a changed b. So c may drift, and a and b are learned from quick
    changes. And y is hundreds of megabytes where u is thousands of events: internally both are scaled to about 1.

    `scale_output` and `scale_input` are typical sizes of y and u. `forgetting` 0.98 remembers about 50 intervals.
    """

    BOUND = 1.0
    """The largest variance of a parameter, in scaled units. Parameters are about 1, so this stands for no knowledge."""

    WANDER = 1e-4
    """Variance added to c in each interval, in scaled units: 1 % of the typical y."""

    SURPRISE = 4.0
    """Standard deviations of the prediction beyond which c is assumed to have jumped."""

    DOUBTED = 0.1
    """The share of b that becomes uncertain with each jump."""

    QUIET = 1e-8
    """The least variance of the noise, in scaled units: 0.01 % of the typical y. No real measurement is better."""

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
        # `doubt` is the initial standard deviation of each parameter, as a share of it.
        self._p = np.diag((doubt * np.maximum(np.abs(self._theta), 0.1)) ** 2)
        self._variance = 1e-4  # of the noise, in scaled units: 1 % of y, until it is estimated
        self._inputs: list[float] = []
        self._y: float | None = None
        self.samples = 0

    @property
    def model(self) -> Model | None:
        """The current estimate; None while b is 0 or not finite."""
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
        """The standard deviation of the prediction error, in units of y."""
        return math.sqrt(self._variance) * self._scale_y

    def observe(self, y: float | None, u: float) -> None:
        """Observe one interval: the measurement at its start (None when missed), and the input that was then
        applied.
        """
        before, self._y = self._y, None if y is None or not math.isfinite(y) else y / self._scale_y
        if before is not None and self._y is not None and len(self._inputs) > self._delay:
            self._learn(np.array([before, self._inputs[-1 - self._delay], 1.0]), self._y)
        self._inputs.append(u / self._scale_u)
        del self._inputs[: -1 - self._delay]

    def _learn(self, x: NDArray[np.float64], y: float) -> None:
        self._p[2, 2] += self.WANDER
        innovation = y - float(x @ self._theta)
        spread = float(x @ self._p @ x)
        if innovation**2 > self.SURPRISE**2 * (spread + self._variance):
            # A single surprise is attributed to c. Repeated ones point to b, so each adds a little doubt about b.
            self._p[2, 2] += innovation**2
            self._p[1, 1] += (self.DOUBTED * self._theta[1]) ** 2
            spread = float(x @ self._p @ x)
        direction = self._p @ x
        gain = direction / (self._variance + spread)
        self._theta = self._theta + gain * innovation
        p = self._p - np.outer(gain, direction)
        p[:2, :2] /= self._forgetting  # a and b are forgotten slowly; c drifts anyway
        self._p = (p + p.T) / 2  # stays symmetric in spite of rounding
        largest = float(np.diag(self._p).max())
        if largest > self.BOUND:
            self._p *= self.BOUND / largest
        # Of the prediction error, the share that is expected to be noise.
        noise = innovation**2 * self._variance / (self._variance + spread)
        weight = max(1 - self._forgetting, 1 / (self.samples + 10))
        self._variance = max(self.QUIET, self._variance + weight * (noise - self._variance))
        self.samples += 1


def _fit(y: NDArray[np.float64], u: NDArray[np.float64], after: NDArray[np.float64], delay: int) -> _Fit:
    """Least squares for one delay: the model (None when b is 0), the standard deviation of the residual, the error of
    b.

    The change of y is fitted, not y: for a queue a is 1 and y is large, and a - 1 would vanish in rounding. Columns are
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
