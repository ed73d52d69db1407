"""Means with 95 % intervals, paired over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from smartmig.types import Floats


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds and half the width of its 95 % interval (Student's t; nan for one seed)."""

    mean: float
    half_width: float
    n: int

    @property
    def low(self) -> float:
        return self.mean - self.half_width

    @property
    def high(self) -> float:
        return self.mean + self.half_width


def estimate(values: Sequence[float] | Floats) -> Estimate:
    sample = np.asarray(values, dtype=float)
    if sample.size < 2:
        return Estimate(float(sample.mean()), float("nan"), int(sample.size))
    spread = float(sample.std(ddof=1)) / np.sqrt(sample.size)
    return Estimate(float(sample.mean()), float(stdtrit(sample.size - 1, 0.975) * spread), int(sample.size))


def relative_change(values: Sequence[float] | Floats, base: Sequence[float] | Floats) -> Estimate:
    """(mean of values - mean of base) / mean of base, over seeds both ran.

    The interval is that of the paired differences' linearisation (delta method), so seeds that are hard for both
    policies do not widen it.
    """
    a, b = np.asarray(values, dtype=float), np.asarray(base, dtype=float)
    ratio = float(a.mean() / b.mean()) if b.mean() else float("nan")
    residual = estimate((a - ratio * b) / b.mean() if b.mean() else a * float("nan"))
    return Estimate(ratio - 1.0, residual.half_width, int(a.size))
