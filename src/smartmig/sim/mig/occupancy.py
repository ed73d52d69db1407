"""Who is on which slot, what that costs, and which GPUs have a free slice.

Functions without a decorator call the plugged-in rule; `kernel.engine` compiles them for it.
"""

from __future__ import annotations

import numpy as np

from smartmig.jit import kernel, lowest_bit
from smartmig.policy.encoding import AT_CONFIG
from smartmig.policy.view import SLOTS, JobArrays, State, World, free_bits
from smartmig.sim.mig.heaps import push_end, remove_end
from smartmig.sim.mig.plugged import rule_level

CODES = 64
"""A slot and a slice class as one number; no cluster has as many classes."""
GONE = CODES - 1
"""In place of a class: no instance any more."""
CUT, INSTANCE = -2, -1
"""In place of a job, in what is recorded: a GPU's configuration came to its end; a slot became something else."""


@kernel
def charge(world: World, state: State, gpu: int, busy_after: int) -> None:
    """Count the GPU's energy up to now; its load is about to become `busy_after`."""
    passed_s = state.now[0].time_s - state.gpu[gpu].charged_s
    busy = state.gpu[gpu].busy
    state.gpu[gpu].energy_j += world.power_w[state.gpu[gpu].model, busy] * passed_s
    state.gpu[gpu].busy_slice_s += busy * passed_s
    state.gpu[gpu].charged_s = state.now[0].time_s
    state.gpu[gpu].busy = busy_after
    state.tally[AT_CONFIG + world.config.size + state.gpu[gpu].config] += busy_after - busy


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
    state.job[job].began_s = now_s
    state.job[job].left_at_start = state.job[job].left
    state.job[job].slot = slot
    state.slot[slot].job = job
    end_s = state.job[job].since_s + state.job[job].left * jobs.run_s[job, slice_class]
    state.slot[slot].end_s = end_s
    state.job[job].end_s = end_s
    if not world.preempt:
        push_end(state, slot, end_s)


@kernel
def note(state: State, who: int, code: int, from_s: float, to_s: float) -> None:
    """One more row of what is recorded; `advance` keeps room for those of an event and a re-cut of everything."""
    row = state.now[0].n_segments
    state.segment[row, 0] = who
    state.segment[row, 1] = code
    state.segment[row, 2] = from_s
    state.segment[row, 3] = to_s
    state.now[0].n_segments += 1


@kernel
def stop(world: World, state: State, job: int) -> None:
    """Take the job off its slot; `state.left` must be up to date, the GPU's load is the caller's business."""
    slot = state.job[job].slot
    if world.record:
        code = slot * CODES + state.slot[slot].slice_class
        note(state, job, code, state.job[job].began_s, state.now[0].time_s)
    if not world.preempt:
        remove_end(state, slot)
    state.slot[slot].job = -1
    state.job[job].slot = -1
    state.now[0].last_job_s = state.now[0].time_s


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
