"""What a rule of the whole-GPU world sees, as arrays, and the few questions it may ask of them.

As in `view.py`, `World` and `JobArrays` never change during a run and `State` is everything that moves. No rule finds a
true run time here: `JobArrays.run_s` is for the engine's eyes, and a test holds every rule to that.

The queue is a set of bits over *ranks*: jobs in the order of a selection rule whose keys never change, in order of
submission otherwise. `offer` says how many GPUs each node can give now: row 0 to any job, row 1, while a reservation
stands, to a job that would still run when the reserved one should start.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from smartmig.jit import kernel, lowest_bit
from smartmig.policy.view import Records, record
from smartmig.types import Floats, Ints

NO_BACKFILL, EASY, CONSERVATIVE = range(3)

NODE_SPEC = record("n_gpus model switch", "speed")

EDGE = record("node change kills", "time_s")
"""a node goes away (change +1), killing what runs there or not, or comes back (-1)"""

JOB_SPEC = record("n_gpus models one_node least_share user rank", "submit_s limit_s predicted_s")
"""models: bit = GPU model it accepts; one_node: some node is large enough for all its GPUs; least_share: no node can be
of use to it with fewer"""

RANKED = record("job n_gpus", "limit_s")
"""what a walk through the queue looks at, by rank"""

NOW = record(
    "n_submitted n_done n_events n_waiting n_ends n_running n_stretches n_edges pending replan reserved cursor n_chosen"
    " n_freed spare_part spare_step n_bad_choices",
    "time_s reserved_s next_start_s place_s guarded_s rush rush_s",
)
"""the clock and the counters; n_edges: outage edges passed; pending: a decision pass is due; replan: all reservations
are void; reserved: job with EASY's reservation, -1 = none, and reserved_s, when it can start; cursor: rank from which
to look for jobs to backfill; n_chosen: nodes in `chosen`; n_freed: how often a reservation or a running job gave GPUs
back; spare_part, spare_step: first of the unused records; next_start_s: first reserved start ahead; place_s: when the
job being placed would start; guarded_s: when a learned rule's guard last started a job; rush: decayed count of urgent
submissions as of rush_s, see `count_urgent`"""

JOB = record("first_part checked n_starts killed", "begin_s until_s finish_s promised_s")
"""first_part: its GPUs, held or reserved, -1 = none; checked: n_freed when an earlier start was last looked for;
begin_s: when it began or, by its reservation, will (inf = not planned); until_s: then + limit"""

BRIEF_S = 3600.0
"""A job that asks for no more than this is brief; a node without any other jobs will be idle within it."""

RUSH_S = 3600.0
"""A submission counts in `NOW.rush` by e^-1 after this long."""

NODE = record("free n_away first_part first_step freed n_lasting", "until_s")
"""free: GPUs nobody holds; n_away: outages it is in; first_part: who holds the others, -1 = nobody; first_step: its
plan; freed: n_freed when it last gave back; n_lasting: its jobs that are not brief; until_s: when the limits of its
jobs will have ended them all"""

PART = record("job node n_gpus next before after")
"""some of a job's GPUs; next: more of the same job; before, after: neighbours on the node while held; -1 = none"""

STEP = record("free next", "time_s")
"""GPUs free in a node's plan from a time on, until the next step, -1 = for ever"""

END = record("place item", "due_s")
"""as in `view.END`; items are jobs"""

ORDER = record("job", "key")

ROOM = record("widest total")
"""of the nodes with one GPU model: the most any of them offers, and all together"""

USER = record("n_gpus", "used_gpu_s since_s factor factor_s")
"""n_gpus: held now; used_gpu_s: decayed, as of `since_s`; factor: scratch for a rule, as of `factor_s`"""

STRETCH = record("job node n_gpus", "from_s to_s")


class World(NamedTuple):
    """The cluster and the rules of the game."""

    backfill: int
    """NO_BACKFILL, EASY or CONSERVATIVE"""
    spread: bool
    """a job that fits no other way may be split over any nodes"""
    by_switch: bool
    """jobs of several nodes look for one switch first"""
    n_gpus: int
    n_models: int
    n_switches: int
    usage_half_life_s: float
    """of a user's past use; 0 = not kept"""
    mix_decay: float
    """weight of the past size mix at every submission; 0 = not kept"""
    most_starts: int
    """of one decision pass; who it leaves behind is for another one, at once"""
    node: Records  # (n_nodes,) NODE_SPEC
    edge: Records  # (n_edges,) EDGE, by time
    selection_knobs: Floats
    allocation_knobs: Floats


class JobArrays(NamedTuple):
    """The jobs, by submission."""

    spec: Records  # (n,) JOB_SPEC
    ranked: Records  # (n,) RANKED
    least: Records  # (n_words,) RANKED: fewest GPUs and shortest limit of each 64 ranks
    run_s: Floats  # (n,) true run times


class State(NamedTuple):
    """Everything that moves."""

    now: Records  # (1,) NOW
    job: Records  # (n,) JOB
    node: Records  # (n_nodes,) NODE
    end: Records  # (n,) END
    waiting: Ints  # (n_words,) bit = rank of a queued job
    waiting_words: Ints  # (n_blocks,) bit = word that is not empty
    release: Ints  # (n_gpus,) running jobs by (until_s, index)
    part: Records  # PART
    step: Records  # STEP; only with conservative backfill
    offer: Ints  # (2, n_nodes)
    n_offering: Ints  # (2, n_models, widest + 1) nodes by model and GPUs offered
    n_brief: Ints  # (n_models, widest + 1) those of row 0 without a lasting job, idle ones included
    room: Records  # (2, n_models) ROOM
    offered: Ints  # (n_nodes,) what the job being placed may have of each node
    take: Ints  # (n_nodes,) what it gets
    chosen: Ints  # (n_nodes,) the nodes it gets something of
    switch_offered: Ints  # (n_switches,) offered, by switch
    scratch: Floats  # (n_nodes + widest + 1,) of the allocation rule, between `prepare` and `score`
    order: Records  # (n,) ORDER; only with conservative backfill
    mix: Floats  # (widest + 1,) decayed count of submitted jobs by size
    user: Records  # (n_users + 1,) USER; the last row is all users together
    stretch: Records  # (capacity,) STRETCH


@kernel
def next_waiting(state: State, rank: int) -> int:
    """First queued rank from this one on, or -1."""
    word = rank >> 6
    if word >= state.waiting.size:
        return -1
    bits = state.waiting[word] & (np.int64(-1) << (rank & 63))
    if bits == 0:
        word += 1
        block = word >> 6
        if block >= state.waiting_words.size:
            return -1
        words = state.waiting_words[block] & (np.int64(-1) << (word & 63))
        while words == 0:
            block += 1
            if block == state.waiting_words.size:
                return -1
            words = state.waiting_words[block]
        word = block * 64 + lowest_bit(words)
        bits = state.waiting[word]
    return word * 64 + lowest_bit(bits)


@kernel
def accepts(world: World, jobs: JobArrays, job: int, node: int) -> bool:
    """Whether the job may run on the node's GPU model."""
    return (jobs.spec[job].models >> world.node[node].model & 1) == 1


@kernel
def room_row(jobs: JobArrays, state: State, job: int) -> int:
    """Which row of `offer` counts for the job, if started now."""
    if state.now[0].reserved < 0:
        return 0
    return 0 if state.now[0].time_s + jobs.spec[job].limit_s <= state.now[0].reserved_s else 1


@kernel
def can_start(world: World, jobs: JobArrays, state: State, job: int) -> bool:
    """Whether the job fits now without delaying the reserved one."""
    row = room_row(jobs, state, job)
    n_gpus = jobs.spec[job].n_gpus
    models = jobs.spec[job].models
    total = 0
    widest = 0
    for model in range(world.n_models):
        if models >> model & 1:
            total += state.room[row, model].total
            widest = max(widest, state.room[row, model].widest)
    if total < n_gpus:
        return False
    if world.spread:
        return True
    if jobs.spec[job].one_node:
        return widest >= n_gpus
    return whole_nodes_fit(world, jobs, job, state.offer[row])


@kernel
def whole_nodes_fit(world: World, jobs: JobArrays, job: int, offered: Ints) -> bool:
    """Whether whole nodes and a rest on one more can serve the job.

    Taking idle nodes, largest first, fails only when all are taken and no other node has the rest.
    """
    whole = 0
    rest = 0
    for node in range(offered.size):
        if accepts(world, jobs, job, node):
            if offered[node] == world.node[node].n_gpus:
                whole += offered[node]
            else:
                rest = max(rest, offered[node])
    return whole + rest >= jobs.spec[job].n_gpus


@kernel
def count_brief(world: World, state: State, node: int, change: int) -> None:
    """Take the node out of the count of brief ones before it changes (-1), put it back after (+1)."""
    if state.node[node].n_lasting == 0:
        state.n_brief[world.node[node].model, state.offer[0, node]] += change


@kernel
def count_urgent(jobs: JobArrays, state: State, job: int) -> None:
    """Let the rush know of a submission: brief jobs of more than half a node come in bursts."""
    widest = state.n_offering.shape[2] - 1
    if jobs.spec[job].limit_s <= BRIEF_S and 2 * jobs.spec[job].n_gpus > widest:
        state.now[0].rush = rush(state) + 1.0
        state.now[0].rush_s = state.now[0].time_s


@kernel
def rush(state: State) -> float:
    """Decayed count of urgent submissions up to now."""
    return state.now[0].rush * math.exp((state.now[0].rush_s - state.now[0].time_s) / RUSH_S)


@kernel
def busy_until(state: State, node: int) -> float:
    """When the last of the node's jobs will be ended by its limit; now, if it has none."""
    return max(state.node[node].until_s, state.now[0].time_s)


@kernel
def usage(world: World, state: State, user: int) -> float:
    """A user's decayed GPU-seconds up to now; the last row is all users together."""
    past_s = state.now[0].time_s - state.user[user].since_s
    if past_s == 0.0:
        return state.user[user].used_gpu_s
    rate = np.log(2.0) / world.usage_half_life_s
    kept = np.exp(-rate * past_s)
    return state.user[user].used_gpu_s * kept + state.user[user].n_gpus * (1.0 - kept) / rate


def copy_state(state: State) -> State:
    """A state that can be advanced without touching the first."""
    return State._make(array.copy() for array in state)
