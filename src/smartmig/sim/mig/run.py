"""The front door: run a job set on a cluster under a policy."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from smartmig.errors import InputError, SimulationError
from smartmig.hardware.cuts import CutTable, cut_table
from smartmig.hardware.model import GpuModel
from smartmig.jit import is_cached
from smartmig.policy.placement.rule import PlacementRule
from smartmig.policy.repartition.planner import Planner
from smartmig.policy.repartition.rule import RepartitionRule
from smartmig.policy.view import SLOTS, JobArrays, Kernel, State, World
from smartmig.sim.mig.kernel import (
    BAD_CHOICE,
    CHECK_DUE,
    FINISHED,
    SEGMENTS_FULL,
    close_books,
    controlled_engine,
    engine,
)
from smartmig.sim.mig.occupancy import CODES, CUT, GONE, INSTANCE
from smartmig.sim.mig.rollout import planned_stepper, rollout_engine
from smartmig.sim.mig.world import Settings, build_jobs, build_world, fresh_state
from smartmig.types import Cuts, Floats, Jobs, Layout, Run, Segments

EVENTS_BETWEEN_PAUSES = 400_000
"""Kernels cannot be interrupted: come back this often for progress and Ctrl-C."""
CIRCLING_EVENTS = 1_000_000
"""A million events, and a hundred a GPU, in which no job comes or finishes: the rules re-cut in circles."""


@dataclass(frozen=True)
class Cluster:
    """GPUs, and how they are cut at time 0 (None: as the repartition rule begins)."""

    gpus: tuple[GpuModel, ...]
    layouts: tuple[Layout, ...] | None = None


@dataclass(frozen=True)
class Policy:
    """Who decides."""

    placement: PlacementRule
    repartition: RepartitionRule


def cuts_of(cluster: Cluster, repartition: RepartitionRule) -> CutTable:
    layouts = cluster.layouts if cluster.layouts is not None else repartition.start(cluster.gpus)
    return cut_table(cluster.gpus, layouts)


def simulate(
    jobs: Jobs, cluster: Cluster, policy: Policy, settings: Settings, on_progress: Callable[[int], None] | None = None
) -> Run:
    """Run all jobs to completion; `on_progress` hears the number of jobs done, a few times a second.

    Raises `InputError` for a job that fits no slice the policy can offer.
    """
    if len(jobs) == 0:
        raise InputError("there are no jobs to run")
    cuts = cuts_of(cluster, policy.repartition)
    world = build_world(cuts, policy.placement, settings, policy.repartition.counted)
    reachable = (*cuts.start, *policy.repartition.reachable(cuts))
    arrays = build_jobs(jobs, cuts, policy.placement, settings, reachable)
    state = fresh_state(world, len(jobs), cuts)
    open_gpus(world, state, policy.placement)
    status = CHECK_DUE
    go_on = stepper(world, arrays, policy, cuts)
    n_known, known_at = 0, 0
    while status in (CHECK_DUE, SEGMENTS_FULL):
        status = go_on(state, int(state.now["n_events"][0]) + EVENTS_BETWEEN_PAUSES)
        n_events = int(state.now["n_events"][0])
        n_came_or_done = int(state.now["n_arrived"][0] + state.now["n_done"][0])
        if n_came_or_done > n_known:
            n_known, known_at = n_came_or_done, n_events
        elif n_events - known_at > CIRCLING_EVENTS + 100 * world.n_gpus:
            raise SimulationError(
                f"{type(policy.repartition).__name__} re-cuts in circles: no job came or finished in the last "
                f"{n_events - known_at} events, up to second {float(state.now['time_s'][0]):g}"
            )
        if status == SEGMENTS_FULL:
            state = state._replace(segment=np.concatenate([state.segment, np.zeros_like(state.segment)]))
        if on_progress is not None:
            on_progress(int(state.now["n_done"][0]))
    if status == BAD_CHOICE:
        raise SimulationError(f"{type(policy.placement).__name__} chose a slice that is taken or does not fit the job")
    if status != FINISHED:
        stuck = np.flatnonzero(np.isnan(state.job["finish_s"]))
        raise SimulationError(
            f"{stuck.size} jobs, '{jobs.job_id[stuck[0]]}' the first, wait for a slice the policy never cut"
        )
    close_books(world, state)
    return run_of(world, state, cuts)


def open_gpus(world: World, state: State, placement: PlacementRule) -> None:
    """Let a fresh state's instances take jobs."""
    built = engine(rule_name(placement), placement.kernels)
    for gpu in range(world.n_gpus):
        present = state.slot["slice_class"][gpu * SLOTS : (gpu + 1) * SLOTS] >= 0
        built.set_usable(world, state, gpu, int(present @ (1 << np.arange(SLOTS))))


def stepper(
    world: World, jobs: JobArrays, policy: Policy, cuts: CutTable, control_knobs: Floats | None = None
) -> Callable[[State, int], int]:
    """The compiled engine as a function (state, events to pause at) -> status.

    `control_knobs`: for the repartition rule, in place of its own.
    """
    placement, repartition = policy.placement, policy.repartition
    if isinstance(repartition, Planner):
        built = engine(rule_name(placement), placement.kernels)
        return planned_stepper(world, jobs, repartition, cuts, built, rollouts(placement, repartition))
    if type(repartition).control is None:
        advance = engine(rule_name(placement), placement.kernels).advance
        return lambda state, pause_events: int(advance(world, jobs, state, math.inf, pause_events))
    run = controlled_engine(rule_name(placement), placement.kernels, rule_name(repartition), type(repartition).control)
    period_s, every_events = repartition.period_s(), repartition.every_events(world.n_gpus)
    knobs = repartition.knobs(cuts, world) if control_knobs is None else control_knobs

    def go_on(state: State, pause_events: int) -> int:
        if state.now["next_check_s"][0] == 0.0:
            state.now["next_check_s"] = period_s
        return int(run(world, jobs, state, period_s, every_events, knobs, pause_events))

    return go_on


def rollouts(placement: PlacementRule, planner: Planner) -> Kernel:
    """What the planner looks ahead with."""
    base = planner.base_rule
    return rollout_engine(rule_name(placement), placement.kernels, rule_name(base), type(base).control)


def is_compiled(policy: Policy) -> bool:
    """Whether the policy's engine lies in the disk cache."""
    placement, repartition = policy.placement, policy.repartition
    built = engine(rule_name(placement), placement.kernels)
    if isinstance(repartition, Planner):
        return is_cached(rollouts(placement, repartition))
    if type(repartition).control is None:
        return is_cached(built.advance)
    return is_cached(
        controlled_engine(rule_name(placement), placement.kernels, rule_name(repartition), type(repartition).control)
    )


def rule_name(rule: object) -> str:
    """What the rule's compiled engine is called in the cache: its module and class."""
    return f"{type(rule).__module__.rpartition('.')[2]}.{type(rule).__name__}"


def run_of(world: World, state: State, cuts: CutTable) -> Run:
    now = state.now[0]
    return Run(
        first_start_s=state.job["first_start_s"].copy(),
        finish_s=state.job["finish_s"].copy(),
        n_starts=state.job["n_starts"].copy(),
        energy_j=state.gpu["energy_j"].copy(),
        busy_slice_s=state.gpu["busy_slice_s"].copy(),
        makespan_s=float(now["time_s"]),
        n_events=int(now["n_events"]),
        n_repartitions=int(now["n_recuts"]),
        n_preemptions=int(now["n_preemptions"]),
        config_s=config_seconds(cuts, state.config_s),
        **_recorded(world, state, cuts),
    )


def _recorded(world: World, state: State, cuts: CutTable) -> dict[str, Any]:
    """The fields of `Run` that only a recorded one has."""
    if not world.record:
        return {}
    rows = state.segment[: int(state.now[0]["n_segments"])]
    who = rows[:, 0]
    return {
        "segments": segments_of(world, rows[who >= 0]),
        "instances": instances_of(world, rows[who == INSTANCE], cuts, float(state.now[0]["time_s"])),
        "cuts": _cuts_of(world, rows[who == CUT], cuts),
    }


def _cuts_of(world: World, rows: Floats, cuts: CutTable) -> Cuts:
    rows = rows[rows[:, 3] > rows[:, 2]]
    config, gpu = np.divmod(rows[:, 1].astype(np.int64), world.n_gpus)
    return Cuts(gpu, config, rows[:, 2].copy(), rows[:, 3].copy(), config_names(cuts))


def instances_of(world: World, changes: Floats, cuts: CutTable, end_s: float) -> Segments:
    """From what each slot became, in the order it was told, to instances with a beginning and an end."""
    at_first = [
        (INSTANCE, (gpu * SLOTS + place.start) * CODES + cuts.class_of(cuts.gpu_model[gpu], place.profile), 0.0, 0.0)
        for gpu, layout in enumerate(cuts.layouts)
        for place in layout
    ]
    rows = np.concatenate([np.array(at_first).reshape(-1, 4), changes])
    slot, becomes = np.divmod(rows[:, 1].astype(np.int64), CODES)
    order = np.argsort(slot, kind="stable")
    slot, becomes, from_s = slot[order], becomes[order], rows[order, 2]
    to_s = np.append(np.where(slot[1:] == slot[:-1], from_s[1:], end_s), end_s)
    # A GPU cut again before it came back never had the instances that were promised.
    there = (becomes != GONE) & (to_s > from_s)
    codes = slot[there] * CODES + becomes[there]
    return segments_of(world, np.column_stack([np.full(codes.size, -1), codes, from_s[there], to_s[there]]))


def config_names(cuts: CutTable) -> tuple[str, ...]:
    return tuple(f"{cuts.models[config.model].id}:{config.text}" for config in cuts.configs)


def config_seconds(cuts: CutTable, seconds: Floats) -> dict[str, float]:
    """By name: what shares one, such as a card with two power curves, is counted together."""
    spent_s: dict[str, float] = {}
    for name, spent in zip(config_names(cuts), seconds.tolist(), strict=True):
        if spent > 0:
            spent_s[name] = spent_s.get(name, 0.0) + spent
    return spent_s


def segments_of(world: World, rows: Floats) -> Segments:
    slot, slice_class = np.divmod(rows[:, 1].astype(np.int64), CODES)
    return Segments(
        job=rows[:, 0].astype(np.int64),
        gpu=slot // SLOTS,
        start=slot % SLOTS,
        size=world.slice_class["size"][slice_class],
        span=world.slice_class["span"][slice_class],
        from_s=rows[:, 2].copy(),
        to_s=rows[:, 3].copy(),
    )
