"""Who holds which GPUs: starting and ending jobs, and what nodes can offer."""

from __future__ import annotations

import numpy as np

from smartmig.jit import called_kernel, kernel
from smartmig.policy.gang_view import BRIEF_S, CONSERVATIVE, JobArrays, State, World, count_brief, usage
from smartmig.policy.view import Records
from smartmig.sim.gang.plan import mark_freed, shift
from smartmig.sim.mig.heaps import delete_end, insert_end
from smartmig.types import Ints


@called_kernel
def change_offer(offer: Ints, n_offering: Ints, room: Records, node: int, model: int, n_gpus: int) -> None:
    """One row of the offers: the node now gives so many GPUs."""
    before = offer[node]
    offer[node] = n_gpus
    n_offering[model, before] -= 1
    n_offering[model, n_gpus] += 1
    room[model].total += n_gpus - before
    widest = max(room[model].widest, n_gpus)
    while widest > 0 and n_offering[model, widest] == 0:
        widest -= 1
    room[model].widest = widest


@kernel
def set_offer(world: World, state: State, row: int, node: int, n_gpus: int) -> None:
    change_offer(state.offer[row], state.n_offering[row], state.room[row], node, world.node[node].model, n_gpus)


@kernel
def enqueue(jobs: JobArrays, state: State, job: int) -> None:
    rank = jobs.spec[job].rank
    state.waiting[rank >> 6] |= np.int64(1) << (rank & 63)
    state.waiting_words[rank >> 12] |= np.int64(1) << (rank >> 6 & 63)
    state.job[job].begin_s = np.inf
    state.job[job].checked = -1
    state.now[0].n_waiting += 1


@kernel
def dequeue(jobs: JobArrays, state: State, job: int) -> None:
    rank = jobs.spec[job].rank
    state.waiting[rank >> 6] &= ~(np.int64(1) << (rank & 63))
    if state.waiting[rank >> 6] == 0:
        state.waiting_words[rank >> 12] &= ~(np.int64(1) << (rank >> 6 & 63))
    state.now[0].n_waiting -= 1


@called_kernel
def insert_release(release: Ints, size: int, job_of: Records, job: int) -> None:
    """Keep running jobs in the order in which their limits end them."""
    at = size
    while at > 0:
        other = release[at - 1]
        if job_of[other].until_s < job_of[job].until_s or (
            job_of[other].until_s == job_of[job].until_s and other < job
        ):
            break
        release[at] = other
        at -= 1
    release[at] = job


@called_kernel
def delete_release(release: Ints, size: int, job_of: Records, job: int) -> None:
    """Take the job out of a list that had `size` jobs."""
    low, high = 0, size - 1
    while low < high:
        middle = (low + high) >> 1
        other = release[middle]
        if job_of[other].until_s < job_of[job].until_s or (
            job_of[other].until_s == job_of[job].until_s and other < job
        ):
            low = middle + 1
        else:
            high = middle
    for at in range(low, size - 1):
        release[at] = release[at + 1]


@kernel
def keep_parts(state: State, job: int) -> None:
    """What was placed becomes the job's parts."""
    for at in range(state.now[0].n_chosen - 1, -1, -1):
        node = state.chosen[at]
        part = state.now[0].spare_part
        state.now[0].spare_part = state.part[part].next
        state.part[part].job = job
        state.part[part].node = node
        state.part[part].n_gpus = state.take[node]
        state.part[part].next = state.job[job].first_part
        state.job[job].first_part = part


@kernel
def hold(state: State, part: int, limit_s: float) -> None:
    """List a part with its node."""
    node = state.part[part].node
    after = state.node[node].first_part
    until_s = state.now[0].time_s + limit_s
    state.node[node].until_s = max(state.node[node].until_s, until_s) if after >= 0 else until_s
    state.part[part].before = -1
    state.part[part].after = after
    state.node[node].first_part = part
    if after >= 0:
        state.part[after].before = part


@kernel
def let_go(state: State, part: int) -> None:
    """Take a part off its node's list."""
    before = state.part[part].before
    after = state.part[part].after
    node = state.part[part].node
    if before >= 0:
        state.part[before].after = after
    else:
        state.node[node].first_part = after
    if after >= 0:
        state.part[after].before = before
    until_s = -np.inf
    other = state.node[node].first_part
    while other >= 0:
        until_s = max(until_s, state.job[state.part[other].job].until_s)
        other = state.part[other].after
    state.node[node].until_s = until_s


@kernel
def drop_parts(state: State, job: int) -> None:
    part = state.job[job].first_part
    while part >= 0:
        following = state.part[part].next
        state.part[part].next = state.now[0].spare_part
        state.now[0].spare_part = part
        part = following
    state.job[job].first_part = -1


@kernel
def charge_user(world: World, state: State, user: int, n_gpus: int) -> None:
    """Bring a user's past use up to now and change what it holds."""
    state.user[user].used_gpu_s = usage(world, state, user)
    state.user[user].since_s = state.now[0].time_s
    state.user[user].n_gpus += n_gpus


@called_kernel
def begin(world: World, jobs: JobArrays, state: State, job: int) -> None:
    """Start a queued job on its parts."""
    now_s = state.now[0].time_s
    spec = jobs.spec[job]
    long = state.now[0].reserved >= 0 and now_s + spec.limit_s > state.now[0].reserved_s
    slowest = np.inf
    part = state.job[job].first_part
    while part >= 0:
        node = state.part[part].node
        n_gpus = state.part[part].n_gpus
        slowest = min(slowest, world.node[node].speed)
        count_brief(world, state, node, -1)
        hold(state, part, spec.limit_s)
        state.node[node].n_lasting += spec.limit_s > BRIEF_S
        state.node[node].free -= n_gpus
        set_offer(world, state, 0, node, state.offer[0, node] - n_gpus)
        count_brief(world, state, node, 1)
        if state.now[0].reserved >= 0:
            # A job that is gone by then costs the reservation nothing, but nobody can have its GPUs now.
            left = state.offer[1, node] - n_gpus if long else min(state.offer[1, node], state.offer[0, node])
            set_offer(world, state, 1, node, left)
        part = state.part[part].next
    run_s = jobs.run_s[job] / slowest
    state.job[job].begin_s = now_s
    state.job[job].until_s = now_s + spec.limit_s
    state.job[job].killed = run_s > spec.limit_s
    state.job[job].n_starts += 1
    insert_end(state.end, state.now[0].n_ends, job, now_s + min(run_s, spec.limit_s))
    state.now[0].n_ends += 1
    insert_release(state.release, state.now[0].n_running, state.job, job)
    state.now[0].n_running += 1
    dequeue(jobs, state, job)
    if world.usage_half_life_s > 0.0:
        charge_user(world, state, spec.user, spec.n_gpus)
        charge_user(world, state, state.user.size - 1, spec.n_gpus)


@called_kernel
def stop(world: World, jobs: JobArrays, state: State, job: int) -> None:
    """Take a running job off its GPUs."""
    now_s = state.now[0].time_s
    state.now[0].n_ends -= 1
    delete_end(state.end, state.now[0].n_ends, state.end[job].place)
    delete_release(state.release, state.now[0].n_running, state.job, job)
    state.now[0].n_running -= 1
    part = state.job[job].first_part
    while part >= 0:
        node = state.part[part].node
        n_gpus = state.part[part].n_gpus
        count_brief(world, state, node, -1)
        let_go(state, part)
        state.node[node].n_lasting -= jobs.spec[job].limit_s > BRIEF_S
        state.node[node].free += n_gpus
        if state.node[node].n_away == 0:
            set_offer(world, state, 0, node, state.node[node].free)
        count_brief(world, state, node, 1)
        if state.node[node].n_away == 0 and world.backfill == CONSERVATIVE:
            shift(state, node, now_s, state.job[job].until_s, -n_gpus)
            mark_freed(state, node)
        row = state.now[0].n_stretches
        state.now[0].n_stretches += 1
        state.stretch[row].job = job
        state.stretch[row].node = node
        state.stretch[row].n_gpus = n_gpus
        state.stretch[row].from_s = state.job[job].begin_s
        state.stretch[row].to_s = now_s
        part = state.part[part].next
    drop_parts(state, job)
    if world.usage_half_life_s > 0.0:
        spec = jobs.spec[job]
        charge_user(world, state, spec.user, -spec.n_gpus)
        charge_user(world, state, state.user.size - 1, -spec.n_gpus)
