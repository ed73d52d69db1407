"""Fragmentation-aware (ours): keep room for the sizes that come, now and later.

With f free GPUs a node has room for floor(f / s) jobs of size s. A job costs room as its node stands now until the
node's other jobs end, and room on a node that would be idle from then on. It goes where that loss is least, summed over
the sizes of recent submissions (each by its GPUs) and over its requested time: beside jobs that end no earlier.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from smartmig.jit import kernel
from smartmig.policy.allocation.rule import Anywhere, Kernels
from smartmig.policy.gang_plain import PlainGang, PlainNode
from smartmig.policy.gang_view import JobArrays, State, World, busy_until


@kernel
def lost_room(state: State, free: int, n_gpus: int) -> float:
    """GPUs that jobs of the recent mix could have used of so many free ones, and cannot if some are taken."""
    loss = 0.0
    for size in range(1, state.mix.size):
        loss += state.mix[size] * (size * (free // size - (free - n_gpus) // size))
    return loss


@kernel
def tabulate(world: World, jobs: JobArrays, state: State, job: int) -> None:  # noqa: ARG001
    """Many nodes, few numbers of free GPUs: what the whole job would cost, by that number."""
    n_gpus = jobs.spec[job].n_gpus
    for free in range(n_gpus, state.mix.size):
        state.scratch[free] = lost_room(state, free, n_gpus)


@kernel
def loss(world: World, jobs: JobArrays, state: State, job: int, node: int, n_gpus: int, horizon_s: float) -> float:
    """Room that recent jobs lose if this one takes so many GPUs there; after `tabulate`."""
    offered = state.offered[node]
    if n_gpus == jobs.spec[job].n_gpus:
        lost_now = state.scratch[offered]
        lost_later = state.scratch[world.node[node].n_gpus]
    else:
        lost_now = lost_room(state, offered, n_gpus)
        lost_later = lost_room(state, world.node[node].n_gpus, n_gpus)
    length_s = min(jobs.spec[job].limit_s, horizon_s)
    beside_s = min(max(busy_until(state, node) - state.now[0].place_s, 0.0), length_s)
    return beside_s * lost_now + (length_s - beside_s) * lost_later


@kernel
def score(world: World, jobs: JobArrays, state: State, job: int, node: int, n_gpus: int) -> tuple[float, float]:
    lost = loss(world, jobs, state, job, node, n_gpus, world.allocation_knobs[0])
    return lost, float(state.offered[node] - n_gpus)


@dataclass(frozen=True)
class FragmentationAware(Anywhere):
    """Where jobs of the recent size mix lose the least room over the job's requested time (ours)."""

    half_life: float = 1000.0
    """submissions after which a job counts half in the mix"""
    horizon_s: float = 30 * 86_400.0
    """requested times count up to this"""
    spread: bool = False
    """split a job that fits no node now over several"""

    kernels: ClassVar[Kernels] = Kernels(score, tabulate)

    @property
    def mix_half_life(self) -> float:
        return self.half_life

    def knobs(self) -> tuple[float, ...]:
        return (self.horizon_s,)

    def plain_score(self, view: PlainGang, job: int, node: PlainNode, n_gpus: int) -> tuple[float, float]:
        def lost_room(free: int) -> float:
            loss = 0.0
            for size in range(1, len(view.mix)):
                loss += view.mix[size] * (size * (free // size - (free - n_gpus) // size))
            return loss

        offered = view.offered[node.index]
        length_s = min(float(view.jobs.limit_s[job]), self.horizon_s)
        busy_until_s = max([view.now_s, *node.until_s.values()])
        beside_s = min(max(busy_until_s - view.place_s, 0.0), length_s)
        loss = beside_s * lost_room(offered) + (length_s - beside_s) * lost_room(node.n_gpus)
        return loss, float(offered - n_gpus)
