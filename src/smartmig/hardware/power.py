"""How the power curves in the data files were made: a concave fit of measured points, and scaling to another card.

Nothing here runs in a simulation; the tests run it to check that the stored numbers follow from their sources.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import nnls


def fit_concave(points: Sequence[Sequence[float]], n_compute: int) -> tuple[tuple[float, ...], float]:
    """The nondecreasing concave curve nearest to `points`, and its root mean square error in watts.

    `points` are (busy compute slices, watts); the first one is idle (0 slices) and is met exactly, because idle power
    counts in every second of a run. Returns watts at 0..n_compute.

    A curve that bends only at the measured x_k, never falls and never steepens is idle + sum_k a_k min(x, x_k) with
    a_k >= 0, so least squares under both conditions is non-negative least squares.
    """
    x, watts = np.asarray(points, dtype=np.float64).T
    if x[0] != 0.0:
        raise ValueError("the first measured point must be idle: 0 busy slices")
    knots = x[1:]
    weights, residual = nnls(np.minimum(x[:, None], knots), watts - watts[0])
    slices = np.arange(n_compute + 1, dtype=np.float64)
    curve = watts[0] + np.minimum(slices[:, None], knots) @ weights
    return tuple(float(value) for value in curve), float(residual) / float(np.sqrt(x.size))


def scale_curve(shape: Sequence[float], idle_w: float, full_w: float, n_compute: int) -> tuple[float, ...]:
    """`shape` (watts at 0..n of some card) stretched between idle and full power of a card with `n_compute` slices.

    Cards with another number of slices read the shape at the same busy share; reading a concave curve at even steps
    keeps it concave.
    """
    watts = np.asarray(shape, dtype=np.float64)
    share = (watts - watts[0]) / (watts[-1] - watts[0])
    at = np.interp(np.linspace(0.0, 1.0, n_compute + 1), np.linspace(0.0, 1.0, watts.size), share)
    return tuple(float(value) for value in idle_w + (full_w - idle_w) * at)


def is_concave(watts: Sequence[float], tolerance_w: float = 1e-3) -> bool:
    """Whether the curve never falls and no step is larger than the one before; the tolerance covers stored rounding."""
    steps = np.diff(np.asarray(watts, dtype=np.float64))
    return bool(np.all(steps >= -tolerance_w) and np.all(np.diff(steps) <= tolerance_w))
