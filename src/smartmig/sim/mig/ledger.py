"""What a day has cost so far: its exact increments are what trainers reward."""

from __future__ import annotations

import numpy as np

from smartmig.jit import kernel
from smartmig.policy.view import SLOTS, JobArrays, State, World
from smartmig.types import DEADLINE_GRACE_S, Floats

# The books of a day: what was paid so far, and how far the finished jobs have been looked through.
LATE_S, ENERGY_J, SETTLED_LATE_S, FIRST_OPEN = range(4)
N_BOOKS = 4


@kernel
def finished_late_s(jobs: JobArrays, state: State, job: int) -> float:
    """Tardiness of a finished job, as `metrics.summary` counts it."""
    late_s = state.job[job].finish_s - jobs.spec[job].deadline_s
    return late_s if late_s > DEADLINE_GRACE_S else 0.0


@kernel
def keep_books(world: World, jobs: JobArrays, state: State, books: Floats) -> None:
    """Tardiness and energy from time 0 to this moment; jobs that are late and not done count as far as they are."""
    now_s = state.now[0].time_s
    n_arrived = state.now[0].n_arrived
    # Finished jobs leave a window that moves with time; a slow job holds its lower end.
    first_open = int(books[FIRST_OPEN])
    while first_open < n_arrived and not np.isnan(state.job[first_open].finish_s):
        books[SETTLED_LATE_S] += finished_late_s(jobs, state, first_open)
        first_open += 1
    books[FIRST_OPEN] = first_open
    late_s = books[SETTLED_LATE_S]
    for job in range(first_open, n_arrived):
        if not np.isnan(state.job[job].finish_s):
            late_s += finished_late_s(jobs, state, job)
    for at in range(state.now[0].n_waiting):
        late_s += max(0.0, now_s - jobs.spec[state.wait[at].job].deadline_s)
    energy_j = 0.0
    for gpu in range(world.n_gpus):
        watts = world.power_w[state.gpu[gpu].model, state.gpu[gpu].busy]
        energy_j += state.gpu[gpu].energy_j + watts * (now_s - state.gpu[gpu].charged_s)
        for place in range(SLOTS):
            job = state.slot[gpu * SLOTS + place].job
            if job >= 0:
                late_s += max(0.0, now_s - jobs.spec[job].deadline_s)
    books[LATE_S] = late_s
    books[ENERGY_J] = energy_j


@kernel
def settle(world: World, jobs: JobArrays, state: State, books: Floats, cost: Floats) -> None:
    """Bring the books up to date; `cost` (2,): tardiness (s) and energy (J) of all GPUs since the last time."""
    cost[0] = -books[LATE_S]
    cost[1] = -books[ENERGY_J]
    keep_books(world, jobs, state, books)
    cost[0] += books[LATE_S]
    cost[1] += books[ENERGY_J]
