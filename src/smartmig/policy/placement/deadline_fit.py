"""The slice choice of S3's EDF family, in one place.

GPUs by the rule's level, then index; inside a GPU free slices from small to large, then left to right: the first slice
that meets the deadline is taken; if none does, the first of those with the earliest finish.
"""

from __future__ import annotations

import numpy as np

from smartmig.jit import kernel
from smartmig.policy.plain import PlainGpu, PlainSlice, PlainView
from smartmig.policy.view import (
    JobArrays,
    State,
    World,
    classes_in_time,
    first_gpu,
    first_level,
    smallest_slot,
    time_on,
)
from smartmig.types import DEADLINE_GRACE_S


@kernel
def first_that_meets_deadline(world: World, jobs: JobArrays, state: State, job: int) -> int:
    meets = classes_in_time(world, jobs, state, job)
    if meets != 0:
        slot = first_of(world, state, meets)
        if slot >= 0:
            return slot
    return earliest_finish(world, jobs, state, job)


@kernel
def earliest_finish(world: World, jobs: JobArrays, state: State, job: int) -> int:
    """Among the free slices that finish the job first, the one that stands first in the scan."""
    # Classes from fast to slow: take the fastest (all of equal speed together) that has a free slice anywhere.
    tried = ~jobs.spec[job].fits
    while True:
        best_s = np.inf
        fastest = 0
        for slice_class in range(world.slice_class.size):
            if tried >> slice_class & 1:
                continue
            finish_s = time_on(jobs, state, job, slice_class)
            if finish_s < best_s:
                best_s = finish_s
                fastest = 1 << slice_class
            elif finish_s == best_s:
                fastest |= 1 << slice_class
        if fastest == 0:
            return -1
        slot = first_of(world, state, fastest)
        if slot >= 0:
            return slot
        tried |= fastest


@kernel
def first_of(world: World, state: State, classes: int) -> int:
    """First free slice of the classes (bits) in the scan order, or -1."""
    level = first_level(state, classes)
    return smallest_slot(world, state, first_gpu(state, level, classes), classes) if level >= 0 else -1


def plain_deadline_fit(view: PlainView, job: int, gpus: list[PlainGpu]) -> PlainSlice | None:
    """The same, looking at every slice."""
    free = [piece for gpu in gpus for piece in sorted(gpu.usable, key=lambda s: (s.size, s.start)) if piece.job is None]
    fitting = [piece for piece in free if view.run_s[job, piece.slice_class] != float("inf")]
    slack_s = float(view.deadline_s[job]) + DEADLINE_GRACE_S - view.now_s
    for piece in fitting:
        if view.time_on(job, piece) <= slack_s:
            return piece
    return min(fitting, key=lambda piece: view.time_on(job, piece), default=None)
