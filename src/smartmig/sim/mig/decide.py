"""The decision pass: jobs in the rule's order onto the slices the rule chooses.

Functions without a decorator call the plugged-in rule; `kernel.engine` compiles them for it.
"""

from __future__ import annotations

import numpy as np

from smartmig.jit import kernel
from smartmig.policy.encoding import track
from smartmig.policy.view import SLOTS, JobArrays, State, World, free_bits, left_now
from smartmig.sim.mig.heaps import pop_waiting, push_waiting, stands_before
from smartmig.sim.mig.occupancy import charge, list_open, n_bits, start, stop, take
from smartmig.sim.mig.plugged import rule_choose, rule_key, rule_level
from smartmig.sim.mig.recut import drain_on


@kernel
def is_legal(jobs: JobArrays, state: State, job: int, slot: int) -> bool:
    """Whether the slot the rule chose is free and fits the job; a rule may be anyone's."""
    gpu = slot // SLOTS
    free = 0 <= gpu < state.gpu.size and free_bits(state, gpu) >> (slot - gpu * SLOTS) & 1
    return bool(free) and bool(jobs.spec[job].fits >> state.slot[slot].slice_class & 1)


def place(world: World, jobs: JobArrays, state: State, job: int, slot: int) -> bool:
    """Without preemption: the waiting job begins on the slot the rule chose; False if it cannot."""
    if not is_legal(jobs, state, job, slot):
        state.now[0].n_bad_choices += 1
        return False
    gpu = slot // SLOTS
    take(world, state, slot)
    charge(world, state, gpu, state.gpu[gpu].planned_busy)
    start(world, jobs, state, job, slot)
    track(world, jobs, state, job, True)
    return True


def place_waiting(world: World, jobs: JobArrays, state: State) -> None:
    """Without preemption: waiting jobs in order onto free slices."""
    n_aside = 0
    while state.now[0].n_free > 0 and state.now[0].n_waiting > 0:
        job = pop_waiting(state)
        slot = rule_choose(world, jobs, state, job)
        if slot < 0:
            state.aside[n_aside] = job
            n_aside += 1
            continue
        if not place(world, jobs, state, job, slot):
            return
    for at in range(n_aside):
        job = state.aside[at]
        push_waiting(jobs, state, job, rule_key(world, jobs, state, job))


def place_all(world: World, jobs: JobArrays, state: State) -> None:
    """With preemption: every job in the system, running or not, in order onto every slice."""
    # Running jobs by their present rank; they are nearly sorted from the last pass.
    n_running = 0
    for at in range(state.now[0].n_running):
        job = state.running[at]
        if state.job[job].slot < 0:
            continue  # done, or stopped by a re-cut
        state.job[job].left = left_now(jobs, state, job)
        track(world, jobs, state, job, True)
        key = rule_key(world, jobs, state, job)
        state.job[job].order_key = key
        state.job[job].next_slot = -1
        group = jobs.spec[job].group
        deadline_s = jobs.spec[job].deadline_s
        to = n_running
        n_running += 1
        while to > 0:
            other = state.running[to - 1]
            if jobs.spec[other].group != group:
                stands = jobs.spec[other].group < group
            elif state.job[other].order_key != key:
                stands = state.job[other].order_key < key
            elif jobs.spec[other].deadline_s != deadline_s:
                stands = jobs.spec[other].deadline_s < deadline_s
            else:
                stands = other < job
            if stands:
                break
            state.running[to] = other
            to -= 1
        state.running[to] = job
    # Every usable slice is free.
    n_free = 0
    for gpu in range(world.n_gpus):
        list_open(state, gpu, False)
        state.gpu[gpu].taken = 0
        state.gpu[gpu].planned_busy = 0
        n_free += n_bits(state.gpu[gpu].usable)
        state.gpu[gpu].level = rule_level(world, state, gpu)
        list_open(state, gpu, True)
    state.now[0].n_free = n_free
    # Merge the running and the waiting ones in rank order.
    n_aside = 0
    n_placed = 0
    at_running = 0
    while state.now[0].n_free > 0 and (at_running < n_running or state.now[0].n_waiting > 0):
        from_waiting = at_running == n_running
        if not from_waiting and state.now[0].n_waiting > 0:
            job = state.running[at_running]
            spec = jobs.spec[job]
            from_waiting = stands_before(state.wait, 0, spec.group, state.job[job].order_key, spec.deadline_s, job)
        if from_waiting:
            job = pop_waiting(state)
        else:
            job = state.running[at_running]
            at_running += 1
        slot = rule_choose(world, jobs, state, job)
        if slot < 0:
            if from_waiting:
                state.aside[n_aside] = job
                n_aside += 1
            continue
        if not is_legal(jobs, state, job, slot):
            state.now[0].n_bad_choices += 1
            return
        take(world, state, slot)
        state.slot[slot].end_s = (
            state.now[0].time_s + state.job[job].left * jobs.run_s[job, state.slot[slot].slice_class]
        )
        state.job[job].next_slot = slot
        state.placed[n_placed] = job
        n_placed += 1
    for gpu in range(world.n_gpus):
        if state.gpu[gpu].planned_busy != state.gpu[gpu].busy:
            charge(world, state, gpu, state.gpu[gpu].planned_busy)
    # Who leaves, then who comes.
    for at in range(n_running):
        job = state.running[at]
        if state.job[job].next_slot != state.job[job].slot:
            state.now[0].n_preemptions += 1
            stop(world, state, job)
            if state.job[job].next_slot < 0:
                push_waiting(jobs, state, job, state.job[job].order_key)
                track(world, jobs, state, job, True)
    # Most jobs move at most events, so their ends are found by looking at all instead of being kept in the heap.
    next_end_s = np.inf
    for at in range(n_placed):
        job = state.placed[at]
        state.running[at] = job
        if state.job[job].slot < 0:
            start(world, jobs, state, job, state.job[job].next_slot)
            track(world, jobs, state, job, True)
        else:
            state.slot[state.job[job].slot].end_s = state.job[job].end_s
        next_end_s = min(next_end_s, state.job[job].end_s)
    state.now[0].next_end_s = next_end_s
    state.now[0].n_running = n_placed
    for at in range(n_aside):
        job = state.aside[at]
        push_waiting(jobs, state, job, rule_key(world, jobs, state, job))
    if world.drain:
        for gpu in range(world.n_gpus):
            drain_on(world, state, gpu)
