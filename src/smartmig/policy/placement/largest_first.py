"""Largest-First (S1): earliest deadline first, onto the largest free slice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from smartmig.policy.placement.free_slices import largest, plain_largest
from smartmig.policy.placement.rule import EarliestDeadlineFirst, Kernels, by_deadline
from smartmig.policy.plain import PlainSlice, PlainView


@dataclass(frozen=True)
class LargestFirst(EarliestDeadlineFirst):
    """Earliest deadline first, onto the largest free slice (S1)."""

    kernels: ClassVar[Kernels] = Kernels(by_deadline, largest)

    def plain_choose(self, view: PlainView, job: int) -> PlainSlice | None:
        return plain_largest(view, job)
