"""What the two agents of the whole-GPU world see: a fixed number of numbers, whatever the cluster and the queue.

The queue is seen through *cells*, one per (request class, size class). A cell shows its head, the job submitted first,
and its tail, the one submitted last: so the window is split over both ends of the queue, the shortest requests are
always in it, and nothing is cut off. Of the cluster there is a histogram of nodes by free GPUs and model, which the
engine keeps as running counts: the cost does not grow with the nodes. Simulation, training and live control all call
`encode` and nothing else.

All numbers lie in one vector, `seen`: the cluster's, then those of every slot, then what each slot holds.
"""

from __future__ import annotations

import math

import numpy as np

from smartmig.jit import called_kernel, kernel, lowest_bit
from smartmig.policy.gang_view import BRIEF_S, JobArrays, State, World, can_start, next_waiting, rush
from smartmig.types import Floats, Ints

VERSION = 102
"""A trained network fits the encoding it was trained with and no other: count up with every change here."""

HOUR_S, DAY_S = 3600.0, 86_400.0

REQUEST_EDGES_S = (3600.0, 7200.0, 14_400.0, 28_800.0, 43_200.0, 86_400.0, 172_800.0, 259_200.0, 604_800.0)
"""Upper ends of the request classes, 1 h to 7 d; what asks for more, or for nothing, is the last class."""
SIZE_EDGES = (1, 2, 4, 8)
"""Upper ends of the size classes, in GPUs."""

N_REQUESTS, N_SIZES = len(REQUEST_EDGES_S) + 1, len(SIZE_EDGES) + 1
N_CELLS = N_REQUESTS * N_SIZES
N_SLOTS = 2 * N_CELLS
"""heads, then tails"""

N_BINS, N_MODELS = 9, 4
"""free share of a node in eighths; GPU models beyond the third are counted as one"""

# The cluster's numbers.
AT_HISTOGRAM = 0  # share of nodes by model and free eighths
AT_FREE = AT_HISTOGRAM + N_MODELS * N_BINS  # share of GPUs free; idle nodes, of 30
AT_SOON = AT_FREE + 2  # nodes, of 30, that are not idle but have brief jobs only
AT_QUEUE = AT_SOON + 1  # waiting jobs by request class, then by size class
AT_RESERVED = AT_QUEUE + N_REQUESTS + N_SIZES  # whether a reservation stands, and how far off it is
AT_TIME = AT_RESERVED + 2  # of day and of week
AT_RUSH = AT_TIME + 4  # urgent submissions of late
N_CLUSTER = AT_RUSH + 1

# A slot's numbers.
LIMIT, SIZE, WAITED, STRETCH, STARTS, IDLE_AFTER, BREAKS, FREE_AFTER, CROWD, TAIL, DAYS, PREDICTED, SHORT = range(13)
SLOT_NAMES = (
    "requested time", "GPUs", "waited", "waited / requested", "can start now", "idle nodes left, if started",
    "takes an idle node", "share of GPUs left, if started", "jobs in the cell", "is a tail", "days waited",
    "predicted run time", "ends before the reserved job starts",
)  # fmt: skip
N_SLOT = len(SLOT_NAMES)

AT_SLOTS = N_CLUSTER
AT_JOBS = AT_SLOTS + N_SLOTS * N_SLOT  # the job in each slot, -1 = none
AT_OLDEST = AT_JOBS + N_SLOTS  # the job submitted first of all that wait
N_SEEN = AT_OLDEST + 1

N_OUTLINE = N_CLUSTER + 2 * N_SLOT
"""the cluster's numbers, then the least and the greatest of each of the slots'"""
NOT_LOOKED = -2.0
"""stands at AT_OLDEST until `encode` is called; -1 = it was, and nobody waits"""

REFERENCE_NODES = 30.0
"""idle nodes are counted per so many"""


def outline_names() -> list[str]:
    """What each number that `outline` fills in is about, in words for people."""
    models = [f"model {one + 1}" for one in range(N_MODELS - 1)] + ["other models"]
    names = [f"nodes of {model} with {free} eighths free" for model in models for free in range(N_BINS)]
    names += ["share of GPUs free", "idle nodes", "nodes that are soon idle"]
    names += [f"waiting jobs that ask for up to {edge_s / HOUR_S:g} h" for edge_s in REQUEST_EDGES_S]
    names += ["waiting jobs that ask for longer"]
    names += [f"waiting jobs of up to {edge} GPUs" for edge in SIZE_EDGES] + ["waiting jobs of more GPUs"]
    names += ["a reservation stands", "time to the reservation", *["time of day"] * 2, *["time of week"] * 2]
    names += ["urgent submissions of late"]
    return [*names, *(f"{end} in the queue: {what}" for end in ("least", "greatest") for what in SLOT_NAMES)]


@kernel
def request_class(limit_s: float) -> int:
    """The class of a requested time."""
    at = 0
    while at < N_REQUESTS - 1 and limit_s > REQUEST_EDGES_S[at]:
        at += 1
    return at


@kernel
def size_class(n_gpus: int) -> int:
    at = 0
    while at < N_SIZES - 1 and n_gpus > SIZE_EDGES[at]:
        at += 1
    return at


@kernel
def cell_of(limit_s: float, n_gpus: int) -> int:
    return request_class(limit_s) * N_SIZES + size_class(n_gpus)


def cells(limit_s: Floats, n_gpus: Ints) -> Ints:
    """(n,) the cell of each job: the order of the queue for a learned selector."""
    by_request = np.searchsorted(np.array(REQUEST_EDGES_S), limit_s)
    by_size = np.searchsorted(np.array(SIZE_EDGES), n_gpus)
    return (by_request * N_SIZES + by_size).astype(np.int64)


@kernel
def idle_nodes(state: State) -> int:
    """Nodes of the largest size that offer all their GPUs."""
    widest = state.n_offering.shape[2] - 1
    n = 0
    for model in range(state.n_offering.shape[1]):
        n += state.n_offering[0, model, widest]
    return n


@kernel
def soon_idle(state: State) -> int:
    """Nodes that have jobs, brief ones only."""
    n = -idle_nodes(state)
    for model in range(state.n_brief.shape[0]):
        for free in range(state.n_brief.shape[1]):
            n += state.n_brief[model, free]
    return n


@kernel
def takes_idle(jobs: JobArrays, state: State, job: int) -> int:
    """How many of the idle nodes the job takes something of, at least; for a lasting job, nodes that will soon be idle
    count as well."""
    widest = state.n_offering.shape[2] - 1
    n_gpus = jobs.spec[job].n_gpus
    if n_gpus >= widest:
        return (n_gpus + widest - 1) // widest
    for model in range(state.n_offering.shape[1]):
        if jobs.spec[job].models >> model & 1:
            for free in range(n_gpus, widest):
                n_fitting = state.n_offering[0, model, free]
                if jobs.spec[job].limit_s > BRIEF_S:
                    n_fitting -= state.n_brief[model, free]
                if n_fitting > 0:
                    return 0
    return 1


@called_kernel
def last_of_cell(jobs: JobArrays, rank: int, cell: int) -> int:
    """The last rank of a cell, from one of its ranks; the queue stands by cell."""
    low, high = rank, jobs.ranked.size
    while high - low > 1:
        middle = (low + high) >> 1
        if cell_of(jobs.ranked[middle].limit_s, jobs.ranked[middle].n_gpus) == cell:
            low = middle
        else:
            high = middle
    return low


@called_kernel
def encode_cluster(world: World, state: State, seen: Floats) -> None:
    """The cluster's numbers but those of the queue."""
    n_nodes = world.node.size
    widest = state.n_offering.shape[2] - 1
    for at in range(N_CLUSTER):
        seen[at] = 0.0
    free = 0
    for model in range(world.n_models):
        free += state.room[0, model].total
        group = min(model, N_MODELS - 1)
        for n_free in range(widest + 1):
            eighths = (8 * n_free + widest - 1) // widest
            seen[AT_HISTOGRAM + group * N_BINS + eighths] += state.n_offering[0, model, n_free] / n_nodes
    seen[AT_FREE] = free / world.n_gpus
    seen[AT_FREE + 1] = min(4.0, idle_nodes(state) * REFERENCE_NODES / n_nodes)
    seen[AT_SOON] = min(8.0, soon_idle(state) * REFERENCE_NODES / n_nodes)
    now_s = state.now[0].time_s
    if state.now[0].reserved >= 0:
        seen[AT_RESERVED] = 1.0
        seen[AT_RESERVED + 1] = math.log1p(min((state.now[0].reserved_s - now_s) / HOUR_S, 1000.0)) / 5.0
    day = 2.0 * math.pi * (now_s % DAY_S) / DAY_S
    week = 2.0 * math.pi * (now_s % (7 * DAY_S)) / (7 * DAY_S)
    seen[AT_TIME] = math.sin(day)
    seen[AT_TIME + 1] = math.cos(day)
    seen[AT_TIME + 2] = math.sin(week)
    seen[AT_TIME + 3] = math.cos(week)
    seen[AT_RUSH] = math.log1p(rush(state))


@called_kernel
def encode_job(
    world: World, jobs: JobArrays, state: State, job: int, crowd: int, tail: int, starts: bool, slot: Floats
) -> None:
    """The numbers of one slot."""
    spec = jobs.spec[job]
    waited_s = state.now[0].time_s - spec.submit_s
    limit_s = min(spec.limit_s, 30 * DAY_S)
    taken = takes_idle(jobs, state, job)
    free = 0
    for model in range(world.n_models):
        free += state.room[0, model].total
    slot[LIMIT] = math.log2(limit_s / HOUR_S + 1e-3) / 8.0
    slot[SIZE] = math.log2(spec.n_gpus) / 3.0
    slot[WAITED] = math.log1p(waited_s / 60.0) / 8.0
    slot[STRETCH] = math.log1p(waited_s / limit_s) / 3.0
    slot[STARTS] = 1.0 if starts else 0.0
    slot[IDLE_AFTER] = max(-1.0, min(4.0, (idle_nodes(state) - taken) * REFERENCE_NODES / world.node.size))
    slot[BREAKS] = 1.0 if taken > 0 else 0.0
    slot[FREE_AFTER] = (free - spec.n_gpus) / world.n_gpus
    slot[CROWD] = math.log1p(crowd) / 4.0
    slot[TAIL] = float(tail)
    slot[DAYS] = waited_s / DAY_S
    slot[PREDICTED] = math.log2(min(spec.predicted_s, 30 * DAY_S) / HOUR_S + 1e-3) / 8.0
    before = state.now[0].reserved >= 0 and state.now[0].time_s + spec.limit_s <= state.now[0].reserved_s
    slot[SHORT] = 1.0 if before else 0.0


@called_kernel
def fill_slot(world: World, jobs: JobArrays, state: State, job: int, crowd: int, slot: int, seen: Floats) -> None:
    begin = AT_SLOTS + slot * N_SLOT
    tail = 1 if slot >= N_CELLS else 0
    starts = can_start(world, jobs, state, job)
    encode_job(world, jobs, state, job, crowd, tail, starts, seen[begin : begin + N_SLOT])
    seen[AT_JOBS + slot] = job


@called_kernel
def encode(world: World, jobs: JobArrays, state: State, seen: Floats) -> None:
    """Fill `seen` (N_SEEN,). Slots without a job keep whatever numbers they had."""
    encode_cluster(world, state, seen)
    for slot in range(N_SLOTS):
        seen[AT_JOBS + slot] = -1.0
    oldest = -1
    at = next_waiting(state, 0)
    while at >= 0:
        head = at
        cell = cell_of(jobs.ranked[at].limit_s, jobs.ranked[at].n_gpus)
        last = last_of_cell(jobs, at, cell)
        crowd = 0
        tail = at
        while 0 <= at <= last:
            bits = state.waiting[at >> 6] & (np.int64(-1) << (at & 63))
            while bits != 0:
                rank = (at >> 6) * 64 + lowest_bit(bits)
                if rank > last:
                    break
                crowd += 1
                tail = rank
                bits &= bits - 1
            at = next_waiting(state, tail + 1)
        job = jobs.ranked[head].job
        if oldest < 0 or (jobs.spec[job].submit_s, job) < (jobs.spec[oldest].submit_s, oldest):
            oldest = job
        fill_slot(world, jobs, state, job, crowd, cell, seen)
        if tail != head:
            fill_slot(world, jobs, state, jobs.ranked[tail].job, crowd, N_CELLS + cell, seen)
        seen[AT_QUEUE + cell // N_SIZES] += crowd
        seen[AT_QUEUE + N_REQUESTS + cell % N_SIZES] += crowd
    for queue in range(AT_QUEUE, AT_QUEUE + N_REQUESTS + N_SIZES):
        seen[queue] = math.log1p(seen[queue]) / 4.0
    seen[AT_OLDEST] = oldest


@kernel
def outline(seen: Floats, numbers: Floats) -> bool:
    """Fill `numbers` (N_OUTLINE,), for whoever asks whether all this is as usual; False: nothing was looked at."""
    if seen[AT_OLDEST] < 0.0:
        return False
    for at in range(N_CLUSTER):
        numbers[at] = seen[at]
    for number in range(N_SLOT):
        least = np.inf
        greatest = -np.inf
        for slot in range(N_SLOTS):
            if seen[AT_JOBS + slot] >= 0.0:
                value = seen[AT_SLOTS + slot * N_SLOT + number]
                least = min(least, value)
                greatest = max(greatest, value)
        numbers[N_CLUSTER + number] = least
        numbers[N_CLUSTER + N_SLOT + number] = greatest
    return True
