"""Means and intervals over seeds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from smartmig.metrics.statistics import estimate, relative_change

RNG = np.random.default_rng(5)
DAYS = RNG.lognormal(1.0, 0.8, 40)
"""How hard each day is: varies far more than the policies differ."""


@pytest.mark.parametrize("values", [[1.0, 2.0], [3.0, 3.5, 9.0, -2.0], DAYS.tolist()])
def test_estimate__is_the_t_interval(values: list[float]) -> None:
    low, high = stats.t.interval(0.95, len(values) - 1, loc=np.mean(values), scale=stats.sem(values))
    found = estimate(values)
    assert (found.low, found.mean, found.high) == pytest.approx((low, np.mean(values), high))
    assert found.n == len(values)


def test_estimate__of_two_by_hand() -> None:
    # Standard deviation sqrt(2), error of the mean 1, t with one degree of freedom 12.706.
    assert estimate([1.0, 3.0]).half_width == pytest.approx(12.706, abs=1e-3)
    assert estimate([4.0, 4.0, 4.0]).half_width == 0.0


def test_estimate__one_seed_has_no_interval() -> None:
    found = estimate([2.5])
    assert (found.mean, found.n) == (2.5, 1)
    assert math.isnan(found.half_width)


def test_relative_change__by_hand() -> None:
    # Means 6 and 4: half as much again. Residuals (a - 1.5 b) / 4 = -0.25, 0, 0.25: deviation 0.25, t(2) 4.3027.
    found = relative_change([2.0, 6.0, 10.0], [2.0, 4.0, 6.0])
    assert found.mean == pytest.approx(0.5)
    assert found.half_width == pytest.approx(4.30265 * 0.25 / math.sqrt(3), rel=1e-5)
    assert found.n == 3


def test_relative_change__of_a_policy_to_itself_is_none() -> None:
    found = relative_change(DAYS, DAYS)
    assert found.mean == 0.0
    assert found.half_width == pytest.approx(0.0, abs=1e-12)


def test_relative_change__pairs_the_seeds() -> None:
    better = DAYS * 0.9 * RNG.normal(1.0, 0.02, DAYS.size)
    paired = relative_change(better, DAYS)
    assert paired.low < -0.1 < paired.high
    # The same two samples, not paired, by the delta method for independent means.
    ratio = better.mean() / DAYS.mean()
    variance = stats.sem(better) ** 2 + ratio**2 * stats.sem(DAYS) ** 2
    unpaired = stats.t.ppf(0.975, DAYS.size - 1) * math.sqrt(variance) / DAYS.mean()
    assert paired.half_width < unpaired / 5
    assert paired.high < 0 < paired.mean + unpaired


def test_relative_change__interval_holds_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(600):
        days = rng.normal(10.0, 3.0, 20)
        found = relative_change(0.8 * days + rng.normal(0.0, 0.5, 20), days)
        hits += found.low <= -0.2 <= found.high
    assert 0.92 < hits / 600 < 0.98


def test_relative_change__to_nothing_has_no_number() -> None:
    found = relative_change([1.0, 2.0], [0.0, 0.0])
    assert math.isnan(found.mean)
    assert math.isnan(found.half_width)
