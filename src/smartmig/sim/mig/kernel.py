"""The fast engine: exact, event-driven, on arrays.

Between events every rate is constant, so nothing is stepped: a running job has a fixed end, a GPU's energy is charged
when its load changes. `advance` goes from event to event until a decision of a repartition rule is due, and can be
called again: all it knows is in `State`. The plugged-in placement rule is bound by name (`rule_key`, `rule_choose`,
`rule_level`, `rule_prepare`); see `engine` at the end.

One event (all that fall on one instant):  completions and finished re-cuts -> arrivals -> one decision pass.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from smartmig.jit import kernel, lowest_bit, specialise
from smartmig.policy.placement.rule import Kernels
from smartmig.policy.view import SLOTS, JobArrays, Kernel, State, World, free_bits, left_now
from smartmig.sim.mig.heaps import pop_waiting, push_end, push_waiting, remove_end, stands_before
from smartmig.types import Floats

PATIENCE_S = 2 * 86_400.0
"""A rule that re-cuts by the hour gets two days to make room for jobs that fit no present slice."""

SAME_INSTANT_S = 6e-11
"""Events this close are one event (1e-12 min)."""

# What `advance` came back for.
FINISHED, CHECK_DUE, STUCK, SEGMENTS_FULL, BAD_CHOICE = range(5)

rule_key: Any = None
rule_choose: Any = None
rule_level: Any = None
rule_prepare: Any = None
rule_control: Any = None


# ---------------------------------------------------------------------------------------------- energy and records


@kernel
def charge(world: World, state: State, gpu: int, busy_after: int) -> None:
    """Count the GPU's energy up to now; its load is about to become `busy_after`."""
    passed_s = state.now[0].time_s - state.gpu[gpu].charged_s
    busy = state.gpu[gpu].busy
    state.gpu[gpu].energy_j += world.power_w[state.gpu[gpu].model, busy] * passed_s
    state.gpu[gpu].busy_slice_s += busy * passed_s
    state.gpu[gpu].charged_s = state.now[0].time_s
    state.gpu[gpu].busy = busy_after


@kernel
def start(world: World, jobs: JobArrays, state: State, job: int, slot: int) -> None:
    """Put the job on the slot; the GPU's load is the caller's business."""
    now_s = state.now[0].time_s
    slice_class = state.slot[slot].slice_class
    if state.job[job].n_starts == 0:
        state.job[job].first_start_s = now_s
        state.job[job].since_s = now_s
    else:
        state.job[job].since_s = now_s + world.restart_s
    state.job[job].n_starts += 1
    state.job[job].left_at_start = state.job[job].left
    state.job[job].slot = slot
    state.slot[slot].job = job
    end_s = state.job[job].since_s + state.job[job].left * jobs.run_s[job, slice_class]
    state.slot[slot].end_s = end_s
    state.job[job].end_s = end_s
    if not world.preempt:
        push_end(state, slot, end_s)


@kernel
def stop(world: World, state: State, job: int) -> None:
    """Take the job off its slot; `state.left` must be up to date, the GPU's load is the caller's business."""
    slot = state.job[job].slot
    if world.record:
        row = state.now[0].n_segments
        began_s = state.job[job].since_s
        if state.job[job].n_starts > 1:
            began_s -= world.restart_s
        state.segment[row, 0] = job
        state.segment[row, 1] = slot * 64 + state.slot[slot].slice_class
        state.segment[row, 2] = began_s
        state.segment[row, 3] = state.now[0].time_s
        state.now[0].n_segments += 1
    if not world.preempt:
        remove_end(state, slot)
    state.slot[slot].job = -1
    state.job[job].slot = -1


# ------------------------------------------------------------------------------------- which GPUs have a free slice


@kernel
def open_class(state: State, level: int, slice_class: int, gpu: int) -> None:
    state.open_gpus[level, slice_class, gpu >> 6] |= np.int64(1) << (gpu & 63)
    state.n_open[level, slice_class] += 1
    state.open_levels[slice_class] |= np.int64(1) << level


@kernel
def close_class(state: State, level: int, slice_class: int, gpu: int) -> None:
    state.open_gpus[level, slice_class, gpu >> 6] &= ~(np.int64(1) << (gpu & 63))
    state.n_open[level, slice_class] -= 1
    if state.n_open[level, slice_class] == 0:
        state.open_levels[slice_class] &= ~(np.int64(1) << level)


@kernel
def list_open(state: State, gpu: int, shown: bool) -> None:
    """Enter the GPU's free slices into the index at its level, or take them out."""
    free = free_bits(state, gpu)
    level = state.gpu[gpu].level
    if free != 0:
        for slice_class in range(state.class_bits.shape[1]):
            if free & state.class_bits[gpu, slice_class]:
                if shown:
                    open_class(state, level, slice_class, gpu)
                else:
                    close_class(state, level, slice_class, gpu)


def take(world: World, state: State, slot: int) -> None:
    """Mark a free slot taken within a pass."""
    gpu = slot // SLOTS
    slice_class = state.slot[slot].slice_class
    before = free_bits(state, gpu)
    after = before & ~(1 << (slot - gpu * SLOTS))
    state.gpu[gpu].planned_busy += world.slice_class[slice_class].size
    level = rule_level(world, state, gpu)
    state.now[0].n_free -= 1
    if level == state.gpu[gpu].level:
        # The common case: at most one entry of the index goes.
        state.gpu[gpu].taken |= before ^ after
        if after & state.class_bits[gpu, slice_class] == 0:
            close_class(state, level, slice_class, gpu)
    else:
        list_open(state, gpu, False)
        state.gpu[gpu].taken |= before ^ after
        state.gpu[gpu].level = level
        list_open(state, gpu, True)


def release(world: World, state: State, slot: int) -> None:
    """Mark a taken slot free again (no new jobs if it is draining)."""
    gpu = slot // SLOTS
    bit = 1 << (slot - gpu * SLOTS)
    list_open(state, gpu, False)
    state.gpu[gpu].taken &= ~bit
    state.gpu[gpu].planned_busy -= world.slice_class[state.slot[slot].slice_class].size
    if state.gpu[gpu].usable & bit:
        state.now[0].n_free += 1
    state.gpu[gpu].level = rule_level(world, state, gpu)
    list_open(state, gpu, True)


@kernel
def n_bits(bits: int) -> int:
    n = 0
    while bits != 0:
        bits &= bits - 1
        n += 1
    return n


def set_usable(world: World, state: State, gpu: int, usable: int) -> None:
    """Change which slots of the GPU may take jobs, from its present instances."""
    list_open(state, gpu, False)
    state.now[0].n_free -= n_bits(free_bits(state, gpu))
    state.gpu[gpu].usable = usable
    for slice_class in range(state.class_bits.shape[1]):
        state.class_bits[gpu, slice_class] = 0
    bits = usable
    total = 0
    n_slices = 0
    while bits != 0:
        place = lowest_bit(bits)
        slice_class = state.slot[gpu * SLOTS + place].slice_class
        state.class_bits[gpu, slice_class] |= 1 << place
        total += world.slice_class[slice_class].size
        n_slices += 1
        bits &= bits - 1
    state.gpu[gpu].size_level = world.size_level[total, n_slices]
    state.now[0].n_free += n_bits(free_bits(state, gpu))
    state.gpu[gpu].level = rule_level(world, state, gpu)
    list_open(state, gpu, True)


# ------------------------------------------------------------------------------------------------------- re-cutting


@kernel
def instances(state: State, gpu: int) -> int:
    """Slots of the GPU at which an instance starts."""
    bits = 0
    for place in range(SLOTS):
        if state.slot[gpu * SLOTS + place].slice_class >= 0:
            bits |= 1 << place
    return bits


@kernel
def best_variant(world: World, state: State, gpu: int, config: int) -> int:
    """The cut of the configuration that keeps most busy instances, then most idle ones."""
    best = -1
    best_kept = -1
    for variant in range(world.config_cut.shape[1]):
        cut = world.config_cut[config, variant]
        if cut < 0:
            break
        kept = 0
        for place in range(SLOTS):
            slot = gpu * SLOTS + place
            slice_class = world.cut_class[cut, place]
            if slice_class >= 0 and slice_class == state.slot[slot].slice_class:
                kept += SLOTS if state.slot[slot].job >= 0 else 1
        if kept > best_kept:
            best_kept = kept
            best = cut
    return best


def requeue(world: World, jobs: JobArrays, state: State, job: int) -> None:
    """A running job goes back to the waiting ones with what is left of it."""
    state.job[job].left = left_now(jobs, state, job)
    stop(world, state, job)
    state.now[0].n_preemptions += 1
    push_waiting(jobs, state, job, rule_key(world, jobs, state, job))


def recut_whole(world: World, jobs: JobArrays, state: State, gpu: int, config: int) -> None:
    """Paper mode: every job of the GPU is stopped, the GPU comes back after `recut_s` with the new cut."""
    set_usable(world, state, gpu, 0)
    charge(world, state, gpu, 0)
    for place in range(SLOTS):
        slot = gpu * SLOTS + place
        if state.slot[slot].job >= 0:
            requeue(world, jobs, state, state.slot[slot].job)
        state.slot[slot].slice_class = world.cut_class[world.config_cut[config, 0], place]
    state.gpu[gpu].taken = 0
    state.gpu[gpu].planned_busy = 0
    item = world.n_gpus * SLOTS + gpu
    remove_end(state, item)
    push_end(state, item, state.now[0].time_s + world.recut_s)


def drain_on(world: World, state: State, gpu: int) -> None:
    """Drain mode: begin the next operation on the GPU, if one is needed, possible, and none is under way."""
    if not state.gpu[gpu].draining or state.gpu[gpu].operation != 0:
        return
    item = world.n_gpus * SLOTS + gpu
    now_s = state.now[0].time_s
    done = True
    occupied = 0  # memory slices that instances still hold
    for place in range(SLOTS):
        slot = gpu * SLOTS + place
        slice_class = state.slot[slot].slice_class
        if slice_class != state.slot[slot].wanted_class:
            done = False
        if slice_class < 0:
            continue
        if slice_class != state.slot[slot].wanted_class and state.slot[slot].job < 0:
            state.gpu[gpu].operation = ~slot
            push_end(state, item, now_s + world.slice_class[slice_class].destroy_s)
            return
        occupied |= ((1 << world.slice_class[slice_class].span) - 1) << place
    for place in range(SLOTS):
        slot = gpu * SLOTS + place
        wanted = state.slot[slot].wanted_class
        if wanted >= 0 and state.slot[slot].slice_class < 0:
            span = ((1 << world.slice_class[wanted].span) - 1) << place
            if occupied & span == 0:
                state.gpu[gpu].operation = slot + 1
                state.gpu[gpu].operation_class = wanted
                push_end(state, item, now_s + world.slice_class[wanted].create_s)
                return
    if done:
        state.gpu[gpu].draining = 0


def recut_drain(world: World, state: State, gpu: int, config: int) -> None:
    """Drain mode: instances that are not part of the new cut take no more jobs and go as soon as they are idle."""
    cut = best_variant(world, state, gpu, config)
    state.gpu[gpu].draining = 1
    usable = 0
    for place in range(SLOTS):
        slot = gpu * SLOTS + place
        state.slot[slot].wanted_class = world.cut_class[cut, place]
        leaving = state.gpu[gpu].operation == ~slot
        if (
            state.slot[slot].slice_class >= 0
            and state.slot[slot].slice_class == state.slot[slot].wanted_class
            and not leaving
        ):
            usable |= 1 << place
    set_usable(world, state, gpu, usable)
    drain_on(world, state, gpu)


def recut(world: World, jobs: JobArrays, state: State, gpu: int, config: int) -> None:
    """Begin to cut the GPU to the configuration, which must be another than its present (or wanted) one."""
    now_s = state.now[0].time_s
    state.config_s[state.gpu[gpu].config] += now_s - state.gpu[gpu].config_since_s
    state.gpu[gpu].config_since_s = now_s
    state.gpu[gpu].config = config
    state.now[0].n_recuts += 1
    state.now[0].pending = 1
    if world.drain:
        recut_drain(world, state, gpu, config)
    else:
        recut_whole(world, jobs, state, gpu, config)


def operation_done(world: World, state: State, gpu: int) -> None:
    """The GPU's pending re-cut step is finished."""
    if not world.drain:
        set_usable(world, state, gpu, instances(state, gpu))
        return
    operation = state.gpu[gpu].operation
    state.gpu[gpu].operation = 0
    if operation < 0:
        state.slot[~operation].slice_class = -1
    else:
        slot = operation - 1
        # The wish may have changed while it was created; then it is idle and will be destroyed again.
        created = state.gpu[gpu].operation_class
        state.slot[slot].slice_class = created
        if created == state.slot[slot].wanted_class:
            set_usable(world, state, gpu, state.gpu[gpu].usable | 1 << (slot - gpu * SLOTS))
    drain_on(world, state, gpu)


# ----------------------------------------------------------------------------------------------------- decision pass


@kernel
def is_legal(jobs: JobArrays, state: State, job: int, slot: int) -> bool:
    """Whether the slot the rule chose is free and fits the job; a rule may be anyone's."""
    gpu = slot // SLOTS
    free = 0 <= gpu < state.gpu.size and free_bits(state, gpu) >> (slot - gpu * SLOTS) & 1
    return bool(free) and bool(jobs.spec[job].fits >> state.slot[slot].slice_class & 1)


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
        if not is_legal(jobs, state, job, slot):
            state.now[0].n_bad_choices += 1
            return
        gpu = slot // SLOTS
        take(world, state, slot)
        charge(world, state, gpu, state.gpu[gpu].planned_busy)
        start(world, jobs, state, job, slot)
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
    # Most jobs move at most events, so their ends are found by looking at all instead of being kept in the heap.
    next_end_s = np.inf
    for at in range(n_placed):
        job = state.placed[at]
        state.running[at] = job
        if state.job[job].slot < 0:
            start(world, jobs, state, job, state.job[job].next_slot)
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


# ----------------------------------------------------------------------------------------------------------- events


def complete(world: World, state: State, slot: int) -> None:
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
    release(world, state, slot)
    if world.drain and state.slot[slot].slice_class != state.slot[slot].wanted_class:
        drain_on(world, state, gpu)


def advance(world: World, jobs: JobArrays, state: State, check_s: float, check_events: int) -> int:
    """Go on until all jobs are done, or a check is due (a time, or a number of events), or nothing can happen.

    A check by events comes before that event's decision pass, so that a re-cut is seen by it; a check by time after
    the passes of all earlier events.
    """
    n_jobs = jobs.spec.size
    n_slots = world.n_gpus * SLOTS
    while True:
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
        if world.record and state.now[0].n_segments + 2 * n_slots > state.segment.shape[0]:
            return SEGMENTS_FULL
        next_s = max(next_s, state.now[0].time_s)
        state.now[0].time_s = next_s
        if world.preempt and state.now[0].next_end_s <= next_s + SAME_INSTANT_S:
            for at in range(state.now[0].n_running):
                job = state.running[at]
                if state.job[job].end_s <= next_s + SAME_INSTANT_S:
                    complete(world, state, state.job[job].slot)
        while state.now[0].n_ends > 0 and state.end[state.end[0].item].due_s <= next_s + SAME_INSTANT_S:
            item = state.end[0].item
            if item < n_slots:
                complete(world, state, item)
            else:
                remove_end(state, item)
                operation_done(world, state, item - n_slots)
        while state.now[0].n_arrived < n_jobs and jobs.spec[state.now[0].n_arrived].arrive_s <= next_s + SAME_INSTANT_S:
            job = state.now[0].n_arrived
            state.now[0].n_arrived += 1
            push_waiting(jobs, state, job, rule_key(world, jobs, state, job))
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
            silent_s = state.now[0].next_check_s - state.now[0].last_event_s
            if silent_s > PATIENCE_S and nothing_due(world, jobs, state):
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
def nothing_due(world: World, jobs: JobArrays, state: State) -> bool:
    nothing_ends = state.now[0].n_ends == 0 and (state.now[0].next_end_s == np.inf or not world.preempt)
    return nothing_ends and state.now[0].n_arrived == jobs.spec.size


@kernel
def close_books(world: World, state: State) -> None:
    """Charge every GPU up to now."""
    for gpu in range(world.n_gpus):
        charge(world, state, gpu, state.gpu[gpu].busy)
        state.config_s[state.gpu[gpu].config] += state.now[0].time_s - state.gpu[gpu].config_since_s
        state.gpu[gpu].config_since_s = state.now[0].time_s


class Engine(NamedTuple):
    """The engine with one placement rule compiled in."""

    advance: Kernel
    recut: Kernel
    set_usable: Kernel


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
        place_waiting,
        place_all,
        complete,
        advance,
    ):
        called_from_python = function in (advance, recut, set_usable)
        scope[function.__name__] = specialise(function, name, called_from_python, **scope)
    return Engine(scope["advance"], scope["recut"], scope["set_usable"])


@functools.cache
def controlled_engine(name: str, rule: Kernels, control_name: str, control: Kernel) -> Kernel:
    """`run_controlled` for a placement rule and a repartition rule."""
    built = engine(name, rule)
    bindings = {"advance": built.advance, "recut": built.recut, "rule_control": control}
    return specialise(run_controlled, f"{name}-{control_name}", cached=True, **bindings)
