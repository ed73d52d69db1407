"""No schedule beats a bound, and what proves a bound keeps proving it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from smartmig.bounds import (
    QUICK,
    Search,
    Stage,
    check_certificate,
    energy_bound,
    et_bound,
    mip_tardiness_bound,
    paper_energy_bound,
    pareto_bound,
    tardiness_bound,
)
from smartmig.bounds.energy import preemptive_makespan_s
from smartmig.errors import InputError, SimulationError
from smartmig.hardware.model import GpuModel
from smartmig.metrics.summary import Summary, summarise
from smartmig.sim.mig.run import Cluster, simulate
from smartmig.sim.mig.world import Settings
from smartmig.types import Jobs
from strategies import clusters, job_sets, policies, worlds

POLICIES = [("categorical-edf", "slice-count"), ("largest-first", "static"), ("categorical-edf", "static")]
FAST = Search(stages=QUICK)
ROUGH = Search(stages=(Stage(30, 60, 1.0, 0.1, 0.2, 0.05),))


def reached(policy: tuple[str, str], world: tuple[Jobs, Cluster, Settings]) -> Summary:
    """What the policy makes of it, all energy counted (S1's own accounting forgets some)."""
    jobs, cluster, mode = world
    try:
        run = simulate(jobs, cluster, policies(*policy), replace(mode, charge_after_release=False))
    except (InputError, SimulationError):
        assume(False)
        raise
    return summarise(jobs, run, 1)


def not_below(value: float, bound: float) -> bool:
    return value >= bound * (1 - 1e-9) - 1e-9


@pytest.mark.parametrize("policy", POLICIES)
@given(world=worlds())
@hypothesis_settings(max_examples=25)
def test_bound__is_beaten_by_no_schedule(policy: tuple[str, str], world: tuple[Jobs, Cluster, Settings]) -> None:
    summary = reached(policy, world)
    jobs, cluster, mode = world
    estimated = mode.estimated_speed
    assert not_below(summary.energy_j, energy_bound(jobs, cluster.gpus, None, estimated, ROUGH).value)
    assert not_below(summary.mean_tardiness_s, tardiness_bound(jobs, cluster.gpus, estimated, FAST).value)
    assert not_below(summary.et, et_bound(jobs, cluster.gpus, estimated_speed=estimated, search=FAST).value)
    # Seconds and joules of so few jobs weigh alike with an a this large.
    weighed = et_bound(jobs, cluster.gpus, 1e-3, estimated, FAST).value * (1 + 1e-3)
    assert not_below(1e-3 * summary.energy_j / 60 + summary.mean_tardiness_s / 60, weighed)
    given = energy_bound(jobs, cluster.gpus, summary.mean_tardiness_s, estimated, ROUGH)
    assert not_below(summary.energy_j, given.value)
    if len(set(cluster.gpus)) == 1 and not estimated:
        assert not_below(summary.energy_j, paper_energy_bound(jobs, cluster.gpus).value)


@given(world=worlds())
@hypothesis_settings(max_examples=15)
def test_pareto_bound__has_every_schedule_above_it(world: tuple[Jobs, Cluster, Settings]) -> None:
    summary = reached(POLICIES[0], world)
    jobs, cluster, mode = world
    curve = pareto_bound(jobs, cluster.gpus, mode.estimated_speed, ROUGH, n_lines=3)
    assert not_below(summary.energy_j, curve.energy_at(summary.mean_tardiness_s + 1e-6))
    tardiness_s, energy_j = curve.corners()
    assert (np.diff(tardiness_s) > 0).all()
    assert (np.diff(energy_j) <= 1e-9 * energy_j[0]).all()


@given(world=worlds(alike=True))
@hypothesis_settings(max_examples=8)
def test_mip_bound__is_beaten_by_no_schedule(world: tuple[Jobs, Cluster, Settings]) -> None:
    jobs, cluster, _ = world
    summary = reached(POLICIES[0], world)
    bound = mip_tardiness_bound(jobs, cluster.gpus, time_limit_s=5.0)
    assert not_below(summary.mean_tardiness_s, bound.value)


@given(jobs=job_sets(), gpus=clusters(), a=st.sampled_from([0.0, 2e-7, 1e-3, 1.0]), estimated=st.booleans())
@hypothesis_settings(max_examples=40)
def test_certificate__proves_what_was_claimed(
    jobs: Jobs, gpus: tuple[GpuModel, ...], a: float, estimated: bool
) -> None:
    try:
        bound = et_bound(jobs, gpus, a, estimated, ROUGH)
    except InputError:
        assume(False)
        raise
    assert bound.certificate is not None
    verdict = check_certificate(bound.certificate, jobs, gpus)
    assert verdict.valid, verdict
    # The second way to work it out finds the same, not just something smaller.
    scale = max(1e-12, abs(verdict.claimed))
    assert verdict.checked <= verdict.claimed + 1e-6 * scale + 1e-9
    greedy = replace(bound.certificate, value=bound.certificate.value + 1e-5 * scale + 1e-8)
    assert not check_certificate(greedy, jobs, gpus).valid


@given(jobs=job_sets(), gpus=clusters(max_gpus=2), seed=st.integers(0, 2**31))
@hypothesis_settings(max_examples=40)
def test_certificate__proves_no_more_with_fewer_jobs_or_for_tardiness_with_more_gpus(
    jobs: Jobs, gpus: tuple[GpuModel, ...], seed: int
) -> None:
    """At the same prices: each job costs at least 0, and an added card only sells."""
    assume(len(jobs) > 1)
    rng = np.random.default_rng(seed)
    kept = np.sort(rng.choice(len(jobs), size=len(jobs) - 1, replace=False))
    fewer = Jobs(*(getattr(jobs, name)[kept] for name in Jobs.__dataclass_fields__))
    for weight in (0.0, 1e-3):
        try:
            bound = et_bound(jobs, gpus, weight, search=ROUGH)
        except InputError:
            assume(False)
            raise
        assert bound.certificate is not None
        whole = check_certificate(bound.certificate, jobs, gpus)
        part = check_certificate(bound.certificate, fewer, gpus)
        assert part.checked <= whole.checked + 1e-9 * abs(whole.checked) + 1e-7
        if weight == 0.0:
            more = check_certificate(bound.certificate, jobs, (*gpus, gpus[0]))
            assert more.checked <= whole.checked + 1e-9 * abs(whole.checked)


@given(
    arrive=st.lists(st.integers(0, 12), min_size=1, max_size=6),
    work=st.lists(st.integers(1, 9), min_size=6, max_size=6),
    n_machines=st.integers(1, 3),
)
@hypothesis_settings(max_examples=60)
def test_preemptive_makespan__is_the_optimum_of_its_linear_program(
    arrive: list[int], work: list[int], n_machines: int
) -> None:
    release_s = np.sort(np.array(arrive, dtype=float))
    work_s = np.array(work[: len(arrive)], dtype=float)
    assert preemptive_makespan_s(release_s, work_s, n_machines) == pytest.approx(
        least_makespan(release_s, work_s, n_machines), abs=1e-6
    )


def least_makespan(release_s: np.ndarray, work_s: np.ndarray, n_machines: int) -> float:
    """Work of each job in each interval between releases, the last of free length (McNaughton packs each interval)."""
    starts = np.unique(release_s)
    n, m = release_s.size, starts.size
    lengths = np.diff(starts)
    cost = np.zeros(n * m + 1)
    cost[-1] = 1.0
    rows, limits, equal = [], [], []
    for i in range(m):
        total = np.zeros(n * m + 1)
        total[i : n * m : m] = 1.0
        own = np.zeros((n, n * m + 1))
        own[np.arange(n), np.arange(n) * m + i] = 1.0
        if i == m - 1:
            total[-1], own[:, -1] = -n_machines, -1.0
        rows += [total, *own]
        length = lengths[i] if i < m - 1 else 0.0
        limits += [n_machines * length, *[length] * n]
    for job in range(n):
        row = np.zeros(n * m + 1)
        row[job * m : (job + 1) * m] = starts >= release_s[job]
        equal.append(row)
    solved = linprog(cost, A_ub=np.array(rows), b_ub=limits, A_eq=np.array(equal), b_eq=work_s)
    return float(starts[-1] + solved.fun)
