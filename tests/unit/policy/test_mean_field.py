"""Mean field: which GPUs move, and small clusters do their work however restless the policy is."""

from __future__ import annotations

import numpy as np
import pytest

from smartmig.hardware.cluster import parse_gpus
from smartmig.hardware.cuts import CutTable
from smartmig.metrics.summary import summarise
from smartmig.policy.placement.shortest_work import ShortestWork
from smartmig.policy.repartition.mean_field import MeanField, lost_slice_s, move_group
from smartmig.policy.view import SLOTS, State, World
from smartmig.sim.mig.run import Cluster, Policy, cuts_of, open_gpus, simulate
from smartmig.sim.mig.world import Settings, build_world, fresh_state
from smartmig.train.ranges import equal_cuts
from smartmig.types import Jobs, Layout
from smartmig.workload.diurnal import DiurnalDay
from smartmig.workload.seeds import VALIDATION_FIRST


@pytest.mark.parametrize("gpus", ["1xa100-40gb,1xh200-141gb", "2xa100-40gb"])
@pytest.mark.parametrize("mode", [Settings(), Settings(preempt=False, drain=True)])
def test_control__never_re_cuts_so_often_that_nothing_runs(gpus: str, mode: Settings) -> None:
    jobs = DiurnalDay(multiplier=1.0).jobs(20_000_000)
    run = simulate(jobs, Cluster(parse_gpus(gpus)), Policy(ShortestWork(), MeanField()), mode)
    assert np.isfinite(run.finish_s).all()
    assert run.n_events < 1000 * len(jobs)


def test_control__does_as_well_whichever_cut_it_comes_to() -> None:
    """As busy from the first minute on as by day: what a live controller meets."""
    gpus, mode = parse_gpus("8xa100-40gb"), Settings(preempt=False, drain=True)
    policy = Policy(ShortestWork(), MeanField())
    nights = [DiurnalDay(multiplier=36).jobs(VALIDATION_FIRST + night) for night in range(4)]
    busy = [Jobs(*(column[jobs.arrive_s < 6 * 3600.0] for column in vars(jobs).values())) for jobs in nights]

    def mean_et(layouts: tuple[Layout, ...] | None) -> float:
        runs = [(jobs, simulate(jobs, Cluster(gpus, layouts), policy, mode)) for jobs in busy]
        return float(np.mean([summarise(jobs, run, 7 * len(gpus)).et for jobs, run in runs]))

    own = mean_et(None)
    assert max(mean_et(layouts) for layouts in equal_cuts(gpus)) < 1.02 * own


def cluster_at_work(mode: Settings, ends_s: list[float]) -> tuple[World, State, CutTable]:
    """Whole GPUs, each with a job that ends then."""
    rule, cluster = ShortestWork(), Cluster(parse_gpus(f"{len(ends_s)}xa100-40gb"))
    cuts = cuts_of(cluster, MeanField())
    world = build_world(cuts, rule, mode, counted=True)
    state = fresh_state(world, len(ends_s), cuts)
    open_gpus(world, state, rule)
    for gpu, end_s in enumerate(ends_s):
        state.slot[gpu * SLOTS]["job"], state.slot[gpu * SLOTS]["end_s"] = gpu, end_s
        state.gpu[gpu]["busy"] = 7
    return world, state, cuts


def test_move__takes_the_gpus_that_are_done_soonest() -> None:
    world, state, cuts = cluster_at_work(Settings(preempt=False, drain=True), [500.0, 80.0, 300.0, 90.0])
    whole, split = int(state.gpu[0]["config"]), len(cuts.configs) - 1
    state.gpu["target"] = -1
    assert lost_slice_s(world, state, 1, split) == 7 * 80.0
    move_group(world, state, whole, split)
    assert (state.gpu["target"] == split).tolist() == [False, True, False, False]  # an eighth is one GPU
    state.slot[SLOTS]["job"] = -1
    assert lost_slice_s(world, state, 1, split) == 0.0


def test_move__takes_an_eighth_of_a_large_cluster_and_the_least_first() -> None:
    world, state, cuts = cluster_at_work(Settings(preempt=False, drain=True), [1000.0 - at for at in range(64)])
    state.gpu["target"] = -1
    move_group(world, state, int(state.gpu[0]["config"]), len(cuts.configs) - 1)
    moved = np.flatnonzero(state.gpu["target"] >= 0)
    assert moved.size == 8
    assert 63 in moved
