"""What must hold in every run of whole-GPU jobs."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from smartmig.hardware.nodes import NodeCluster
from smartmig.metrics.gang import bounded_slowdowns, busy_windows, stranded, summarise, utilisation, waits_s
from smartmig.registry import SELECTIONS
from smartmig.sim.gang.run import simulate
from smartmig.sim.gang.world import Backfill, GangPolicy
from smartmig.types import GangJobs, GangRun
from strategies import gang_policy, gang_worlds

World = tuple[GangJobs, NodeCluster]
ORDERS = ("fcfs", "lcfs", "sjf", "f1")

policies = st.builds(
    gang_policy,
    selection=st.sampled_from(ORDERS),
    allocation=st.sampled_from(["best-fit", "topology-aware"]),
    backfill=st.sampled_from(Backfill),
    spread=st.booleans(),
)


def moments(run: GangRun) -> np.ndarray:
    """A time within every stretch between two events."""
    edges = np.unique(np.concatenate([run.stretches.from_s, run.stretches.to_s]))
    return (edges[:-1] + edges[1:]) / 2


@given(world=gang_worlds(), policy=policies)
@hypothesis_settings(max_examples=60)
def test_gang_run__gives_no_gpu_twice(world: World, policy: GangPolicy) -> None:
    jobs, cluster = world
    run = simulate(jobs, cluster, policy)
    s = run.stretches
    for moment in moments(run):
        held = (s.from_s < moment) & (moment < s.to_s)
        used = np.bincount(s.node[held], weights=s.n_gpus[held], minlength=len(cluster.nodes))
        assert (used <= [node.n_gpus for node in cluster.nodes]).all()


@given(world=gang_worlds(), policy=policies)
@hypothesis_settings(max_examples=60)
def test_gang_run__loses_no_job_and_starts_all_its_gpus_together(world: World, policy: GangPolicy) -> None:
    jobs, cluster = world
    run = simulate(jobs, cluster, policy)
    s = run.stretches
    widest = max(node.n_gpus for node in cluster.nodes)
    for job in range(len(jobs)):
        mine = s.job == job
        tries = sorted(set(zip(s.from_s[mine].tolist(), s.to_s[mine].tolist(), strict=True)))
        last = tries[-1]
        assert last == (run.start_s[job], run.finish_s[job])
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(tries))
        assert tries[0][0] >= jobs.submit_s[job]
        for from_s, to_s in tries:
            now = mine & (s.from_s == from_s) & (s.to_s == to_s)
            assert s.n_gpus[now].sum() == jobs.n_gpus[job]
            assert len(set(s.node[now])) == now.sum()
            if jobs.n_gpus[job] <= widest and not jobs.gpu_model[job] and not policy.allocation.spread:
                assert now.sum() == 1
            speed = min(cluster.nodes[node].speed for node in s.node[now])
            if (from_s, to_s) == last:
                assert to_s == from_s + min(jobs.run_s[job] / speed, jobs.limit_s[job])
            models = {cluster.nodes[node].model for node in s.node[now]} - {""}
            assert not jobs.gpu_model[job] or models <= set(str(jobs.gpu_model[job]).split("|"))


@given(world=gang_worlds(), policy=policies)
@hypothesis_settings(max_examples=60)
def test_gang_run__starts_nothing_on_nodes_that_are_away(world: World, policy: GangPolicy) -> None:
    jobs, cluster = world
    s = simulate(jobs, cluster, policy).stretches
    for outage in cluster.outages:
        here = s.node == outage.node
        assert not (here & (outage.from_s <= s.from_s) & (s.from_s < outage.to_s)).any()
        if not outage.drain:
            assert not (here & (s.from_s < outage.from_s) & (outage.from_s < s.to_s)).any()


@given(world=gang_worlds(away=False), allocation=st.sampled_from(["best-fit", "topology-aware"]), spread=st.booleans())
@hypothesis_settings(max_examples=80)
def test_easy__never_delays_the_job_with_the_reservation(world: World, allocation: str, spread: bool) -> None:
    # In order of submission nobody comes before a job that has once been promised a start.
    run = simulate(*world, gang_policy("fcfs", allocation, "easy", spread))
    promised = ~np.isnan(run.promised_s)
    assert (run.start_s[promised] <= run.promised_s[promised]).all()


@given(
    world=gang_worlds(away=False),
    selection=st.sampled_from([*ORDERS, "wfp"]),
    allocation=st.sampled_from(["best-fit", "topology-aware"]),
    spread=st.booleans(),
)
@hypothesis_settings(max_examples=80)
def test_conservative__never_delays_anyone(world: World, selection: str, allocation: str, spread: bool) -> None:
    allocation = "best-fit" if selection == "wfp" else allocation
    run = simulate(*world, gang_policy(selection, allocation, "conservative", spread))
    promised = ~np.isnan(run.promised_s)
    assert promised[np.isfinite(world[0].limit_s)].any() or not np.isfinite(world[0].limit_s).any()
    assert (run.start_s[promised] <= run.promised_s[promised]).all()


@pytest.mark.parametrize("selection", [name for name in SELECTIONS if name != "sjf-oracle"])
@given(data=st.data(), world=gang_worlds(), backfill=st.sampled_from(Backfill))
@hypothesis_settings(max_examples=60)
def test_selection__knows_no_true_run_time_unless_it_says_oracle(
    selection: str, data: st.DataObject, world: World, backfill: Backfill
) -> None:
    jobs, cluster = world
    allocation = "topology-aware" if selection == "unicep" else "best-fit"
    allocation = "fragmentation-aware" if selection == "multifactor" else allocation
    if selection == "learned":
        allocation, backfill = "learned", Backfill.easy
    policy = gang_policy(selection, allocation, backfill)
    run = simulate(jobs, cluster, policy)
    moment = data.draw(st.sampled_from(sorted(set(run.stretches.from_s.tolist()))))
    begun = np.zeros(len(jobs), dtype=bool)
    begun[run.stretches.job[run.stretches.from_s < moment]] = True
    extra = np.array(data.draw(st.lists(st.integers(0, 9), min_size=len(jobs), max_size=len(jobs))), dtype=float)
    # What runs at that moment runs on for longer, what is still to come takes any time.
    changed = np.where(run.finish_s <= moment, jobs.run_s, np.where(begun, jobs.run_s + extra, extra))
    again = simulate(replace(jobs, run_s=changed), cluster, policy)
    assert decisions(run, moment) == decisions(again, moment)


def decisions(run: GangRun, before_s: float) -> list[tuple[float, ...]]:
    s = run.stretches
    early = s.from_s < before_s
    return sorted(zip(s.from_s[early], s.job[early], s.node[early], s.n_gpus[early], strict=True))


@given(world=gang_worlds(), policy=policies)
@hypothesis_settings(max_examples=60)
def test_gang_metrics__agree_with_a_look_at_every_moment(world: World, policy: GangPolicy) -> None:
    jobs, cluster = world
    run = simulate(jobs, cluster, policy)
    s = run.stretches
    window = (float(jobs.submit_s.min()), float(run.finish_s.max()))
    edges = np.unique(np.concatenate([s.from_s, s.to_s, jobs.submit_s, [o.from_s for o in cluster.outages],
                                      [o.to_s for o in cluster.outages], window]))  # fmt: skip
    edges = edges[(edges >= window[0]) & (edges <= window[1])]
    busy = idle = lost = 0.0
    for begin, end in itertools.pairwise(edges):
        middle = (begin + end) / 2
        held = (s.from_s < middle) & (middle < s.to_s)
        used = np.bincount(s.node[held], weights=s.n_gpus[held], minlength=len(cluster.nodes))
        size = np.array([node.n_gpus for node in cluster.nodes])
        here = np.ones(len(cluster.nodes), dtype=bool)
        for outage in cluster.outages:
            here[outage.node] &= not outage.from_s <= middle < outage.to_s
        running = set(s.job[held].tolist())
        waiting = [j for j in range(len(jobs)) if jobs.submit_s[j] < middle < run.finish_s[j] and j not in running]
        busy += used.sum() * (end - begin)
        idle += (size - used).sum() * (end - begin)
        lost += (size - used)[here].sum() * (end - begin) if waiting else 0.0
        in_window = any(a <= middle < b for a, b in busy_windows(jobs, run))
        assert in_window == (bool(waiting) and middle < jobs.submit_s.max())
    whole = cluster.n_gpus * (window[1] - window[0])
    if whole > 0:
        assert utilisation(run, cluster, [window]) == pytest.approx(busy / whole)
        assert utilisation(run, cluster, [window]) + idle / whole == pytest.approx(1.0)
        assert stranded(jobs, run, cluster, window) == pytest.approx(lost / whole)


@given(world=gang_worlds(), policy=policies)
@hypothesis_settings(max_examples=60)
def test_gang_summary__is_consistent(world: World, policy: GangPolicy) -> None:
    jobs, cluster = world
    run = simulate(jobs, cluster, policy)
    summary = summarise(jobs, run, cluster)
    assert (waits_s(jobs, run) >= 0).all()
    assert (bounded_slowdowns(jobs, run) >= 1).all()
    assert summary.median_wait_s <= summary.p95_wait_s <= summary.p99_wait_s <= summary.worst_wait_s + 1e-9
    assert 0 <= summary.gpu_utilisation <= 1 + 1e-12
    assert 0 < summary.size_fairness <= 1 + 1e-12
    assert summary.user_fairness is not None
    assert summary.n_restarts == (run.n_starts - 1).sum()
