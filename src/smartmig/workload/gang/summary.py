"""A set of whole-GPU jobs in a few numbers: how many, when, how large, how long, whose."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from smartmig.types import GangJobs
from smartmig.workload.summary import counted, quantiles

_HOUR_S = 3600.0


@dataclass(frozen=True)
class GangSummary:
    """What `trace show` prints; distributions are at each of `QUANTILES`, nan where nothing is known."""

    n_jobs: int
    first_submit: str
    """UTC"""
    last_submit: str
    days: float
    """from the first to the last submission"""
    gpu_hours: float
    load: float
    """GPU time asked for over GPU time there is, from the first to the last submission; nan without a cluster"""
    jobs_by_gpus: dict[int, int]
    """GPUs -> jobs"""
    gpu_hours_by_gpus: dict[int, float]
    run_s: tuple[float, ...]
    n_waits: int
    """jobs whose wait is known"""
    waited_s: tuple[float, ...]
    n_limits: int
    """jobs with a requested time"""
    limit_s: tuple[float, ...]
    used_frac: tuple[float, ...]
    """run time over requested time"""
    arrivals_by_hour: tuple[int, ...]
    """submissions in each hour of the day, all days together"""
    users: dict[str, int]
    """user -> jobs, most frequent first; empty where the trace has none"""
    groups: dict[str, int]
    gpu_models: dict[str, int]


def summarise_gangs(jobs: GangJobs, n_gpus: int = 0) -> GangSummary:
    """The summary of a set with at least one job, and its load on a cluster of `n_gpus` when there is one."""
    gpu_s = jobs.run_s * jobs.n_gpus
    span_s = float(jobs.submit_s[-1] - jobs.submit_s[0])
    hours = ((jobs.origin_s + jobs.submit_s) // _HOUR_S).astype(np.int64) % 24
    sizes, size = np.unique(jobs.n_gpus, return_inverse=True)
    waited_s = jobs.waited_s[np.isfinite(jobs.waited_s)]
    has_limit = np.isfinite(jobs.limit_s)
    return GangSummary(
        n_jobs=len(jobs),
        first_submit=_moment(jobs, 0),
        last_submit=_moment(jobs, -1),
        days=span_s / (24 * _HOUR_S),
        gpu_hours=float(gpu_s.sum()) / _HOUR_S,
        load=float(gpu_s.sum()) / (span_s * n_gpus) if n_gpus and span_s else math.nan,
        jobs_by_gpus=dict(zip(sizes.tolist(), np.bincount(size).tolist(), strict=True)),
        gpu_hours_by_gpus=dict(zip(sizes.tolist(), (np.bincount(size, gpu_s) / _HOUR_S).tolist(), strict=True)),
        run_s=quantiles(jobs.run_s),
        n_waits=int(waited_s.size),
        waited_s=quantiles(waited_s),
        n_limits=int(has_limit.sum()),
        limit_s=quantiles(jobs.limit_s[has_limit]),
        used_frac=quantiles((jobs.run_s / jobs.limit_s)[has_limit]),
        arrivals_by_hour=tuple(np.bincount(hours, minlength=24).tolist()),
        users=_named(jobs.user),
        groups=_named(jobs.group),
        gpu_models=_named(jobs.gpu_model),
    )


def _moment(jobs: GangJobs, at: int) -> str:
    return str(np.datetime64(int(jobs.origin_s + jobs.submit_s[at]), "s")).replace("T", " ")


def _named(texts: np.ndarray) -> dict[str, int]:
    """Counts by name, or nothing where there are no names."""
    counts = counted(texts)
    return {} if set(counts) == {""} else counts
