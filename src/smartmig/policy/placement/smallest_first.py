"""Smallest-First (S1): earliest deadline first, onto the smallest free slice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from smartmig.policy.placement.free_slices import plain_smallest, smallest
from smartmig.policy.placement.rule import EarliestDeadlineFirst, Kernels, by_deadline
from smartmig.policy.plain import PlainSlice, PlainView


@dataclass(frozen=True)
class SmallestFirst(EarliestDeadlineFirst):
    """Earliest deadline first, onto the smallest free slice (S1)."""

    kernels: ClassVar[Kernels] = Kernels(by_deadline, smallest)

    def plain_choose(self, view: PlainView, job: int) -> PlainSlice | None:
        return plain_smallest(view, job)
