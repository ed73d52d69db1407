"""What a rule sees, as arrays, and the few questions it may ask of them.

`World` and `JobArrays` never change during a run, `State` is everything that moves. All three are plain tuples of
arrays, so a state can be copied, batched, saved, or filled from a live cluster, and every rule is a free compiled
function of (world, jobs, state). Things that belong to one job, slot or GPU stand together in one record
(`state.gpu[gpu].busy`): few arrays to hand over, and one cache line to touch.

Numbering. An instance lives at slot `gpu * SLOTS + start`, `start` being its first memory slice, so slots run GPU by
GPU and left to right: the lower slot wins every tie. A *slice class* is one profile of one GPU model: slices of one
class run every job equally fast. A *level* is where a rule ranks a GPU now (0 is looked at first); `State.open_gpus`
finds the first GPU of a level with a free slice of a class without looking at the others.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from smartmig.jit import kernel, lowest_bit
from smartmig.types import DEADLINE_GRACE_S, Floats, Ints

SLOTS = 8
"""Slots per GPU: no card has more memory slices."""

Records = Any
"""A structured array; its fields are spelled out below."""

Kernel = Any
"""A compiled function; numba's dispatchers carry no types."""


def record(integers: str, floats: str = "") -> np.dtype[np.void]:
    """A record of int64 fields, then float64 ones, by their names."""
    return np.dtype([(name, np.int64) for name in integers.split()] + [(name, np.float64) for name in floats.split()])


SLICE_CLASS = record("size span model", "create_s destroy_s")
"""compute slices, memory slices, GPU model, seconds to create and to destroy an instance"""

CONFIG = record("model n_slices")
"""a way to cut one GPU model"""

JOB_SPEC = record("fits group scaling deadline_rank", "arrive_s deadline_s whole_s single_s")
"""fits: bit = slice class; group: the placement rule's job classes, served in this order; scaling: throughput class;
deadline_rank: place in order of deadline;
whole_s, single_s: seconds on the largest and the smallest slice size the job has a time for"""

NOW = record(
    "n_arrived n_done n_events n_free n_waiting n_ends n_running pending n_recuts n_preemptions n_draws n_segments"
    " n_bad_choices",
    "time_s last_event_s last_job_s next_check_s next_end_s",
)
"""the clock and the counters; n_free: free slices, n_ends: items of the end heap, pending: a decision pass is due;
n_bad_choices: slices chosen that were taken or did not fit, which ends the run;
last_job_s: when a job last came or left its slice; next_end_s: the first completion ahead, with preemption"""

JOB = record(
    "slot next_slot n_starts cell wait_bin", "left left_at_start began_s since_s end_s first_start_s finish_s order_key"
)
"""slot: where it runs, -1 = nowhere; left: share still to do as of the last decision pass; left_at_start: the same when
the present stretch began; began_s, since_s, end_s: when it began, began to make progress, and will be done; next_slot,
order_key: scratch of the decision pass; cell, wait_bin: bins it is counted in, -1 = none (see encoding)"""

SLOT = record("slice_class job wanted_class", "end_s booked_s")
"""slice_class: of the instance that starts here, -1 = none; job: who runs on it, -1 = nobody; wanted_class: the same in
the cut being drained towards; end_s: when its occupant will finish; booked_s: scratch for rules that plan ahead"""

GPU = record(
    "model usable taken busy planned_busy level size_level config draining operation operation_class target",
    "energy_j busy_slice_s charged_s config_since_s",
)
"""usable, taken: slots (bit = start) with an instance that may take jobs, with an occupant; busy: busy compute slices,
planned_busy: the same within the present decision pass; level: the rule's rank; size_level: rank by mean slice size;
config: present (or wanted) configuration; draining: instances differ from it; operation: slot being destroyed (~slot)
or created (slot + 1), 0 = none; operation_class: of the instance being created; target: configuration a repartition
rule asks for, -1 = keep; charged_s: energy_j and busy_slice_s (integral of busy) are counted up to here"""

END = record("place item", "due_s")
"""by item: place in the heap (-1 = not there) and when it is due; by place: the item. Items: slots, then GPUs"""

WAIT = record("group job", "key deadline_s")
"""a waiting job in the heap"""


N_CARD = 3
"""of a GPU model against an A100-40GB, as logarithms: speed, idle watts, watts at full load"""


class World(NamedTuple):
    """The cluster and the rules of the game."""

    n_gpus: int
    preempt: bool
    """every slice is decided anew at every event"""
    drain: bool
    """a re-cut destroys idle instances only, the others run on; otherwise the whole GPU is down for `recut_s`"""
    charge_after_release: bool
    """S1's accounting: the last interval before a completion is charged as if the slice were free already"""
    record: bool
    """keep every stretch a job ran and every cut (State.segment)"""
    counted: bool
    """keep the running counts a learned policy reads (State.tally, State.flow)"""
    seed: int
    restart_s: float
    """what a job that was stopped pays before it makes progress again"""
    recut_s: float
    power_w: Floats  # (n_models, SLOTS) watts by busy compute slices
    card: Floats  # (n_models, N_CARD) what learned rules know of a GPU model, see N_CARD
    share_level: Ints  # (n_models, SLOTS) busy compute slices -> level, fullest share first
    size_level: Ints  # (SLOTS, SLOTS) [sum of sizes, number of slices] -> level, largest mean first
    slice_class: Records  # (n_classes,) SLICE_CLASS
    config: Records  # (n_configs,) CONFIG
    config_cut: Ints  # (n_configs, max_variants) cuts of a configuration, preferred first, -1 padded
    config_sizes: Ints  # (n_configs, 5) slices by size
    config_compute: Ints  # (n_configs,) compute slices of the configuration's GPU model
    cut_class: Ints  # (n_cuts, SLOTS) class of the instance that starts at each slot, -1 = none
    knobs: Floats  # (n_knobs,) of the placement rule


class JobArrays(NamedTuple):
    """The jobs as the cluster runs them."""

    spec: Records  # (n,) JOB_SPEC
    run_s: Floats  # (n, n_classes) seconds on a slice of the class; inf = does not fit
    by_deadline: Ints  # (n,) jobs in order of deadline


class State(NamedTuple):
    """Everything that moves."""

    now: Records  # (1,) NOW
    job: Records  # (n,) JOB
    slot: Records  # (n_slots,) SLOT
    gpu: Records  # (n_gpus,) GPU
    class_bits: Ints  # (n_gpus, n_classes) usable slots by class, bit = start
    open_gpus: Ints  # (n_levels, n_classes, n_words) bit = GPU of that level with a free slice of that class
    n_open: Ints  # (n_levels, n_classes) how many those are
    open_levels: Ints  # (n_classes,) bit = level where there is one
    end: Records  # (n_slots + n_gpus,) END: slots finish a job, GPUs finish a re-cut
    wait: Records  # (n,) WAIT
    aside: Ints  # (n,) scratch: jobs a pass looked at and left waiting
    placed: Ints  # (n_slots,) scratch: jobs a pass gave a slice
    running: Ints  # (n_slots,) jobs that run, in the order of the last pass; only with preemption
    config_s: Floats  # (n_configs,) GPU-seconds spent in each configuration
    tally: Ints  # (AT_CONFIG + 2 n_configs,) running counts, see encoding
    flow: Floats  # (3,) decayed sums of arrived jobs and of their work, and when they were last brought up to date
    segment: Floats  # (capacity, 4) job, slot * 64 + class, from, to, and cuts (sim.mig.occupancy); when World.record


@kernel
def time_on(jobs: JobArrays, state: State, job: int, slice_class: int) -> float:
    """Seconds the rest of the job takes on a slice of the class."""
    return state.job[job].left * jobs.run_s[job, slice_class]


@kernel
def classes_in_time(world: World, jobs: JobArrays, state: State, job: int) -> int:
    """Slice classes (bits) on which the job, started now, meets its deadline."""
    slack_s = jobs.spec[job].deadline_s + DEADLINE_GRACE_S - state.now[0].time_s
    classes = 0
    for slice_class in range(world.slice_class.size):
        if time_on(jobs, state, job, slice_class) <= slack_s:
            classes |= 1 << slice_class
    return classes


@kernel
def left_now(jobs: JobArrays, state: State, job: int) -> float:
    """Share of the job still to do at this moment, running or not."""
    slot = state.job[job].slot
    if slot < 0:
        return state.job[job].left
    ran_s = max(0.0, state.now[0].time_s - state.job[job].since_s)
    return max(0.0, state.job[job].left_at_start - ran_s / jobs.run_s[job, state.slot[slot].slice_class])


@kernel
def free_bits(state: State, gpu: int) -> int:
    """Slots of the GPU with a free slice, bit = start."""
    return state.gpu[gpu].usable & ~state.gpu[gpu].taken


@kernel
def first_level(state: State, classes: int) -> int:
    """Lowest level with a free slice of one of the classes (bits), or -1."""
    levels = np.int64(0)
    for slice_class in range(state.open_levels.size):
        if classes >> slice_class & 1:
            levels |= state.open_levels[slice_class]
    return lowest_bit(levels) if levels != 0 else -1


@kernel
def first_gpu(state: State, level: int, classes: int) -> int:
    """Lowest GPU of the level with a free slice of one of the classes (bits), or -1."""
    n_classes = state.open_gpus.shape[1]
    for word in range(state.open_gpus.shape[2]):
        merged = np.int64(0)
        for slice_class in range(n_classes):
            if classes >> slice_class & 1:
                merged |= state.open_gpus[level, slice_class, word]
        if merged != 0:
            return word * 64 + lowest_bit(merged)
    return -1


@kernel
def leftmost_slot(state: State, gpu: int, classes: int) -> int:
    """Leftmost free slot of one of the classes (bits) on the GPU, or -1."""
    mine = np.int64(0)
    for slice_class in range(state.class_bits.shape[1]):
        if classes >> slice_class & 1:
            mine |= state.class_bits[gpu, slice_class]
    mine &= free_bits(state, gpu)
    return gpu * SLOTS + lowest_bit(mine) if mine != 0 else -1


@kernel
def smallest_slot(world: World, state: State, gpu: int, classes: int) -> int:
    """Free slot of the smallest size among the classes (bits) on the GPU, leftmost first, or -1."""
    free = free_bits(state, gpu)
    smallest = SLOTS
    mine = np.int64(0)
    for slice_class in range(state.class_bits.shape[1]):
        if classes >> slice_class & 1:
            bits = free & state.class_bits[gpu, slice_class]
            size = world.slice_class[slice_class].size
            if bits != 0 and size <= smallest:
                mine = bits if size < smallest else mine | bits
                smallest = size
    return gpu * SLOTS + lowest_bit(mine) if mine != 0 else -1


@kernel
def single_level(world: World, state: State, gpu: int) -> int:  # noqa: ARG001
    """Rank of GPUs for rules that do not rank them."""
    return 0


@kernel
def busy_share_level(world: World, state: State, gpu: int) -> int:
    """Fullest GPU first, by share of busy compute slices."""
    return world.share_level[state.gpu[gpu].model, state.gpu[gpu].planned_busy]


@kernel
def slice_size_level(world: World, state: State, gpu: int) -> int:  # noqa: ARG001
    """GPU with the largest mean slice first; draining instances do not count."""
    return state.gpu[gpu].size_level


@kernel
def no_preparation(world: World, jobs: JobArrays, state: State) -> None:  # noqa: ARG001
    """Start of a decision pass for rules that keep nothing in between."""
    return


def copy_state(state: State) -> State:
    """A state that can be advanced without touching the first."""
    return State._make(array.copy() for array in state)
