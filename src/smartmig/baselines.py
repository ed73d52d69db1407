"""Baselines at their best (S2): cuts that do not look at the jobs, searched on training days.

Whole GPUs, one cut for ever, two cuts by the hour; every GPU is cut alike. Each search also tries every placement rule
it is given, so that no baseline loses by its company. A search is a race: all candidates run the first days, the best
of them as many days again, and so on. All see the same days, and nothing is left to chance.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations, permutations, product

import numpy as np

from smartmig.compare import Progress, gather, n_workers, worker_pool
from smartmig.hardware.cuts import CutTable
from smartmig.hardware.layouts import configurations
from smartmig.metrics.objective import energy_tardiness
from smartmig.metrics.summary import tardiness_s
from smartmig.policy.placement.rule import PlacementRule
from smartmig.policy.repartition.no_partition import NoPartition
from smartmig.policy.repartition.rule import RepartitionRule
from smartmig.policy.repartition.static import Static
from smartmig.policy.repartition.twice_daily import TwiceDaily
from smartmig.policy.view import JobArrays, State, World
from smartmig.scenario import PolicySpec, RuleSpec, Scenario, placement_rule
from smartmig.sim.mig.kernel import FINISHED, close_books, controlled_engine, engine
from smartmig.sim.mig.run import Policy, cuts_of, open_gpus, rule_name, run_of
from smartmig.sim.mig.world import build_jobs, build_world, fresh_state
from smartmig.types import Floats
from smartmig.workload.seeds import TRAINING_FIRST

COARSE_H = (0.0, 4.0, 8.0, 12.0, 16.0, 20.0)
"""hours of change that every pair of cuts is tried with"""
FINE_H = range(-3, 4)
"""hours added to these, for the best pairs"""
N_REFINED = 12
"""how many of the coarse search have their hours refined"""
KEPT_FRAC, KEPT_AT_LEAST = 0.25, 100
"""how many candidates go on to the next days"""
CHUNK = 500
"""candidates that a worker process gets at a time"""
NO_PAUSE = 1 << 62
"""events; a search is stopped between trials"""


@dataclass(frozen=True)
class Search:
    """Where and on what baselines are searched."""

    scenario: Scenario
    """cluster and workload; its policies do not count"""
    placements: tuple[RuleSpec, ...] = ("categorical-edf",)
    """placement rules to try"""
    like: PolicySpec = field(default_factory=PolicySpec)
    """preemption, re-cutting and speed; its rules and layouts do not count"""
    days: int = 96
    """training days that the last candidates run"""
    first_days: int = 4
    """training days that all candidates run"""
    first_seed: int = TRAINING_FIRST


@dataclass(frozen=True)
class Found:
    """The best candidate of a search."""

    policy: PolicySpec
    et: float
    """mean over the training days; other days may cost a little more, as it was chosen on these"""
    n_tried: int


@dataclass(frozen=True)
class Trial:
    """Candidates on one day: what a worker process gets."""

    search: Search
    policies: tuple[Policy, ...]
    seed: int


def best_no_partition(search: Search, progress: Progress) -> Found:
    """Whole GPUs: only the placement is chosen."""
    candidates = _with_placements(search, [NoPartition()])
    with worker_pool(n_workers()) as pool:
        return _found(search, candidates, race(pool, search, candidates, "whole GPUs", progress)[0])


def best_static(search: Search, progress: Progress) -> Found:
    """One cut for ever: all configurations of the card."""
    candidates = _with_placements(search, [Static((cut,)) for cut in _cuts(search)])
    with worker_pool(n_workers()) as pool:
        return _found(search, candidates, race(pool, search, candidates, "static cuts", progress)[0])


def best_mix(search: Search, progress: Progress) -> Found:
    """One cut per GPU for ever: from S3's mix, change whichever GPU helps most until none does."""
    n_gpus = len(search.scenario.cluster_for(search.like).gpus)
    numbers = _cuts(search)
    mix = tuple(sorted((Static().mix[at % len(Static().mix)] for at in range(n_gpus)), key=int))
    tried = set[tuple[str, ...]]()
    best: tuple[Policy, float] | None = None
    with worker_pool(n_workers()) as pool:
        while True:
            changed = ((*mix[:at], cut, *mix[at + 1 :]) for at in range(n_gpus) for cut in numbers)
            mixes = {tuple(sorted(other, key=int)) for other in (mix, *changed)} - tried
            tried |= mixes
            candidates = _with_placements(search, [Static(other) for other in sorted(mixes)])
            if not candidates:
                break
            found = race(pool, search, candidates, f"mixes near {','.join(mix)}", progress)[0]
            if best is not None and found[1] >= best[1]:
                break
            best = found
            assert isinstance(found[0].repartition, Static)
            mix = found[0].repartition.mix
    assert best is not None
    return replace(_found(search, [], best), n_tried=len(tried) * len(search.placements))


def best_twice_daily(search: Search, progress: Progress) -> Found:
    """Two cuts by the hour: every pair at coarse hours, then the best of them at all hours near."""
    # Windows that end at midnight are missing: each is the other cut's window that begins there.
    pairs, windows = permutations(_cuts(search), 2), list(combinations(COARSE_H, 2))
    candidates = _with_placements(search, [TwiceDaily(*pair, *window) for pair, window in product(pairs, windows)])
    with worker_pool(n_workers()) as pool:
        coarse = race(pool, search, candidates, "pairs of cuts", progress)[:N_REFINED]
        fine = list(dict.fromkeys(other for policy, _ in coarse for other in _at_hours_near(policy)))
        return _found(search, candidates + fine, race(pool, search, fine, "hours of the best pairs", progress)[0])


def race(
    pool: ProcessPoolExecutor, search: Search, candidates: Sequence[Policy], what: str, progress: Progress
) -> list[tuple[Policy, float]]:
    """The candidates that ran all days with their mean ET, best first."""
    heats = _heats(search, len(candidates))
    total = sum(len(days) * math.ceil(n_left / CHUNK) for n_left, days in heats)
    done = 0

    def step() -> None:
        nonlocal done
        done += 1
        progress(what, done, total)

    progress(f"{what} (the first use of a rule compiles it)", 0, total)
    # One candidate per placement rule first: each is compiled by one process only, the others load its cache.
    firsts = {policy.placement: Trial(search, (policy,), search.first_seed) for policy in candidates}
    gather(pool, run_trial, list(firsts.values()), lambda: None)
    ranked, et = list(candidates), np.zeros(len(candidates))
    for n_left, days in heats:
        ranked, et = ranked[:n_left], et[:n_left]
        trials = [
            Trial(search, tuple(ranked[at : at + CHUNK]), search.first_seed + day)
            for day in days
            for at in range(0, n_left, CHUNK)
        ]
        found = np.concatenate(gather(pool, run_trial, trials, step)).reshape(len(days), n_left)
        et = (et * days.start + found.sum(axis=0)) / days.stop
        order = np.argsort(et, kind="stable")
        ranked, et = [ranked[index] for index in order], et[order]
    return list(zip(ranked, et.tolist(), strict=True))


def run_trial(trial: Trial) -> Floats:
    """ET of each candidate; inf where a job finds no slice.

    As `simulate`, but with the day's arrays built once, which takes a third of the time. Every cut must be a
    configuration of its card: then the arrays fit all.
    """
    search = trial.search
    jobs = search.scenario.jobs(trial.seed)
    cluster = replace(search.scenario.cluster_for(search.like), layouts=None)
    settings = search.like.settings(seed=trial.seed)
    whole = cuts_of(cluster, NoPartition())
    built: dict[PlacementRule, tuple[World, JobArrays]] = {}
    ets = np.full(len(trial.policies), np.inf)
    for index, policy in enumerate(trial.policies):
        if policy.placement not in built:
            arrays = build_jobs(jobs, whole, policy.placement, settings, range(len(whole.configs)))
            built[policy.placement] = build_world(whole, policy.placement, settings), arrays
        world, arrays = built[policy.placement]
        cuts = cuts_of(cluster, policy.repartition)
        state = fresh_state(world, len(jobs), cuts)
        open_gpus(world, state, policy.placement)
        if _finish(world, arrays, state, policy, cuts) == FINISHED:
            close_books(world, state)
            run = run_of(world, state, cuts)
            ets[index] = energy_tardiness(float(run.energy_j.sum()), float(tardiness_s(jobs, run).mean()))
    return ets


def _finish(world: World, jobs: JobArrays, state: State, policy: Policy, cuts: CutTable) -> int:
    placement, rule = policy.placement, policy.repartition
    # From the class: through an instance numba makes a bound method of it, and every rule would load its own engine.
    control = type(rule).control
    if control is None:
        return int(engine(rule_name(placement), placement.kernels).advance(world, jobs, state, math.inf, NO_PAUSE))
    run = controlled_engine(rule_name(placement), placement.kernels, rule_name(rule), control)
    state.now["next_check_s"] = rule.period_s()
    every_events, knobs = rule.every_events(world.n_gpus), rule.knobs(cuts, world)
    return int(run(world, jobs, state, rule.period_s(), every_events, knobs, NO_PAUSE))


def _heats(search: Search, n_candidates: int) -> list[tuple[int, range]]:
    """(candidates left, their next days): each time as many days again, with a share of the candidates."""
    heats = []
    start, stop = 0, min(search.first_days, search.days)
    while start < search.days:
        heats.append((n_candidates, range(start, stop)))
        start, stop = stop, min(2 * stop, search.days)
        n_candidates = min(n_candidates, max(KEPT_AT_LEAST, math.ceil(KEPT_FRAC * n_candidates)))
    return heats


def _cuts(search: Search) -> list[str]:
    """Configuration numbers; a card with fewer takes its last for those beyond."""
    gpus = search.scenario.cluster_for(search.like).gpus
    return [str(number) for number in range(1, 1 + max(len(configurations(gpu)) for gpu in set(gpus)))]


def _with_placements(search: Search, repartitions: Iterable[RepartitionRule]) -> list[Policy]:
    placements = [placement_rule(spec) for spec in search.placements]
    return [Policy(placement, rule) for placement, rule in product(placements, repartitions)]


def _at_hours_near(policy: Policy) -> list[Policy]:
    rule = policy.repartition
    assert isinstance(rule, TwiceDaily)
    hours = [(rule.day_from_h + early, rule.day_until_h + late) for early, late in product(FINE_H, FINE_H)]
    return [
        replace(policy, repartition=replace(rule, day_from_h=from_h, day_until_h=until_h))
        for from_h, until_h in hours
        if 0 <= from_h < until_h <= 24
    ]


def _found(search: Search, tried: Sequence[Policy], best: tuple[Policy, float]) -> Found:
    policy, et = best
    ids = {NoPartition: "no-partition", Static: "static", TwiceDaily: "twice-daily"}
    knobs = asdict(policy.repartition)  # type: ignore[call-overload]
    placement = next(spec for spec in search.placements if placement_rule(spec) == policy.placement)
    spec = replace(search.like, placement=placement, repartition={"id": ids[type(policy.repartition)], **knobs})
    return Found(replace(spec, layouts=None), et, len(tried))
