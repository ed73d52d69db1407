"""Earliest finish that may wait: a busy slice that frees soon can beat a free one.

Jobs by deadline; each books the slice, free or busy, on which it would finish first. A booking on a busy slice pushes
back everyone after it and leaves the job waiting. Bookings last for one decision pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from smartmig.jit import kernel, lowest_bit
from smartmig.policy.placement.rule import EarliestDeadlineFirst, Kernels, by_deadline
from smartmig.policy.plain import PlainSlice, PlainView
from smartmig.policy.view import SLOTS, JobArrays, State, World, time_on


@kernel
def choose(world: World, jobs: JobArrays, state: State, job: int) -> int:
    now_s = state.now[0].time_s
    best_s = np.inf
    best_slot = -1
    for gpu in range(world.n_gpus):
        bits = state.gpu[gpu].usable
        while bits != 0:
            slot = gpu * SLOTS + lowest_bit(bits)
            bits &= bits - 1
            slice_class = state.slot[slot].slice_class
            if not jobs.spec[job].fits >> slice_class & 1:
                continue
            free_at_s = max(now_s, state.slot[slot].booked_s)
            if state.gpu[gpu].taken >> (slot - gpu * SLOTS) & 1:
                free_at_s = max(free_at_s, state.slot[slot].end_s)
            finish_s = free_at_s + time_on(jobs, state, job, slice_class)
            if finish_s < best_s:
                best_s = finish_s
                best_slot = slot
    if best_slot < 0:
        return -1
    gpu = best_slot // SLOTS
    waits = state.gpu[gpu].taken >> (best_slot - gpu * SLOTS) & 1 or state.slot[best_slot].booked_s > now_s
    state.slot[best_slot].booked_s = best_s
    return -1 if waits else best_slot


@kernel
def forget_bookings(world: World, jobs: JobArrays, state: State) -> None:  # noqa: ARG001
    for slot in range(world.n_gpus * SLOTS):
        state.slot[slot].booked_s = 0.0


@dataclass(frozen=True)
class EarliestFinishWaiting(EarliestDeadlineFirst):
    """Earliest deadline first, onto the slice that finishes first, waiting for a busy one where that pays (ours)."""

    kernels: ClassVar[Kernels] = Kernels(by_deadline, choose, prepare=forget_bookings)

    def plain_prepare(self, view: PlainView) -> None:
        view.booked_s.clear()

    def plain_choose(self, view: PlainView, job: int) -> PlainSlice | None:
        def free_at_s(piece: PlainSlice) -> float:
            taken_until_s = piece.end_s if piece.job is not None else view.now_s
            return max(view.now_s, taken_until_s, view.booked_s.get(piece.slot, 0.0))

        best = min(view.slices(job), key=lambda s: free_at_s(s) + view.time_on(job, s), default=None)
        if best is None:
            return None
        waits = best.job is not None or view.booked_s.get(best.slot, 0.0) > view.now_s
        view.booked_s[best.slot] = free_at_s(best) + view.time_on(job, best)
        return None if waits else best
