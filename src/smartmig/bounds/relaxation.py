"""The relaxed world of the priced bounds, as arrays: what slices there are, what a GPU can be doing, who wants what.

Preemption and re-cutting are free here, a GPU may change what it does at any moment, and only two rules are kept: what
a GPU does is a legal set of busy slices, and a job runs on one slice at a time, after its release. Every schedule of
every policy keeps both, so whatever holds for all relaxed schedules holds for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from smartmig.bounds.energy import preemptive_makespan_s
from smartmig.errors import InputError, NoSliceFits
from smartmig.hardware.layouts import placement_sets
from smartmig.hardware.model import GpuModel, Profile
from smartmig.types import SLICE_SIZES, Floats, Ints, Jobs

MOST_JOBS = 1_000_000
"""Beyond this a bound would run for hours: refused."""

MOST_CURVES = 96
"""Jobs whose throughput curves are alike share tables; more curves than this are rounded up until they are few."""

TAIL_GROWTH = 1.35
"""After the earliest end, each interval is this much longer than the one before."""


@dataclass(frozen=True, eq=False)
class Relaxation:
    """A job set on a cluster, as the priced bounds see it. A *kind* is a slice of one GPU model that jobs can tell
    apart: by its speed or by its memory."""

    n_kinds: int
    kinds: tuple[tuple[int, str], ...]
    """(GPU model, smallest profile) of each kind; models in the order they first stand in the cluster"""
    kind_compute: Floats
    """(n_kinds,) compute slices"""
    n_gpus: Ints
    """(n_models,) cards of each model"""
    state_model: Ints
    """(n_states,) whose state it is"""
    state_count: Floats
    """(n_states, n_kinds) busy slices"""
    state_busy: Floats
    """(n_states,) slices of any kind"""
    state_w: Floats
    """(n_states,) power"""
    idle_w: Floats
    """(n_models,) power of a card that does nothing"""
    speed: Floats
    """(n_curves, n_kinds) work per second; 0 = does not fit"""
    curve: Ints
    """(n_jobs,)"""
    work: Floats
    """(n_jobs,) seconds at speed 1"""
    arrive_s: Floats
    """(n_jobs,) sorted"""
    deadline_s: Floats
    """(n_jobs,)"""
    end_s: float
    """no schedule ends earlier: idle power is paid until here"""

    @property
    def n_jobs(self) -> int:
        return int(self.arrive_s.size)


def relax(jobs: Jobs, gpus: Sequence[GpuModel], estimated_speed: bool = False) -> Relaxation:
    """The relaxation of a job set on a cluster, of one GPU model or several.

    Raises `InputError` without jobs, with more than `MOST_JOBS`, and for a job that fits no slice of any GPU.
    """
    if len(jobs) == 0:
        raise InputError("there are no jobs to bound")
    if len(jobs) > MOST_JOBS:
        raise InputError(f"{len(jobs)} jobs are too many for a bound, at most {MOST_JOBS} are allowed: split the file")
    if not gpus:
        raise InputError("a bound needs at least one GPU")
    models = tuple(dict.fromkeys(gpus))
    kinds: list[tuple[int, Profile]] = []
    counts: list[Floats] = []
    for index, model in enumerate(models):
        own, sets = _states(model, jobs.memory_gb)
        counts.append(sets)
        kinds += [(index, profile) for profile in own]
    first_kind = np.cumsum([0, *(sets.shape[1] for sets in counts)])
    state_count = np.zeros((sum(sets.shape[0] for sets in counts), len(kinds)))
    state_model = np.repeat(np.arange(len(models)), [sets.shape[0] for sets in counts])
    state_w = np.zeros(state_count.shape[0])
    for index, (model, sets) in enumerate(zip(models, counts, strict=True)):
        rows = state_model == index
        state_count[rows, first_kind[index] : first_kind[index + 1]] = sets
        compute = np.array([profile.compute for _, profile in kinds[first_kind[index] : first_kind[index + 1]]])
        state_w[rows] = np.array(model.power.watts)[(sets @ compute).astype(np.int64)]
    run_s = np.full((len(jobs), len(kinds)), np.inf)
    for column, (index, profile) in enumerate(kinds):
        size = SLICE_SIZES.index(profile.compute)
        factor = models[index].speed[size] if estimated_speed else 1.0
        run_s[:, column] = np.where(jobs.memory_gb <= profile.memory_gb, jobs.run_s[:, size] / factor, np.inf)
    homeless = np.flatnonzero(~np.isfinite(run_s).any(axis=1))
    if homeless.size:
        cards = ", ".join(model.id for model in models)
        why = f"fits no slice of {cards}: no schedule ends, so there is nothing to bound"
        raise NoSliceFits(str(jobs.job_id[homeless[0]]), why)
    order = np.argsort(jobs.arrive_s, kind="stable")
    speed, curve, work = _curves(run_s[order])
    n_gpus = np.array([sum(gpu == model for gpu in gpus) for model in models], dtype=np.int64)
    n_compute = np.array([profile.compute for _, profile in kinds])
    card_compute = np.array([models[index].n_compute for index, _ in kinds])
    return Relaxation(
        n_kinds=len(kinds),
        kinds=tuple((index, profile.name) for index, profile in kinds),
        kind_compute=n_compute.astype(np.float64),
        n_gpus=n_gpus,
        state_model=state_model.astype(np.int64),
        state_count=state_count,
        state_busy=state_count.sum(axis=1),
        state_w=state_w,
        idle_w=np.array([model.power.watts[0] for model in models]),
        speed=speed,
        curve=curve,
        work=work,
        arrive_s=jobs.arrive_s[order].copy(),
        deadline_s=jobs.deadline_s[order].copy(),
        end_s=_earliest_end_s(jobs.arrive_s, run_s, n_compute / card_compute, len(gpus)),
    )


def time_grid(relaxation: Relaxation, n_intervals: int) -> Floats:
    """Edges of the intervals: even ones from the first release to the earliest end, longer and longer ones after it;
    the first edge is 0, the last inf. The earliest end is an edge, because there idle power ends to count."""
    start_s, end_s = float(relaxation.arrive_s[0]), relaxation.end_s
    step_s = (end_s - start_s) / n_intervals
    edges = [0.0, end_s, *(start_s + np.arange(n_intervals) * step_s)]
    length_s, last_s = step_s, end_s
    while last_s < end_s + 2 * (end_s - start_s):
        length_s *= TAIL_GROWTH
        last_s += length_s
        edges.append(last_s)
    grid = np.unique(np.array(edges))
    # Rounding may put two edges next to each other: keep one, and both ends.
    keep = np.diff(grid, append=np.inf) > 1e-6 * step_s
    keep |= (grid == 0.0) | (grid == end_s)
    return np.append(grid[keep], np.inf)


def _states(model: GpuModel, memory_gb: Floats) -> tuple[list[Profile], Floats]:
    """A model's kinds of slices, and the sets of busy ones that no other set dominates (more slices, no more power)."""
    needs = np.unique(memory_gb)
    kinds: list[Profile] = []
    kind_of: dict[str, int] = {}
    for profile in sorted(model.profiles, key=lambda p: (p.compute, p.memory_gb, p.media)):
        for index, known in enumerate(kinds):
            tells_apart = np.any((needs > known.memory_gb) & (needs <= profile.memory_gb))
            if known.compute == profile.compute and not tells_apart:
                kind_of[profile.name] = index
                break
        else:
            kind_of[profile.name] = len(kinds)
            kinds.append(profile)
    found = set()
    for layout in placement_sets(model, model.profiles):
        count = [0] * len(kinds)
        for placement in layout:
            count[kind_of[placement.profile]] += 1
        found.add(tuple(count))
    sets = np.array(sorted(found), dtype=np.float64)
    watts = np.array(model.power.watts)[(sets @ np.array([kind.compute for kind in kinds])).astype(np.int64)]
    more = np.all(sets[:, None, :] >= sets[None, :, :], axis=2) & (watts[:, None] <= watts[None, :])
    np.fill_diagonal(more, False)
    return kinds, sets[~more.any(axis=0)]


def _curves(run_s: Floats) -> tuple[Floats, Ints, Floats]:
    """Jobs as work over shared curves. A curve stands for jobs that are no faster than it, so sharing only relaxes."""
    work = np.min(run_s, axis=1)
    speed = work[:, None] / run_s
    grain = 1e-12
    while True:
        # Rounded up on a logarithmic scale, so that equal curves meet in one class whatever their last bit.
        logs = np.full(speed.shape, -np.inf)
        np.log(speed, out=logs, where=speed > 0)
        steps = np.ceil(logs / grain - 0.5 * (grain < 1e-9))
        shared, curve = np.unique(steps, axis=0, return_inverse=True)
        if shared.shape[0] <= MOST_CURVES:
            break
        grain = 1e-9 if grain < 1e-9 else max(2 * grain, 1e-3)
    curve = curve.reshape(-1).astype(np.int64)
    classes = np.zeros(shared.shape)
    np.maximum.at(classes, curve, speed)
    return classes, curve, work


def _earliest_end_s(arrive_s: Floats, run_s: Floats, share: Floats, n_gpus: int) -> float:
    """No schedule ends before: each job on the fastest slice at once, or all work linearised onto whole cards."""
    alone_s = float(np.max(arrive_s + np.min(run_s, axis=1)))
    card_s = np.min(run_s * share, axis=1)
    return max(alone_s, preemptive_makespan_s(arrive_s, card_s, n_gpus))
