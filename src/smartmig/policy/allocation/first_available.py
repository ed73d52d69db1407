"""First available: the first node that has room."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from smartmig.jit import kernel
from smartmig.policy.allocation.rule import Anywhere, Kernels
from smartmig.policy.gang_plain import PlainGang, PlainNode
from smartmig.policy.gang_view import JobArrays, State, World


@kernel
def score(
    world: World,  # noqa: ARG001
    jobs: JobArrays,  # noqa: ARG001
    state: State,  # noqa: ARG001
    job: int,  # noqa: ARG001
    node: int,  # noqa: ARG001
    n_gpus: int,  # noqa: ARG001
) -> tuple[float, float]:
    return 0.0, 0.0


@dataclass(frozen=True)
class FirstAvailable(Anywhere):
    """The first node, by index, with enough free GPUs."""

    spread: bool = False
    """split a job that fits no node now over several"""

    kernels: ClassVar[Kernels] = Kernels(score)

    def plain_score(self, view: PlainGang, job: int, node: PlainNode, n_gpus: int) -> tuple[float, float]:  # noqa: ARG002
        return 0.0, 0.0
