"""One run in numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from smartmig.metrics.objective import energy_tardiness
from smartmig.types import DEADLINE_GRACE_S, Floats, Jobs, Run

JOULES_PER_KWH = 3.6e6


@dataclass(frozen=True)
class Summary:
    """What a run cost; SI units but for `et`, which is in the papers' (see `objective`)."""

    n_jobs: int
    energy_j: float
    """all GPUs, from time 0 to the last completion, idle power included"""
    energy_kwh: float
    energy_per_job_j: float
    mean_tardiness_s: float
    p95_tardiness_s: float
    max_tardiness_s: float
    late_frac: float
    et: float
    utilisation_frac: float
    """busy compute slices over all compute slices, until the last completion"""
    makespan_s: float
    n_repartitions: int
    n_preemptions: int
    n_events: int
    config_frac: dict[str, float]
    """share of GPU time in each configuration"""


def tardiness_s(jobs: Jobs, run: Run) -> Floats:
    """(n,) how long after its deadline each job was done."""
    late_s = run.finish_s - jobs.deadline_s
    return np.where(late_s > DEADLINE_GRACE_S, late_s, 0.0)


def summarise(jobs: Jobs, run: Run, n_compute_slices: int) -> Summary:
    """`n_compute_slices` is the cluster's total."""
    late_s = tardiness_s(jobs, run)
    energy_j = float(run.energy_j.sum())
    mean_s = float(late_s.mean())
    gpu_s = sum(run.config_s.values())
    return Summary(
        n_jobs=len(jobs),
        energy_j=energy_j,
        energy_kwh=energy_j / JOULES_PER_KWH,
        energy_per_job_j=energy_j / len(jobs),
        mean_tardiness_s=mean_s,
        p95_tardiness_s=float(np.percentile(late_s, 95)),
        max_tardiness_s=float(late_s.max()),
        late_frac=float((late_s > 0).mean()),
        et=energy_tardiness(energy_j, mean_s),
        utilisation_frac=float(run.busy_slice_s.sum()) / (n_compute_slices * run.makespan_s) if run.makespan_s else 0.0,
        makespan_s=run.makespan_s,
        n_repartitions=run.n_repartitions,
        n_preemptions=run.n_preemptions,
        n_events=run.n_events,
        config_frac={name: spent_s / gpu_s for name, spent_s in run.config_s.items()} if gpu_s else {},
    )
