"""Random (S1): earliest deadline first, onto a free slice drawn evenly from those the job fits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from smartmig.jit import kernel
from smartmig.policy.placement.free_slices import nth_free
from smartmig.policy.placement.rule import EarliestDeadlineFirst, Kernels, by_deadline
from smartmig.policy.plain import PlainSlice, PlainView
from smartmig.policy.view import JobArrays, State, World

# splitmix64 (Steele, Lea, Flood 2014): the nth draw of a seed needs no generator state, so twins draw alike.
GOLDEN, MIX_1, MIX_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
MASK = 0xFFFFFFFFFFFFFFFF


@kernel
def draw_below(seed: int, nth: int, n: int) -> int:
    """The nth draw of the seed, an integer in 0..n-1 (n below 2^31)."""
    x = np.uint64(seed) * np.uint64(MIX_2) + np.uint64(nth + 1) * np.uint64(GOLDEN)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(MIX_1)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(MIX_2)
    x = x ^ (x >> np.uint64(31))
    return int(((x >> np.uint64(33)) * np.uint64(n)) >> np.uint64(31))


def plain_draw_below(seed: int, nth: int, n: int) -> int:
    x = (seed * MIX_2 + (nth + 1) * GOLDEN) & MASK
    x = (x ^ (x >> 30)) * MIX_1 & MASK
    x = (x ^ (x >> 27)) * MIX_2 & MASK
    x ^= x >> 31
    return (x >> 33) * n >> 31


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
