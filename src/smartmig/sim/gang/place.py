"""Where a job goes: the shapes it can take, on the nodes the rule likes best.

All read `state.offered`, what the job may have of each node, and leave the choice in `state.take` and `state.chosen`.
Functions without a decorator call the plugged-in rule; `kernel.engine` compiles them for it.
"""

from __future__ import annotations

import numpy as np

from smartmig.jit import kernel
from smartmig.policy.gang_view import JobArrays, State, World, accepts, whole_nodes_fit
from smartmig.sim.gang.plugged import rule_prepare, rule_score

ANYWHERE = -1
ONE_NODE, WHOLE_NODE, LARGEST_SHARE = range(3)


@kernel
def choose(state: State, node: int, n_gpus: int) -> None:
    state.take[node] = n_gpus
    state.chosen[state.now[0].n_chosen] = node
    state.now[0].n_chosen += 1


@kernel
def choose_nothing(state: State) -> None:
    for at in range(state.now[0].n_chosen):
        state.take[state.chosen[at]] = 0
    state.now[0].n_chosen = 0


@kernel
def fits_offered(world: World, jobs: JobArrays, state: State, job: int) -> bool:
    """Whether the job fits what is offered, in one of its shapes."""
    n_gpus = jobs.spec[job].n_gpus
    total = 0
    widest = 0
    for node in range(state.offered.size):
        if accepts(world, jobs, job, node):
            total += state.offered[node]
            widest = max(widest, state.offered[node])
    if world.spread or total < n_gpus:
        return total >= n_gpus
    if jobs.spec[job].one_node:
        return widest >= n_gpus
    return whole_nodes_fit(world, jobs, job, state.offered)


def best_node(world: World, jobs: JobArrays, state: State, job: int, need: int, shape: int, switch: int) -> int:
    """The node, not yet chosen, that the rule likes best for the job's next share, or -1.

    The share is all that is needed, or a whole idle node (the largest there is), or the most a node offers.
    """
    chosen = -1
    most = 0
    best = np.inf
    best_tie = np.inf
    for node in range(state.offered.size):
        offered = state.offered[node]
        if offered == 0 or state.take[node] > 0 or (switch != ANYWHERE and world.node[node].switch != switch):
            continue
        if not accepts(world, jobs, job, node):
            continue
        if shape == ONE_NODE:
            if offered < need:
                continue
            share = need
        elif shape == WHOLE_NODE:
            if offered < world.node[node].n_gpus or offered > need:
                continue
            share = offered
        else:
            share = min(offered, need)
        if share < most:
            continue
        score, tie = rule_score(world, jobs, state, job, node, share)
        if share > most or score < best or (score == best and tie < best_tie):
            chosen = node
            most = share
            best = score
            best_tie = tie
    return chosen


@kernel
def next_switch(world: World, state: State, after: int) -> int:
    """Switches by GPUs on offer, fewest first, then by number; -1 after the last (and before the first)."""
    chosen = -1
    for switch in range(world.n_switches):
        offered = state.switch_offered[switch]
        if after >= 0:
            passed = state.switch_offered[after]
            if offered < passed or (offered == passed and switch <= after):
                continue
        if chosen < 0 or offered < state.switch_offered[chosen]:
            chosen = switch
    return chosen


def place(world: World, jobs: JobArrays, state: State, job: int) -> bool:
    """Choose nodes for the job from what is offered; whether it fits.

    Tried in turn: its own shape (several nodes: one switch after another first, if the rule cares), then, if the rule
    spreads, the largest shares of one switch, then of all.
    """
    for switch in range(world.n_switches):
        state.switch_offered[switch] = 0
    for node in range(state.offered.size):
        state.switch_offered[world.node[node].switch] += state.offered[node]
    rule_prepare(world, jobs, state, job)
    shape = ONE_NODE if jobs.spec[job].one_node else WHOLE_NODE
    switch = next_switch(world, state, -1) if shape == WHOLE_NODE and world.by_switch else ANYWHERE
    while True:
        choose_nothing(state)
        need = jobs.spec[job].n_gpus
        share_shape = shape
        while need > 0:
            node = best_node(world, jobs, state, job, need, share_shape, switch)
            if node >= 0:
                share = min(state.offered[node], need)
                choose(state, node, share)
                need -= share
            elif share_shape == WHOLE_NODE:
                share_shape = ONE_NODE  # no more whole nodes: the rest goes onto one
            else:
                break
        if need == 0:
            return True
        if switch != ANYWHERE:
            switch = next_switch(world, state, switch)  # after the last one: anywhere
        elif world.spread and shape != LARGEST_SHARE:
            shape = LARGEST_SHARE
            switch = next_switch(world, state, -1)
        else:
            return False
