"""What a placing decision is about, and what is seen of it; `asking` puts the questions.

Two ways to ask:
  S1's    the waiting job with the earliest deadline (of those that fit a free slice): which slice of the cluster?
  ours    a window of waiting jobs, half those with the least work, half those with the earliest deadlines: which of
          them onto which size of slice? The slice of that size is the one that adds the least energy. Nothing in it
          depends on the cluster, so one policy serves any.
The last action is to wait. It is admitted while something else is going to happen: an arrival, or the end of a job.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from smartmig.jit import kernel, lowest_bit
from smartmig.policy.encoding import N_FEATURES, N_TIME, encode, time_bin
from smartmig.policy.placement.learned import size_index
from smartmig.policy.view import SLOTS, JobArrays, State, World, free_bits
from smartmig.types import SLICE_SIZES, Floats, Ints, Jobs

N_SIZES = len(SLICE_SIZES)
N_RUNS = 3
"""S1's mean run times: on small (1g), medium (2g, 3g) and large (4g, 7g) slices"""
RUN_SIZES = ((1,), (2, 3), (4, 7))

# What S1 sees: of the job time to deadline, run times and urgency; four histograms of the queue (time to deadline, run
# times); busy flag and size of every slice; queue length, share of free slices, largest free slice.
AT_COUNTS = 2 + N_RUNS
AT_SLICES = AT_COUNTS + (1 + N_RUNS) * N_TIME
MOST_URGENT = 10.0

# What we see: the encoding's features, free slices by size, then for every job of the window what it is, and for every
# size whether it may go there, how long it takes, how late it will be and what power it adds.
AT_FREE = N_FEATURES
AT_WINDOW = AT_FREE + N_SIZES
N_OF_JOB = 5
N_OF_PAIR = 4
N_PER_JOB = N_OF_JOB + N_SIZES * N_OF_PAIR


class Questions(NamedTuple):
    """What goes with each state: arrays of one lane, or of many with one more dimension in front."""

    open: Ints  # (1,) whether the decision pass of the last event goes on
    window: Ints  # (n_window,) jobs asked about, -1 = none
    slot: Ints  # (n_actions,) slot an action takes, -1 = not legal; the last is to wait
    mask: NDArray[np.bool_]  # (n_actions,)
    seen: Floats  # (n_seen,) float32
    queue: Ints  # (1 + N_RUNS, N_TIME) waiting jobs by S1's bins
    run_min: Floats  # (n_jobs, N_RUNS) S1's mean run times
    run_bin: Ints  # (n_jobs, N_RUNS) int8, their bins
    books: Floats  # (N_BOOKS,) see ledger
    cost: Floats  # (2,) tardiness (s) and energy (J) since the last question
    shaped: Floats  # (1,) S1's immediate reward for the last answer
    free: Ints  # (n_classes,) scratch: the slot of each class that adds the least power, -1 = none is free
    added_w: Floats  # (n_classes,) scratch: that power


def action_count(n_slices: int, n_window: int, s1: bool) -> int:
    return n_slices + 1 if s1 else n_window * N_SIZES + 1


def seen_count(n_slices: int, n_window: int, s1: bool) -> int:
    return AT_SLICES + 2 * n_slices + 3 if s1 else AT_WINDOW + n_window * N_PER_JOB


def mean_runs_min(jobs: Jobs) -> Floats:
    """(n, N_RUNS) in minutes; where a job fits none of the sizes, its longest time on any."""
    known = np.where(np.isfinite(jobs.run_s), jobs.run_s, np.nan)
    longest_s = np.nanmax(known, axis=1)
    columns = []
    for sizes in RUN_SIZES:
        own = known[:, [SLICE_SIZES.index(size) for size in sizes]]
        n = np.isfinite(own).sum(axis=1)
        columns.append(np.where(n > 0, np.nansum(own, axis=1) / np.maximum(n, 1), longest_s))
    return np.stack(columns, axis=1) / 60.0


@kernel
def count_queue(state: State, q: Questions) -> None:
    for row in range(1 + N_RUNS):
        for at in range(N_TIME):
            q.queue[row, at] = 0
    now_s = state.now[0].time_s
    for at in range(state.now[0].n_waiting):
        job = state.wait[at].job
        q.queue[0, time_bin(state.wait[at].deadline_s - now_s)] += 1
        for run in range(N_RUNS):
            q.queue[1 + run, q.run_bin[job, run]] += 1


@kernel
def squashed(time_min: float) -> float:
    """Minutes on a scale a network can read: signed logarithm."""
    return math.log1p(time_min) if time_min >= 0.0 else -math.log1p(-time_min)


@kernel
def see_as_s1(world: World, jobs: JobArrays, state: State, q: Questions) -> None:
    now_s = state.now[0].time_s
    job = q.window[0]
    seen = q.seen
    if q.open[0] == 1:  # within a pass the counts are kept up to date
        count_queue(state, q)
        q.open[0] = 2
    to_deadline_s = jobs.spec[job].deadline_s - now_s
    whole_s = jobs.spec[job].whole_s
    seen[0] = squashed(to_deadline_s / 60.0)
    for run in range(N_RUNS):
        seen[1 + run] = squashed(q.run_min[job, run])
    urgent = whole_s >= MOST_URGENT * to_deadline_s
    seen[1 + N_RUNS] = MOST_URGENT if urgent else whole_s / to_deadline_s
    n_waiting = state.now[0].n_waiting
    for row in range(1 + N_RUNS):
        for at in range(N_TIME):
            seen[AT_COUNTS + row * N_TIME + at] = q.queue[row, at] / n_waiting
    at = AT_SLICES
    largest = 0
    n_slices = 0
    for gpu in range(world.n_gpus):
        free = free_bits(state, gpu)
        for place in range(SLOTS):
            slice_class = state.slot[gpu * SLOTS + place].slice_class
            if slice_class >= 0:
                size = world.slice_class[slice_class].size
                is_free = free >> place & 1
                if is_free:
                    largest = max(largest, size)
                seen[at] = 0.0 if is_free else 1.0
                seen[at + 1] = size / 7.0
                at += 2
                n_slices += 1
    seen[at] = math.log1p(n_waiting)
    seen[at + 1] = state.now[0].n_free / n_slices
    seen[at + 2] = largest / 7.0


@kernel
def see_as_ours(world: World, jobs: JobArrays, state: State, q: Questions) -> None:
    now_s = state.now[0].time_s
    seen = q.seen
    encode(world, jobs, state, seen[:N_FEATURES])
    for size in range(N_SIZES):
        seen[AT_FREE + size] = 0.0
    for gpu in range(world.n_gpus):
        bits = free_bits(state, gpu)
        while bits != 0:
            slice_class = state.slot[gpu * SLOTS + lowest_bit(bits)].slice_class
            seen[AT_FREE + size_index(world.slice_class[slice_class].size)] += 1.0 / world.n_gpus
            bits &= bits - 1
    for nth in range(q.window.size):
        at = AT_WINDOW + nth * N_PER_JOB
        job = q.window[nth]
        if job < 0:
            for other in range(at, at + N_PER_JOB):
                seen[other] = 0.0
            continue
        spec = jobs.spec[job]
        seen[at] = 1.0
        seen[at + 1] = squashed((spec.deadline_s - now_s) / 60.0)
        seen[at + 2] = squashed(spec.whole_s / 60.0)
        seen[at + 3] = squashed(spec.single_s / 60.0)
        seen[at + 4] = spec.scaling / 3.0
        at += N_OF_JOB
        for size in range(N_SIZES):
            slot = q.slot[nth * N_SIZES + size]
            if slot < 0:
                for other in range(at, at + N_OF_PAIR):
                    seen[other] = 0.0
            else:
                slice_class = state.slot[slot].slice_class
                run_s = jobs.run_s[job, slice_class]
                seen[at] = 1.0
                seen[at + 1] = squashed(run_s / 60.0)
                seen[at + 2] = squashed(max(0.0, now_s + run_s - spec.deadline_s) / 60.0)
                seen[at + 3] = q.added_w[slice_class] / 100.0
            at += N_OF_PAIR
