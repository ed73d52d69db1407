"""EDF marginal ET (S3): earliest deadline first, onto the slice that adds least energy and tardiness."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from smartmig.jit import kernel, lowest_bit
from smartmig.policy.placement.rule import EarliestDeadlineFirst, Kernels, by_deadline
from smartmig.policy.plain import PlainSlice, PlainView
from smartmig.policy.view import SLOTS, JobArrays, State, World, free_bits, time_on


@kernel
def extra_energy_j(world: World, state: State, gpu: int, size: int, run_s: float) -> float:
    """Energy the GPU uses beyond its present occupants' when `size` more slices are busy for `run_s`."""
    now_s = state.now[0].time_s
    watts = world.power_w[state.gpu[gpu].model]
    busy = state.gpu[gpu].planned_busy
    running = state.gpu[gpu].taken
    from_s = now_s
    extra_j = 0.0
    while from_s < now_s + run_s:
        # Up to the next occupant's end (or ours) the power is constant.
        until_s = now_s + run_s
        leaving = -1
        bits = running
        while bits != 0:
            slot = gpu * SLOTS + lowest_bit(bits)
            bits &= bits - 1
            if state.slot[slot].end_s < until_s:
                until_s = state.slot[slot].end_s
                leaving = slot
        if until_s > from_s:
            extra_j += (watts[busy + size] - watts[busy]) * (until_s - from_s)
            from_s = until_s
        if leaving < 0:
            break
        busy -= world.slice_class[state.slot[leaving].slice_class].size
        running &= ~(1 << (leaving - gpu * SLOTS))
    return extra_j


@kernel
def choose(world: World, jobs: JobArrays, state: State, job: int) -> int:
    now_s = state.now[0].time_s
    best = np.inf
    best_slot = -1
    idle_seen = 0  # classes already looked at on a wholly idle GPU: another such GPU cannot be better
    for gpu in range(world.n_gpus):
        free = free_bits(state, gpu)
        idle = state.gpu[gpu].taken == 0
        seen = idle_seen if idle else 0
        while free != 0:
            slot = gpu * SLOTS + lowest_bit(free)
            free &= free - 1
            slice_class = state.slot[slot].slice_class
            bit = 1 << slice_class
            if seen & bit or not jobs.spec[job].fits & bit:
                continue
            seen |= bit
            run_s = time_on(jobs, state, job, slice_class)
            late_s = max(0.0, now_s + run_s - jobs.spec[job].deadline_s)
            cost = (
                world.knobs[0] * extra_energy_j(world, state, gpu, world.slice_class[slice_class].size, run_s) + late_s
            )
            if cost < best:
                best = cost
                best_slot = slot
        if idle:
            idle_seen |= seen
    return best_slot


@dataclass(frozen=True)
class MarginalEt(EarliestDeadlineFirst):
    """Earliest deadline first, onto the slice with the least weighted extra energy plus tardiness (S3)."""

    energy_weight: float = 8.3e-4
    """what a watt-minute is worth in minutes of tardiness (as well: a joule in seconds); the objective's 2.0e-7 times
    the 4,150 jobs of a day, because one job's energy stands against one job's tardiness"""

    kernels: ClassVar[Kernels] = Kernels(by_deadline, choose)

    def knobs(self, world: World) -> tuple[float, ...]:  # noqa: ARG002
        return (self.energy_weight,)

    def plain_choose(self, view: PlainView, job: int) -> PlainSlice | None:
        def cost(piece: PlainSlice) -> float:
            return self.energy_weight * plain_extra_energy_j(view, job, piece) + view.tardiness(job, piece)

        return min(view.free(job), key=cost, default=None)


def plain_extra_energy_j(view: PlainView, job: int, piece: PlainSlice) -> float:
    gpu = view.gpus[piece.gpu]
    end_s = view.now_s + view.time_on(job, piece)
    occupants = [s for s in gpu.slices if s.job is not None]
    changes = sorted({view.now_s, end_s, *(s.end_s for s in occupants if view.now_s < s.end_s < end_s)})
    extra_j = 0.0
    for from_s, until_s in itertools.pairwise(changes):
        busy = sum(s.size for s in occupants if s.end_s > from_s)
        extra_j += float(gpu.watts[busy + piece.size] - gpu.watts[busy]) * (until_s - from_s)
    return extra_j
