"""UNICEP: waiting against size and requested time.

Tang et al., Cluster 2009: most waited / (log2(size) x requested) first. Their smallest job has many nodes; ours has one
GPU, so we take log2(size + 1), which is 1 there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from smartmig.jit import kernel
from smartmig.policy.gang_plain import PlainGang
from smartmig.policy.gang_view import JobArrays, State, World
from smartmig.policy.selection.rule import Ordered
from smartmig.policy.view import Kernel


@kernel
def score(world: World, jobs: JobArrays, state: State, job: int) -> float:  # noqa: ARG001
    spec = jobs.spec[job]
    return -((state.now[0].time_s - spec.submit_s) / (math.log2(spec.n_gpus + 1.0) * spec.limit_s))


@dataclass(frozen=True)
class Unicep(Ordered):
    """Most waited / (log2(GPUs + 1) x requested) first: small short jobs, sooner the longer they waited."""

    key: ClassVar[Kernel | None] = score

    def plain_key(self, view: PlainGang, job: int) -> float:
        waited_s = view.now_s - float(view.jobs.submit_s[job])
        return -(waited_s / (math.log2(int(view.jobs.n_gpus[job]) + 1.0) * float(view.jobs.limit_s[job])))
