"""Learned selecting: every slot of the window gets a score, and so does waiting; the best one is done.

A job that waited longer than `guard_s` is out of the network's hands: the one submitted first is the head, gets a
reservation, and nobody may delay it. Then the guard pauses, so that a backlog of such jobs leaves room for the others.
docs/gang.md proves what that bounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from smartmig.errors import InputError
from smartmig.jit import kernel
from smartmig.policy.gang_encoding import (
    AT_JOBS,
    AT_OLDEST,
    AT_SLOTS,
    N_CELLS,
    N_SEEN,
    N_SIZES,
    N_SLOT,
    N_SLOTS,
    REFERENCE_NODES,
    STARTS,
    cells,
    encode,
)
from smartmig.policy.gang_files import agents_of, times_of
from smartmig.policy.gang_network import (
    AT_SLOT_OUT,
    AT_WAIT_BIAS,
    N_RULE,
    N_SELECTOR,
    ROOM,
    cluster_says,
    rule_score,
    slot_adds,
)
from smartmig.policy.gang_plain import PlainGang
from smartmig.policy.gang_view import JobArrays, State, World, can_start
from smartmig.policy.selection.known import KnownJobs
from smartmig.policy.selection.rule import Ordered
from smartmig.policy.view import Kernel
from smartmig.types import Floats

# World.selection_knobs: the guard and its pause, whether the network adds anything, what is seen, scores, the network.
AT_GUARD, AT_PAUSE, AT_ADDS = 0, 1, 2
AT_SEEN = 3
AT_SCORES = AT_SEEN + N_SEEN
AT_NETWORK = AT_SCORES + N_SLOTS + 1

CLOSED = -np.inf


@kernel
def overdue(world: World, jobs: JobArrays, state: State, oldest: int) -> bool:
    """Whether the starvation guard takes over: the job submitted first waited too long, and can start or be reserved
    for; and the guard did not start another one just now."""
    now_s = state.now[0].time_s
    if oldest < 0 or now_s - jobs.spec[oldest].submit_s <= world.selection_knobs[AT_GUARD]:
        return False
    if now_s - state.now[0].guarded_s < world.selection_knobs[AT_PAUSE]:
        return False
    starts = can_start(world, jobs, state, oldest)
    if starts:
        state.now[0].guarded_s = now_s
    return starts or state.now[0].reserved < 0


@kernel
def score_slots(world: World, jobs: JobArrays, state: State, seen: Floats, scores: Floats, network: Floats) -> None:
    """Fill `scores` (N_SLOTS + 1,): of every slot, CLOSED where there is nothing to choose, then of waiting.

    Where nothing runs, nobody waits: nothing might ever happen again.
    """
    adds = world.selection_knobs[AT_ADDS] > 0.0
    scores[N_SLOTS] = cluster_says(network, seen) if adds else 0.0
    if state.now[0].n_running == 0:
        scores[N_SLOTS] = CLOSED
    widest = state.n_offering.shape[2] - 1
    reserved = state.now[0].reserved >= 0
    for slot in range(N_SLOTS):
        scores[slot] = CLOSED
        job = int(seen[AT_JOBS + slot])
        begin = AT_SLOTS + slot * N_SLOT
        if job < 0 or (reserved and seen[begin + STARTS] == 0.0):
            continue
        cell = slot % N_CELLS
        nodes = jobs.spec[job].n_gpus // widest * REFERENCE_NODES / world.node.size
        starts = seen[begin + STARTS] > 0.0
        numbers = seen[begin : begin + N_SLOT]
        score = rule_score(network[:N_RULE], cell // N_SIZES, cell % N_SIZES, nodes, starts, seen, numbers)
        scores[slot] = score + (slot_adds(network, seen, slot) if adds else 0.0)


@kernel
def select(world: World, jobs: JobArrays, state: State) -> int:
    knobs = world.selection_knobs
    seen = knobs[AT_SEEN:AT_SCORES]
    scores = knobs[AT_SCORES:AT_NETWORK]
    encode(world, jobs, state, seen)
    oldest = int(seen[AT_OLDEST])
    if overdue(world, jobs, state, oldest):
        return oldest
    score_slots(world, jobs, state, seen, scores, knobs[AT_NETWORK:])
    best = scores[N_SLOTS]
    chosen = -1
    for slot in range(N_SLOTS):
        if scores[slot] > best:
            best = scores[slot]
            chosen = int(seen[AT_JOBS + slot])
    return chosen


def selector_knobs(weights: Floats, guard_s: float, pause_s: float) -> Floats:
    """What the kernels read; `weights` are those of both agents."""
    network = weights[:N_SELECTOR]
    adds = float(np.any(network[AT_SLOT_OUT : AT_WAIT_BIAS + 1] != 0))
    return np.concatenate([[guard_s, pause_s, adds], np.zeros(N_SEEN + N_SLOTS + 1), network, np.zeros(ROOM)])


@dataclass(frozen=True)
class Learned(Ordered):
    """Every job in a window, and waiting, scored by a trained network (ours); keeps reservations of its own."""

    policy_file: str = ""
    """a policy of one's own (`smartmig train gang`) or a shipped one by name: slowdown, wait; empty: slowdown"""
    predictor: str = ""
    """run times (`smartmig train run-times`) to look at; empty: those the policy was trained with, if any"""
    guard_s: float = 6.5 * 86_400.0
    """a job that waited this long is the next, and nobody may delay it"""
    pause_s: float = 3600.0
    """after the guard started a job, others have this long before it may again"""

    select: ClassVar[Kernel | None] = select
    reserves: ClassVar[bool] = True
    watches_arrivals: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not (self.guard_s > 0 and self.pause_s >= 0):
            raise InputError(
                f"learned.guard_s must be above 0 and pause_s at least 0, got {self.guard_s:g} and {self.pause_s:g}"
            )
        agents_of(self.policy_file)

    def knobs(self) -> tuple[float, ...]:
        return tuple(selector_knobs(agents_of(self.policy_file).weights, self.guard_s, self.pause_s).tolist())

    def keys(self, jobs: KnownJobs) -> Floats:
        return cells(jobs.limit_s, jobs.n_gpus).astype(float)

    def predicted(self, jobs: KnownJobs) -> Floats:
        name = self.predictor or agents_of(self.policy_file).predictor
        return times_of(name).predict(jobs.limit_s, jobs.n_gpus) if name else jobs.predicted_s

    def plain_select(self, view: PlainGang) -> int | None:
        from smartmig.policy.gang_agents_plain import plain_select

        guard = self.guard_s, self.pause_s
        return plain_select(view, agents_of(self.policy_file).weights, guard, self.predicted(view.jobs))
