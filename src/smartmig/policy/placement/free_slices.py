"""Choices among the free slices of the whole cluster, blind to the GPU they are on; ties to the lower slot."""

from __future__ import annotations

import numpy as np

from smartmig.jit import kernel, lowest_bit
from smartmig.policy.plain import PlainSlice, PlainView
from smartmig.policy.view import (
    SLOTS,
    JobArrays,
    State,
    World,
    classes_in_time,
    first_gpu,
    first_level,
    free_bits,
    leftmost_slot,
    time_on,
)
from smartmig.types import DEADLINE_GRACE_S


@kernel
def lowest_slot(state: State, classes: int) -> int:
    """Lowest free slot of the classes (bits), or -1."""
    return leftmost_slot(state, first_gpu(state, 0, classes), classes) if first_level(state, classes) >= 0 else -1


BY_SIZE, BY_TIME = 0, 1


@kernel
def extreme(world: World, jobs: JobArrays, state: State, job: int, classes: int, by: int, sign: int) -> int:
    """Lowest free slot among the classes (bits) with the most (sign 1) or least (sign -1) size or run time, or -1."""
    untried = classes
    while untried != 0:
        best = -np.inf
        best_classes = 0
        for slice_class in range(world.slice_class.size):
            if untried >> slice_class & 1:
                if by == BY_SIZE:
                    value = sign * float(world.slice_class[slice_class].size)
                else:
                    value = sign * time_on(jobs, state, job, slice_class)
                if value > best:
                    best = value
                    best_classes = 1 << slice_class
                elif value == best:
                    best_classes |= 1 << slice_class
        slot = lowest_slot(state, best_classes)
        if slot >= 0:
            return slot
        untried &= ~best_classes
    return -1


@kernel
def largest(world: World, jobs: JobArrays, state: State, job: int) -> int:
    return extreme(world, jobs, state, job, jobs.spec[job].fits, BY_SIZE, 1)


@kernel
def smallest(world: World, jobs: JobArrays, state: State, job: int) -> int:
    return extreme(world, jobs, state, job, jobs.spec[job].fits, BY_SIZE, -1)


@kernel
def fastest(world: World, jobs: JobArrays, state: State, job: int) -> int:
    return extreme(world, jobs, state, job, jobs.spec[job].fits, BY_TIME, -1)


@kernel
def slowest_that_meets_deadline(world: World, jobs: JobArrays, state: State, job: int) -> int:
    """The slowest slice that meets the deadline; the fastest if none does."""
    slot = extreme(world, jobs, state, job, classes_in_time(world, jobs, state, job), BY_TIME, 1)
    return slot if slot >= 0 else fastest(world, jobs, state, job)


@kernel
def nth_free(world: World, state: State, classes: int, nth: int) -> int:
    """The nth free slot of the classes (bits) by slot number; nth = -1 counts them instead."""
    seen = 0
    for gpu in range(world.n_gpus):
        bits = free_bits(state, gpu)
        while bits != 0:
            slot = gpu * SLOTS + lowest_bit(bits)
            bits &= bits - 1
            if classes >> state.slot[slot].slice_class & 1:
                if seen == nth:
                    return slot
                seen += 1
    return seen


def plain_largest(view: PlainView, job: int) -> PlainSlice | None:
    return min(view.free(job), key=lambda piece: (-piece.size, piece.slot), default=None)


def plain_smallest(view: PlainView, job: int) -> PlainSlice | None:
    return min(view.free(job), key=lambda piece: (piece.size, piece.slot), default=None)


def plain_fastest(view: PlainView, job: int) -> PlainSlice | None:
    return min(view.free(job), key=lambda piece: (view.time_on(job, piece), piece.slot), default=None)


def plain_slowest_that_meets_deadline(view: PlainView, job: int) -> PlainSlice | None:
    slack_s = float(view.deadline_s[job]) + DEADLINE_GRACE_S - view.now_s
    meeting = [piece for piece in view.free(job) if view.time_on(job, piece) <= slack_s]
    if not meeting:
        return plain_fastest(view, job)
    return min(meeting, key=lambda piece: (-view.time_on(job, piece), piece.slot))
