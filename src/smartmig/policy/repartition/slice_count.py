"""Slice count: as many slices as the queue can use, spread evenly over the GPUs.

Few jobs: whole GPUs, each job runs fast. Many jobs: more and smaller slices, which waste less of a GPU on jobs that
do not scale. Long jobs count double, because they will still be there when the cut is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from smartmig.errors import InputError
from smartmig.hardware.cuts import CutTable
from smartmig.hardware.layouts import configurations, sizes
from smartmig.hardware.model import GpuModel
from smartmig.jit import kernel
from smartmig.policy.plain import PlainView
from smartmig.policy.view import SLOTS, JobArrays, Kernel, State, World, left_now
from smartmig.types import Floats, Layout

PATHS = {
    7: ((7,), (4, 3), (2, 2, 3), (2, 1, 1, 3), (2, 2, 1, 1, 1)),
    4: ((4,), (2, 2), (2, 1, 1), (1, 1, 1, 1)),
}
"""Left-to-right slice sizes for 1, 2, ... slices on a card, by its compute slices."""


@kernel
def control(world: World, jobs: JobArrays, state: State, knobs: Floats) -> None:
    # knobs: weight long, weight other, base, long from (s), hysteresis, then per model the configuration of 1.. slices
    long_s = knobs[3]
    n_long = 0
    n_other = 0
    for at in range(state.now[0].n_waiting):
        job = state.wait[at].job
        if state.job[job].left * jobs.spec[job].single_s > long_s:
            n_long += 1
        else:
            n_other += 1
    for slot in range(world.n_gpus * SLOTS):
        job = state.slot[slot].job
        if job >= 0:
            if left_now(jobs, state, job) * jobs.spec[job].single_s > long_s:
                n_long += 1
            else:
                n_other += 1
    wanted = round(knobs[0] * n_long + knobs[1] * n_other + knobs[2])
    n_slices = 0
    most = 0
    for gpu in range(world.n_gpus):
        state.gpu[gpu].target = -1
        n_slices += world.config[state.gpu[gpu].config].n_slices
        most += longest(state, knobs, gpu)
    wanted = min(max(wanted, world.n_gpus), most)
    if abs(wanted - n_slices) < knobs[4]:
        return
    # One slice more on the GPUs with fewest, or one less on those with most, until the number is right.
    n_slices = 0
    for gpu in range(world.n_gpus):
        state.gpu[gpu].target = min(world.config[state.gpu[gpu].config].n_slices, longest(state, knobs, gpu))
        n_slices += state.gpu[gpu].target
    for few in range(SLOTS):
        for gpu in range(world.n_gpus):
            if n_slices < wanted and state.gpu[gpu].target == few and few < longest(state, knobs, gpu):
                state.gpu[gpu].target += 1
                n_slices += 1
    for many in range(SLOTS, 0, -1):
        for gpu in range(world.n_gpus):
            if n_slices > wanted and state.gpu[gpu].target == many:
                state.gpu[gpu].target -= 1
                n_slices -= 1
    for gpu in range(world.n_gpus):
        count = state.gpu[gpu].target
        changed = count != world.config[state.gpu[gpu].config].n_slices
        state.gpu[gpu].target = path_config(state, knobs, gpu, count) if changed else -1


@kernel
def path_config(state: State, knobs: Floats, gpu: int, count: int) -> int:
    return int(knobs[5 + SLOTS * state.gpu[gpu].model + count])


@kernel
def longest(state: State, knobs: Floats, gpu: int) -> int:
    """Most slices the GPU's path offers."""
    count = SLOTS - 1
    while path_config(state, knobs, gpu, count) < 0:
        count -= 1
    return count


@dataclass(frozen=True)
class SliceCount:
    """As many slices as the jobs in the system can use, spread evenly over the GPUs (ours).

    Wanted slices = long_weight x long jobs + other_weight x other jobs + base, waiting and running.
    """

    long_weight: float = 0.89
    """slices per long job"""
    other_weight: float = 0.44
    """slices per other job"""
    base: float = 2.9
    """slices on top"""
    long_from_s: float = 480.0
    """a job is long while it has more than this left on a 1g slice"""
    hysteresis: float = 2.0
    """re-cut only when this many slices are too few or too many"""
    check_s: float = 60.0
    """time between looks"""

    control: ClassVar[Kernel | None] = control
    counted: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not self.check_s > 0:
            raise InputError(f"slice-count.check_s must be above 0, got {self.check_s:g}")

    def period_s(self) -> float:
        return self.check_s

    def every_events(self, n_gpus: int) -> int:  # noqa: ARG002
        return 0

    def start(self, gpus: Sequence[GpuModel]) -> tuple[Layout, ...]:
        return tuple(configurations(gpu)[0] for gpu in gpus)

    def _path(self, cuts: CutTable, model: int) -> list[int]:
        """Configuration for 1, 2, ... slices on the model."""
        gpu = cuts.models[model]
        by_sizes = {
            tuple(sorted(sizes(gpu, config.variants[0]))): index
            for index, config in enumerate(cuts.configs)
            if config.model == model and config.number is not None
        }
        return [by_sizes[tuple(sorted(step))] for step in PATHS[gpu.n_compute]]

    def reachable(self, cuts: CutTable) -> tuple[int, ...]:
        return tuple(config for model in range(len(cuts.models)) for config in self._path(cuts, model))

    def knobs(self, cuts: CutTable, world: World) -> Floats:  # noqa: ARG002
        table = np.full((len(cuts.models), SLOTS), -1.0)
        for model in range(len(cuts.models)):
            path = self._path(cuts, model)
            table[model, 1 : len(path) + 1] = path
        numbers = (self.long_weight, self.other_weight, self.base, self.long_from_s, self.hysteresis)
        return np.concatenate([numbers, table.ravel()])

    def plain_control(self, view: PlainView, cuts: CutTable, config: list[int]) -> list[int]:
        paths = [self._path(cuts, model) for model in range(len(cuts.models))]
        work_s = [view.left[job] * float(view.single_s[job]) for job in view.in_system]
        n_long = sum(left_s > self.long_from_s for left_s in work_s)
        wish = round(self.long_weight * n_long + self.other_weight * (len(work_s) - n_long) + self.base)
        wanted = min(max(wish, len(view.gpus)), sum(len(paths[gpu.model]) for gpu in view.gpus))
        have = [cuts.configs[c].n_slices for c in config]
        if abs(wanted - sum(have)) < self.hysteresis:
            return [-1] * len(config)
        want = [min(have[gpu.index], len(paths[gpu.model])) for gpu in view.gpus]
        while sum(want) < wanted:
            growable = [g for g in view.gpus if want[g.index] < len(paths[g.model])]
            want[min(growable, key=lambda g: (want[g.index], g.index)).index] += 1
        while sum(want) > wanted:
            want[min(view.gpus, key=lambda g: (-want[g.index], g.index)).index] -= 1
        return [paths[g.model][want[g.index] - 1] if want[g.index] != have[g.index] else -1 for g in view.gpus]
