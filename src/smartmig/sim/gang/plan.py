"""Plans: how many GPUs of each node are free from when to when, by requested times.

A node's plan is a linked list of steps, the first at or before now, the last without end; neighbours always differ.
"""

from __future__ import annotations

import numpy as np

from smartmig.jit import called_kernel, kernel
from smartmig.policy.gang_view import State
from smartmig.policy.view import Records


@kernel
def forget_past(now: Records, node: Records, step: Records, at_node: int) -> int:
    """Drop the steps that are over; the first step."""
    first = node[at_node].first_step
    following = step[first].next
    while following >= 0 and step[following].time_s <= now[0].time_s:
        step[first].next = now[0].spare_step
        now[0].spare_step = first
        first = following
        following = step[first].next
    node[at_node].first_step = first
    return first


@kernel
def split(now: Records, step: Records, at: int, time_s: float) -> int:
    """Cut a step in two; the later one."""
    later = now[0].spare_step
    now[0].spare_step = step[later].next
    step[later].free = step[at].free
    step[later].time_s = time_s
    step[later].next = step[at].next
    step[at].next = later
    return later


@kernel
def join(now: Records, step: Records, at: int) -> None:
    """Make one step of two equal neighbours."""
    following = step[at].next
    if following >= 0 and step[following].free == step[at].free:
        step[at].next = step[following].next
        step[following].next = now[0].spare_step
        now[0].spare_step = following


@called_kernel
def shift_steps(
    now: Records, node: Records, step: Records, at_node: int, from_s: float, to_s: float, n_gpus: int
) -> None:
    at = forget_past(now, node, step, at_node)
    before = -1
    while step[at].next >= 0 and step[step[at].next].time_s <= from_s:
        before = at
        at = step[at].next
    if step[at].time_s < from_s:
        before = at
        at = split(now, step, at, from_s)
    last = -1
    while at >= 0 and step[at].time_s < to_s:
        following = step[at].next
        if to_s < np.inf and (following < 0 or step[following].time_s > to_s):
            following = split(now, step, at, to_s)
        step[at].free -= n_gpus
        last = at
        at = following
    # All steps in between moved alike: only the two ends can have become equal to their neighbours.
    if last >= 0:
        join(now, step, last)
    if before >= 0:
        join(now, step, before)


@kernel
def shift(state: State, node: int, from_s: float, to_s: float, n_gpus: int) -> None:
    """Plan with so many GPUs fewer (negative: more) on the node from now or later until `to_s`."""
    shift_steps(state.now, state.node, state.step, node, from_s, to_s, n_gpus)


@kernel
def mark_freed(state: State, node: int) -> None:
    """Jobs may now find an earlier start on the node."""
    state.now[0].n_freed += 1
    state.node[node].freed = state.now[0].n_freed


@called_kernel
def earliest_on(
    now: Records,
    node: Records,
    step: Records,
    at_node: int,
    n_gpus: int,
    length_s: float,
    before_s: float,
    own_gpus: int,
    own_s: float,
) -> float:
    """First time before `before_s` from which so many GPUs are free for that long, or inf.

    The job's own reservation, so many GPUs from `own_s` on, is not in its way.
    """
    at = forget_past(now, node, step, at_node)
    start_s = now[0].time_s
    while at >= 0:
        free = step[at].free
        if step[at].time_s >= own_s:
            free += own_gpus
        following = step[at].next
        until_s = step[following].time_s if following >= 0 else np.inf
        if free < n_gpus:
            start_s = until_s
            if start_s >= before_s:
                return np.inf
        elif until_s >= start_s + length_s:
            return start_s
        at = following
    return np.inf


@called_kernel
def least_free(now: Records, node: Records, step: Records, at_node: int, from_s: float, length_s: float) -> int:
    """GPUs that are free on the node for all that time."""
    at = forget_past(now, node, step, at_node)
    while step[at].next >= 0 and step[step[at].next].time_s <= from_s:
        at = step[at].next
    least = step[at].free
    at = step[at].next
    while at >= 0 and step[at].time_s < from_s + length_s:
        least = min(least, step[at].free)
        at = step[at].next
    return least


@called_kernel
def next_step_s(now: Records, node: Records, step: Records, at_node: int, after_s: float) -> float:
    """When the node's plan changes next."""
    at = forget_past(now, node, step, at_node)
    while at >= 0 and step[at].time_s <= after_s:
        at = step[at].next
    return step[at].time_s if at >= 0 else np.inf
