"""One decision of the whole-GPU world, by the simulator's own compiled pass, on arrays filled from a live cluster.

Nothing here chooses: jobs and nodes are laid out as the engine would have them at this moment, and the engine is asked
for one pass.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from smartmig.control.gang_rows import Classes, GangTable, classify
from smartmig.control.memory import EVERYBODY, Memory, Promise, charged, counted_sizes
from smartmig.control.rows import admitted
from smartmig.errors import InputError
from smartmig.jit import kernel
from smartmig.policy.gang_view import CONSERVATIVE, USER, JobArrays, State, World, count_brief
from smartmig.policy.selection.known import KnownJobs
from smartmig.policy.view import Records
from smartmig.sim.gang.decide import plan_afresh, shift_parts
from smartmig.sim.gang.occupancy import begin, enqueue, keep_parts, set_offer
from smartmig.sim.gang.place import choose, choose_nothing
from smartmig.sim.gang.run import compiled
from smartmig.sim.gang.world import GangPolicy, fresh_state, job_arrays
from smartmig.types import (
    ClusterState,
    Floats,
    Ints,
    JobKey,
    JobRequest,
    NodeInfo,
    NodeState,
    RunningJob,
    Share,
    Start,
)

OVERDUE_S = 1.0
"""A job that should have been killed by now is expected to go after this long."""


@kernel
def seat(
    world: World, jobs: JobArrays, state: State, held: Ints, start_s: Floats, first: Ints, node: Ints, n_gpus: Ints
) -> None:
    """Running jobs begin when and where they did; `first[i]` is where job `held[i]` has its first (node, n_gpus)."""
    for at in range(held.size):
        enqueue(jobs, state, held[at])
        state.now[0].time_s = start_s[at]
        choose_nothing(state)
        for part in range(first[at], first[at + 1]):
            choose(state, node[part], n_gpus[part])
        keep_parts(state, held[at])
        begin(world, jobs, state, held[at])
    choose_nothing(state)


@kernel
def put_away(world: World, state: State, away: Ints) -> None:
    """These nodes take no jobs."""
    for at in range(away.size):
        state.node[away[at]].n_away = 1
        count_brief(world, state, away[at], -1)
        set_offer(world, state, 0, away[at], 0)
        count_brief(world, state, away[at], 1)


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


class Parts(NamedTuple):
    """Who holds what: `first[i]` is where job i has its first (node, n_gpus)."""

    first: Ints
    node: Ints
    n_gpus: Ints


@dataclass(frozen=True)
class Laid:
    """A decision's arrays, and who is who."""

    classes: Classes
    jobs: JobArrays
    state: State
    requests: list[JobRequest]
    n_running: int
    """the first so many rows run, or hold something unknown"""


class GangDecider:
    """Decides; keeps nothing but conversions it has already made."""

    def __init__(self, policy: GangPolicy) -> None:
        if policy.selection.oracle:
            raise InputError(f"{type(policy.selection).__name__} looks at true run times, which no cluster knows")
        self.policy = policy
        self.engine = compiled(policy)
        self.table = GangTable()
        self._classes: dict[Any, Classes] = {}
        self._unknown: dict[tuple[str, int], JobRequest] = {}
        self._left: list[JobRequest] = []
        self._left_rows = self._rows_of_queue = np.zeros(0, dtype=np.int64)

    def decide(self, state: ClusterState, memory: Memory) -> tuple[list[Start], Memory, float]:
        """Starts, what to remember, and when to ask again though nothing happens (inf: never)."""
        laid, memory = self.lay_out(state, memory)
        if laid is None:
            return [], memory, math.inf
        self.engine(laid.classes.world, laid.jobs, laid.state, 0)
        rows = np.flatnonzero(laid.state.job["n_starts"][laid.n_running :] > 0) + laid.n_running
        rows = rows[np.argsort(laid.jobs.spec["rank"][rows], kind="stable")]
        starts = [Start(laid.requests[row].key, _shares(laid, row)) for row in rows.tolist()]
        self._expect(laid, rows)
        wake_s = math.inf
        if laid.classes.world.backfill == CONSERVATIVE:
            memory = replace(memory, promises=_promises(laid))
            wake_s = float(laid.state.now["next_start_s"][0]) + memory.origin_s
        return _in_shape(starts, rows.tolist(), state, laid), memory, wake_s

    def lay_out(self, state: ClusterState, memory: Memory) -> tuple[Laid | None, Memory]:
        """The engine's arrays for this moment with its pass due; None when nothing can be decided."""
        nodes = tuple(node for node in state.nodes if node.n_gpus > 0)
        if not nodes:
            return None, memory
        holders = self._holders(state, nodes)
        queue = admitted(state, whole=True)
        requests = [holder.request for holder in holders]
        if self.table.forget(len(queue) + len(requests)):
            self._left = []
        self._rows_of_queue = self._queue_rows(queue)
        rows = np.concatenate([self.table.rows(requests), self._rows_of_queue])
        requests += queue
        columns = self.table.columns[rows]
        classes = self._classes_of(state, nodes, columns["wish"])
        memory = self._remember(state, memory, classes.world)
        requests, jobs = self._jobs(state, classes, requests, columns, len(holders), memory)
        if len(requests) == len(holders):
            return None, memory
        arrays = fresh_state(classes.world, jobs)
        laid = Laid(classes, jobs, arrays, requests, len(holders))
        fill(laid, state, memory, holders)
        if classes.world.usage_half_life_s > 0:  # seating charged the users once more
            laid = replace(laid, state=arrays._replace(user=user_table(memory)))
        return laid, memory

    def _queue_rows(self, queue: list[JobRequest]) -> Ints:
        """As `table.rows`; the queue is mostly what the last decision left of it, and telling that is quicker."""
        n = len(self._left)
        if n and queue[:n] == self._left:
            return np.concatenate([self._left_rows, self.table.rows(queue[n:])])
        return self.table.rows(queue)

    def _expect(self, laid: Laid, started: Ints) -> None:
        self._left = laid.requests[laid.n_running :]
        for row in sorted((started - laid.n_running).tolist(), reverse=True):
            del self._left[row]
        if len(self._left) + started.size == self._rows_of_queue.size:
            self._left_rows = np.delete(self._rows_of_queue, started - laid.n_running)
        else:
            self._left = []

    def _remember(self, state: ClusterState, memory: Memory, world: World) -> Memory:
        if world.usage_half_life_s > 0:
            memory = charged(memory, state, world.usage_half_life_s)
        if world.mix_decay > 0:
            memory = counted_sizes(memory, state, world.mix_decay, int(world.node["n_gpus"].max()))
        up = tuple(node.name for node in state.nodes if node.state is NodeState.up and node.n_gpus > 0)
        if up != memory.up:
            memory = replace(memory, up=up, promises={})  # as in the engine: plans are void when a node goes or comes
        return memory

    def _holders(self, state: ClusterState, nodes: tuple[NodeInfo, ...]) -> list[RunningJob]:
        """Everyone who holds whole GPUs; what nobody accounts for is held for ever."""
        left = {node.name: node.n_gpus for node in nodes}
        holders = []
        for job in state.running:
            shares = [share for share in job.shares if share.n_gpus > 0 and left.get(share.node, 0) >= share.n_gpus]
            for share in shares:
                left[share.node] -= share.n_gpus
            if shares:
                holders.append(job if len(shares) == len(job.shares) else replace(job, shares=tuple(shares)))
        for node in nodes:
            unknown = left[node.name] - node.n_free
            if unknown > 0:
                at = (node.name, unknown)
                if at not in self._unknown:
                    self._unknown[at] = JobRequest(JobKey(f"unknown on {node.name}", 0.0), unknown)
                holders.append(RunningJob(self._unknown[at], state.time_s, (Share(node.name, unknown),), False))
        return holders

    def _classes_of(self, state: ClusterState, nodes: tuple[NodeInfo, ...], wishes: Ints) -> Classes:
        present = tuple(np.unique(wishes).tolist()) if len(self.table.wishes) != 1 else (0,)
        fenced = tuple(reservation.nodes for reservation in state.reservations)
        key = (tuple((n.name, n.n_gpus, n.gpu_model, n.switch, n.speed) for n in nodes), present, fenced)
        found = self._classes.get(key)
        if found is None:
            if len(self._classes) > 64:
                self._classes.clear()
            texts = list(self.table.wishes)
            found = classify(nodes, {wish: texts[wish] for wish in present}, fenced, self.policy)
            self._classes[key] = found
        return found

    def _jobs(
        self,
        state: ClusterState,
        classes: Classes,
        requests: list[JobRequest],
        columns: Any,
        n_running: int,
        memory: Memory,
    ) -> tuple[list[JobRequest], JobArrays]:
        """Those that run, and those that could if the cluster were empty."""
        masks = np.zeros(len(self.table.wishes), dtype=np.int64)
        masks[list(classes.masks)] = list(classes.masks.values())
        models = masks[columns["wish"]]
        for reservation in state.reservations:
            if state.time_s < reservation.to_s:
                inside = sum(1 << bit for bit, (_, own) in enumerate(classes.members) if own & {*reservation.nodes})
                user_may = np.array([request.user in reservation.users for request in requests])
                in_time = state.time_s + columns["limit_s"] <= reservation.from_s
                models = np.where(user_may | in_time, models, models & ~inside)
        models[:n_running] = -1
        accepts = (models[:, None] >> np.arange(len(classes.members)) & 1) == 1
        total = accepts @ classes.sizes[0]
        fits = (total >= columns["n_gpus"]) & (columns["n_gpus"] > 0)
        fits[:n_running] = True
        if not fits.all():
            requests = [requests[row] for row in np.flatnonzero(fits).tolist()]
            columns, models, accepts = columns[fits], models[fits], accepts[fits]
        widest = np.where(accepts, classes.sizes[1], 0).max(axis=1, initial=1)
        smallest = np.where(accepts, classes.sizes[2], classes.world.n_gpus).min(axis=1, initial=classes.world.n_gpus)
        user = columns["user"]
        if classes.world.usage_half_life_s > 0:
            rank = {name: at for at, name in enumerate(known_users(memory))}
            user = np.array([rank[request.user] for request in requests], dtype=np.int64)
        known = KnownJobs(
            submit_s=columns["submit_s"] - memory.origin_s,
            limit_s=columns["limit_s"],
            predicted_s=columns["predicted_s"],
            n_gpus=columns["n_gpus"],
            user=user,
            true_s=np.full(len(requests), np.nan),
        )
        if not requests:
            return requests, None  # type: ignore[return-value]
        return requests, job_arrays(known, models, widest, smallest, self.policy, np.zeros(len(requests)))


def known_users(memory: Memory) -> list[str]:
    return sorted(name for name in memory.users if name != EVERYBODY)


def user_table(memory: Memory) -> Records:
    """The engine's own table counts the users of a whole trace; here those are who came so far."""
    uses = [memory.users[name] for name in (*known_users(memory), EVERYBODY)]
    user = np.zeros(len(uses), dtype=USER)
    user["n_gpus"], user["used_gpu_s"], user["since_s"] = np.array(uses).T
    user["factor_s"] = np.nan
    return user


def fill(laid: Laid, state: ClusterState, memory: Memory, holders: list[RunningJob]) -> None:
    """Put everyone where they are."""
    world, jobs, arrays, requests = laid.classes.world, laid.jobs, laid.state, laid.requests
    n_running = len(holders)
    index = {name: at for at, name in enumerate(laid.classes.names)}
    now_s = state.time_s - memory.origin_s
    start_s = np.array([holder.start_s for holder in holders], dtype=float) - memory.origin_s
    held = [[(index[share.node], share.n_gpus) for share in holder.shares] for holder in holders]
    seat(world, jobs, arrays, np.arange(n_running), start_s, *_parts(held))
    late = np.flatnonzero(arrays.job["until_s"][:n_running] <= now_s)
    if late.size:
        arrays.job["until_s"][late] = now_s + OVERDUE_S
        running = arrays.release[:n_running]
        running[:] = running[np.lexsort((running, arrays.job["until_s"][running]))]
    away = [index[node.name] for node in state.nodes if node.name in index and node.state is not NodeState.up]
    if away:
        put_away(world, arrays, np.array(away))
    waiting = np.arange(n_running, len(requests))
    arrays.waiting[:] = _bits(jobs.spec["rank"][waiting], arrays.waiting.size)
    arrays.waiting_words[:] = _bits(np.flatnonzero(arrays.waiting), arrays.waiting_words.size)
    arrays.now["time_s"] = now_s
    arrays.now["n_waiting"] = waiting.size
    arrays.now["n_submitted"] = len(requests)
    arrays.now["pending"] = 1
    arrays.job["checked"][waiting] = -1
    if world.mix_decay > 0:
        arrays.mix[:] = memory.mix
    if world.backfill == CONSERVATIVE:
        row_of = {requests[row].key: row for row in waiting.tolist()}
        kept = [(row_of[key], one) for key, one in memory.promises.items() if key in row_of]
        rows = np.array([row for row, _ in kept], dtype=np.int64)
        begin_s = np.array([one.begin_s for _, one in kept], dtype=float)
        promised = [[(index[name], n_gpus) for name, n_gpus in one.parts] for _, one in kept]
        promise(world, jobs, arrays, rows, begin_s, *_parts(promised))


def _bits(places: Ints, n_words: int) -> Ints:
    """Words with these bits set."""
    bits = np.zeros(n_words * 64, dtype=np.uint8)
    bits[places] = 1
    return np.packbits(bits, bitorder="little").view(np.int64)


def _parts(held: list[list[tuple[int, int]]]) -> Parts:
    first = np.zeros(len(held) + 1, dtype=np.int64)
    np.cumsum([len(parts) for parts in held], out=first[1:])
    flat = np.array([part for parts in held for part in parts], dtype=np.int64).reshape(-1, 2)
    return Parts(first, np.ascontiguousarray(flat[:, 0]), np.ascontiguousarray(flat[:, 1]))


def _shares(laid: Laid, row: int) -> tuple[Share, ...]:
    return tuple(Share(laid.classes.names[node], n_gpus) for node, n_gpus in _parts_of(laid.state, row))


def _parts_of(state: State, row: int) -> list[tuple[int, int]]:
    parts = []
    part = int(state.job["first_part"][row])
    while part >= 0:
        parts.append((int(state.part["node"][part]), int(state.part["n_gpus"][part])))
        part = int(state.part["next"][part])
    return parts


def _promises(laid: Laid) -> dict[JobKey, Promise]:
    job = laid.state.job
    promised = np.flatnonzero((job["n_starts"] == 0) & (job["begin_s"] < np.inf))
    return {
        laid.requests[row].key: Promise(
            float(job["begin_s"][row]),
            tuple((laid.classes.names[node], n_gpus) for node, n_gpus in _parts_of(laid.state, row)),
        )
        for row in promised.tolist()
    }


def _in_shape(starts: list[Start], rows: list[int], state: ClusterState, laid: Laid) -> list[Start]:
    """Jobs that ask for a number of nodes get it: the engine knows one node, or whole ones and a rest.

    A start of another shape is laid anew if there is room; what comes after it in the plan waits for the next decision,
    which is due as soon as this one is seen.
    """
    for at, (row, start) in enumerate(zip(rows, starts, strict=True)):
        request = laid.requests[row]
        if request.n_nodes == 0:
            continue
        each, rest = divmod(request.n_gpus, request.n_nodes)
        if rest == 0 and len(start.shares) == request.n_nodes and all(s.n_gpus == each for s in start.shares):
            continue
        if rest:
            return starts[:at]
        room = _room(state, starts[:at])
        models = int(laid.jobs.spec["models"][row])
        granted = [own for bit, (_, own) in enumerate(laid.classes.members) if models >> bit & 1]
        allowed = frozenset[str]().union(*granted)
        places = sorted((free, name) for name, free in room.items() if name in allowed and free >= each)
        if len(places) < request.n_nodes:
            return starts[:at]
        shares = tuple(Share(name, each) for _, name in places[: request.n_nodes])
        return [*starts[:at], Start(start.key, shares)]
    return starts


def _room(state: ClusterState, starts: list[Start]) -> dict[str, int]:
    """GPUs of nodes that are up and that nobody holds, or is about to."""
    held: dict[str, int] = {}
    for shares in (*(job.shares for job in state.running), *(start.shares for start in starts)):
        for share in shares:
            held[share.node] = held.get(share.node, 0) + share.n_gpus
    taken = dict.fromkeys(held, 0) | held
    given = {name: sum(s.n_gpus for start in starts for s in start.shares if s.node == name) for name in held}
    return {
        node.name: min(node.n_gpus - taken.get(node.name, 0), node.n_free - given.get(node.name, 0))
        for node in state.nodes
        if node.state is NodeState.up
    }
