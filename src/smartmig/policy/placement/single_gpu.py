"""S2's single-GPU schedulers: EDF and least laxity, each onto the fastest or the slowest feasible free slice.

The paper's text is not public here; this is its natural reading. EDF onto the fastest slice is `earliest-finish`.
On many GPUs they look at the free slices of all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from smartmig.jit import kernel
from smartmig.policy.placement.free_slices import (
    fastest,
    plain_fastest,
    plain_slowest_that_meets_deadline,
    slowest_that_meets_deadline,
)
from smartmig.policy.placement.rule import EarliestDeadlineFirst, Kernels, by_deadline
from smartmig.policy.plain import PlainSlice, PlainView
from smartmig.policy.view import JobArrays, State, World


@kernel
def by_laxity(world: World, jobs: JobArrays, state: State, job: int) -> float:  # noqa: ARG001
    """Latest start on a whole GPU that meets the deadline; "now" shifts all laxities alike."""
    return jobs.spec[job].deadline_s - state.job[job].left * jobs.spec[job].whole_s


@dataclass(frozen=True)
class EdfSlowest(EarliestDeadlineFirst):
    """Earliest deadline first, onto the slowest free slice that meets it."""

    kernels: ClassVar[Kernels] = Kernels(by_deadline, slowest_that_meets_deadline)

    def plain_choose(self, view: PlainView, job: int) -> PlainSlice | None:
        return plain_slowest_that_meets_deadline(view, job)


class LeastLaxityFirst(EarliestDeadlineFirst):
    """Jobs by the time they could still afford to wait for a whole GPU."""

    def plain_key(self, view: PlainView, job: int) -> float:
        return float(view.deadline_s[job]) - view.left[job] * float(view.whole_s[job])


@dataclass(frozen=True)
class LlfFastest(LeastLaxityFirst):
    """Least laxity first, onto the fastest free slice."""

    kernels: ClassVar[Kernels] = Kernels(by_laxity, fastest)

    def plain_choose(self, view: PlainView, job: int) -> PlainSlice | None:
        return plain_fastest(view, job)


@dataclass(frozen=True)
class LlfSlowest(LeastLaxityFirst):
    """Least laxity first, onto the slowest free slice that meets the deadline."""

    kernels: ClassVar[Kernels] = Kernels(by_laxity, slowest_that_meets_deadline)

    def plain_choose(self, view: PlainView, job: int) -> PlainSlice | None:
        return plain_slowest_that_meets_deadline(view, job)
