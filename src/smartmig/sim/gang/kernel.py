"""The fast engine of the whole-GPU world: exact, event-driven, on arrays.

`advance` goes from event to event and can be called again: all it knows is in `State`. The plugged-in rules are bound
by name, see `engine` at the end.

One event (all that fall on one instant):  completions -> nodes that come back, then nodes that go -> submissions -> one
decision pass. With conservative backfill a reserved start is an event too.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from smartmig.jit import called_kernel, kernel, specialise
from smartmig.policy.allocation.rule import Kernels
from smartmig.policy.gang_view import CONSERVATIVE, JobArrays, State, World, count_brief, count_urgent
from smartmig.policy.selection.rule import least_key, next_ranked
from smartmig.policy.view import Kernel
from smartmig.sim.gang.decide import decide, list_by_key, list_ranked
from smartmig.sim.gang.occupancy import enqueue, set_offer, stop
from smartmig.sim.gang.place import best_node, place

# What `advance` came back for.
FINISHED, PAUSED, STUCK, STRETCHES_FULL, BAD_CHOICE = range(5)


@called_kernel
def pass_edge(world: World, jobs: JobArrays, state: State) -> None:
    """A node goes or comes back; reservations are made afresh, unless another outage keeps it away all the same."""
    edge = world.edge[state.now[0].n_edges]
    node = edge.node
    state.now[0].n_edges += 1
    was_away = state.node[node].n_away > 0
    state.node[node].n_away += edge.change
    if was_away != (state.node[node].n_away > 0):
        state.now[0].replan = 1
    while edge.kills and state.node[node].first_part >= 0:
        job = state.part[state.node[node].first_part].job
        stop(world, jobs, state, job)
        enqueue(jobs, state, job)
    count_brief(world, state, node, -1)
    set_offer(world, state, 0, node, state.node[node].free if state.node[node].n_away == 0 else 0)
    count_brief(world, state, node, 1)


@kernel
def count_size(world: World, jobs: JobArrays, state: State, job: int) -> None:
    """Let the size mix know of a submission."""
    for size in range(state.mix.size):
        state.mix[size] *= world.mix_decay
    state.mix[min(jobs.spec[job].n_gpus, state.mix.size - 1)] += 1.0


def advance(world: World, jobs: JobArrays, state: State, pause_events: int) -> int:
    """Go on until all jobs are done, so many events have passed, or nothing can happen."""
    n_jobs = jobs.spec.size
    while True:
        if state.now[0].pending:
            decide(world, jobs, state)
            state.now[0].pending = 0
            if state.now[0].n_bad_choices > 0:
                return BAD_CHOICE
        if state.now[0].n_done == n_jobs:
            return FINISHED
        next_s = np.inf
        if state.now[0].n_submitted < n_jobs:
            next_s = jobs.spec[state.now[0].n_submitted].submit_s
        if state.now[0].n_ends > 0:
            next_s = min(next_s, state.end[state.end[0].item].due_s)
        if state.now[0].n_edges < world.edge.size:
            next_s = min(next_s, world.edge[state.now[0].n_edges].time_s)
        if world.backfill == CONSERVATIVE:
            next_s = min(next_s, state.now[0].next_start_s)
        if next_s == np.inf:
            return STUCK
        if state.now[0].n_stretches + world.n_gpus > state.stretch.size:
            return STRETCHES_FULL
        if state.now[0].n_events >= pause_events:
            return PAUSED
        state.now[0].time_s = next_s
        while state.now[0].n_ends > 0 and state.end[state.end[0].item].due_s == next_s:
            job = state.end[0].item
            stop(world, jobs, state, job)
            state.job[job].finish_s = next_s
            state.now[0].n_done += 1
        while state.now[0].n_edges < world.edge.size and world.edge[state.now[0].n_edges].time_s == next_s:
            pass_edge(world, jobs, state)
        while state.now[0].n_submitted < n_jobs and jobs.spec[state.now[0].n_submitted].submit_s == next_s:
            job = state.now[0].n_submitted
            state.now[0].n_submitted += 1
            enqueue(jobs, state, job)
            count_urgent(jobs, state, job)
            if world.mix_decay > 0.0:
                count_size(world, jobs, state, job)
        state.now[0].n_events += 1
        state.now[0].pending = 1


@functools.cache
def engine(name: str, select: Kernel | None, key: Kernel | None, allocation: Kernels) -> Kernel:
    """`advance` for a selection rule (that picks, or has a moving key, or neither: a fixed order) and an allocation
    rule; compiled on first use, then loaded from the disk cache."""
    scope: dict[str, Any] = {f"rule_{field}": function for field, function in allocation._asdict().items()}
    scope["rule_select"] = select or next_ranked
    scope["list_queue"] = list_ranked
    if key is not None:
        scope["rule_select"] = specialise(least_key, name, cached=False, rule_key=key)
        scope["list_queue"] = specialise(list_by_key, name, cached=False, rule_key=key)
    for function in (best_node, place, decide, advance):
        scope[function.__name__] = specialise(function, name, cached=function is advance, inline=False, **scope)
    return scope["advance"]
