"""What a selection rule is made of.

At every decision the engine asks for the next job and starts it, until one does not fit. That one blocks the rest (no
backfill), or gets a reservation, after which the engine asks for jobs that can start without delaying it.
"""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

import numpy as np

from smartmig.jit import kernel, lowest_bit
from smartmig.policy.gang_plain import PlainGang
from smartmig.policy.gang_view import JobArrays, State, World, can_start, next_waiting
from smartmig.policy.selection.known import KnownJobs
from smartmig.policy.view import Kernel
from smartmig.types import Floats

rule_key: Any = None

SLACK_S = 1e-3
"""Safely above the rounding of a sum of times: a quick look must not refuse what the exact one would accept."""


class SelectionRule(Protocol):
    """A rule's knobs and its order; exactly one of `keys`, `key` and `select` gives it."""

    oracle: ClassVar[bool]
    """whether the rule looks at true run times, as no real scheduler can"""
    key: ClassVar[Kernel | None]
    """(world, jobs, state, job) -> float, least first, asked anew at every decision"""
    select: ClassVar[Kernel | None]
    """(world, jobs, state) -> the queued job to start next, or -1 to wait; see `can_start`"""
    reserves: ClassVar[bool]
    """whether a rule that picks keeps reservations of its own: it then does so without backfill, too"""
    watches_arrivals: ClassVar[bool]
    """whether the rule reads `State.now.rush`"""

    @property
    def usage_half_life_s(self) -> float:
        """Of the users' past use, if the rule reads it; 0 = it does not."""
        ...

    def knobs(self) -> tuple[float, ...]:
        """Numbers the kernels read from `World.selection_knobs`."""
        ...

    def keys(self, jobs: KnownJobs) -> Floats:
        """(n,) least first, once and for all."""
        ...

    def predicted(self, jobs: KnownJobs) -> Floats:
        """(n,) run times the kernels read as `predicted_s`."""
        ...

    def plain_key(self, view: PlainGang, job: int) -> float: ...

    def plain_select(self, view: PlainGang) -> int | None: ...


class Ordered:
    """The parts most rules share: no knobs, no kernels, order of submission."""

    oracle: ClassVar[bool] = False
    key: ClassVar[Kernel | None] = None
    select: ClassVar[Kernel | None] = None
    reserves: ClassVar[bool] = False
    watches_arrivals: ClassVar[bool] = False

    @property
    def usage_half_life_s(self) -> float:
        return 0.0

    def knobs(self) -> tuple[float, ...]:
        return ()

    def keys(self, jobs: KnownJobs) -> Floats:
        return np.zeros(jobs.submit_s.size)

    def predicted(self, jobs: KnownJobs) -> Floats:
        return jobs.predicted_s

    def plain_key(self, view: PlainGang, job: int) -> float:
        raise NotImplementedError("this rule's order is fixed")

    def plain_select(self, view: PlainGang) -> int | None:
        raise NotImplementedError("this rule has an order")


@kernel
def next_ranked(world: World, jobs: JobArrays, state: State) -> int:
    """The first job in a fixed order; beside a reservation, the first that can start."""
    if state.now[0].reserved < 0:
        return jobs.ranked[next_waiting(state, 0)].job
    short_room = 0
    long_room = 0
    for model in range(world.n_models):
        short_room += state.room[0, model].total
        long_room += state.room[1, model].total
    short_s = state.now[0].reserved_s - state.now[0].time_s
    # What could not start before a job was started cannot start after it: never look back.
    at = next_waiting(state, state.now[0].cursor)
    while at >= 0:
        least = jobs.least[at >> 6]
        if least.n_gpus > long_room and (least.n_gpus > short_room or least.limit_s > short_s + SLACK_S):
            at = next_waiting(state, (at | 63) + 1)
            continue
        if jobs.ranked[at].n_gpus <= short_room and can_start(world, jobs, state, jobs.ranked[at].job):
            state.now[0].cursor = at + 1
            return jobs.ranked[at].job
        at = next_waiting(state, at + 1)
    return -1


def least_key(world: World, jobs: JobArrays, state: State) -> int:
    """The same for an order that moves with time; the queue then stands by submission, so a rank is a job."""
    best = np.inf
    chosen = -1
    free_for_all = state.now[0].reserved < 0
    for block in range(state.waiting_words.size):
        words = state.waiting_words[block]
        while words != 0:
            word = block * 64 + lowest_bit(words)
            words &= words - 1
            bits = state.waiting[word]
            while bits != 0:
                at = word * 64 + lowest_bit(bits)
                bits &= bits - 1
                if free_for_all or can_start(world, jobs, state, at):
                    key = rule_key(world, jobs, state, at)
                    if chosen < 0 or key < best:
                        best = key
                        chosen = at
    return chosen
