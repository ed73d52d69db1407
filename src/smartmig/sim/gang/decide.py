"""The decision pass: which queued jobs start now.

Strict and EASY ask the selection rule for one job after another; conservative goes through the whole queue and keeps a
reservation for every job. `decide`, without a decorator, calls the plugged-in rules; `kernel.engine` compiles it.
"""

from __future__ import annotations

import numpy as np

from smartmig.jit import called_kernel, kernel
from smartmig.policy.gang_view import (
    CONSERVATIVE,
    EASY,
    JobArrays,
    State,
    World,
    accepts,
    can_start,
    next_waiting,
    room_row,
)
from smartmig.policy.view import Records
from smartmig.sim.gang.occupancy import begin, drop_parts, keep_parts, set_offer
from smartmig.sim.gang.place import choose_nothing, fits_offered, place
from smartmig.sim.gang.plan import earliest_on, least_free, mark_freed, next_step_s, shift
from smartmig.sim.gang.plugged import rule_key, rule_select


@kernel
def is_queued(jobs: JobArrays, state: State, job: int) -> bool:
    """Whether the rule chose a queued job; a rule may be anyone's."""
    if not 0 <= job < jobs.spec.size:
        return False
    rank = jobs.spec[job].rank
    return (state.waiting[rank >> 6] >> (rank & 63) & 1) == 1


@called_kernel
def find_reservation(world: World, jobs: JobArrays, state: State, job: int) -> bool:
    """When the job can start if everyone runs to the limit, and what is then offered; whether there is such a time."""
    n_gpus = jobs.spec[job].n_gpus
    simple = jobs.spec[job].one_node and not world.spread
    for node in range(state.offered.size):
        state.offered[node] = state.offer[0, node]
    choose_nothing(state)
    state.now[0].reserved = job
    state.now[0].reserved_s = np.inf
    state.now[0].cursor = 0
    at = 0
    while at < state.now[0].n_running:
        until_s = state.job[state.release[at]].until_s
        if until_s == np.inf:
            break
        grown = False
        while at < state.now[0].n_running and state.job[state.release[at]].until_s == until_s:
            part = state.job[state.release[at]].first_part
            while part >= 0:
                node = state.part[part].node
                if state.node[node].n_away == 0:
                    state.offered[node] += state.part[part].n_gpus
                    grown = grown or (state.offered[node] >= n_gpus and accepts(world, jobs, job, node))
                part = state.part[part].next
            at += 1
        if grown if simple else fits_offered(world, jobs, state, job):
            state.now[0].reserved_s = until_s
            state.now[0].place_s = until_s
            if np.isnan(state.job[job].promised_s):
                state.job[job].promised_s = until_s
            return True
    return False


@called_kernel
def fence_reservation(world: World, state: State) -> None:
    """Row 1 of the offers: what is free now beside the GPUs just chosen."""
    for node in range(state.offered.size):
        spare = state.offer[0, node]
        if state.take[node] > 0:
            spare = min(spare, state.offered[node] - state.take[node])
        if state.offer[1, node] != spare:
            set_offer(world, state, 1, node, spare)


@kernel
def offer_now(jobs: JobArrays, state: State, job: int) -> None:
    row = room_row(jobs, state, job)
    state.now[0].place_s = state.now[0].time_s
    for node in range(state.offered.size):
        state.offered[node] = state.offer[row, node]


@called_kernel
def sort_order(order: Records, size: int) -> None:
    """Heap sort by (key, job)."""
    for end in range(2 * size - 1, 0, -1):
        # First half: build the heap from the bottom; second half: move the greatest behind the rest.
        if end >= size:
            root, length = end - size, size
        else:
            order[0].job, order[end].job = order[end].job, order[0].job
            order[0].key, order[end].key = order[end].key, order[0].key
            root, length = 0, end
        job, key = order[root].job, order[root].key
        while 2 * root + 1 < length:
            child = 2 * root + 1
            if child + 1 < length and (
                order[child].key < order[child + 1].key
                or (order[child].key == order[child + 1].key and order[child].job < order[child + 1].job)
            ):
                child += 1
            if order[child].key < key or (order[child].key == key and order[child].job < job):
                break
            order[root].job = order[child].job
            order[root].key = order[child].key
            root = child
        order[root].job = job
        order[root].key = key


@kernel
def list_ranked(world: World, jobs: JobArrays, state: State) -> int:  # noqa: ARG001
    """Write the queue into `state.order`, in a fixed order; its length."""
    size = 0
    at = next_waiting(state, 0)
    while at >= 0:
        state.order[size].job = jobs.ranked[at].job
        size += 1
        at = next_waiting(state, at + 1)
    return size


def list_by_key(world: World, jobs: JobArrays, state: State) -> int:
    """The same for an order that moves with time; the queue then stands by submission, so a rank is a job."""
    size = 0
    at = next_waiting(state, 0)
    while at >= 0:
        state.order[size].job = at
        state.order[size].key = rule_key(world, jobs, state, at)
        size += 1
        at = next_waiting(state, at + 1)
    sort_order(state.order, size)
    return size


list_queue = list_ranked


@called_kernel
def plan_afresh(world: World, jobs: JobArrays, state: State) -> None:
    """Forget all reservations; plans hold what runs now on the nodes that are there."""
    state.now[0].replan = 0
    n_nodes = state.node.size
    now_s = state.now[0].time_s
    for at in range(state.step.size):
        state.step[at].next = at + 1 if at + 1 < state.step.size else -1
    state.now[0].spare_step = n_nodes
    for node in range(n_nodes):
        state.node[node].first_step = node
        state.step[node].next = -1
        state.step[node].time_s = now_s
        state.step[node].free = world.node[node].n_gpus if state.node[node].n_away == 0 else 0
    for at in range(state.now[0].n_running):
        job = state.release[at]
        part = state.job[job].first_part
        while part >= 0:
            node = state.part[part].node
            if state.node[node].n_away == 0:
                shift(state, node, now_s, state.job[job].until_s, state.part[part].n_gpus)
            part = state.part[part].next
    at = next_waiting(state, 0)
    while at >= 0:
        job = jobs.ranked[at].job
        drop_parts(state, job)
        state.job[job].begin_s = np.inf
        state.job[job].checked = -1
        at = next_waiting(state, at + 1)


@called_kernel
def shift_parts(jobs: JobArrays, state: State, job: int, sign: int) -> None:
    """Put a job's reservation into the plans, or take it out."""
    begin_s = state.job[job].begin_s
    part = state.job[job].first_part
    while part >= 0:
        n_gpus = sign * state.part[part].n_gpus
        shift(state, state.part[part].node, begin_s, begin_s + jobs.spec[job].limit_s, n_gpus)
        part = state.part[part].next


@called_kernel
def offer_window(jobs: JobArrays, state: State, job: int, from_s: float) -> None:
    """What the job could have of each node for all its requested time."""
    state.now[0].place_s = from_s
    for node in range(state.node.size):
        state.offered[node] = 0
        if state.node[node].n_away == 0:
            state.offered[node] = least_free(state.now, state.node, state.step, node, from_s, jobs.spec[job].limit_s)


@called_kernel
def earliest_useful(world: World, jobs: JobArrays, state: State, job: int) -> float:
    """First time before the job's present reservation at which a node that gave something back since the last look can
    be of use to it; for a job on one node, the time it can start."""
    own_s = state.job[job].begin_s
    best_s = own_s
    share = jobs.spec[job].least_share
    for node in range(state.node.size):
        if state.node[node].n_away > 0 or state.node[node].freed <= state.job[job].checked:
            continue
        if accepts(world, jobs, job, node) and world.node[node].n_gpus >= share:
            own_gpus = 0
            part = state.job[job].first_part
            while part >= 0:
                if state.part[part].node == node:
                    own_gpus = state.part[part].n_gpus
                part = state.part[part].next
            limit_s = jobs.spec[job].limit_s
            start_s = earliest_on(state.now, state.node, state.step, node, share, limit_s, best_s, own_gpus, own_s)
            best_s = min(best_s, start_s)
    return best_s


@called_kernel
def earliest_together(world: World, jobs: JobArrays, state: State, job: int, from_s: float) -> float:
    """First start of a job of several nodes, from then on and before its present reservation."""
    before_s = state.job[job].begin_s
    if before_s < np.inf:
        shift_parts(jobs, state, job, -1)
    at_s = from_s
    while at_s < before_s:
        offer_window(jobs, state, job, at_s)
        if fits_offered(world, jobs, state, job):
            break
        next_s = np.inf
        for node in range(state.node.size):
            if state.node[node].n_away == 0:
                next_s = min(next_s, next_step_s(state.now, state.node, state.step, node, at_s))
        at_s = next_s
    if before_s < np.inf:
        shift_parts(jobs, state, job, 1)
    return min(at_s, before_s)


@called_kernel
def find_earlier(world: World, jobs: JobArrays, state: State, job: int) -> bool:
    """Whether all other reservations leave the job an earlier start than its own; if so its own is given up."""
    at_s = earliest_useful(world, jobs, state, job)
    if at_s < state.job[job].begin_s and (world.spread or not jobs.spec[job].one_node):
        at_s = earliest_together(world, jobs, state, job, at_s)
    state.job[job].checked = state.now[0].n_freed
    if at_s >= state.job[job].begin_s:
        return False
    if state.job[job].begin_s < np.inf:
        shift_parts(jobs, state, job, -1)
        part = state.job[job].first_part
        while part >= 0:
            mark_freed(state, state.part[part].node)
            part = state.part[part].next
        drop_parts(state, job)
        state.job[job].checked = state.now[0].n_freed
    state.job[job].begin_s = at_s
    if np.isnan(state.job[job].promised_s):
        state.job[job].promised_s = at_s
    offer_window(jobs, state, job, at_s)
    return True


def decide(world: World, jobs: JobArrays, state: State) -> None:
    """Conservative: everyone's reservation moves up where it can, in the rule's order; those due now start.

    Otherwise: start jobs in the rule's order until one does not fit; beside a reservation for that one, those that do.
    """
    now_s = state.now[0].time_s
    state.now[0].reserved = -1
    n_left = world.most_starts
    if world.backfill == CONSERVATIVE:
        if state.now[0].replan:
            plan_afresh(world, jobs, state)
        state.now[0].next_start_s = np.inf
        size = list_queue(world, jobs, state)
        for at in range(size):
            job = state.order[at].job
            if (
                state.job[job].begin_s > now_s
                and state.job[job].checked < state.now[0].n_freed
                and find_earlier(world, jobs, state, job)
            ):
                place(world, jobs, state, job)
                keep_parts(state, job)
                shift_parts(jobs, state, job, 1)
            if state.job[job].begin_s <= now_s and n_left > 0:
                begin(world, jobs, state, job)
                n_left -= 1
            else:
                state.now[0].next_start_s = min(state.now[0].next_start_s, state.job[job].begin_s)
        return
    n_free = 0
    for model in range(world.n_models):
        n_free += state.room[0, model].total
    while n_free > 0 and state.now[0].n_waiting > 0 and n_left > 0:
        job = rule_select(world, jobs, state)
        if job < 0:
            break
        if not is_queued(jobs, state, job):
            state.now[0].n_bad_choices += 1
            break
        if can_start(world, jobs, state, job):
            offer_now(jobs, state, job)
            place(world, jobs, state, job)
            keep_parts(state, job)
            begin(world, jobs, state, job)
            n_free -= jobs.spec[job].n_gpus
            n_left -= 1
        elif world.backfill == EASY and state.now[0].reserved < 0:
            if find_reservation(world, jobs, state, job):
                place(world, jobs, state, job)
            fence_reservation(world, state)
        else:
            break
    state.now[0].reserved = -1
