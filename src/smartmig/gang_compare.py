"""Run whole-GPU policies on one trace, over seeds of made-up requests, in parallel processes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from smartmig.compare import Progress, gather, n_workers, worker_pool
from smartmig.errors import InputError
from smartmig.gang_scenario import GangPolicySpec, GangScenario
from smartmig.hardware.nodes import NodeCluster
from smartmig.metrics.gang import (
    GangCosts,
    busy_windows,
    saturated,
    saturated_utilisation,
    summarise,
    utilisation,
)
from smartmig.metrics.gang_series import GangSeries, series_of
from smartmig.report.gang_tables import GangComparison
from smartmig.sim.gang.run import simulate
from smartmig.sim.gang.world import GangPolicy
from smartmig.types import GangJobs, GangRun


@dataclass(frozen=True)
class GangShard:
    """One policy on one seed: what a worker process gets."""

    scenario: GangScenario
    policy: GangPolicySpec
    seed: int
    all_utilisations: bool
    drawn: bool = False
    """keep what a report draws"""


def run_gang_shard(shard: GangShard) -> tuple[GangCosts, GangSeries | None]:
    jobs, cluster, policy = shard.scenario.jobs(shard.seed), shard.scenario.cluster(), shard.policy.policy()
    run = simulate(jobs, cluster, policy)
    series = series_of(jobs, run, cluster) if shard.drawn else None
    return costs_of(jobs, cluster, policy, run, shard.all_utilisations), series


def costs_of(
    jobs: GangJobs, cluster: NodeCluster, policy: GangPolicy, run: GangRun, all_utilisations: bool
) -> GangCosts:
    """What the run cost; the two other readings of utilisation take two more runs."""
    costs = summarise(jobs, run, cluster)
    if not all_utilisations:
        return costs
    strict_fcfs = simulate(jobs, cluster, GangPolicySpec().policy())
    at_once = saturated(jobs)
    return replace(
        costs,
        busy_gpu_utilisation=utilisation(run, cluster, busy_windows(jobs, strict_fcfs)),
        saturated_gpu_utilisation=saturated_utilisation(simulate(at_once, cluster, policy), cluster),
    )


def compare_gangs(
    scenario: GangScenario,
    policies: tuple[GangPolicySpec, ...],
    seeds: tuple[int, ...],
    progress: Progress,
    n_processes: int | None = None,
    all_utilisations: bool | Collection[GangPolicySpec] = False,
    drawn: bool = False,
) -> GangComparison:
    """All policies on all seeds; the first policy is the baseline.

    `all_utilisations`: for all policies, for none, or for some; `drawn`: keep what a report draws of one seed.
    """
    titles = [policy.title for policy in policies]
    if len(set(titles)) < len(titles):
        raise InputError(f"two policies are the same: {next(t for t in titles if titles.count(t) > 1)}")
    shards = [
        GangShard(scenario, policy, seed, _is_measured(policy, all_utilisations), drawn and seed == seeds[0])
        for seed in seeds
        for policy in policies
    ]
    done = 0

    def step() -> None:
        nonlocal done
        done += 1
        progress("runs", done, len(shards))

    progress("runs (the first use of a rule compiles it)", 0, len(shards))
    with worker_pool(min(n_processes or n_workers(), len(shards))) as pool:
        # One seed first: each rule is compiled by one process only, the others load its cache.
        n = len(policies)
        found: list[tuple[GangCosts, GangSeries | None]] = gather(pool, run_gang_shard, shards[:n], step)
        found += gather(pool, run_gang_shard, shards[n:], step)
    runs = tuple((title, tuple(costs for costs, _ in found[at::n])) for at, title in enumerate(titles))
    series = tuple(one for _, one in found[:n] if one is not None)
    return GangComparison(scenario.title, seeds, runs, scenario.notes(scenario.jobs(seeds[0])), series)


def _is_measured(policy: GangPolicySpec, which: bool | Collection[GangPolicySpec]) -> bool:
    return which if isinstance(which, bool) else policy in which
