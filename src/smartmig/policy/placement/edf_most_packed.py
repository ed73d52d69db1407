"""EDF most packed (S3): earliest deadline first, packed onto few GPUs and slow slices as long as deadlines hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from smartmig.policy.placement.deadline_fit import first_that_meets_deadline, plain_deadline_fit
from smartmig.policy.placement.rule import EarliestDeadlineFirst, Kernels, by_deadline
from smartmig.policy.plain import PlainSlice, PlainView
from smartmig.policy.view import busy_share_level


@dataclass(frozen=True)
class EdfMostPacked(EarliestDeadlineFirst):
    """Earliest deadline first, onto the fullest GPU, the slowest slice that still meets the deadline (S3)."""

    kernels: ClassVar[Kernels] = Kernels(by_deadline, first_that_meets_deadline, busy_share_level)

    def plain_choose(self, view: PlainView, job: int) -> PlainSlice | None:
        fullest_first = sorted(view.gpus, key=lambda gpu: (-gpu.busy / gpu.n_compute, gpu.index))
        return plain_deadline_fit(view, job, fullest_first)
