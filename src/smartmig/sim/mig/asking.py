"""One placing decision at a time: carry out an answer, run to the next question.

A decision pass of the engine is cut open. After every event questions are asked until no waiting job fits a free slice,
or the answer is to wait; then time goes on to the next event. Preemption is off and the cuts stay as they are.
"""

from __future__ import annotations

import functools

import numpy as np

from smartmig.jit import kernel, lowest_bit, specialise
from smartmig.policy.encoding import time_bin, track
from smartmig.policy.placement.largest_first import LargestFirst
from smartmig.policy.placement.learned import size_index
from smartmig.policy.view import SLOTS, JobArrays, Kernel, State, World, free_bits, single_level
from smartmig.sim.mig.heaps import move_waiting
from smartmig.sim.mig.kernel import CHECK_DUE, FINISHED, engine
from smartmig.sim.mig.ledger import settle
from smartmig.sim.mig.occupancy import charge, start, take
from smartmig.sim.mig.questions import MOST_URGENT, N_RUNS, N_SIZES, Questions, see_as_ours, see_as_s1
from smartmig.sim.mig.run import rule_name
from smartmig.types import DEADLINE_GRACE_S, Ints

ASKED, STUCK = 10, 11
"""what `ask` came back for, or FINISHED"""


@kernel
def free_classes(state: State) -> int:
    """Slice classes (bits) with a free slice."""
    bits = 0
    for slice_class in range(state.open_levels.size):
        if state.open_levels[slice_class] != 0:
            bits |= 1 << slice_class
    return bits


@kernel
def pick(jobs: JobArrays, state: State, q: Questions, first: int, last: int, fits: int, by_work: bool) -> None:
    """Fill q.window[first:last] with waiting jobs of least work or earliest deadline that are not in front of it."""
    n = first
    for at in range(state.now[0].n_waiting):
        job = state.wait[at].job
        rank = jobs.spec[job].whole_s if by_work else state.wait[at].deadline_s
        if n == last:  # most jobs end here, before anything of theirs but the queue's record is looked at
            worst = q.window[last - 1]
            worst_rank = jobs.spec[worst].whole_s if by_work else jobs.spec[worst].deadline_s
            if worst_rank < rank or (worst_rank == rank and worst < job):
                continue
        if not jobs.spec[job].fits & fits:
            continue
        is_there = False
        for other in range(first):
            if q.window[other] == job:
                is_there = True
        if is_there:
            continue
        to = n if n < last else last - 1
        while to > first:
            other = q.window[to - 1]
            other_rank = jobs.spec[other].whole_s if by_work else jobs.spec[other].deadline_s
            if other_rank < rank or (other_rank == rank and other < job):
                break
            q.window[to] = other
            to -= 1
        q.window[to] = job
        n = min(n + 1, last)
    for at in range(n, last):
        q.window[at] = -1


@kernel
def find_slices(world: World, state: State, q: Questions) -> None:
    """The free slice of every class that adds the least power; ties: the leftmost."""
    for slice_class in range(world.slice_class.size):
        q.free[slice_class] = -1
        q.added_w[slice_class] = np.inf
        if state.open_levels[slice_class] == 0:
            continue
        size = world.slice_class[slice_class].size
        for gpu in range(world.n_gpus):
            bits = free_bits(state, gpu) & state.class_bits[gpu, slice_class]
            if bits != 0:
                busy = state.gpu[gpu].planned_busy
                watts = world.power_w[state.gpu[gpu].model]
                if watts[busy + size] - watts[busy] < q.added_w[slice_class]:
                    q.added_w[slice_class] = watts[busy + size] - watts[busy]
                    q.free[slice_class] = gpu * SLOTS + lowest_bit(bits)


@kernel
def offer_sizes(world: World, jobs: JobArrays, state: State, q: Questions) -> None:
    """Ours: what every (job of the window, size) would take."""
    find_slices(world, state, q)
    for at in range(q.window.size):
        job = q.window[at]
        for size in range(N_SIZES):
            q.slot[at * N_SIZES + size] = -1
        if job < 0:
            continue
        for slice_class in range(world.slice_class.size):
            if q.free[slice_class] < 0 or not jobs.spec[job].fits >> slice_class & 1:
                continue
            action = at * N_SIZES + size_index(world.slice_class[slice_class].size)
            other = q.slot[action]
            if other >= 0:
                there = state.slot[other].slice_class
                if q.added_w[there] * jobs.run_s[job, there] <= q.added_w[slice_class] * jobs.run_s[job, slice_class]:
                    continue
            q.slot[action] = q.free[slice_class]


@kernel
def offer_slices(world: World, jobs: JobArrays, state: State, q: Questions) -> None:
    """S1: the job onto every slice of the cluster, GPU by GPU, left to right."""
    job = q.window[0]
    at = 0
    for gpu in range(world.n_gpus):
        free = free_bits(state, gpu)
        for place in range(SLOTS):
            slot = gpu * SLOTS + place
            slice_class = state.slot[slot].slice_class
            if slice_class >= 0:
                legal = job >= 0 and free >> place & 1 and jobs.spec[job].fits >> slice_class & 1
                q.slot[at] = slot if legal else -1
                at += 1


@kernel
def offer(world: World, jobs: JobArrays, state: State, q: Questions, s1: bool) -> bool:
    """Fill window, slots and mask; whether there is anything to ask."""
    if state.now[0].n_free == 0 or state.now[0].n_waiting == 0:
        return False
    fits = free_classes(state)
    if s1:
        pick(jobs, state, q, 0, 1, fits, False)
    else:
        half = (q.window.size + 1) // 2
        pick(jobs, state, q, 0, half, fits, True)
        pick(jobs, state, q, half, q.window.size, fits, False)
    if q.window[0] < 0:
        return False
    if s1:
        offer_slices(world, jobs, state, q)
    else:
        offer_sizes(world, jobs, state, q)
    wait = q.mask.size - 1
    for action in range(wait):
        q.mask[action] = q.slot[action] >= 0
    q.mask[wait] = state.now[0].n_ends > 0 or state.now[0].n_arrived < jobs.spec.size
    return True


@kernel
def leave_queue(state: State, job: int) -> None:
    """Nothing here relies on the order of the waiting jobs, so the last one takes the place."""
    last = state.now[0].n_waiting - 1
    at = 0
    while state.wait[at].job != job:
        at += 1
    move_waiting(state.wait, last, at)
    state.now[0].n_waiting = last


def answer(world: World, jobs: JobArrays, state: State, q: Questions, s1: bool, action: int) -> None:
    """Carry out an action; one that is not legal counts as waiting, or as the first legal one where nobody may wait."""
    wait = q.mask.size - 1
    if not q.mask[action]:
        action = wait
        while not q.mask[action]:
            action = action + 1 if action < wait else 0
    q.shaped[0] = 0.0
    if action == wait:
        q.open[0] = 0
        return
    job = q.window[0 if s1 else action // N_SIZES]
    slot = q.slot[action]
    gpu = slot // SLOTS
    run_s = jobs.run_s[job, state.slot[slot].slice_class]
    late_s = state.now[0].time_s + run_s - jobs.spec[job].deadline_s
    # S1 publishes no formula of its shaping: 1 for a job in time, down to -1 for one that is late by ten times its p_7.
    q.shaped[0] = 1.0 if late_s <= DEADLINE_GRACE_S else -min(1.0, late_s / (MOST_URGENT * jobs.spec[job].whole_s))
    if s1 and q.open[0] == 2:
        q.queue[0, time_bin(jobs.spec[job].deadline_s - state.now[0].time_s)] -= 1
        for run in range(N_RUNS):
            q.queue[1 + run, q.run_bin[job, run]] -= 1
    leave_queue(state, job)
    take(world, state, slot)
    charge(world, state, gpu, state.gpu[gpu].planned_busy)
    start(world, jobs, state, job, slot)
    track(world, jobs, state, job, True)


def ask(world: World, jobs: JobArrays, state: State, q: Questions, s1: bool) -> int:
    """Run to the next question, or to the end of the day."""
    moved = False
    status = ASKED
    while True:
        if q.open[0] > 0:
            if offer(world, jobs, state, q, s1):
                break
            q.open[0] = 0
        came = advance(world, jobs, state, np.inf, state.now[0].n_events + 1)
        moved = True
        if came == CHECK_DUE:
            state.now[0].pending = 0  # the pass is ours
            q.open[0] = 1
        else:
            status = FINISHED if came == FINISHED else STUCK
            break
    q.cost[0] = 0.0
    q.cost[1] = 0.0
    if moved:  # time stands still within a pass
        settle(world, jobs, state, q.books, q.cost)
    if status != ASKED:
        for at in range(q.seen.size):
            q.seen[at] = 0.0
        for at in range(q.mask.size):
            q.mask[at] = at == q.mask.size - 1
    elif s1:
        see_as_s1(world, jobs, state, q)
    else:
        see_as_ours(world, jobs, state, q)
    return status


def step_lanes(
    world: World,
    all_jobs: JobArrays,
    all_states: State,
    all_questions: Questions,
    n_jobs: Ints,
    first: int,
    last: int,
    actions: Ints,
    s1: bool,
    status: Ints,
) -> None:
    """`answer` and `ask` in lanes first..last, each a day of its own; action -1: the day begins."""
    a, b, c = all_jobs, all_states, all_questions
    for at in range(first, last):
        n = n_jobs[at]
        jobs = JobArrays(a.spec[at][:n], a.run_s[at][:n], a.by_deadline[at][:n])
        state = State(
            b.now[at],
            b.job[at],
            b.slot[at],
            b.gpu[at],
            b.class_bits[at],
            b.open_gpus[at],
            b.n_open[at],
            b.open_levels[at],
            b.end[at],
            b.wait[at],
            b.aside[at],
            b.placed[at],
            b.running[at],
            b.config_s[at],
            b.tally[at],
            b.flow[at],
            b.segment[at],
        )
        q = Questions(
            c.open[at],
            c.window[at],
            c.slot[at],
            c.mask[at],
            c.seen[at],
            c.queue[at],
            c.run_min[at],
            c.run_bin[at],
            c.books[at],
            c.cost[at],
            c.shaped[at],
            c.free[at],
            c.added_w[at],
        )
        if actions[at] >= 0:
            answer(world, jobs, state, q, s1, actions[at])
        status[at] = ask(world, jobs, state, q, s1)


advance: Kernel = None

RULE = LargestFirst()
"""Nobody asks it; the engine needs one, and this ranks GPUs no more than the questions do."""


@functools.cache
def compiled_step() -> Kernel:
    """`step_lanes`, compiled on first use."""
    name = rule_name(RULE)
    taking = specialise(take, name, cached=False, rule_level=single_level)
    answering = specialise(answer, name, cached=False, take=taking)
    asking = specialise(ask, name, cached=False, advance=engine(name, RULE.kernels).advance)
    return specialise(step_lanes, name, cached=True, answer=answering, ask=asking)
