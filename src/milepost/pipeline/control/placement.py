"""Gains by pole placement: from a model and a wanted settling time to the numbers of a controller.

The controller, with e = reference - measurement and Δu(k) = u(k) - u(k-1)::

    Δu(k) = (KP+KI)·e(k) - KP·e(k-1) - F1·Δu(k-1) - … - Fd·Δu(k-d)

Without the F it is a PI controller. With the model of `model.py` it closes a loop with the characteristic polynomial,
in powers of q = 1/z::

    (1 + F1·q + … + Fd·q^d)·(1 - q)·(1 - a·q)  +  b·q^(d+1)·((KP+KI) - KP·q)

Its roots in z decide the behaviour: inside the unit circle the loop is stable, and it settles in about -4/ln(radius)
intervals. Without a delay, KP and KI place both roots freely. A delay of d intervals adds d roots. PI alone cannot
place these: all roots but two follow from a, and for a near 1 and d = 1 the largest is never below (1+a)/3, 0.66, which
is ten intervals. The F give the missing freedom: they feed back decisions that the measurement does not show yet, so
that the controller does not repeat them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milepost.errors import ConfigError
from milepost.pipeline.control.model import Model

SETTLED = 4.0
"""Settled means that e^-4 (1.8 %) of a disturbance is left: the convention behind radius = e^(-4/ks)."""

OVERSHOOT = 0.02
"""Of a step, as a fraction. More overshoot gains little speed and costs margin: with a = 0.985, one interval of delay
and five to settle, b may be 1.69 times the model's at 0.02, and 1.46 times at 0.1.
"""

LARGEST_GAIN = 1e6
"""The margin reported for a loop that no gain makes unstable."""


@dataclass(frozen=True, slots=True)
class Gains:
    """KP and KI in units of u per unit of y; `feedback` is F1, F2, …, without a unit."""

    proportional: float
    integral: float
    feedback: tuple[float, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON. `from_dict` is the inverse."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Gains:
        return cls(float(values["proportional"]), float(values["integral"]), tuple(map(float, values["feedback"])))


def pole_radius(settling: float) -> float:
    """The radius of poles that settle in `settling` intervals: e^(-4/ks)."""
    if not (math.isfinite(settling) and settling > 0):
        raise ConfigError(f"a settling time is a positive number of intervals, not {settling}")
    return math.exp(-SETTLED / settling)


def settling_time(radius: float) -> float:
    """Intervals until poles of this radius have settled, -4/ln(radius); infinite on or outside the unit circle."""
    if radius <= 0:
        return 0.0
    return math.inf if radius >= 1 else -SETTLED / math.log(radius)


def pole_pair(settling: float, overshoot: float = OVERSHOOT) -> tuple[complex, complex]:
    """Two poles of the settling time's radius, at the angle at which a step overshoots by about `overshoot`.

    A pair at radius r and angle θ rings with a half period of π/θ intervals, in which it decays by r^(π/θ): the
    first overshoot. Overshoot 0 is a double real pole.
    """
    if not 0 <= overshoot < 1:
        raise ConfigError(f"an overshoot is a fraction from 0 to below 1, not {overshoot}")
    radius = pole_radius(settling)
    if overshoot == 0:
        return complex(radius), complex(radius)
    # Beyond a right angle the pair would alternate instead of ringing: faster in theory, but rough on the plant.
    angle = min(math.pi * math.log(radius) / math.log(overshoot), math.pi / 2)
    pole = complex(radius * math.cos(angle), radius * math.sin(angle))
    return pole, pole.conjugate()


def place_pi(model: Model, poles: tuple[complex, complex]) -> Gains:
    """KP and KI that make both of `poles` (real, or a conjugate pair) poles of the closed loop.

    Without a delay these are all poles. With a delay the others cannot be chosen: check `closed_loop_poles`.
    """
    first, second = map(complex, poles)
    if abs((first + second).imag) > 1e-9 or abs((first * second).imag) > 1e-9:
        raise ConfigError(f"two poles are real or a conjugate pair, not {first} and {second}")
    rest = _plant(model)  # in z: z^d·(z-1)·(z-a), without the two gains

    def value(z: complex) -> complex:
        return complex(np.polyval(rest, z))

    # b·((KP+KI)·z - KP) = -rest(z) at both poles: a line through two points, or, for a double pole, a tangent.
    if first == second:
        slope = -complex(np.polyval(np.polyder(rest), first))
    else:
        slope = -(value(first) - value(second)) / (first - second)
    offset = -value(first) - slope * first
    proportional = -offset.real / model.b
    return Gains(proportional, slope.real / model.b - proportional)


def best_pi(model: Model) -> Gains:
    """The PI gains with the smallest spectral radius: the fastest plain PI for this delay.

    The two gains are the linear part of the characteristic polynomial, so a triple root is where the second derivative
    of the rest is zero. With one interval of delay this is provably optimal (the sum of the three roots is fixed at
    1+a); with more it is where the search starts.
    """
    if model.delay == 0:
        return place_pi(model, (0j, 0j))
    curvature = np.polyder(_plant(model), 2)
    starts = [(complex(root.real), complex(root.real)) for root in np.roots(curvature) if abs(root.imag) < 1e-9]
    gains = min((place_pi(model, start) for start in starts), key=lambda gains: spectral_radius(model, gains))
    return _searched(model, gains)


def place(model: Model, poles: Sequence[complex]) -> Gains:
    """Gains with feedback on past inputs that make `poles` all poles of the closed loop.

    There are delay + 2 poles. Poles that are not given are placed at 0, where they decay in one interval. The
    arithmetic is a division of power series in q: 1 + F1·q + … are the first terms of wanted / ((1-q)(1-a·q)), and the
    remainder is b·q^(d+1)·((KP+KI) - KP·q).
    """
    order = model.delay + 2
    if len(poles) > order:
        raise ConfigError(f"a model with delay {model.delay} has {order} poles to place, not {len(poles)}")
    wanted = np.zeros(order + 1)
    coefficients = np.poly(np.asarray(poles, dtype=complex)) if len(poles) else np.array([1.0])
    if np.abs(np.imag(coefficients)).max() > 1e-9:
        raise ConfigError("poles must be real or come in conjugate pairs")
    wanted[: len(coefficients)] = np.real(coefficients)
    open_loop = np.array([1.0, -(1 + model.a), model.a])
    quotient = np.zeros(model.delay + 1)
    rest = wanted
    for power in range(model.delay + 1):
        quotient[power] = rest[power]
        rest[power : power + 3] -= quotient[power] * open_loop
    total, last = rest[model.delay + 1] / model.b, rest[model.delay + 2] / model.b
    return Gains(float(-last), float(total + last), tuple(float(value) for value in quotient[1:]))


def design(model: Model, settling: float = 5.0, overshoot: float = OVERSHOOT) -> Gains:
    """The gains for a model and a wanted settling time in intervals. Controllers call this.

    Plain PI where it reaches the settling time, because it depends least on the model; with feedback on past inputs
    where a delay makes plain PI slower than that. The poles that the delay adds then get the same radius. At 0 they
    would decay sooner, at the cost of margin: 1.50 instead of 1.69 in the example at `OVERSHOOT`.
    """
    poles = pole_pair(settling, overshoot)
    gains = place_pi(model, poles)
    if model.delay == 0 or spectral_radius(model, gains) <= pole_radius(settling) * (1 + 1e-9):
        return gains
    return place(model, [*poles, *[pole_radius(settling)] * model.delay])


def closed_loop_poles(model: Model, gains: Gains) -> NDArray[np.complex128]:
    """The poles of the loop, largest first. The model may have another delay than the model of the gains."""
    own = np.polymul(np.concatenate(([1.0], gains.feedback)), [1.0, -(1 + model.a), model.a])
    # In powers of q, ascending, like `own`.
    fed = np.concatenate((np.zeros(model.delay + 1), [gains.proportional + gains.integral, -gains.proportional]))
    total = np.zeros(max(len(own), len(fed)))
    total[: len(own)] += own
    total[: len(fed)] += model.b * fed
    roots = np.roots(total).astype(np.complex128)
    return roots[np.argsort(-np.abs(roots), kind="stable")]


def spectral_radius(model: Model, gains: Gains) -> float:
    """The radius of the largest pole: below 1 the loop is stable, and a smaller radius is faster."""
    poles = closed_loop_poles(model, gains)
    return float(np.abs(poles[0])) if len(poles) else 0.0


def gain_margin(model: Model, gains: Gains) -> float:
    """How many times larger than in the model b may be before the loop is unstable; 0 when it is unstable already.

    Check this before using a design for events whose size may change.
    """
    if spectral_radius(model, gains) >= 1:
        return 0.0

    def stable(factor: float) -> bool:
        return spectral_radius(Model(model.a, model.b * factor, model.c, model.delay), gains) < 1

    low, high = 1.0, 2.0
    while stable(high):
        low, high = high, high * 2
        if high > LARGEST_GAIN:
            return LARGEST_GAIN
    for _ in range(40):  # halvings: twelve digits
        middle = (low + high) / 2
        low, high = (middle, high) if stable(middle) else (low, middle)
    return low


def _plant(model: Model) -> NDArray[np.float64]:
    """z^d·(z-1)·(z-a), highest power first."""
    return np.concatenate(([1.0, -(1 + model.a), model.a], np.zeros(model.delay)))


def _searched(model: Model, start: Gains) -> Gains:
    """Search around a good start for gains with a smaller spectral radius: compass search, in units of 1/b."""
    best, radius = start, spectral_radius(model, start)
    stride = 0.1 / abs(model.b)
    while stride > 1e-9 / abs(model.b):
        around = (
            Gains(best.proportional + along * stride, best.integral + across * stride)
            for along in (-1, 0, 1)
            for across in (-1, 0, 1)
            if along or across
        )
        found, smaller = min(((gains, spectral_radius(model, gains)) for gains in around), key=lambda pair: pair[1])
        if smaller < radius - 1e-12:
            best, radius = found, smaller
        else:
            stride /= 2
    return best
