"""A moment of a live cluster in the arrays of the whole-GPU engine.

The engine's pass takes microseconds; filling its arrays in Python, or making fresh ones, takes many times as long. So
compiled code fills them, and they are used again for the next decision.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from smartmig.jit import kernel
from smartmig.policy.gang_view import CONSERVATIVE, JOB_SPEC, RANKED, JobArrays, State, World, count_brief
from smartmig.policy.view import Records
from smartmig.sim.gang.decide import plan_afresh, shift_parts
from smartmig.sim.gang.occupancy import begin, enqueue, insert_release, keep_parts, set_offer
from smartmig.sim.gang.place import choose, choose_nothing
from smartmig.sim.gang.world import fresh_state
from smartmig.types import Floats, Ints

OVERDUE_S = 1.0
"""A job that should have been killed by now is expected to go after this long."""


class Asked(NamedTuple):
    """How much jobs ask for, and where they may have it; those that run come first."""

    n_gpus: Ints
    models: Ints  # (n,) bit = class of nodes it may use
    widest: Ints  # (n,) GPUs of the largest such node
    smallest: Ints
    fits: Ints  # (n,) 1 = it could run if the cluster were empty


class Fences(NamedTuple):
    """Reservations of others that are not over."""

    inside: Ints  # (n_reservations,) bit = class of nodes that it takes
    from_s: Floats
    may: Ints  # (n_reservations, n_users) 1 = the user may use it


class Moment(NamedTuple):
    """Who holds what at a time; `first[i]` is where running job i has its first (node, n_gpus)."""

    now_s: float
    start_s: Floats
    first: Ints
    node: Ints
    n_gpus: Ints
    away: Ints
    """nodes that take no jobs"""


class Starts(NamedTuple):
    """What a pass started: job i its `row`, on the parts from `first[i]` to `first[i + 1]`."""

    row: Ints
    first: Ints
    node: Ints
    n_gpus: Ints


@kernel
def settle(told: Floats, n_nodes: int, n_running: int, moment: Moment, held: Ints, left: Ints) -> tuple[int, int, int]:
    """Say who holds what, and how many jobs, nodes with unknown holders and nodes away there are.

    `told`: of each node its GPUs, those that are free, and whether it takes jobs; then of each running job when it
    began, the number of its parts, and these, (node, n_gpus). Parts that are not there are dropped, and so are jobs
    without any: job i of `moment` is the running one `held[i]`. What nobody accounts for follows as jobs of their own,
    `held` being the node. `left` is scratch.
    """
    for node in range(n_nodes):
        left[node] = int(told[3 * node])
    n_jobs = 0
    n_kept = 0
    at = 3 * n_nodes
    moment.first[0] = 0
    for job in range(n_running):
        begun_s = told[at]
        end = at + 2 + 2 * int(told[at + 1])
        at += 2
        while at < end:
            node = int(told[at])
            n_gpus = int(told[at + 1])
            if node >= 0 and 0 < n_gpus <= left[node]:
                left[node] -= n_gpus
                moment.node[n_kept] = node
                moment.n_gpus[n_kept] = n_gpus
                n_kept += 1
            at += 2
        if n_kept > moment.first[n_jobs]:
            held[n_jobs] = job
            moment.start_s[n_jobs] = begun_s
            n_jobs += 1
            moment.first[n_jobs] = n_kept
    n_unknown = 0
    n_away = 0
    for node in range(n_nodes):
        n_gpus = left[node] - int(told[3 * node + 1])
        if n_gpus > 0:
            who = n_jobs + n_unknown
            held[who] = node
            moment.start_s[who] = moment.now_s
            moment.node[n_kept] = node
            moment.n_gpus[n_kept] = n_gpus
            n_kept += 1
            n_unknown += 1
            moment.first[who + 1] = n_kept
        if told[3 * node + 2] == 0.0:
            moment.away[n_away] = node
            n_away += 1
    return n_jobs, n_unknown, n_away


@kernel
def wishes_of(table: Records, rows: Ints, present: Ints) -> None:
    """Mark the wishes that these rows have."""
    for at in range(rows.size):
        present[int(table[rows[at]].wish)] = 1


@kernel
def look_up(
    table: Records,
    rows: Ints,
    n_running: int,
    origin_s: float,
    now_s: float,
    masks: Ints,
    sizes: Ints,
    user_number: Ints,
    fences: Fences,
    spec: Records,
    asked: Asked,
) -> None:
    """Fill `spec` (its times and users) and `asked` from the rows of a table; `sizes` are those of `Classes`, `masks`
    go by wish."""
    cluster = 0
    for kind in range(sizes.shape[1]):
        cluster += sizes[0, kind]
    for at in range(rows.size):
        row = table[rows[at]]
        user = int(row.user)
        n_gpus = int(row.n_gpus)
        models = masks[int(row.wish)]
        for fence in range(fences.inside.size):
            in_time = now_s + row.limit_s <= fences.from_s[fence]
            if not (in_time or fences.may[fence, user]):
                models &= ~fences.inside[fence]
        if at < n_running:
            models = np.int64(-1)
        total = 0
        widest = 1
        smallest = cluster
        for kind in range(sizes.shape[1]):
            if models >> kind & 1:
                total += sizes[0, kind]
                widest = max(widest, sizes[1, kind])
                smallest = min(smallest, sizes[2, kind])
        spec[at].submit_s = row.submit_s - origin_s
        spec[at].limit_s = row.limit_s
        spec[at].predicted_s = row.predicted_s
        spec[at].user = user_number[user]
        asked.n_gpus[at] = n_gpus
        asked.models[at] = models
        asked.widest[at] = widest
        asked.smallest[at] = smallest
        asked.fits[at] = at < n_running or 0 < n_gpus <= total


class Past(NamedTuple):
    """What the engine would know from before, its times since `origin_s`."""

    origin_s: float
    guarded_s: float
    rush: float
    rush_s: float


@kernel
def seat(world: World, jobs: JobArrays, state: State, fits: Ints, moment: Moment, past: Past) -> None:
    """Put everyone where they are at this moment, a decision pass due; jobs that fit nowhere do not wait."""
    origin_s = past.origin_s
    state.now[0].guarded_s = past.guarded_s
    state.now[0].rush = past.rush
    state.now[0].rush_s = past.rush_s
    n_running = moment.start_s.size
    now_s = moment.now_s - origin_s
    for job in range(n_running):
        enqueue(jobs, state, job)
        state.now[0].time_s = moment.start_s[job] - origin_s
        choose_nothing(state)
        for part in range(moment.first[job], moment.first[job + 1]):
            choose(state, moment.node[part], moment.n_gpus[part])
        keep_parts(state, job)
        begin(world, jobs, state, job)
    choose_nothing(state)
    late = False
    for job in range(n_running):
        if state.job[job].until_s <= now_s:
            state.job[job].until_s = now_s + OVERDUE_S
            late = True
    if late:
        for job in range(n_running):
            insert_release(state.release, job, state.job, job)
    for at in range(moment.away.size):
        node = moment.away[at]
        state.node[node].n_away = 1
        count_brief(world, state, node, -1)
        set_offer(world, state, 0, node, 0)
        count_brief(world, state, node, 1)
    for job in range(n_running, fits.size):
        if fits[job]:
            enqueue(jobs, state, job)
    state.now[0].time_s = now_s
    state.now[0].n_submitted = fits.size
    state.now[0].pending = 1


@kernel
def promise(
    world: World, jobs: JobArrays, state: State, held: Ints, begin_s: Floats, first: Ints, node: Ints, n_gpus: Ints
) -> None:
    """Conservative backfill: the plans hold what runs, and the reservations made so far."""
    plan_afresh(world, jobs, state)
    for at in range(held.size):
        choose_nothing(state)
        for part in range(first[at], first[at + 1]):
            choose(state, node[part], n_gpus[part])
        keep_parts(state, held[at])
        state.job[held[at]].begin_s = begin_s[at]
        shift_parts(jobs, state, held[at], 1)
    choose_nothing(state)


@kernel
def starts_of(jobs: JobArrays, state: State, n_running: int, starts: Starts) -> int:
    """Write down who has just been started, by rank; how many."""
    n_starts = 0
    n_parts = 0
    for rank in range(jobs.ranked.size):
        job = jobs.ranked[rank].job
        if job >= n_running and state.job[job].n_starts > 0:
            starts.row[n_starts] = job
            starts.first[n_starts] = n_parts
            n_starts += 1
            part = state.job[job].first_part
            while part >= 0:
                starts.node[n_parts] = state.part[part].node
                starts.n_gpus[n_parts] = state.part[part].n_gpus
                n_parts += 1
                part = state.part[part].next
    starts.first[n_starts] = n_parts
    return n_starts


BY_JOB = frozenset({"job", "end", "waiting", "waiting_words", "order", "stretch"})
"""Arrays of a state that are as long as the queue, or nearly."""


class Desk:
    """Arrays of one world that are used again: what was laid there is gone with the next call."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.starts = Starts(*(np.zeros(world.n_gpus + 1, dtype=np.int64) for _ in Starts._fields))
        self._make_room(64)

    def jobs(self, n_jobs: int) -> tuple[JobArrays, Asked]:
        """To be filled by `look_up` and `describe`."""
        if n_jobs > self._jobs.spec.size:
            self._make_room(2 * n_jobs)
        spec, ranked, least, run_s = self._jobs
        jobs = JobArrays(spec[:n_jobs], ranked[:n_jobs], least[: (n_jobs + 63) // 64], run_s[:n_jobs])
        return jobs, Asked._make(column[:n_jobs] for column in self._asked)

    def state(self, jobs: JobArrays) -> State:
        """As `fresh_state` makes it."""
        if self.world.backfill == CONSERVATIVE:
            return fresh_state(self.world, jobs)  # with room for the reservations of just these jobs
        n_jobs, n_words = jobs.spec.size, jobs.least.size
        state = self._state._replace(
            job=self._state.job[:n_jobs],
            waiting=self._state.waiting[:n_words],
            waiting_words=self._state.waiting_words[: (n_words + 63) // 64],
        )
        # The others of `BY_JOB` are written before they are read.
        self._job_bytes[: state.job.nbytes] = self._fresh_jobs[: state.job.nbytes]
        state.waiting[:] = 0
        state.waiting_words[:] = 0
        self._fixed[:] = self._fresh_fixed
        return state

    def _make_room(self, n_jobs: int) -> None:
        self.unknown_s = np.full(n_jobs, np.nan)
        self._asked = Asked(*(np.zeros(n_jobs, dtype=np.int64) for _ in Asked._fields))
        self._jobs = JobArrays(
            np.zeros(n_jobs, JOB_SPEC),
            np.zeros(n_jobs, RANKED),
            np.zeros((n_jobs + 63) // 64, RANKED),
            np.zeros(n_jobs),
        )
        fresh = fresh_state(self.world, self._jobs)
        # numpy copies records field by field, bytes all at once.
        self._fresh_jobs = fresh.job.view(np.uint8).copy()
        fixed = [name for name in State._fields if name not in BY_JOB]
        self._fresh_fixed = np.concatenate([getattr(fresh, name).reshape(-1).view(np.uint8) for name in fixed])
        self._fixed = self._fresh_fixed.copy()
        views, at = {}, 0
        for name in fixed:
            like = getattr(fresh, name)
            views[name] = self._fixed[at : at + like.nbytes].view(like.dtype).reshape(like.shape)
            at += like.nbytes
        self._state = fresh._replace(**views)
        self._job_bytes = fresh.job.view(np.uint8)
