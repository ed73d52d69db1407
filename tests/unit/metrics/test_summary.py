"""A run made by hand becomes the numbers one gets by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from smartmig.metrics.objective import energy_tardiness
from smartmig.metrics.summary import summarise, tardiness_s
from smartmig.types import DEADLINE_GRACE_S, Jobs, Run

JOBS = Jobs(
    job_id=np.array(["a", "b", "c", "d"]),
    arrive_s=np.array([0.0, 0.0, 10.0, 20.0]),
    deadline_s=np.array([50.0, 60.0, 70.0, 30.0]),
    run_s=np.full((4, 5), 40.0),
    kind=np.array([""] * 4),
    memory_gb=np.zeros(4),
)
"""Below: a is early, b exactly on time, c 10 s late, d 70 s late."""

RUN = Run(
    first_start_s=np.array([0.0, 20.0, 40.0, 60.0]),
    finish_s=np.array([40.0, 60.0, 80.0, 100.0]),
    n_starts=np.array([1, 2, 1, 1]),
    energy_j=np.array([30_000.0, 6_000.0]),
    busy_slice_s=np.array([700.0, 0.0]),
    makespan_s=100.0,
    n_events=8,
    n_repartitions=3,
    n_preemptions=1,
    config_s={"a100-40gb:7g": 150.0, "a100-40gb:4g+3g": 50.0},
)


def test_tardiness__counts_only_time_after_the_deadline() -> None:
    assert tardiness_s(JOBS, RUN).tolist() == [0.0, 0.0, 10.0, 70.0]


def test_tardiness__forgives_rounding() -> None:
    a_hair_late = replace(RUN, finish_s=JOBS.deadline_s + DEADLINE_GRACE_S / 2)
    assert tardiness_s(JOBS, a_hair_late).tolist() == [0.0] * 4
    late = replace(RUN, finish_s=JOBS.deadline_s + 1e-3)
    assert (tardiness_s(JOBS, late) > 0).all()


def test_summarise__adds_up() -> None:
    summary = summarise(JOBS, RUN, n_compute_slices=14)
    assert summary.n_jobs == 4
    assert summary.energy_j == 36_000.0
    assert summary.energy_kwh == 0.01
    assert summary.energy_per_job_j == 9_000.0
    assert summary.mean_tardiness_s == 20.0
    assert summary.max_tardiness_s == 70.0
    # Linear between the third and the fourth of four values: 0.85 of the way from 10 to 70.
    assert summary.p95_tardiness_s == pytest.approx(61.0)
    assert summary.late_frac == 0.5
    assert summary.et == energy_tardiness(36_000.0, 20.0)
    assert summary.utilisation_frac == 0.5
    assert (summary.makespan_s, summary.n_events) == (100.0, 8)
    assert (summary.n_repartitions, summary.n_preemptions) == (3, 1)
    assert summary.config_frac == {"a100-40gb:7g": 0.75, "a100-40gb:4g+3g": 0.25}


def test_summarise__a_run_that_took_no_time() -> None:
    instant = replace(RUN, makespan_s=0.0, config_s={})
    summary = summarise(JOBS, instant, n_compute_slices=14)
    assert summary.utilisation_frac == 0.0
    assert summary.config_frac == {}
