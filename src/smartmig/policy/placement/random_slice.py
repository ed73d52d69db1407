"""Random (S1): earliest deadline first, onto a free slice drawn evenly from those the job fits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from smartmig.jit import kernel
from smartmig.policy.draw import draw_below, plain_draw_below
from smartmig.policy.placement.free_slices import nth_free
from smartmig.policy.placement.rule import EarliestDeadlineFirst, Kernels, by_deadline
from smartmig.policy.plain import PlainSlice, PlainView
from smartmig.policy.view import JobArrays, State, World


@kernel
def choose(world: World, jobs: JobArrays, state: State, job: int) -> int:
    n_free = nth_free(world, state, jobs.spec[job].fits, -1)
    if n_free == 0:
        return -1
    nth = draw_below(world.seed, state.now[0].n_draws, n_free)
    state.now[0].n_draws += 1
    return nth_free(world, state, jobs.spec[job].fits, nth)


@dataclass(frozen=True)
class RandomSlice(EarliestDeadlineFirst):
    """Earliest deadline first, onto a random free slice (S1); the run's seed fixes the draws."""

    kernels: ClassVar[Kernels] = Kernels(by_deadline, choose)

    def plain_choose(self, view: PlainView, job: int) -> PlainSlice | None:
        free = view.free(job)
        if not free:
            return None
        nth = plain_draw_below(view.seed, view.draws, len(free))
        view.draws += 1
        return free[nth]
