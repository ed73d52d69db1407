"""Earliest finish (S1): earliest deadline first, onto the free slice that finishes the job first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from smartmig.policy.placement.free_slices import fastest, plain_fastest
from smartmig.policy.placement.rule import EarliestDeadlineFirst, Kernels, by_deadline
from smartmig.policy.plain import PlainSlice, PlainView


@dataclass(frozen=True)
class EarliestFinish(EarliestDeadlineFirst):
    """Earliest deadline first, onto the free slice that finishes the job first (S1; S2's EDF, fastest).

    Where run times fall with size this is Largest-First; it differs on capped jobs and mixed GPU models.
    """

    kernels: ClassVar[Kernels] = Kernels(by_deadline, fastest)

    def plain_choose(self, view: PlainView, job: int) -> PlainSlice | None:
        return plain_fastest(view, job)
