"""Learned allocating: nodes of one kind (model, free GPUs) stand for each other, and the best kind gets the job.

Of every kind the node is taken that `fragmentation-aware` likes best. That rule's loss of room, on a logarithmic scale,
plus what a network adds is the kind's score. Jobs of several nodes are placed by the loss of room alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from smartmig.jit import called_kernel, kernel
from smartmig.policy.allocation.fragmentation_aware import FragmentationAware, loss, tabulate
from smartmig.policy.allocation.rule import Anywhere, Kernels
from smartmig.policy.gang_encoding import (
    DAY_S,
    HOUR_S,
    N_BINS,
    N_CLUSTER,
    N_MODELS,
    encode_cluster,
    idle_nodes,
)
from smartmig.policy.gang_files import agents_of
from smartmig.policy.gang_network import (
    AT_FIT,
    AT_KIND_OUT,
    N_ALLOCATOR,
    N_HIDDEN_KIND,
    N_KIND,
    N_SELECTOR,
    kind_adds,
    kinds_hear,
)
from smartmig.policy.gang_plain import PlainGang, PlainNode
from smartmig.policy.gang_view import JobArrays, State, World, accepts
from smartmig.types import Floats

N_KINDS = N_MODELS * N_BINS

# World.allocation_knobs: how far requested times count, whether the network adds anything, the chosen node, the
# cluster's numbers; of every kind its best node, that node's loss, how many there are; numbers, scores; the network.
AT_HORIZON, AT_ADDS, AT_CHOSEN = 0, 1, 2
AT_SEEN = 3
AT_NODE = AT_SEEN + N_CLUSTER
AT_LOSS = AT_NODE + N_KINDS
AT_COUNT = AT_LOSS + N_KINDS
AT_NUMBERS = AT_COUNT + N_KINDS
AT_SCORES = AT_NUMBERS + N_KINDS * N_KIND
AT_NETWORK = AT_SCORES + N_KINDS
ROOM = 2 * N_HIDDEN_KIND

HORIZON_S = 30 * DAY_S
LEAST_LOSS = 1.0
"""below this two losses are alike"""


@called_kernel
def gather_kinds(world: World, jobs: JobArrays, state: State, job: int) -> float:
    """Of every kind that can hold the job: its best node, that node's loss, how many nodes; the least loss."""
    knobs = world.allocation_knobs
    for kind in range(N_KINDS):
        knobs[AT_NODE + kind] = -1.0
        knobs[AT_COUNT + kind] = 0.0
    n_gpus = jobs.spec[job].n_gpus
    least = np.inf
    for node in range(state.offered.size):
        if state.offered[node] < n_gpus or not accepts(world, jobs, job, node):
            continue
        size = world.node[node].n_gpus
        kind = min(world.node[node].model, N_MODELS - 1) * N_BINS + (8 * state.offered[node] + size - 1) // size
        lost = loss(world, jobs, state, job, node, n_gpus, knobs[AT_HORIZON])
        if knobs[AT_NODE + kind] < 0.0 or lost < knobs[AT_LOSS + kind]:
            knobs[AT_NODE + kind] = node
            knobs[AT_LOSS + kind] = lost
        knobs[AT_COUNT + kind] += 1.0
        least = min(least, lost)
    return least


@called_kernel
def describe_kind(world: World, jobs: JobArrays, state: State, job: int, node: int, count: float, out: Floats) -> None:
    """What the network sees of a kind: (N_KIND,)."""
    spec = jobs.spec[job]
    size = world.node[node].n_gpus
    limit_s = min(spec.limit_s, HORIZON_S)
    until_s = max(state.node[node].until_s, state.now[0].time_s)
    beside_s = max(0.0, until_s - state.now[0].place_s)
    out[0] = math.log2(limit_s / HOUR_S + 1e-3) / 8.0
    out[1] = math.log2(spec.n_gpus) / 3.0
    out[2] = state.offered[node] / size
    out[3] = (state.offered[node] - spec.n_gpus) / size
    out[4] = 1.0 if state.offered[node] == spec.n_gpus else 0.0
    out[5] = 1.0 if state.offered[node] == size else 0.0
    out[6] = min(1.0, beside_s / limit_s)
    out[7] = math.log1p(min(beside_s, HORIZON_S) / HOUR_S) / 5.0
    out[8] = count / world.node.size
    out[9] = world.node[node].speed
    out[10] = min(4.0, 30.0 * idle_nodes(state) / world.node.size)
    out[11] = math.log1p(max(0.0, state.now[0].place_s - state.now[0].time_s) / HOUR_S) / 5.0


@called_kernel
def score_kinds(world: World, jobs: JobArrays, state: State, job: int) -> None:
    """Score every kind that can hold the job."""
    knobs = world.allocation_knobs
    tabulate(world, jobs, state, job)
    least = gather_kinds(world, jobs, state, job)
    adds = knobs[AT_ADDS] > 0.0
    network = knobs[AT_NETWORK:]
    if adds:
        encode_cluster(world, state, knobs[AT_SEEN:AT_NODE])
        kinds_hear(network, knobs[AT_SEEN:AT_NODE])
    for kind in range(N_KINDS):
        knobs[AT_SCORES + kind] = -np.inf
        node = int(knobs[AT_NODE + kind])
        if node < 0:
            continue
        knobs[AT_SCORES + kind] = -network[AT_FIT] * math.log(
            (knobs[AT_LOSS + kind] + LEAST_LOSS) / (least + LEAST_LOSS)
        )
        if adds:
            begin = AT_NUMBERS + kind * N_KIND
            numbers = knobs[begin : begin + N_KIND]
            describe_kind(world, jobs, state, job, node, knobs[AT_COUNT + kind], numbers)
            knobs[AT_SCORES + kind] += kind_adds(network, numbers)


@kernel
def prepare(world: World, jobs: JobArrays, state: State, job: int) -> None:
    knobs = world.allocation_knobs
    score_kinds(world, jobs, state, job)
    best = -np.inf
    knobs[AT_CHOSEN] = -1.0
    for kind in range(N_KINDS):
        if knobs[AT_SCORES + kind] > best:
            best = knobs[AT_SCORES + kind]
            knobs[AT_CHOSEN] = knobs[AT_NODE + kind]


@kernel
def score(world: World, jobs: JobArrays, state: State, job: int, node: int, n_gpus: int) -> tuple[float, float]:
    if n_gpus == jobs.spec[job].n_gpus and world.allocation_knobs[AT_CHOSEN] >= 0.0:
        return (0.0 if node == world.allocation_knobs[AT_CHOSEN] else 1.0), 0.0
    lost = loss(world, jobs, state, job, node, n_gpus, world.allocation_knobs[AT_HORIZON])
    return lost, float(state.offered[node] - n_gpus)


def allocator_knobs(weights: Floats) -> Floats:
    """What the kernels read; `weights` are those of both agents."""
    network = weights[N_SELECTOR:]
    adds = float(np.any(network[AT_KIND_OUT : AT_KIND_OUT + N_HIDDEN_KIND] != 0))
    empty = np.zeros(AT_NETWORK - AT_SEEN)
    assert network.size == N_ALLOCATOR
    return np.concatenate([[HORIZON_S, adds, -1.0], empty, network, np.zeros(ROOM)])


@dataclass(frozen=True)
class Learned(Anywhere):
    """The kind of node (model, free GPUs) that a trained network likes best (ours)."""

    policy_file: str = ""
    """a policy of one's own (`smartmig train gang`) or a shipped one by name: slowdown, wait; empty: slowdown"""
    spread: bool = False
    """split a job that fits no node now over several"""

    kernels: ClassVar[Kernels] = Kernels(score, prepare)

    def __post_init__(self) -> None:
        agents_of(self.policy_file)

    @property
    def mix_half_life(self) -> float:
        return FragmentationAware.half_life

    def knobs(self) -> tuple[float, ...]:
        return tuple(allocator_knobs(agents_of(self.policy_file).weights).tolist())

    def plain_score(self, view: PlainGang, job: int, node: PlainNode, n_gpus: int) -> tuple[float, float]:
        from smartmig.policy.gang_agents_plain import plain_score

        return plain_score(view, agents_of(self.policy_file).weights, job, node, n_gpus)
