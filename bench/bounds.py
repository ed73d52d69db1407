"""The bounds of x20 days on eight GPUs: how high, and in what time, on one core."""

from __future__ import annotations

import functools

import numpy as np

from bench.measure import Outcome
from smartmig.bounds import Bound, check_certificate, energy_bound, et_bound, paper_energy_bound, tardiness_bound
from smartmig.hardware.model import gpu_model
from smartmig.metrics.objective import minutes, watt_minutes
from smartmig.types import Jobs
from smartmig.workload.diurnal import DiurnalDay

DAYS = range(20, 30)
"""Days on which the search's steps were not tuned (those were 0, 1 and 5). They are harder than most, so the floors
below stand just under what these very days give."""
GPUS = (gpu_model("a100-40gb"),) * 8


def _day(seed: int) -> Jobs:
    return DiurnalDay().jobs(seed)


@functools.cache
def _ets() -> tuple[Bound, ...]:
    return tuple(et_bound(_day(seed), GPUS) for seed in DAYS)


@functools.cache
def _tardinesses() -> tuple[Bound, ...]:
    return tuple(tardiness_bound(_day(seed), GPUS) for seed in DAYS)


def _check_first(bounds: tuple[Bound, ...]) -> None:
    certificate = bounds[0].certificate
    assert certificate is not None
    assert check_certificate(certificate, _day(DAYS[0]), GPUS).valid


def et() -> Outcome:
    _check_first(_ets())
    mean = float(np.mean([bound.value for bound in _ets()]))
    return Outcome(mean, "ET", f"joint bound, mean of {len(DAYS)} x20 days", at_least=0.90)


def et_time() -> Outcome:
    return Outcome(max(bound.solve_s for bound in _ets()), "s", "the slowest of them", at_most=20.0)


def tardiness() -> Outcome:
    _check_first(_tardinesses())
    mean_s = float(np.mean([bound.value for bound in _tardinesses()]))
    return Outcome(minutes(mean_s), "min", f"tardiness alone, mean of {len(DAYS)} x20 days", at_least=0.42)


def tardiness_time() -> Outcome:
    return Outcome(max(bound.solve_s for bound in _tardinesses()), "s", "the slowest of them", at_most=20.0)


def energy_given() -> Outcome:
    above = []
    for seed in DAYS:
        paper = paper_energy_bound(_day(seed), GPUS).value
        above.append(100 * (energy_bound(_day(seed), GPUS, max_tardiness_s=60.0).value / paper - 1))
    detail = f"energy given 1 min of mean tardiness, above S3's bound, mean of {len(DAYS)} days"
    return Outcome(float(np.mean(above)), "%", detail, at_least=11.3)


def paper() -> Outcome:
    values = [watt_minutes(paper_energy_bound(_day(seed), GPUS).value) for seed in range(200)]
    return Outcome(
        float(np.mean(values)) / 1e6, "1e6 W·min", "S3's energy bound, 200 days", at_least=1.978, at_most=1.984
    )


BENCHMARKS = {
    "bound-paper": paper,
    "bound-et": et,
    "bound-et-time": et_time,
    "bound-tardiness": tardiness,
    "bound-tardiness-time": tardiness_time,
    "bound-energy-given": energy_given,
}
