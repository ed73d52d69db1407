"""Many stretches of a trace at once: what a trainer calls.

`Stretches` holds job sets in array form. `play` runs them under two agents that draw, one thread a stretch and nothing
per event in Python, and returns what was seen and drawn; `measure` runs them under agents that decide, and tells costs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np

from smartmig.errors import SimulationError
from smartmig.hardware.nodes import NodeCluster
from smartmig.policy.allocation.learned import Learned as LearnedAllocation
from smartmig.policy.allocation.learned import allocator_knobs, score
from smartmig.policy.allocation.rule import Kernels
from smartmig.policy.gang_encoding import AT_OLDEST, N_OUTLINE, NOT_LOOKED, outline
from smartmig.policy.gang_files import HAND_MADE
from smartmig.policy.gang_view import State
from smartmig.policy.run_times import RunTimes
from smartmig.policy.selection.learned import AT_SCORES, AT_SEEN, selector_knobs
from smartmig.policy.selection.learned import Learned as LearnedSelection
from smartmig.policy.view import Kernel
from smartmig.sim.gang.explore import (
    AT_KIND_TAPE,
    AT_SLOT_TAPE,
    KIND_RECORD,
    N_RECORDS,
    SLOT_RECORD,
    TAPE_HEAD,
    explore_prepare,
    explore_select,
)
from smartmig.sim.gang.kernel import FINISHED, PAUSED, engine
from smartmig.sim.gang.run import compiled
from smartmig.sim.gang.world import Backfill, GangPolicy, build_jobs, build_world, fresh_state
from smartmig.types import Floats, GangJobs, Ints

T = TypeVar("T")

NO_PAUSE = 1 << 62
LOOK_EVERY = 5
"""events between two looks at what the agents see"""
POLICY = GangPolicy(LearnedSelection(HAND_MADE), LearnedAllocation(HAND_MADE), Backfill.easy)


class Played(NamedTuple):
    """What the agents drew in one stretch."""

    slots: Floats  # (n, SLOT_RECORD) float32
    slot_s: Floats  # (n,) when
    kinds: Floats  # (m, KIND_RECORD) float32
    kind_s: Floats  # (m,)
    start_s: Floats  # (n_jobs,)


@dataclass(frozen=True)
class Tape:
    """How much is kept of what is played."""

    slots: int
    kinds: int
    """records at most, of each agent"""
    share: float
    """of the decisions"""
    from_s: float
    """earlier ones are left out: the cluster was empty before the first job"""
    temperature: float
    """scores are divided by this before a draw: the lower, the rarer is anything but the best"""


class Stretches:
    """Job sets on one cluster."""

    def __init__(
        self,
        jobs: Sequence[GangJobs],
        cluster: NodeCluster,
        times: RunTimes | None,
        guard: tuple[float, float],
        n_threads: int | None = None,
    ) -> None:
        """`times`: what the agents may expect of run times; None: requests only. `guard`: its seconds, its pause."""
        self.jobs, self.cluster, self.guard = list(jobs), cluster, guard
        self.n_threads = n_threads or len(os.sched_getaffinity(0))
        predicted = [None if times is None else times.predict(one.limit_s, one.n_gpus) for one in jobs]
        self.arrays = [build_jobs(one, cluster, POLICY, guess) for one, guess in zip(jobs, predicted, strict=True)]
        # The rule's own prediction is none: what was given above stands.
        self.world = build_world(cluster, POLICY)
        self.explore = engine("explore", explore_select, None, Kernels(score, explore_prepare))
        self.decide = compiled(POLICY)

    def play(self, which: Sequence[int], weights: Floats, seeds: Sequence[int], tape: Tape) -> list[Played]:
        def one(at: int, seed: int) -> Played:
            head = np.array([0.0, float(seed), 0.0, tape.share, tape.from_s, tape.temperature])
            selection = np.concatenate(
                [selector_knobs(weights, *self.guard), head, np.zeros(tape.slots * SLOT_RECORD + 1)]
            )
            allocation = np.concatenate([allocator_knobs(weights), head, np.zeros(tape.kinds * KIND_RECORD + 1)])
            allocation[1] = 1.0  # the tape needs the kinds' numbers, even before the network adds anything
            state = self._run(self.explore, at, selection, allocation)
            slots = _records(selection[AT_SLOT_TAPE:], SLOT_RECORD)
            kinds = _records(allocation[AT_KIND_TAPE:], KIND_RECORD)
            start_s = state.job["begin_s"].copy()
            return Played(
                slots.astype(np.float32), slots[:, 0].copy(), kinds.astype(np.float32), kinds[:, 0].copy(), start_s
            )

        return self._map(one, which, seeds)

    def waits(self, which: Sequence[int], candidates: Sequence[Floats]) -> list[Floats]:
        """Waiting times of every job under agents that decide, stretch by stretch."""

        def one(at: int, number: int) -> Floats:
            weights = candidates[number]
            state = self._run(self.decide, at, selector_knobs(weights, *self.guard), allocator_knobs(weights))
            waited: Floats = state.job["begin_s"] - self.jobs[at].submit_s
            return waited

        return self._map(one, which, range(len(candidates)))

    def outlines(self, at: int, weights: Floats) -> Floats:
        """(2, N_OUTLINE) least and greatest of what deciding agents see in a stretch, looking every few events."""
        selection = selector_knobs(weights, *self.guard)
        world = self.world._replace(selection_knobs=selection, allocation_knobs=allocator_knobs(weights))
        arrays = self.arrays[at]
        state = fresh_state(world, arrays)
        seen, numbers = selection[AT_SEEN:AT_SCORES], np.zeros(N_OUTLINE)
        low, high = np.full(N_OUTLINE, np.inf), np.full(N_OUTLINE, -np.inf)
        status = PAUSED
        while status == PAUSED:
            seen[AT_OLDEST] = NOT_LOOKED
            status = self.decide(world, arrays, state, int(state.now["n_events"][0]) + LOOK_EVERY)
            if outline(seen, numbers):
                np.minimum(low, numbers, out=low)
                np.maximum(high, numbers, out=high)
        if status != FINISHED:
            raise SimulationError("the agents leave jobs waiting for ever")
        return np.stack([low, high])

    def _run(self, go_on: Kernel, at: int, selection: Floats, allocation: Floats) -> State:
        world = self.world._replace(selection_knobs=selection, allocation_knobs=allocation)
        arrays = self.arrays[at]
        state = fresh_state(world, arrays)
        if go_on(world, arrays, state, NO_PAUSE) != FINISHED:
            raise SimulationError("the agents leave jobs waiting for ever")
        return state

    def _map(self, work: Callable[[int, int], T], which: Sequence[int], extra: Sequence[int]) -> list[T]:
        if self.n_threads == 1:
            return [work(at, value) for at, value in zip(which, extra, strict=True)]
        with ThreadPoolExecutor(self.n_threads) as pool:
            return list(pool.map(work, which, extra))


def _records(tape: Floats, width: int) -> Floats:
    n = int(tape[N_RECORDS])
    return tape[TAPE_HEAD : TAPE_HEAD + n * width].reshape(n, width)


def cost_to_go(jobs: GangJobs, start_s: Floats, rate: Floats, horizon_s: float, step_s: float) -> tuple[Floats, Floats]:
    """Times on a grid, and from each on what waiting costs, later costs counting less.

    `rate` (n,): what a second of a job's waiting costs.
    """
    end_s = float(jobs.submit_s[-1]) + step_s
    grid_s = np.arange(float(jobs.submit_s[0]), end_s + step_s, step_s)
    at: Ints = np.searchsorted(grid_s, jobs.submit_s)
    leaves: Ints = np.searchsorted(grid_s, np.minimum(start_s, end_s))
    change = np.bincount(at, rate, minlength=grid_s.size + 1) - np.bincount(leaves, rate, minlength=grid_s.size + 1)
    paid = np.cumsum(change)[: grid_s.size] * step_s
    keep = np.exp(-step_s / horizon_s)
    to_go = np.empty(grid_s.size)
    following = paid[-1] / (1 - keep)  # as if it went on like this
    for index in range(grid_s.size - 1, -1, -1):
        following = paid[index] + keep * following
        to_go[index] = following
    return grid_s, to_go
