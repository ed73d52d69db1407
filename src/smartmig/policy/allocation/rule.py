"""What an allocation rule is made of.

The engine knows the shapes a job can take: one node where one is large enough, otherwise whole nodes (largest first)
and a rest on one more, or, where the rule spreads, any GPUs. The rule says which nodes are best for that.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple, Protocol

from smartmig.jit import kernel
from smartmig.policy.gang_plain import PlainGang, PlainNode
from smartmig.policy.gang_view import JobArrays, State, World
from smartmig.policy.view import Kernel


@kernel
def nothing(world: World, jobs: JobArrays, state: State, job: int) -> None:  # noqa: ARG001
    return


class Kernels(NamedTuple):
    """A rule's compiled half. Both see in `state.offered` what the job may have of each node."""

    score: Kernel
    """(world, jobs, state, job, node, n_gpus) -> (float, float): cost of taking so many GPUs there; the least pair
    wins, ties go to the lower node"""
    prepare: Kernel = nothing
    """(world, jobs, state, job): called once before a job is placed"""


class AllocationRule(Protocol):
    """A rule's knobs, its compiled half and its plain twin."""

    kernels: ClassVar[Kernels]
    by_switch: ClassVar[bool]
    """jobs of several nodes look for one switch first, the fullest that has room"""

    @property
    def spread(self) -> bool:
        """Split a job that fits no other way over any nodes, those of one switch first."""
        ...

    @property
    def mix_half_life(self) -> float:
        """Submissions after which a job counts half in `State.mix`, if the rule reads it; 0 = it does not."""
        ...

    def knobs(self) -> tuple[float, ...]:
        """Numbers the kernels read from `World.allocation_knobs`."""
        ...

    def plain_score(self, view: PlainGang, job: int, node: PlainNode, n_gpus: int) -> tuple[float, float]: ...


class Anywhere:
    """The parts most rules share: no knobs, switches do not matter."""

    by_switch: ClassVar[bool] = False

    @property
    def mix_half_life(self) -> float:
        return 0.0

    def knobs(self) -> tuple[float, ...]:
        return ()
