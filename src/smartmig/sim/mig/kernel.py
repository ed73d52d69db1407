"""The fast engine: exact, event-driven, on arrays.

Between events every rate is constant, so nothing is stepped: a running job has a fixed end, a GPU's energy is charged
when its load changes. `advance` goes from event to event until a decision of a repartition rule is due, and can be
called again: all it knows is in `State`. The plugged-in rules are bound by name, see `engine` at the end.

One event (all that fall on one instant):  completions and finished re-cuts -> arrivals -> one decision pass.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from smartmig.jit import kernel, specialise
from smartmig.policy.encoding import track, track_arrival
from smartmig.policy.placement.rule import Kernels
from smartmig.policy.view import SLOTS, JobArrays, Kernel, State, World
from smartmig.sim.mig.decide import place, place_all, place_waiting
from smartmig.sim.mig.heaps import push_waiting, remove_end
from smartmig.sim.mig.occupancy import CUT, charge, note, release, set_usable, stop, take
from smartmig.sim.mig.plugged import rule_control, rule_key, rule_prepare
from smartmig.sim.mig.recut import drain_on, operation_done, recut, recut_drain, recut_whole, requeue
from smartmig.types import Floats

PATIENCE_S = 2 * 86_400.0
"""A rule that re-cuts by the hour gets two days to make room for jobs that fit no present slice; that it re-cuts in
these days does not make it any better."""

SAME_INSTANT_S = 6e-11
"""Events this close are one event (1e-12 min)."""

# What `advance` came back for.
FINISHED, CHECK_DUE, STUCK, SEGMENTS_FULL, BAD_CHOICE = range(5)


def complete(world: World, jobs: JobArrays, state: State, slot: int) -> None:
    """The slot's job is done."""
    job = state.slot[slot].job
    gpu = slot // SLOTS
    state.job[job].left = 0.0
    state.job[job].finish_s = state.now[0].time_s
    state.now[0].n_done += 1
    busy = state.gpu[gpu].busy
    busy_after = busy - world.slice_class[state.slot[slot].slice_class].size
    charge(world, state, gpu, busy_after)
    if world.charge_after_release:
        watts = world.power_w[state.gpu[gpu].model]
        state.gpu[gpu].energy_j += (watts[busy_after] - watts[busy]) * (state.now[0].time_s - state.now[0].last_event_s)
    stop(world, state, job)
    track(world, jobs, state, job, False)
    release(world, state, slot)


def advance(world: World, jobs: JobArrays, state: State, check_s: float, check_events: int) -> int:
    """Go on until all jobs are done, or a check is due (a time, or a number of events), or nothing can happen.

    A check by events comes before that event's decision pass, so that a re-cut is seen by it; a check by time after
    the passes of all earlier events.
    """
    n_jobs = jobs.spec.size
    n_slots = world.n_gpus * SLOTS
    while True:
        # Until we are here again: a pass, then an event or a re-cut of every GPU with its old and new instances.
        if world.record and state.now[0].n_segments + 6 * n_slots > state.segment.shape[0]:
            return SEGMENTS_FULL
        if state.now[0].pending:
            rule_prepare(world, jobs, state)
            if world.preempt:
                place_all(world, jobs, state)
            else:
                place_waiting(world, jobs, state)
            state.now[0].pending = 0
            if state.now[0].n_bad_choices > 0:
                return BAD_CHOICE
        if state.now[0].n_done == n_jobs:
            return FINISHED
        next_s = np.inf
        if state.now[0].n_arrived < n_jobs:
            next_s = jobs.spec[state.now[0].n_arrived].arrive_s
        if state.now[0].n_ends > 0:
            next_s = min(next_s, state.end[state.end[0].item].due_s)
        if world.preempt:
            next_s = min(next_s, state.now[0].next_end_s)
        if next_s > check_s:
            state.now[0].time_s = check_s
            return CHECK_DUE
        if next_s == np.inf:
            return STUCK
        next_s = max(next_s, state.now[0].time_s)
        state.now[0].time_s = next_s
        if world.preempt and state.now[0].next_end_s <= next_s + SAME_INSTANT_S:
            for at in range(state.now[0].n_running):
                job = state.running[at]
                if state.job[job].end_s <= next_s + SAME_INSTANT_S:
                    complete(world, jobs, state, state.job[job].slot)
        while state.now[0].n_ends > 0 and state.end[state.end[0].item].due_s <= next_s + SAME_INSTANT_S:
            item = state.end[0].item
            if item < n_slots:
                complete(world, jobs, state, item)
            else:
                remove_end(state, item)
                operation_done(world, state, item - n_slots)
        if world.drain:  # once all that ends at this instant has ended, so that the order of the ends decides nothing
            for gpu in range(world.n_gpus):
                drain_on(world, state, gpu)
        while state.now[0].n_arrived < n_jobs and jobs.spec[state.now[0].n_arrived].arrive_s <= next_s + SAME_INSTANT_S:
            job = state.now[0].n_arrived
            state.now[0].n_arrived += 1
            push_waiting(jobs, state, job, rule_key(world, jobs, state, job))
            track_arrival(world, jobs, state, job)
            state.now[0].last_job_s = next_s
        state.now[0].last_event_s = next_s
        state.now[0].n_events += 1
        state.now[0].pending = 1
        if state.now[0].n_events >= check_events and state.now[0].n_done < n_jobs:
            return CHECK_DUE


def run_controlled(
    world: World,
    jobs: JobArrays,
    state: State,
    period_s: float,
    every_events: int,
    control_knobs: Floats,
    pause_events: int,
) -> int:
    """`advance` with a repartition rule asked every `period_s` and every so many events; comes back when all is done,
    stuck or full, or after `pause_events` events with CHECK_DUE, to be called again."""
    while True:
        due_events = (state.now[0].n_events // every_events + 1) * every_events if every_events > 0 else 1 << 62
        status = advance(world, jobs, state, state.now[0].next_check_s, min(due_events, pause_events))
        if status != CHECK_DUE:
            return status
        by_time = not state.now[0].pending  # an event leaves its decision pass pending
        if by_time:
            if hopeless(world, jobs, state):
                return STUCK
            state.now[0].next_check_s += period_s
        if by_time or state.now[0].n_events == due_events:
            for gpu in range(world.n_gpus):
                state.gpu[gpu].target = -1
            rule_control(world, jobs, state, control_knobs)
            for gpu in range(world.n_gpus):
                if state.gpu[gpu].target >= 0 and state.gpu[gpu].target != state.gpu[gpu].config:
                    recut(world, jobs, state, gpu, state.gpu[gpu].target)
        if state.now[0].n_events >= pause_events:
            return CHECK_DUE


@kernel
def hopeless(world: World, jobs: JobArrays, state: State) -> bool:
    """Whether the jobs left have waited for a slice as long as any rule may let them, with nobody running."""
    if state.now[0].time_s - state.now[0].last_job_s <= PATIENCE_S or state.now[0].n_arrived < jobs.spec.size:
        return False
    n_busy = 0
    for gpu in range(world.n_gpus):
        n_busy += state.gpu[gpu].busy
    return n_busy == 0


@kernel
def close_books(world: World, state: State) -> None:
    """Charge every GPU up to now."""
    for gpu in range(world.n_gpus):
        charge(world, state, gpu, state.gpu[gpu].busy)
        state.config_s[state.gpu[gpu].config] += state.now[0].time_s - state.gpu[gpu].config_since_s
        if world.record:
            since_s = state.gpu[gpu].config_since_s
            note(state, CUT, state.gpu[gpu].config * world.n_gpus + gpu, since_s, state.now[0].time_s)
        state.gpu[gpu].config_since_s = state.now[0].time_s


class Engine(NamedTuple):
    """The engine with one placement rule compiled in."""

    advance: Kernel
    recut: Kernel
    set_usable: Kernel
    place: Kernel


@functools.cache
def engine(name: str, rule: Kernels) -> Engine:
    """The engine for a placement rule; compiled on first use, then loaded from the disk cache."""
    scope: dict[str, Any] = {f"rule_{field}": function for field, function in rule._asdict().items()}
    for function in (
        take,
        release,
        set_usable,
        requeue,
        recut_whole,
        drain_on,
        recut_drain,
        recut,
        operation_done,
        place,
        place_waiting,
        place_all,
        complete,
        advance,
    ):
        called_from_python = function in (advance, recut, set_usable)
        scope[function.__name__] = specialise(function, name, called_from_python, **scope)
    return Engine(scope["advance"], scope["recut"], scope["set_usable"], scope["place"])


@functools.cache
def controlled_engine(name: str, rule: Kernels, control_name: str, control: Kernel) -> Kernel:
    """`run_controlled` for a placement rule and a repartition rule."""
    built = engine(name, rule)
    bindings = {"advance": built.advance, "recut": built.recut, "rule_control": control}
    return specialise(run_controlled, f"{name}-{control_name}", cached=True, **bindings)
