"""The front door of the whole-GPU world: run jobs on nodes under a policy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from smartmig.errors import InputError, SimulationError
from smartmig.hardware.nodes import NodeCluster
from smartmig.jit import is_cached
from smartmig.policy.gang_view import State
from smartmig.policy.view import Kernel
from smartmig.sim.gang.kernel import BAD_CHOICE, FINISHED, PAUSED, STRETCHES_FULL, engine
from smartmig.sim.gang.world import Backfill, GangPolicy, build_jobs, build_world, fresh_state
from smartmig.sim.mig.run import rule_name
from smartmig.types import Floats, GangJobs, GangRun, GangStretches

EVENTS_BETWEEN_PAUSES = 20_000
"""Kernels cannot be interrupted: come back this often for progress and Ctrl-C."""


def simulate(
    jobs: GangJobs,
    cluster: NodeCluster,
    policy: GangPolicy,
    predicted_s: Floats | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> GangRun:
    """Run all jobs to completion; `on_progress` hears the number of jobs done.

    `predicted_s`: (n,) someone's guesses of the run times, for rules that use them. Raises `InputError` for a job that
    the cluster cannot run, `SimulationError` if the policy leaves jobs waiting for ever.
    """
    arrays = build_jobs(jobs, cluster, policy, predicted_s)
    world = build_world(cluster, policy)
    state = fresh_state(world, arrays)
    go_on = compiled(policy)
    status = PAUSED
    while status in (PAUSED, STRETCHES_FULL):
        status = go_on(world, arrays, state, int(state.now["n_events"][0]) + EVENTS_BETWEEN_PAUSES)
        if status == STRETCHES_FULL:
            state = state._replace(stretch=np.concatenate([state.stretch, np.zeros_like(state.stretch)]))
        if on_progress is not None:
            on_progress(int(state.now["n_done"][0]))
    if status == BAD_CHOICE:
        raise SimulationError(f"{type(policy.selection).__name__} chose a job that is not in the queue")
    if status != FINISHED:
        raise stuck(jobs, state.job["finish_s"])
    return run_of(state)


def stuck(jobs: GangJobs, finish_s: Floats) -> SimulationError:
    left = np.flatnonzero(np.isnan(finish_s))
    return SimulationError(f"{left.size} jobs, '{jobs.job_id[left[0]]}' the first, wait and are never started")


def check_backfill(policy: GangPolicy) -> None:
    """Refuse what has no meaning."""
    if policy.selection.select is not None and policy.backfill is Backfill.conservative:
        raise InputError(f"{type(policy.selection).__name__} picks job by job; conservative backfill needs an order")


def compiled(policy: GangPolicy) -> Kernel:
    """The engine (world, jobs, state, events to pause at) -> status for the policy's rules.

    Rules with a fixed order share one engine, and the kinds of backfill are in every engine.
    """
    selection, allocation = policy.selection, policy.allocation
    check_backfill(policy)
    ordered = selection.select is None and selection.key is None
    name = f"{'ordered' if ordered else rule_name(selection)}-{rule_name(allocation)}"
    return engine(name, type(selection).select, type(selection).key, allocation.kernels)


def is_compiled(policy: GangPolicy) -> bool:
    """Whether the policy's engine lies in the disk cache."""
    return is_cached(compiled(policy))


def run_of(state: State) -> GangRun:
    stretch = state.stretch[: state.now["n_stretches"][0]]
    return GangRun(
        start_s=state.job["begin_s"].copy(),
        finish_s=state.job["finish_s"].copy(),
        promised_s=state.job["promised_s"].copy(),
        killed=state.job["killed"] == 1,
        n_starts=state.job["n_starts"].copy(),
        makespan_s=float(state.now["time_s"][0]),
        n_events=int(state.now["n_events"][0]),
        stretches=GangStretches(
            job=stretch["job"].copy(),
            node=stretch["node"].copy(),
            n_gpus=stretch["n_gpus"].copy(),
            from_s=stretch["from_s"].copy(),
            to_s=stretch["to_s"].copy(),
        ),
    )
