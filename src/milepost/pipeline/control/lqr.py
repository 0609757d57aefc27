"""The gains of a controller of many lanes at once: linear quadratic regulation (LQR).

With N lanes, N response times should be equal, and N weights have a fixed sum. Both leave N-1 directions: differences
between lanes. `directions` is an orthonormal basis of them, so that control never changes the mean or the sum.

LQR finds the feedback that minimises Σ |difference|² + effort·|change of the weights|². The state is written in
changes, as the control law of `regulator.py`: the change of the differences; the differences, which are the sum of the
changes, so that integral action is part of the problem; and, with a delay, the changes of the weights that are not
visible yet. For two lanes it has the form of the PI controller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from milepost.errors import ConfigError
from milepost.extras import extra
from milepost.pipeline.control.model import Model
from milepost.pipeline.control.placement import pole_radius

Matrix = NDArray[np.float64]

EFFORTS = (1e-4, 1e8)
"""The range in which the price of changing weights is searched: from as fast as the plant allows, to an hour."""


@dataclass(frozen=True, slots=True)
class LqrGains:
    """Change of the weights = -(on_change·Δx + on_level·x + Σ on_past[i]·Δs(k-1-i)), in the basis' N-1 coordinates."""

    basis: Matrix
    on_change: Matrix
    on_level: Matrix
    on_past: tuple[Matrix, ...]
    effort: float
    radius: float


def directions(lanes: int) -> Matrix:
    """An orthonormal basis (lanes x lanes-1) of the vectors that sum to 0."""
    basis = np.zeros((lanes, lanes - 1))
    for column in range(lanes - 1):  # Helmert's basis: the mean of the first lanes against the next one
        basis[: column + 1, column] = 1.0
        basis[column + 1, column] = -(column + 1.0)
        basis[:, column] /= np.sqrt((column + 1.0) * (column + 2.0))
    return basis


def lqr(models: Sequence[Model], settling: float) -> LqrGains:
    """The gains for lanes with these models (of one delay), settling in about `settling` intervals.

    The price of effort is searched so that the slowest pole has the radius of the settling time, because users can name
    a time but not a price. Needs python-control, and takes about 0.2 s; results are cached.
    """
    return _solved(tuple(models), settling)


@lru_cache(maxsize=64)
def _solved(models: tuple[Model, ...], settling: float) -> LqrGains:
    delays = {model.delay for model in models}
    if len(models) < 2 or len(delays) != 1:
        raise ConfigError("LQR needs at least two lanes, with one delay for all of them")
    dlqr = _dlqr()
    basis = directions(len(models))
    a, b = _state_space(models, basis)
    size, delay = len(models) - 1, delays.pop()
    wanted = pole_radius(settling)

    def solved(effort: float) -> tuple[Matrix, float]:
        weight = np.zeros_like(a)
        weight[size : 2 * size, size : 2 * size] = np.eye(size)
        gain = np.asarray(dlqr(a, b, weight, effort * np.eye(size))[0], dtype=np.float64)
        return gain, float(np.abs(np.linalg.eigvals(a - b @ gain)).max())

    low, high = np.log(EFFORTS[0]), np.log(EFFORTS[1])
    for _ in range(16):  # halvings of a range of 28: three digits of the price, more of the radius
        middle = (low + high) / 2
        low, high = (low, middle) if solved(float(np.exp(middle)))[1] > wanted else (middle, high)
    effort = float(np.exp(low))
    gain, radius = solved(effort)
    blocks = [gain[:, start : start + size] for start in range(0, gain.shape[1], size)]
    return LqrGains(basis, blocks[0], blocks[1], tuple(blocks[2 : 2 + delay]), effort, radius)


def _state_space(models: Sequence[Model], basis: Matrix) -> tuple[Matrix, Matrix]:
    """State [Δx, x, Δs(k-1), …, Δs(k-d)], input Δs(k), with the differences x and the weights s in the basis."""
    size, delay = len(models) - 1, models[0].delay
    inner = basis.T @ np.diag([model.a for model in models]) @ basis
    acting = basis.T @ np.diag([model.b for model in models]) @ basis
    order = size * (2 + delay)
    a, b = np.zeros((order, order)), np.zeros((order, size))

    def block(index: int) -> slice:
        return slice(index * size, (index + 1) * size)

    for row in (0, 1):  # x(k+1) = x(k) + Δx(k+1)
        a[block(row), block(0)] = inner
        if delay:
            a[block(row), block(1 + delay)] = acting
        else:
            b[block(row)] = acting
    a[block(1), block(1)] = np.eye(size)
    if delay:
        b[block(2)] = np.eye(size)
        for past in range(1, delay):
            a[block(2 + past), block(1 + past)] = np.eye(size)
    return a, b


def _dlqr() -> Callable[..., tuple[Any, ...]]:
    with extra("balancing more than two lanes needs", "spark"):
        solve: Callable[..., tuple[Any, ...]] = import_module("control").dlqr
    return solve
