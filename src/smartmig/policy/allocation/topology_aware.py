"""Topology-aware: one node, then one switch, leaving as few scraps as can be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from smartmig.jit import kernel
from smartmig.policy.allocation.rule import Anywhere, Kernels
from smartmig.policy.gang_plain import PlainGang, PlainNode
from smartmig.policy.gang_view import JobArrays, State, World


@kernel
def score(world: World, jobs: JobArrays, state: State, job: int, node: int, n_gpus: int) -> tuple[float, float]:  # noqa: ARG001
    return float(state.offered[node] - n_gpus), float(state.switch_offered[world.node[node].switch])


@dataclass(frozen=True)
class TopologyAware(Anywhere):
    """One node, then one switch; the fewest GPUs left on the node, then on its switch."""

    spread: bool = False
    """split a job that fits no node now over several"""

    by_switch: ClassVar[bool] = True
    kernels: ClassVar[Kernels] = Kernels(score)

    def plain_score(self, view: PlainGang, job: int, node: PlainNode, n_gpus: int) -> tuple[float, float]:  # noqa: ARG002
        beside = sum(view.offered[other.index] for other in view.nodes if other.switch == node.switch)
        return float(view.offered[node.index] - n_gpus), float(beside)
