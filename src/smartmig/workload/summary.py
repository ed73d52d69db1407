"""A set of jobs in a few numbers: how many, when, how long, how tight."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from smartmig.types import SLICE_SIZES, Floats, Jobs
from smartmig.workload.curves import sublinearity

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
_HOUR_S = 3600.0


@dataclass(frozen=True)
class SizeSummary:
    """The jobs on one slice size."""

    size: int
    n_fit: int
    """jobs that fit it"""
    offered_h: float
    """hours of one such slice that those jobs need together"""
    run_s: tuple[float, ...]
    """run time at each of QUANTILES; nan when no job fits"""


@dataclass(frozen=True)
class Summary:
    """What `trace show` prints."""

    n_jobs: int
    first_s: float
    """first arrival"""
    last_s: float
    """last arrival"""
    arrivals_by_hour: tuple[int, ...]
    """arrivals in each hour of the day, all days together"""
    sizes: tuple[SizeSummary, ...]
    slack: tuple[float, ...]
    """(deadline - arrival) / run time on the fastest slice, at each of QUANTILES"""
    kinds: dict[str, int]
    """kind -> jobs, most frequent first"""
    sublinearity: float
    """1 = linear gain from larger slices"""


def summarise(jobs: Jobs) -> Summary:
    """The summary of a set with at least one job."""
    hours = (jobs.arrive_s // _HOUR_S).astype(np.int64) % 24
    fastest_s = jobs.run_s.min(axis=1)
    return Summary(
        n_jobs=len(jobs),
        first_s=float(jobs.arrive_s[0]),
        last_s=float(jobs.arrive_s[-1]),
        arrivals_by_hour=tuple(np.bincount(hours, minlength=24).tolist()),
        sizes=tuple(_size_summary(size, jobs.run_s[:, k]) for k, size in enumerate(SLICE_SIZES)),
        slack=quantiles((jobs.deadline_s - jobs.arrive_s) / fastest_s),
        kinds=counted(jobs.kind),
        sublinearity=sublinearity(jobs.run_s),
    )


def _size_summary(size: int, run_s: Floats) -> SizeSummary:
    fitting = run_s[np.isfinite(run_s)]
    return SizeSummary(size, int(fitting.size), float(fitting.sum()) / _HOUR_S, quantiles(fitting))


def quantiles(values: Floats) -> tuple[float, ...]:
    """The value at each of QUANTILES; nan when there are no values."""
    if values.size == 0:
        return (math.nan,) * len(QUANTILES)
    return tuple(np.quantile(values, QUANTILES).tolist())


def counted(texts: NDArray[np.str_]) -> dict[str, int]:
    """How often each text stands, most frequent first, ties by name."""
    return dict(sorted(Counter(texts.tolist()).items(), key=lambda item: (-item[1], item[0])))
