"""Run several policies on the same days, in parallel processes.

Every policy sees every seed, so differences are paired. Work is cut into shards (one policy, one day); a shard's answer
is its summary, so hundreds of days need no memory to speak of.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from smartmig.bounds import et_bound
from smartmig.bounds.energy import paper_energy_bound_j
from smartmig.errors import InputError
from smartmig.metrics.summary import Summary, summarise
from smartmig.policy.repartition.mean_field import MeanField
from smartmig.report.comparison import Comparison, PolicyRuns, SampleDay
from smartmig.report.preferences import Preferences, preferences
from smartmig.scenario import PolicySpec, Scenario
from smartmig.sim.mig.batch import Days, Setting
from smartmig.sim.mig.run import Cluster, cuts_of, simulate
from smartmig.types import Jobs, Run

PREFERENCE_DAYS = 20

Progress = Callable[[str, int, int], None]
"""(what is being done, steps done, steps in all)"""


@dataclass(frozen=True)
class Shard:
    """One policy on one day: what a worker process gets."""

    scenario: Scenario
    policy: PolicySpec
    seed: int


def run_shard(shard: Shard) -> Summary:
    cluster = shard.scenario.cluster_for(shard.policy)
    jobs = shard.scenario.jobs(shard.seed)
    run = simulate(jobs, cluster, shard.policy.policy(), shard.policy.settings(seed=shard.seed))
    return summarise(jobs, run, n_compute_slices(cluster))


class BoundChoice(StrEnum):
    """Which bounds a comparison stands beside."""

    none = "none"
    paper = "paper"
    """S3's energy bound: instant, for clusters of one GPU model"""
    et = "et"
    """the energy bound and the joint ET bound: some 20 s a day"""


def bound_shard(shard: Shard) -> float:
    """S3's energy bound of the shard's day."""
    return paper_energy_bound_j(shard.scenario.jobs(shard.seed), shard.scenario.cluster_for(shard.policy).gpus)


def et_bound_shard(shard: Shard) -> float:
    """The ET no schedule of the shard's day can go below."""
    gpus = shard.scenario.cluster_for(shard.policy).gpus
    return et_bound(shard.scenario.jobs(shard.seed), gpus, estimated_speed=shard.policy.speed == "estimated").value


def n_compute_slices(cluster: Cluster) -> int:
    return sum(gpu.n_compute for gpu in cluster.gpus)


def n_workers() -> int:
    return max(1, len(os.sched_getaffinity(0)))


@contextmanager
def worker_pool(n_processes: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that end at once when the user stops the command."""
    # A forked child would inherit the progress display's thread locks: start clean ones.
    pool = ProcessPoolExecutor(n_processes, mp_context=multiprocessing.get_context("spawn"))
    # Ctrl-C reaches the workers too, who would each print a traceback: they start with it blocked, we end them.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        for _ in range(n_processes):
            pool.submit(os.getpid)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    try:
        yield pool
    except BaseException:
        for process in list(pool._processes.values()):
            process.terminate()
        # Waiting for its thread, which closes what the interpreter would write to at its end.
        pool.shutdown(cancel_futures=True)
        raise
    pool.shutdown()


def gather(
    pool: ProcessPoolExecutor, work: Callable[[Any], Any], items: Sequence[Any], on_done: Callable[[], None]
) -> list[Any]:
    """Results of `work` in the order of `items`."""
    futures: list[Future[Any]] = [pool.submit(work, item) for item in items]
    for future in as_completed(futures):
        future.result()
        on_done()
    return [future.result() for future in futures]


def refuse_early(scenario: Scenario) -> None:
    """A bad id, knob or cut is a sentence now, not a failed worker."""
    titles = [policy.title for policy in scenario.policies]
    if len(set(titles)) < len(titles):
        raise InputError(f"two policies are the same: {next(t for t in titles if titles.count(t) > 1)}")
    for policy in scenario.policies:
        cuts_of(scenario.cluster_for(policy), policy.policy().repartition)
    scenario.jobs(scenario.first_seed)


def compare(
    scenario: Scenario,
    progress: Progress,
    n_processes: int | None = None,
    bound: BoundChoice = BoundChoice.paper,
) -> Comparison:
    """All policies of the scenario on all its seeds, and the bounds of every day."""
    seeds = tuple(range(scenario.first_seed, scenario.first_seed + scenario.seeds))
    first_day = [Shard(scenario, policy, seeds[0]) for policy in scenario.policies]
    rest = [Shard(scenario, policy, seed) for seed in seeds[1:] for policy in scenario.policies]
    homogeneous = len(set(scenario.cluster_for(scenario.policies[0]).gpus)) == 1
    days = [Shard(scenario, scenario.policies[0], seed) for seed in seeds]
    total = len(first_day) + len(rest) + (len(days) if bound is BoundChoice.et else 0)
    done = 0

    def step() -> None:
        nonlocal done
        done += 1
        progress("days", done, total)

    progress("days (the first use of a rule compiles it)", 0, total)
    with worker_pool(min(n_processes or n_workers(), total)) as pool:
        # One shard per policy first: each rule is compiled by one process only, the others load its cache.
        summaries = gather(pool, run_shard, first_day, step) + gather(pool, run_shard, rest, step)
        energy_j = et = None
        if bound is not BoundChoice.none and homogeneous:
            energy_j = tuple(gather(pool, bound_shard, days, lambda: None))
        if bound is BoundChoice.et:
            et = tuple(gather(pool, et_bound_shard, days, step))
    n = len(scenario.policies)
    policies = tuple(PolicyRuns(policy.title, tuple(summaries[i::n])) for i, policy in enumerate(scenario.policies))
    return Comparison(scenario.title, seeds, policies, notes=notes_of(scenario), bound_energy_j=energy_j, bound_et=et)


def notes_of(scenario: Scenario) -> tuple[str, ...]:
    """What a reader must know about the numbers."""
    gpus = dict.fromkeys(scenario.cluster_for(scenario.policies[0]).gpus)
    estimated = [gpu.id for gpu in gpus if gpu.power.estimated]
    notes = []
    if estimated:
        notes.append(f"power of {', '.join(estimated)} is estimated, not measured")
    if len(gpus) > 1 and any(policy.speed == "as-given" for policy in scenario.policies):
        notes.append("run times are taken as given on every GPU model; 'speed: estimated' scales them")
    return tuple(notes)


def sample_day(scenario: Scenario, policy: PolicySpec) -> SampleDay:
    """The scenario's first day under one policy, with every stretch recorded."""
    cluster = scenario.cluster_for(policy)
    jobs = scenario.jobs(scenario.first_seed)
    run = simulate(jobs, cluster, policy.policy(), policy.settings(seed=scenario.first_seed, record=True))
    return drawable(policy.title, jobs, run, cluster)


def drawable(title: str, jobs: Jobs, run: Run, cluster: Cluster) -> SampleDay:
    """A recorded run with what a drawing needs to know of its cluster."""
    return SampleDay(
        policy=title,
        jobs=jobs,
        run=run,
        gpu_names=tuple(f"{index} {gpu.id}" for index, gpu in enumerate(cluster.gpus)),
        watts=tuple(gpu.power.watts for gpu in cluster.gpus),
        memory_slices=tuple(gpu.n_memory for gpu in cluster.gpus),
    )


def sample_days(scenario: Scenario, comparison: Comparison) -> tuple[SampleDay, ...]:
    """The first day of the policies to be drawn."""
    shown = drawn_policies(comparison)
    return tuple(sample_day(scenario, policy) for policy in scenario.policies if policy.title in shown)


def drawn_policies(comparison: Comparison) -> tuple[str, ...]:
    """The baseline and the best: two timelines tell the story, more make the page heavy."""
    best = min(comparison.policies, key=lambda runs: float(comparison.values(runs.name, "et").mean())).name
    return tuple(dict.fromkeys((comparison.baseline, best)))


def with_seeds(scenario: Scenario, seeds: int | None, first_seed: int | None) -> Scenario:
    """The scenario on other days, where given."""
    return replace(
        scenario,
        seeds=scenario.seeds if seeds is None else seeds,
        first_seed=scenario.first_seed if first_seed is None else first_seed,
    )


def learned_preferences(plan: Scenario, policy: PolicySpec, n_days: int = PREFERENCE_DAYS) -> Preferences:
    """Play the plan's first days under its mean-field policy and look at every decision."""
    rules = policy.policy()
    if not isinstance(rules.repartition, MeanField):
        raise TypeError(f"preferences are a mean-field policy's, got {type(rules.repartition).__name__}")
    seeds = range(plan.first_seed, plan.first_seed + min(n_days, plan.seeds))
    setting = Setting(plan.cluster_for(policy), rules.placement, policy.settings())
    days = Days(setting, [plan.jobs(seed) for seed in seeds])
    weights = rules.repartition.policy(days.world).weights
    return preferences(days.play(range(len(seeds)), weights, rule=rules.repartition), days.cuts)
