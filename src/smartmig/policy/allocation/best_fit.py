"""Best fit: the node that is left with the fewest free GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from smartmig.jit import kernel
from smartmig.policy.allocation.rule import Anywhere, Kernels
from smartmig.policy.gang_plain import PlainGang, PlainNode
from smartmig.policy.gang_view import JobArrays, State, World


@kernel
def score(world: World, jobs: JobArrays, state: State, job: int, node: int, n_gpus: int) -> tuple[float, float]:  # noqa: ARG001
    return float(state.offered[node] - n_gpus), 0.0


@dataclass(frozen=True)
class BestFit(Anywhere):
    """The node that is left with the fewest free GPUs."""

    spread: bool = False
    """split a job that fits no node now over several"""

    kernels: ClassVar[Kernels] = Kernels(score)

    def plain_score(self, view: PlainGang, job: int, node: PlainNode, n_gpus: int) -> tuple[float, float]:  # noqa: ARG002
        return float(view.offered[node.index] - n_gpus), 0.0
