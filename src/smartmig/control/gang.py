"""One decision of the whole-GPU world, by the simulator's own compiled pass, on arrays filled from a live cluster.

Nothing here chooses: jobs and nodes are laid out as the engine would have them at this moment, and the engine is asked
for one pass.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from operator import attrgetter
from typing import Any

import numpy as np

from smartmig.control.gang_lay import Desk, Fences, Moment, Past, look_up, promise, seat, settle, starts_of, wishes_of
from smartmig.control.gang_rows import Classes, GangTable, classify
from smartmig.control.gang_shape import has_shape, in_shape
from smartmig.control.memory import EVERYBODY, Memory, Promise, charged, counted_sizes, counted_urgent
from smartmig.control.rows import admitted
from smartmig.errors import InputError, SimulationError
from smartmig.policy.gang_encoding import AT_OLDEST, N_OUTLINE, NOT_LOOKED, outline
from smartmig.policy.gang_view import CONSERVATIVE, USER, JobArrays, State, World
from smartmig.policy.selection.known import KnownJobs
from smartmig.policy.selection.learned import AT_SCORES, AT_SEEN, Learned
from smartmig.policy.view import Records
from smartmig.sim.gang.kernel import BAD_CHOICE
from smartmig.sim.gang.run import compiled
from smartmig.sim.gang.world import ALL, GangPolicy, describe
from smartmig.types import (
    ClusterState,
    Floats,
    Ints,
    JobKey,
    JobRequest,
    NodeInfo,
    NodeState,
    Share,
    Start,
)


@dataclass(frozen=True)
class Laid:
    """A decision's arrays, and who is who; gone with the next decision."""

    classes: Classes
    desk: Desk
    jobs: JobArrays
    state: State
    requests: list[JobRequest]
    fits: Ints
    """(n,) 1 = it runs, or could if the cluster were empty"""
    n_running: int
    """the first so many rows run, or hold something unknown"""


@dataclass(frozen=True)
class Known:
    """A queue whose rows are known."""

    queue: list[JobRequest]
    rows: Ints


NOBODY = Known([], np.zeros(0, dtype=np.int64))
NO_FENCES = Fences(np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros((0, 0), dtype=np.int64))


LASTING = attrgetter("name", "n_gpus", "gpu_model", "switch", "speed")
"""Of a node: what no job changes."""


class GangDecider:
    """Decides; keeps nothing but conversions it has already made."""

    def __init__(self, policy: GangPolicy) -> None:
        if policy.selection.oracle:
            raise InputError(f"{type(policy.selection).__name__} looks at true run times, which no cluster knows")
        self.policy = policy
        self.engine = compiled(policy)
        self._learned = isinstance(policy.selection, Learned)
        self.table = GangTable()
        self._classes: dict[Any, tuple[Classes, Desk]] = {}
        self._unknown: dict[tuple[str, int], JobRequest] = {}
        self._shares: dict[tuple[str, int], Share] = {}
        self._numbers = np.zeros(0, dtype=np.int64)
        self._last = self._left = NOBODY
        self._started: list[int] = []

    def decide(
        self, state: ClusterState, memory: Memory, most_starts: int = ALL
    ) -> tuple[list[Start], Memory, float, Floats | None]:
        """Starts, what to remember, when to ask again though nothing happens (inf: never), what a learned selection
        saw when it was last asked."""
        starts: list[Start] = []
        saw: Floats | None = None
        wake_s = math.inf
        rest: ClusterState | None = state
        while rest is not None and len(starts) < most_starts:
            # From the same memory every time: what came in since the last decision counts once.
            laid, later = self.lay_out(rest, memory)
            if laid is None:
                break
            begun, rest = self._pass(laid, rest, most_starts - len(starts))
            starts += begun
            saw = self._saw(laid.classes.world) if saw is None else saw
            guarded_s = float(laid.state.now["guarded_s"][0])
            if guarded_s != memory.guarded_s:
                memory, later = replace(memory, guarded_s=guarded_s), replace(later, guarded_s=guarded_s)
            if laid.classes.world.backfill == CONSERVATIVE:
                later = replace(later, promises=_promises(laid))
                wake_s = float(laid.state.now["next_start_s"][0]) + memory.origin_s
        return starts, later, state.time_s if len(starts) == most_starts else wake_s, saw

    def _pass(self, laid: Laid, state: ClusterState, most_starts: int) -> tuple[list[Start], ClusterState | None]:
        """Starts; and the cluster with them under way, if it is to be looked at again because not all had the shape
        their jobs ask for."""
        if self._learned:
            laid.classes.world.selection_knobs[AT_SEEN + AT_OLDEST] = NOT_LOOKED
        world = laid.classes.world if most_starts >= ALL else laid.classes.world._replace(most_starts=most_starts)
        if self.engine(world, laid.jobs, laid.state, 0) == BAD_CHOICE:
            raise SimulationError(f"{type(self.policy.selection).__name__} chose a job that is not in the queue")
        rows, shares = self._starts(laid)
        starts = [Start(laid.requests[row].key, own) for row, own in zip(rows, shares, strict=True)]
        self._left, self._started = self._last, [row - laid.n_running for row in rows]
        if all(has_shape(laid.requests[row], own) for row, own in zip(rows, shares, strict=True)):
            return starts, None
        accepted = [_accepted(laid, row) for row in rows]
        return in_shape(state, starts, [laid.requests[row] for row in rows], accepted)

    def _starts(self, laid: Laid) -> tuple[list[int], list[tuple[Share, ...]]]:
        """Who was started, in the rule's order, and what each was given."""
        names, starts, known = laid.classes.names, laid.desk.starts, self._shares
        n_starts = starts_of(laid.jobs, laid.state, laid.n_running, starts)
        first = starts.first[: n_starts + 1].tolist()
        given = list(zip(starts.node[: first[-1]].tolist(), starts.n_gpus[: first[-1]].tolist(), strict=True))
        for at, n_gpus in given:
            if (names[at], n_gpus) not in known:
                known[names[at], n_gpus] = Share(names[at], n_gpus)
        parts = [known[names[at], n_gpus] for at, n_gpus in given]
        return starts.row[:n_starts].tolist(), [tuple(parts[begin:end]) for begin, end in pairwise(first)]

    def _saw(self, world: World) -> Floats | None:
        if not self._learned:
            return None
        numbers = np.empty(N_OUTLINE)
        return numbers if outline(world.selection_knobs[AT_SEEN:AT_SCORES], numbers) else None

    def lay_out(self, state: ClusterState, memory: Memory) -> tuple[Laid | None, Memory]:
        """The engine's arrays for this moment with its pass due; None when nothing can be decided."""
        nodes = tuple([node for node in state.nodes if node.n_gpus > 0])
        if not nodes:
            return None, memory
        requests, moment = self._seats(state, nodes)
        queue = admitted(state, whole=True)
        if self.table.forget(len(queue) + len(requests)):
            self._classes.clear()
            self._last = self._left = NOBODY
        self._started = []
        self._last = Known(queue, self._queue_rows(queue))
        rows = np.concatenate([self.table.rows(requests), self._last.rows])
        classes, desk = self._classes_of(state, nodes, rows)
        memory = self._remember(state, nodes, memory, classes.world)
        if not queue:
            return None, memory
        jobs, asked = desk.jobs(rows.size)
        fences = self._fences(state, classes)
        numbers = self._user_numbers(classes.world, memory)
        spec, n_running = jobs.spec, len(requests)
        where = rows, n_running, memory.origin_s, state.time_s
        look_up(self.table.columns, *where, classes.masks, classes.sizes, numbers, fences, spec, asked)
        known = KnownJobs(
            submit_s=spec["submit_s"],
            limit_s=spec["limit_s"],
            predicted_s=spec["predicted_s"],
            n_gpus=asked.n_gpus,
            user=spec["user"],
            true_s=desk.unknown_s[: rows.size],
        )
        order = np.argsort(self.policy.selection.keys(known), kind="stable")
        predicted_s = self.policy.selection.predicted(known)
        if predicted_s is not known.predicted_s:
            spec["predicted_s"] = predicted_s
        describe(jobs, *asked[:-1], order, self.policy.allocation.spread)
        arrays = desk.state(jobs)
        if classes.world.mix_decay > 0:
            arrays.mix[:] = memory.mix
        if classes.world.usage_half_life_s > 0:
            arrays = arrays._replace(user=user_table(memory))
        past = Past(memory.origin_s, memory.guarded_s, *memory.urgent)
        seat(classes.world, jobs, arrays, asked.fits, moment, past)
        if classes.world.usage_half_life_s > 0:  # seating charged the users once more
            arrays = arrays._replace(user=user_table(memory))
        laid = Laid(classes, desk, jobs, arrays, [*requests, *queue], asked.fits, n_running)
        if classes.world.backfill == CONSERVATIVE:
            promise_again(laid, memory)
        return laid, memory

    def _queue_rows(self, queue: list[JobRequest]) -> Ints:
        """As `table.rows`; the queue is mostly what it was, or what the last decision left of it, and telling that is
        quicker."""
        for known in (self._left, self._last):
            n = len(known.queue)
            if n and queue[:n] == known.queue:
                return np.concatenate([known.rows, self.table.rows(queue[n:])])
        return self.table.rows(queue)

    def handed_over(self) -> None:
        """What was started is on its way: the next queue is probably the last one without it."""
        queue, stays = self._last.queue.copy(), np.ones(self._last.rows.size, dtype=np.bool_)
        for row in sorted(self._started, reverse=True):
            del queue[row]
        stays[self._started] = False
        self._left, self._started = Known(queue, self._last.rows[stays]), []

    def _user_numbers(self, world: World, memory: Memory) -> Ints:
        """(n_users,) of the table's users, as the engine numbers them."""
        if world.usage_half_life_s <= 0:
            if self._numbers.size != len(self.table.users):
                self._numbers = np.arange(len(self.table.users))
            return self._numbers
        rank = {name: at for at, name in enumerate(known_users(memory))}
        return np.array([rank.get(name, 0) for name in self.table.users], dtype=np.int64)

    def _fences(self, state: ClusterState, classes: Classes) -> Fences:
        if not state.reservations:
            return NO_FENCES
        fences = [one for one in state.reservations if state.time_s < one.to_s]
        inside = [sum(1 << bit for bit, (_, own) in enumerate(classes.members) if own & {*f.nodes}) for f in fences]
        may = np.array([[user in fence.users for user in self.table.users] for fence in fences], dtype=np.int64)
        return Fences(
            np.array(inside, dtype=np.int64),
            np.array([fence.from_s for fence in fences], dtype=float),
            may.reshape(len(fences), len(self.table.users)),
        )

    def _remember(self, state: ClusterState, nodes: tuple[NodeInfo, ...], memory: Memory, world: World) -> Memory:
        if world.usage_half_life_s > 0:
            memory = charged(memory, state, world.usage_half_life_s)
        if world.mix_decay > 0:
            memory = counted_sizes(memory, state, world.mix_decay, max(node.n_gpus for node in nodes))
        if self.policy.watches_arrivals:
            memory = counted_urgent(memory, state, max(node.n_gpus for node in nodes))
        up = tuple([node.name for node in nodes if node.state is NodeState.up])
        if up != memory.up:
            memory = replace(memory, up=up, promises={})  # as in the engine: plans are void when a node goes or comes
        return memory

    def _seats(self, state: ClusterState, nodes: tuple[NodeInfo, ...]) -> tuple[list[JobRequest], Moment]:
        """Everyone who holds whole GPUs, and where; what nobody accounts for is held for ever."""
        place_of = {node.name: at for at, node in enumerate(nodes)}
        told: list[float] = []
        for node in nodes:
            told += (node.n_gpus, node.n_free, node.state is NodeState.up)
        n_parts = 0
        for job in state.running:  # once: what takes time here is to find each job in memory
            shares = job.shares
            n_parts += len(shares)
            told += (job.start_s, len(shares))
            for share in shares:
                told += (place_of.get(share.node, -1), share.n_gpus)
        n_nodes, n_running = len(nodes), len(state.running)
        most = n_running + n_nodes
        held, left = np.empty(most, dtype=np.int64), np.empty(n_nodes, dtype=np.int64)
        start_s, first, away = np.empty(most), np.empty(most + 1, dtype=np.int64), np.empty(n_nodes, dtype=np.int64)
        place, n_gpus = np.empty((2, n_parts + n_nodes), dtype=np.int64)
        moment = Moment(state.time_s, start_s, first, place, n_gpus, away)
        n_jobs, n_unknown, n_away = settle(np.array(told, dtype=float), n_nodes, n_running, moment, held, left)
        if n_jobs == n_running:
            requests = [job.request for job in state.running]
        else:
            requests = [state.running[at].request for at in held[:n_jobs].tolist()]
        for who in range(n_jobs, n_jobs + n_unknown):
            requests.append(self._unknown_holder(nodes[held[who]].name, int(n_gpus[first[who]])))
        return requests, moment._replace(start_s=start_s[: len(requests)], away=away[:n_away])

    def _unknown_holder(self, node: str, n_gpus: int) -> JobRequest:
        who = (node, n_gpus)
        if who not in self._unknown:
            self._unknown[who] = JobRequest(JobKey(f"unknown on {node}", 0.0), n_gpus)
        return self._unknown[who]

    def _classes_of(self, state: ClusterState, nodes: tuple[NodeInfo, ...], rows: Ints) -> tuple[Classes, Desk]:
        present: tuple[int, ...] = (0,)
        if len(self.table.wishes) != 1:
            marked = np.zeros(len(self.table.wishes), dtype=np.int64)
            wishes_of(self.table.columns, rows, marked)
            present = tuple([wish for wish, here in enumerate(marked.tolist()) if here])
        fenced = tuple([reservation.nodes for reservation in state.reservations])
        key = (tuple(map(LASTING, nodes)), present, fenced)
        found = self._classes.get(key)
        if found is None:
            if len(self._classes) > 64:
                self._classes.clear()
            texts = list(self.table.wishes)
            classes = classify(nodes, {wish: texts[wish] for wish in present}, fenced, self.policy)
            self._classes[key] = found = classes, Desk(classes.world)
        return found


def known_users(memory: Memory) -> list[str]:
    return sorted(name for name in memory.users if name != EVERYBODY)


def user_table(memory: Memory) -> Records:
    """The engine's own table counts the users of a whole trace; here those are who came so far."""
    uses = [memory.users[name] for name in (*known_users(memory), EVERYBODY)]
    user = np.zeros(len(uses), dtype=USER)
    user["n_gpus"], user["used_gpu_s"], user["since_s"] = np.array(uses).T
    user["factor_s"] = np.nan
    return user


def promise_again(laid: Laid, memory: Memory) -> None:
    """Conservative backfill: the reservations made so far; all void when one that is due has no room, because somebody
    did not go in time."""
    waiting = np.flatnonzero(laid.fits[laid.n_running :]) + laid.n_running
    row_of = {laid.requests[row].key: row for row in waiting.tolist()}
    kept = [(row_of[key], one) for key, one in memory.promises.items() if key in row_of]
    room = laid.state.offer[0].copy()
    for _, one in kept:
        if one.begin_s <= laid.state.now["time_s"][0]:
            for name, n_gpus in one.parts:
                room[laid.classes.place_of[name]] -= n_gpus
    if (room < 0).any():
        kept = []
    rows = np.array([row for row, _ in kept], dtype=np.int64)
    begin_s = np.array([one.begin_s for _, one in kept], dtype=float)
    promised = [[(laid.classes.place_of[name], n_gpus) for name, n_gpus in one.parts] for _, one in kept]
    promise(laid.classes.world, laid.jobs, laid.state, rows, begin_s, *_parts(promised))


def _parts(held: list[list[tuple[int, int]]]) -> tuple[Ints, Ints, Ints]:
    """(where each has its first part, node, n_gpus)."""
    first = np.array([0, *accumulate(map(len, held))], dtype=np.int64)
    flat = [part for parts in held for part in parts]
    node, n_gpus = zip(*flat, strict=True) if flat else ((), ())
    return first, np.array(node, dtype=np.int64), np.array(n_gpus, dtype=np.int64)


def _shares_of(laid: Laid, rows: list[int]) -> list[tuple[Share, ...]]:
    """What each of these jobs was given."""
    names, part = laid.classes.names, laid.state.part
    # Numbers of Python's own: to look at single records of an array takes longer than all else together.
    node, n_gpus, following = (part[name].tolist() for name in ("node", "n_gpus", "next"))
    given = []
    for at in laid.state.job["first_part"][rows].tolist():
        shares = []
        while at >= 0:
            shares.append(Share(names[node[at]], n_gpus[at]))
            at = following[at]
        given.append(tuple(shares))
    return given


def _promises(laid: Laid) -> dict[JobKey, Promise]:
    job = laid.state.job
    rows = np.flatnonzero((job["n_starts"] == 0) & (job["begin_s"] < np.inf)).tolist()
    shares = _shares_of(laid, rows)
    return {
        laid.requests[row].key: Promise(begin_s, tuple((share.node, share.n_gpus) for share in own))
        for row, begin_s, own in zip(rows, job["begin_s"][rows].tolist(), shares, strict=True)
    }


def _accepted(laid: Laid, row: int) -> frozenset[str]:
    """Nodes that the job may use."""
    models = int(laid.jobs.spec["models"][row])
    return frozenset[str]().union(*(own for bit, (_, own) in enumerate(laid.classes.members) if models >> bit & 1))
