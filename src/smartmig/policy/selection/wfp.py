"""WFP3: waiting against requested time, for large jobs.

Tang et al., Cluster 2009: most (waited / requested)^3 x size first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from smartmig.jit import kernel
from smartmig.policy.gang_plain import PlainGang
from smartmig.policy.gang_view import JobArrays, State, World
from smartmig.policy.selection.rule import Ordered
from smartmig.policy.view import Kernel


@kernel
def score(world: World, jobs: JobArrays, state: State, job: int) -> float:  # noqa: ARG001
    ratio = (state.now[0].time_s - jobs.spec[job].submit_s) / jobs.spec[job].limit_s
    return -(ratio * ratio * ratio * jobs.spec[job].n_gpus)


@dataclass(frozen=True)
class Wfp(Ordered):
    """Most (waited / requested)^3 x GPUs first (WFP3): large jobs that waited long for what they ask."""

    key: ClassVar[Kernel | None] = score

    def plain_key(self, view: PlainGang, job: int) -> float:
        ratio = float((view.now_s - view.jobs.submit_s[job]) / view.jobs.limit_s[job])
        return -(ratio * ratio * ratio * int(view.jobs.n_gpus[job]))
