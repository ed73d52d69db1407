"""The networks of the two agents, as plain arrays: what is seen in, a score of every choice out.

Each agent's score is a hand-made rule of few numbers (`rule`) plus what a small network adds. With the last layer at 0
the agents are the hand-made rule: training first searches its numbers, then lets the networks improve on it.

All weights lie in one vector; `SHAPES` says in which order.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from smartmig.jit import called_kernel
from smartmig.policy.gang_encoding import (
    AT_RUSH,
    AT_SLOTS,
    AT_SOON,
    BREAKS,
    DAYS,
    IDLE_AFTER,
    N_CLUSTER,
    N_SIZES,
    N_SLOT,
)
from smartmig.types import Floats

N_GROUPS = 4
"""request classes up to 1 h, 4 h, 24 h, and longer"""
GROUP_OF = (0, 1, 1, 2, 2, 2, 3, 3, 3, 3)

# The selector's rule, by place.
AT_ORDER = 0  # cost of a request class step, then of each size class
AT_AGE = AT_ORDER + 1 + N_SIZES  # gain per day waited; more per day from so many days on
AT_NEED_LARGE = AT_AGE + 3  # idle nodes (of 30) to leave, by group, for jobs of a whole node
AT_NEED_SMALL = AT_NEED_LARGE + N_GROUPS  # the same for smaller ones
AT_RELIEF = AT_NEED_SMALL + N_GROUPS  # idle nodes less per day waited: large, small
AT_QUIET = AT_RELIEF + 2  # idle nodes less while nothing urgent comes: large, small; and up to which rush
AT_PATIENCE = AT_QUIET + 3  # hours waited before a reservation, by group
AT_LENT = AT_PATIENCE + N_GROUPS  # how much of an idle node one counts that will soon be idle
N_RULE = AT_LENT + 1

N_HIDDEN_CLUSTER, N_HIDDEN_SLOT, N_HIDDEN_KIND = 24, 16, 12
N_KIND = 12
"""what the allocator sees of one kind of node"""

SHAPES: dict[str, tuple[int, ...]] = {
    "rule": (N_RULE,),
    "cluster": (N_CLUSTER, N_HIDDEN_CLUSTER),
    "cluster_bias": (N_HIDDEN_CLUSTER,),
    "slot": (N_SLOT, N_HIDDEN_SLOT),
    "slot_cluster": (N_HIDDEN_CLUSTER, N_HIDDEN_SLOT),
    "slot_bias": (N_HIDDEN_SLOT,),
    "slot_out": (N_HIDDEN_SLOT,),
    "wait_out": (N_HIDDEN_CLUSTER,),
    "wait_bias": (1,),
    "fit": (1,),
    "kind": (N_KIND, N_HIDDEN_KIND),
    "kind_cluster": (N_CLUSTER, N_HIDDEN_KIND),
    "kind_bias": (N_HIDDEN_KIND,),
    "kind_out": (N_HIDDEN_KIND,),
}
"""In x out; up to `wait_bias` the selector's, then the allocator's. `fit`: how much the hand-made score of a node
counts against what the network adds."""

N_SELECTOR = sum(math.prod(SHAPES[name]) for name in list(SHAPES)[:9])
N_ALLOCATOR = sum(math.prod(SHAPES[name]) for name in list(SHAPES)[9:])

AT_CLUSTER = N_RULE
AT_CLUSTER_BIAS = AT_CLUSTER + N_CLUSTER * N_HIDDEN_CLUSTER
AT_SLOT = AT_CLUSTER_BIAS + N_HIDDEN_CLUSTER
AT_SLOT_CLUSTER = AT_SLOT + N_SLOT * N_HIDDEN_SLOT
AT_SLOT_BIAS = AT_SLOT_CLUSTER + N_HIDDEN_CLUSTER * N_HIDDEN_SLOT
AT_SLOT_OUT = AT_SLOT_BIAS + N_HIDDEN_SLOT
AT_WAIT_OUT = AT_SLOT_OUT + N_HIDDEN_SLOT
AT_WAIT_BIAS = AT_WAIT_OUT + N_HIDDEN_CLUSTER

AT_FIT = 0
AT_KIND = AT_FIT + 1
AT_KIND_CLUSTER = AT_KIND + N_KIND * N_HIDDEN_KIND
AT_KIND_BIAS = AT_KIND_CLUSTER + N_CLUSTER * N_HIDDEN_KIND
AT_KIND_OUT = AT_KIND_BIAS + N_HIDDEN_KIND

# Room to compute in, behind the weights: what the cluster says to all slots, then one slot.
ROOM = N_HIDDEN_CLUSTER + 2 * N_HIDDEN_SLOT + 1

MOST_BARRED = 2.0
"""nodes, of 30"""
STARTS_SCORE, BARRED_SCORE = 0.8, -0.8
"""Of a job the hand-made rule would start, before its order counts, and of one it bars; waiting scores 0."""


def n_gang_weights() -> int:
    return N_SELECTOR + N_ALLOCATOR


def hand_made(**rule: float | tuple[float, ...]) -> Floats:
    """Weights of the rule alone: the shortest request first, whole nodes before parts of them, room for none."""
    weights = np.zeros(n_gang_weights())
    weights[AT_ORDER] = 1.0
    weights[AT_ORDER + 1 : AT_AGE] = (0.4, 0.3, 0.2, 0.0, 0.0)
    weights[AT_QUIET + 2] = 0.3
    weights[AT_AGE + 2] = 7.0
    weights[N_SELECTOR + AT_FIT] = 1.0
    places = {"age": AT_AGE, "need_large": AT_NEED_LARGE, "need_small": AT_NEED_SMALL, "order": AT_ORDER}
    places |= {"relief": AT_RELIEF, "quiet": AT_QUIET, "patience": AT_PATIENCE, "lent": AT_LENT}
    for name, values in rule.items():
        numbers = np.atleast_1d(values)
        weights[places[name] : places[name] + numbers.size] = numbers
    return weights


def deaf_to(weights: Floats, inputs: NDArray[np.bool_]) -> Floats:
    """The same agents, their networks blind to these of the cluster's numbers (N_CLUSTER,)."""
    own = weights.copy()
    for begin, width in ((AT_CLUSTER, N_HIDDEN_CLUSTER), (N_SELECTOR + AT_KIND_CLUSTER, N_HIDDEN_KIND)):
        own[begin : begin + N_CLUSTER * width].reshape(N_CLUSTER, width)[inputs] = 0.0
    return own


@called_kernel
def rule_score(rule: Floats, request: int, size: int, nodes: float, starts: bool, seen: Floats, slot: Floats) -> float:
    """What the hand-made rule thinks of taking the job: above 0 better than to wait, below 0 worse.

    `nodes`: how many whole nodes (of 30) it needs, 0 for less than one. Who needs many is never barred: room beside a
    job that fills the cluster would take days to come by.
    """
    large = nodes > 0.0
    days = slot[DAYS]
    group = GROUP_OF[request]
    order = rule[AT_ORDER] * request + rule[AT_ORDER + 1 + size]
    aged = rule[AT_AGE] * days + rule[AT_AGE + 1] * max(0.0, days - rule[AT_AGE + 2])
    score = STARTS_SCORE + 2.0 * math.exp(0.25 * min(0.0, aged - order)) + 0.5 * max(0.0, aged - order)
    if starts:
        if slot[BREAKS] > 0.0 and nodes <= MOST_BARRED:
            kind = 0 if large else 1
            need = rule[AT_NEED_LARGE + kind * N_GROUPS + group] - rule[AT_RELIEF + kind] * days
            need -= rule[AT_QUIET + kind] * max(0.0, 1.0 - seen[AT_RUSH] / max(1e-3, rule[AT_QUIET + 2]))
            left = slot[IDLE_AFTER] + rule[AT_LENT] * seen[AT_SOON]
            if left < need:
                return BARRED_SCORE - 0.3 * min(2.0, need - left)
    elif days * 24.0 < rule[AT_PATIENCE + group]:
        return BARRED_SCORE - 1.0
    return score


@called_kernel
def cluster_says(network: Floats, seen: Floats) -> float:
    """Leave in the room what the cluster adds to every slot's first layer; the score that waiting gets."""
    at_room = N_SELECTOR
    at_slot = at_room + N_HIDDEN_CLUSTER
    for unit in range(N_HIDDEN_CLUSTER):
        network[at_room + unit] = network[AT_CLUSTER_BIAS + unit]
    for at in range(N_CLUSTER):
        value = seen[at]
        if value != 0.0:
            for unit in range(N_HIDDEN_CLUSTER):
                network[at_room + unit] += value * network[AT_CLUSTER + at * N_HIDDEN_CLUSTER + unit]
    for unit in range(N_HIDDEN_SLOT):
        network[at_slot + unit] = network[AT_SLOT_BIAS + unit]
    waits = network[AT_WAIT_BIAS]
    for at in range(N_HIDDEN_CLUSTER):
        value = math.tanh(network[at_room + at])
        waits += value * network[AT_WAIT_OUT + at]
        for unit in range(N_HIDDEN_SLOT):
            network[at_slot + unit] += value * network[AT_SLOT_CLUSTER + at * N_HIDDEN_SLOT + unit]
    return waits


@called_kernel
def slot_adds(network: Floats, seen: Floats, slot: int) -> float:
    """What the network adds to a slot's score; after `cluster_says`."""
    at_cluster = N_SELECTOR + N_HIDDEN_CLUSTER
    at_hidden = at_cluster + N_HIDDEN_SLOT
    begin = AT_SLOTS + slot * N_SLOT
    for unit in range(N_HIDDEN_SLOT):
        network[at_hidden + unit] = network[at_cluster + unit]
    for at in range(N_SLOT):
        value = seen[begin + at]
        for unit in range(N_HIDDEN_SLOT):
            network[at_hidden + unit] += value * network[AT_SLOT + at * N_HIDDEN_SLOT + unit]
    adds = 0.0
    for unit in range(N_HIDDEN_SLOT):
        adds += math.tanh(network[at_hidden + unit]) * network[AT_SLOT_OUT + unit]
    return adds


@called_kernel
def kinds_hear(network: Floats, seen: Floats) -> None:
    """Leave in the allocator's room what the cluster adds to every kind's first layer."""
    at_room = N_ALLOCATOR
    for unit in range(N_HIDDEN_KIND):
        network[at_room + unit] = network[AT_KIND_BIAS + unit]
    for at in range(N_CLUSTER):
        value = seen[at]
        if value != 0.0:
            for unit in range(N_HIDDEN_KIND):
                network[at_room + unit] += value * network[AT_KIND_CLUSTER + at * N_HIDDEN_KIND + unit]


@called_kernel
def kind_adds(network: Floats, kind: Floats) -> float:
    """What the network adds to a kind's score; after `kinds_hear`."""
    at_room = N_ALLOCATOR
    at_hidden = at_room + N_HIDDEN_KIND
    for unit in range(N_HIDDEN_KIND):
        network[at_hidden + unit] = network[at_room + unit]
    for at in range(N_KIND):
        for unit in range(N_HIDDEN_KIND):
            network[at_hidden + unit] += kind[at] * network[AT_KIND + at * N_HIDDEN_KIND + unit]
    adds = 0.0
    for unit in range(N_HIDDEN_KIND):
        adds += math.tanh(network[at_hidden + unit]) * network[AT_KIND_OUT + unit]
    return adds
