"""Whole-GPU clusters: how much faster the kernel is than its plain twin, and how long five months take (one core)."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
from numba import njit

from bench.measure import Outcome, best_of
from smartmig.hardware.nodes import NodeCluster, parse_nodes
from smartmig.metrics.gang import waits_s
from smartmig.policy.allocation.learned import prepare
from smartmig.policy.gang_view import JobArrays, State, World, can_start, next_waiting
from smartmig.policy.selection.learned import select
from smartmig.registry import ALLOCATIONS, SELECTIONS, load
from smartmig.sim.gang.decide import offer_now
from smartmig.sim.gang.kernel import FINISHED
from smartmig.sim.gang.reference import simulate_plainly
from smartmig.sim.gang.run import compiled, simulate
from smartmig.sim.gang.world import Backfill, GangPolicy, build_jobs, build_world, fresh_state
from smartmig.types import Floats, GangJobs
from smartmig.workload.gang.requests import menu_1h

CLUSTER = parse_nodes("30x8")
FOREVER = 1 << 62
DAY_S = 86_400.0


def cluster_jobs(n_jobs: int, days: float, seed: int = 0) -> GangJobs:
    """A busy cluster: many short jobs, some long ones on whole nodes, a daily swing, load about 0.9 on 30 x 8 GPUs
    at 600 jobs a day."""
    rng = np.random.default_rng(seed)
    day = np.floor(rng.uniform(0, days, n_jobs))
    hour = np.clip(rng.normal(15, 5, n_jobs), 0, 23.99)
    n_gpus = rng.choice([1, 2, 4, 8], n_jobs, p=[0.55, 0.1, 0.1, 0.25])
    run_s = np.minimum(rng.lognormal(6.85, 2.4, n_jobs) + 5, 2 * DAY_S)
    empty = np.full(n_jobs, "")
    order = np.argsort(day * DAY_S + hour * 3600, kind="stable")
    return GangJobs(
        job_id=np.arange(n_jobs).astype(str),
        submit_s=np.round((day * DAY_S + hour * 3600)[order]),
        run_s=run_s,
        limit_s=menu_1h(run_s, rng),
        n_gpus=n_gpus,
        gpu_model=empty,
        user=rng.integers(0, 40, n_jobs).astype(str),
        group=empty,
        waited_s=np.full(n_jobs, np.nan),
        origin_s=0.0,
    )


def policy(selection: str, allocation: str, backfill: Backfill) -> GangPolicy:
    rules = load(SELECTIONS, "selection", selection)(), load(ALLOCATIONS, "allocation", allocation)()
    return GangPolicy(*rules, backfill)


def kernel_seconds(jobs: GangJobs, who: GangPolicy, repeats: int, cluster: NodeCluster = CLUSTER) -> float:
    """The engine alone, from a fresh state to the last completion."""
    world, arrays, go_on = build_world(cluster, who), build_jobs(jobs, cluster, who, None), compiled(who)
    states = [fresh_state(world, arrays) for _ in range(repeats + 1)]
    assert go_on(world, arrays, states.pop(), FOREVER) == FINISHED  # compiles, and fills the caches
    return best_of(repeats, lambda: go_on(world, arrays, states.pop(), FOREVER))


def against_twin(selection: str, backfill: Backfill, n_jobs: int) -> Outcome:
    who, jobs = policy(selection, "best-fit", backfill), cluster_jobs(n_jobs, n_jobs / 700)
    fast, plain = simulate(jobs, CLUSTER, who), simulate_plainly(jobs, CLUSTER, who)
    np.testing.assert_array_equal(fast.start_s, plain.start_s)
    np.testing.assert_array_equal(fast.finish_s, plain.finish_s)
    slow_s = best_of(1, lambda: simulate_plainly(jobs, CLUSTER, who))
    fast_s = kernel_seconds(jobs, who, repeats=10)
    waited_h = float(waits_s(jobs, fast).mean()) / 3600
    detail = f"{n_jobs} jobs, {waited_h:.1f} h mean wait: {fast_s * 1e3:.2f} ms, twin {slow_s:.2f} s"
    return Outcome(slow_s / fast_s, "x", detail, at_least=100.0)


def five_months() -> Outcome:
    """90,000 jobs with thousands in the queue, strict and EASY, under every selection rule; the slowest."""
    jobs = cluster_jobs(90_000, 150.0)
    took = {}
    for selection in [name for name in SELECTIONS if name != "learned"]:
        for backfill in (Backfill.none, Backfill.easy):
            who = policy(selection, "best-fit", backfill)
            run = simulate(jobs, CLUSTER, who)
            assert np.isfinite(run.finish_s).all()
            longest = int(np.max(np.arange(1, len(jobs) + 1) - np.searchsorted(np.sort(run.start_s), jobs.submit_s)))
            took[kernel_seconds(jobs, who, repeats=1)] = f"{selection}, {backfill.value}: up to {longest:,} jobs queued"
    return Outcome(max(took), "s", took[max(took)], at_most=5.0)


def five_months_learned() -> Outcome:
    """The two agents decide some 200,000 times."""
    jobs, who = cluster_jobs(90_000, 150.0), policy("learned", "learned", Backfill.easy)
    return Outcome(kernel_seconds(jobs, who, repeats=1), "s", "90,000 jobs, both agents", at_most=60.0)


def five_months_conservative() -> Outcome:
    jobs, who = cluster_jobs(90_000, 150.0), policy("fcfs", "best-fit", Backfill.conservative)
    return Outcome(kernel_seconds(jobs, who, repeats=1), "s", "90,000 jobs, every one reserved", at_most=60.0)


def allocation_on_many_nodes() -> Outcome:
    """Fragmentation-aware on 3,000 nodes; it used to look at every job of every node."""
    jobs = cluster_jobs(20_000, 0.35)
    who, cluster = policy("sjf", "fragmentation-aware", Backfill.easy), parse_nodes("3000x8")
    return Outcome(kernel_seconds(jobs, who, 1, cluster), "s", "20,000 jobs on 3,000 nodes", at_most=5.0)


def decide_once(world: World, jobs: JobArrays, state: State) -> int:
    """One decision as the engine takes it: what is seen, the selector, and nodes for a job from the allocator."""
    chosen = select(world, jobs, state)
    job = chosen if chosen >= 0 else jobs.ranked[next_waiting(state, 0)].job
    offer_now(jobs, state, job)
    prepare(world, jobs, state, job)
    return chosen


def decision_us(n_nodes: int, n_queued: int = 1000, n_decisions: int = 4000) -> Floats:
    """Microseconds of every decision on a full cluster with so many jobs in the queue; the answers are checked."""
    cluster, who = parse_nodes(f"{n_nodes}x8"), policy("learned", "learned", Backfill.easy)
    base = cluster_jobs(n_nodes * 8 + n_queued + n_decisions, 1.0)
    jobs = replace(base, submit_s=np.zeros(len(base)))
    world, arrays, go_on = build_world(cluster, who), build_jobs(jobs, cluster, who, None), compiled(who)
    state = fresh_state(world, arrays)
    once = njit(nogil=True)(decide_once)
    took = []
    while len(took) < n_decisions + 100:
        go_on(world, arrays, state, int(state.now["n_events"][0]) + 1)
        if state.now["n_waiting"][0] < n_queued:
            break
        began = time.perf_counter_ns()
        job = once(world, arrays, state)
        took.append((time.perf_counter_ns() - began) / 1e3)
        # The engine has just asked the same: nothing is left that it would start.
        assert job < 0 or not can_start(world, arrays, state, job)
    return np.array(took[100:])


def decision() -> Outcome:
    took = decision_us(30)
    detail = f"median {np.median(took):.0f} us; encode, select, mask, allocate with over 1,000 queued"
    return Outcome(float(np.percentile(took, 99)) / 1e3, "ms", detail, at_most=0.5)


def decision_many_nodes() -> Outcome:
    few, many = (float(np.median(decision_us(n_nodes, n_decisions=1500))) for n_nodes in (30, 3000))
    return Outcome(many / few, "x", f"median {few:.0f} us on 30 nodes, {many:.0f} us on 3,000", at_most=2.0)


BENCHMARKS = {
    "gang-strict-vs-twin": lambda: against_twin("fcfs", Backfill.none, 3000),
    "gang-easy-vs-twin": lambda: against_twin("sjf", Backfill.easy, 1500),
    "gang-moving-vs-twin": lambda: against_twin("wfp", Backfill.easy, 1500),
    "gang-five-months": five_months,
    "gang-five-months-learned": five_months_learned,
    "gang-conservative": five_months_conservative,
    "gang-many-nodes": allocation_on_many_nodes,
    "gang-decision": decision,
    "gang-decision-3000-nodes": decision_many_nodes,
}
