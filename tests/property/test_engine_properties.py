"""What must hold in every run: nothing overlaps, nothing is lost, energy is the integral of power."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import settings as hypothesis_settings

from smartmig.errors import InputError, SimulationError
from smartmig.hardware.layouts import check_layout
from smartmig.metrics.summary import summarise, tardiness_s
from smartmig.sim.mig.run import Cluster, simulate
from smartmig.sim.mig.world import Settings
from smartmig.types import Jobs, Placement, Run, Segments
from strategies import policies, worlds

POLICIES = [("categorical-edf", "slice-count"), ("largest-first", "static"), ("shortest-work", "slice-count")]


def run_or_skip(policy: tuple[str, str], world: tuple[Jobs, Cluster, Settings]) -> tuple[Run, Segments]:
    jobs, cluster, mode = world
    try:
        run = simulate(jobs, cluster, policies(*policy), mode)
    except (InputError, SimulationError):
        assume(False)
        raise
    assert run.segments is not None
    return run, run.segments


def overlapping(from_s: np.ndarray, to_s: np.ndarray) -> bool:
    order = np.argsort(from_s, kind="stable")
    return bool((from_s[order][1:] < to_s[order][:-1] - 1e-9).any())


@pytest.mark.parametrize("policy", POLICIES)
@given(world=worlds())
@hypothesis_settings(max_examples=60)
def test_run__never_uses_a_memory_slice_twice(policy: tuple[str, str], world: tuple[Jobs, Cluster, Settings]) -> None:
    _, s = run_or_skip(policy, world)
    for gpu in range(len(world[1].gpus)):
        for memory_slice in range(8):
            on_it = (s.gpu == gpu) & (s.start <= memory_slice) & (memory_slice < s.start + s.span)
            assert not overlapping(s.from_s[on_it], s.to_s[on_it])


@pytest.mark.parametrize("policy", POLICIES)
@given(world=worlds())
@hypothesis_settings(max_examples=60)
def test_run__loses_no_job_and_runs_none_twice_at_once(
    policy: tuple[str, str], world: tuple[Jobs, Cluster, Settings]
) -> None:
    run, s = run_or_skip(policy, world)
    jobs, _, mode = world
    assert np.isfinite(run.finish_s).all()
    assert (run.first_start_s >= jobs.arrive_s - 1e-9).all()
    assert (run.finish_s >= run.first_start_s - 1e-9).all()
    assert run.makespan_s == pytest.approx(run.finish_s.max())
    for job in range(len(jobs)):
        mine = s.job == job
        assert mine.sum() == run.n_starts[job]
        assert not overlapping(s.from_s[mine], s.to_s[mine])
        if not mode.estimated_speed:
            # The stretches add up to the whole job, less what each restart cost.
            column = np.searchsorted((1, 2, 3, 4, 7), s.size[mine])
            restarts_s = np.where(np.arange(mine.sum()) > 0, mode.restart_s, 0.0)
            in_order = np.argsort(s.from_s[mine], kind="stable")
            ran_s = (s.to_s - s.from_s)[mine][in_order]
            progress = np.maximum(0.0, ran_s - restarts_s) / jobs.run_s[job, column[in_order]]
            assert progress.sum() == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("policy", POLICIES)
@given(world=worlds())
@hypothesis_settings(max_examples=60)
def test_run__energy_is_the_integral_of_power(policy: tuple[str, str], world: tuple[Jobs, Cluster, Settings]) -> None:
    assume(not world[2].charge_after_release)
    run, s = run_or_skip(policy, world)
    for index, gpu in enumerate(world[1].gpus):
        mine = s.gpu == index
        times = np.unique(np.concatenate([[0.0, run.makespan_s], s.from_s[mine], s.to_s[mine]]))
        energy_j = 0.0
        for begin, end in itertools.pairwise(times):
            middle = (begin + end) / 2
            busy = int(s.size[mine & (s.from_s <= middle) & (middle < s.to_s)].sum())
            energy_j += gpu.power.watts[busy] * (end - begin)
        assert run.energy_j[index] == pytest.approx(energy_j, rel=1e-9, abs=1e-6)


@pytest.mark.parametrize("policy", POLICIES)
@given(world=worlds())
@hypothesis_settings(max_examples=60)
def test_run__uses_legal_placements_only(policy: tuple[str, str], world: tuple[Jobs, Cluster, Settings]) -> None:
    _, s = run_or_skip(policy, world)
    for index, gpu in enumerate(world[1].gpus):
        mine = np.flatnonzero(s.gpu == index)
        for moment in s.from_s[mine]:
            now = [i for i in mine if s.from_s[i] <= moment < s.to_s[i]]
            names = {(p.compute, p.memory_slices): p.name for p in gpu.profiles if not p.media}
            layout = sorted({(int(s.start[i]), names[int(s.size[i]), int(s.span[i])]) for i in now})
            check_layout(gpu, tuple(Placement(*place) for place in layout))


@given(world=worlds())
@hypothesis_settings(max_examples=40)
def test_summary__is_consistent_with_the_run(world: tuple[Jobs, Cluster, Settings]) -> None:
    run, _ = run_or_skip(("categorical-edf", "slice-count"), world)
    jobs, cluster, _ = world
    summary = summarise(jobs, run, sum(gpu.n_compute for gpu in cluster.gpus))
    assert 0 <= summary.utilisation_frac <= 1 + 1e-9
    assert 0 <= summary.late_frac <= 1
    assert summary.mean_tardiness_s <= summary.max_tardiness_s + 1e-9
    assert summary.energy_j == pytest.approx(run.energy_j.sum())
    assert sum(summary.config_frac.values()) == pytest.approx(1.0)
    assert (tardiness_s(jobs, run) >= 0).all()
