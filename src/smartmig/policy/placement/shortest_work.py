"""Class-wise shortest remaining work: our own rule for overload.

When jobs are late anyway, finishing many short ones early costs less tardiness than honouring deadlines. Jobs by
(throughput class, remaining time on a whole GPU); each takes the free slice with the least
own tardiness + (size price x size + energy weight x watts it adds now) x its time there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from smartmig.jit import kernel, lowest_bit
from smartmig.policy.placement.rule import EarliestDeadlineFirst, Kernels, throughput_class
from smartmig.policy.plain import PlainSlice, PlainView
from smartmig.policy.view import (
    JobArrays,
    State,
    World,
    busy_share_level,
    first_gpu,
    leftmost_slot,
    time_on,
)
from smartmig.types import Floats, Ints


@kernel
def by_remaining_work(world: World, jobs: JobArrays, state: State, job: int) -> float:  # noqa: ARG001
    return state.job[job].left * jobs.spec[job].whole_s


@kernel
def choose(world: World, jobs: JobArrays, state: State, job: int) -> int:
    now_s = state.now[0].time_s
    best = np.inf
    best_slot = -1
    size_price = world.knobs[0] * (world.knobs[2] if jobs.spec[job].group > 1 else 1.0)
    # All GPUs of a level are equally busy, so one slice per (level, class) stands for the rest.
    for slice_class in range(world.slice_class.size):
        if not jobs.spec[job].fits >> slice_class & 1:
            continue
        size = world.slice_class[slice_class].size
        run_s = time_on(jobs, state, job, slice_class)
        late_s = max(0.0, now_s + run_s - jobs.spec[job].deadline_s)
        levels = state.open_levels[slice_class]
        while levels != 0:
            gpu = first_gpu(state, lowest_bit(levels), 1 << slice_class)
            levels &= levels - 1
            busy = state.gpu[gpu].planned_busy
            watts = world.power_w[state.gpu[gpu].model]
            price = size_price * size + world.knobs[1] * (watts[busy + size] - watts[busy])
            cost = late_s + price * run_s
            slot = leftmost_slot(state, gpu, 1 << slice_class)
            if cost < best or (cost == best and slot < best_slot):
                best = cost
                best_slot = slot
    return best_slot


@dataclass(frozen=True)
class ShortestWork(EarliestDeadlineFirst):
    """Shortest remaining work first within a throughput class, onto the slice with the least priced cost (ours)."""

    size_price: float = 0.1
    """seconds of tardiness that one compute slice, held for one second, is worth"""
    energy_weight: float = 8.3e-4
    """what a watt-minute is worth in minutes of tardiness, as in `marginal-et`"""

    poor_scaling: float = 1.0
    """factor on the size price for jobs that 4g serves nearly as well as the whole GPU (throughput classes 2 to 4)"""

    kernels: ClassVar[Kernels] = Kernels(by_remaining_work, choose, busy_share_level)

    def knobs(self, world: World) -> tuple[float, ...]:  # noqa: ARG002
        return (self.size_price, self.energy_weight, self.poor_scaling)

    def groups(self, run_s: Floats) -> Ints:
        return throughput_class(run_s)

    def plain_key(self, view: PlainView, job: int) -> float:
        return view.left[job] * float(view.whole_s[job])

    def plain_choose(self, view: PlainView, job: int) -> PlainSlice | None:
        size_price = self.size_price * (self.poor_scaling if view.group[job] > 1 else 1.0)

        def cost(piece: PlainSlice) -> float:
            gpu = view.gpus[piece.gpu]
            watts = float(gpu.watts[gpu.busy + piece.size] - gpu.watts[gpu.busy])
            price = size_price * piece.size + self.energy_weight * watts
            return view.tardiness(job, piece) + price * view.time_on(job, piece)

        return min(view.free(job), key=lambda piece: (cost(piece), piece.slot), default=None)
