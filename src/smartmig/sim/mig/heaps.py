"""The two priority queues of the engine, on the state's arrays.

Ends: slots and GPUs by the time they are due, each at most once, removable from the middle.
Waiting jobs: (group, key, deadline, index) in one record, so a comparison touches one cache line.
"""

from __future__ import annotations

from smartmig.jit import called_kernel, kernel
from smartmig.policy.view import JobArrays, Records, State


@kernel
def earlier(end: Records, a: int, b: int) -> bool:
    # Equal times come out by item number, so that twins see the same order.
    return end[a].due_s < end[b].due_s or (end[a].due_s == end[b].due_s and a < b)


@kernel
def put_end(end: Records, item: int, at: int) -> None:
    end[at].item = item
    end[item].place = at


@kernel
def rise_end(end: Records, item: int, at: int) -> None:
    while at > 0:
        parent = (at - 1) >> 1
        other = end[parent].item
        if earlier(end, other, item):
            break
        put_end(end, other, at)
        at = parent
    put_end(end, item, at)


@kernel
def sink_end(end: Records, size: int, item: int, at: int) -> None:
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and earlier(end, end[child + 1].item, end[child].item):
            child += 1
        other = end[child].item
        if not earlier(end, other, item):
            break
        put_end(end, other, at)
        at = child
    put_end(end, item, at)


@called_kernel
def insert_end(end: Records, size: int, item: int, due_s: float) -> None:
    end[item].due_s = due_s
    rise_end(end, item, size)


@called_kernel
def delete_end(end: Records, size: int, at: int) -> None:
    """Take the item at that place out of a heap that then has `size` items."""
    if at == size:
        return
    last = end[size].item
    if at > 0 and earlier(end, last, end[(at - 1) >> 1].item):
        rise_end(end, last, at)
    else:
        sink_end(end, size, last, at)


@kernel
def push_end(state: State, item: int, due_s: float) -> None:
    """Schedule the item, which must not be scheduled."""
    insert_end(state.end, state.now[0].n_ends, item, due_s)
    state.now[0].n_ends += 1


@kernel
def remove_end(state: State, item: int) -> None:
    """Take the item out, if it is scheduled."""
    at = state.end[item].place
    if at >= 0:
        state.end[item].place = -1
        state.now[0].n_ends -= 1
        delete_end(state.end, state.now[0].n_ends, at)


@kernel
def stands_before(wait: Records, at: int, group: int, key: float, deadline_s: float, job: int) -> bool:
    """Whether the waiting job at that place comes before the one described."""
    if wait[at].group != group:
        return wait[at].group < group
    if wait[at].key != key:
        return wait[at].key < key
    if wait[at].deadline_s != deadline_s:
        return wait[at].deadline_s < deadline_s
    return wait[at].job < job


@kernel
def put_waiting(wait: Records, at: int, group: int, key: float, deadline_s: float, job: int) -> None:
    wait[at].group = group
    wait[at].key = key
    wait[at].deadline_s = deadline_s
    wait[at].job = job


@kernel
def move_waiting(wait: Records, source: int, to: int) -> None:
    put_waiting(wait, to, wait[source].group, wait[source].key, wait[source].deadline_s, wait[source].job)


@called_kernel
def insert_waiting(wait: Records, size: int, group: int, key: float, deadline_s: float, job: int) -> None:
    at = size
    while at > 0:
        parent = (at - 1) >> 1
        if stands_before(wait, parent, group, key, deadline_s, job):
            break
        move_waiting(wait, parent, at)
        at = parent
    put_waiting(wait, at, group, key, deadline_s, job)


@called_kernel
def delete_first(wait: Records, size: int) -> None:
    """Take the first job out of a heap that then has `size` jobs."""
    if size == 0:
        return
    group, key, deadline_s, job = wait[size].group, wait[size].key, wait[size].deadline_s, wait[size].job
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        right = child + 1
        if right < size and stands_before(
            wait, right, wait[child].group, wait[child].key, wait[child].deadline_s, wait[child].job
        ):
            child = right
        if not stands_before(wait, child, group, key, deadline_s, job):
            break
        move_waiting(wait, child, at)
        at = child
    put_waiting(wait, at, group, key, deadline_s, job)


@kernel
def push_waiting(jobs: JobArrays, state: State, job: int, key: float) -> None:
    spec = jobs.spec[job]
    insert_waiting(state.wait, state.now[0].n_waiting, spec.group, key, spec.deadline_s, job)
    state.now[0].n_waiting += 1


@kernel
def pop_waiting(state: State) -> int:
    """Take the first waiting job; there must be one."""
    first = state.wait[0].job
    state.now[0].n_waiting -= 1
    delete_first(state.wait, state.now[0].n_waiting)
    return first
