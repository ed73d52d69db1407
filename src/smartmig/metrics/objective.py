"""ET, the papers' objective: energy and tardiness in one number.

The one place where SI units become the papers' watt-minutes and minutes.
"""

from __future__ import annotations

ENERGY_WEIGHT = 2.0e-7
"""a, per watt-minute against minutes of mean tardiness: 2.5e6 W·min contribute 0.5, a minute contributes 1"""


def watt_minutes(energy_j: float) -> float:
    return energy_j / 60.0


def minutes(time_s: float) -> float:
    return time_s / 60.0


def energy_tardiness(energy_j: float, mean_tardiness_s: float, energy_weight: float = ENERGY_WEIGHT) -> float:
    """ET = (a e + t) / (a + 1) with e in watt-minutes and t in minutes (S2, S3)."""
    return (energy_weight * watt_minutes(energy_j) + minutes(mean_tardiness_s)) / (energy_weight + 1.0)
