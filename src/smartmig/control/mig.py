"""One decision of the MIG world, by the simulator's own compiled pass, on arrays filled from a live cluster.

Cards are re-cut beside running work: a cut the rule asks for becomes the card's target, and every decision takes the
card as near to it as its busy instances allow. Jobs are not preempted: what a real job has done would be lost.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smartmig.control.memory import Memory, counted_flow
from smartmig.control.mig_cards import Card, Known, Table, cards_of, table_of, towards
from smartmig.control.mig_pass import ANYWHERE, asking, placing, seating
from smartmig.control.reach import Reach
from smartmig.control.rows import JobTable, admitted
from smartmig.errors import InputError, SimulationError
from smartmig.policy.encoding import AT_CONFIG
from smartmig.policy.placement.learned import AT_FEATURES, AT_NETWORK, Learned
from smartmig.policy.placement.rule import PlacementRule
from smartmig.policy.repartition.mean_field import AT_PLAN, MeanField
from smartmig.policy.repartition.planner import Planner
from smartmig.policy.repartition.rule import RepartitionRule
from smartmig.policy.view import SLOTS, JobArrays, State, World
from smartmig.sim.mig.kernel import engine
from smartmig.sim.mig.run import rule_name
from smartmig.sim.mig.world import Settings, class_bits, class_times, fresh_state, job_arrays
from smartmig.types import (
    Action,
    ClusterState,
    Floats,
    Ints,
    JobKey,
    JobRequest,
    Jobs,
    Layout,
    Placement,
    Repartition,
    Share,
    Start,
)

NOBODY = JobRequest(JobKey("unknown", 0.0), 0)

FOR_EVER_S = 1e9
"""How long someone unknown holds an instance."""


@dataclass(frozen=True)
class MigPolicy:
    """Who decides."""

    placement: PlacementRule
    repartition: RepartitionRule


ROW = np.dtype([(name, np.float64) for name in ("submit_s", "deadline_s", "memory_gb")] + [("run_s", np.float64, 5)])


class MigTable(JobTable):
    def __init__(self) -> None:
        super().__init__(ROW)

    def row(self, request: JobRequest) -> tuple[float, ...]:
        return request.key.submit_s, request.deadline_s, request.memory_gb, *request.run_s


class Laid(NamedTuple):
    """A decision's arrays, and who is who."""

    cards: list[Card]
    table: Table
    world: World
    jobs: JobArrays
    state: State
    requests: list[JobRequest]
    n_running: int
    kept: NDArray[np.bool_]
    """(n_cards,) whose cut stays as it is"""
    group: Ints
    """(n,) of the jobs: those that may go to the same cards"""
    allowed: NDArray[np.bool_]
    """(n_groups, n_cards) which cards these are"""


class MigDecider:
    """Decides; keeps nothing but conversions it has already made."""

    def __init__(self, policy: MigPolicy, seed: int) -> None:
        if isinstance(policy.repartition, Planner):
            raise InputError("planner looks ahead in a simulation of known jobs; live, take mean-field or another rule")
        self.policy = policy
        self.settings = Settings(preempt=False, drain=True, seed=seed)
        name = rule_name(policy.placement)
        built = engine(name, policy.placement.kernels)
        self.seat = seating(name, policy.placement.kernels, built)
        self.place = placing(name, policy.placement.kernels, built)
        control = type(policy.repartition).control
        self.ask = asking(f"{name}-{rule_name(policy.repartition)}", control, built) if control else None
        self.jobs_table = MigTable()
        self._tables: dict[Any, Table] = {}
        self._cards: Known = {}
        self.strangers: dict[tuple[int, int], tuple[JobRequest, JobRequest]] = {}

    def decide(
        self, state: ClusterState, memory: Memory, n_events: int
    ) -> tuple[list[Action], Memory, float, Floats | None]:
        """Cuts and starts, what to remember, when to ask again though nothing happens, what a network read."""
        happened = n_events != memory.n_events
        memory = counted_flow(memory, state)
        laid = self.lay_out(state, memory, n_events)
        if laid is None:
            return [], memory, math.inf, None
        world, jobs, arrays = laid.world, laid.jobs, laid.state
        features: Floats | None = None
        rule = self.policy.repartition
        config_before = arrays.gpu["config"].copy()
        next_check_s, due = self._due(memory, state, n_events, happened, world.n_gpus)
        if self.ask is not None and due:
            knobs = laid.table.knobs.copy()
            arrays.now["pending"] = happened
            self.ask(world, jobs, arrays, knobs, laid.kept)
            if isinstance(rule, MeanField):
                features = knobs[2:AT_PLAN].copy()
        offered = arrays.gpu["usable"].copy()
        if not self.place(world, jobs, arrays, offered, laid.group, laid.allowed, _classes(laid)):
            raise SimulationError(f"{type(self.policy.placement).__name__} chose a slice that is taken or too small")
        if features is None and isinstance(self.policy.placement, Learned):
            features = world.knobs[AT_FEATURES:AT_NETWORK].copy()
        targets = _targets(laid, memory.targets, config_before)
        starts = self._starts(laid)
        busy = {(share.node, share.gpu, share.start) for start in starts for share in start.shares}
        cuts = [cut for card in laid.cards if (cut := _cut(card, targets, busy)) is not None]
        memory = replace(memory, n_draws=int(arrays.now["n_draws"][0]), targets=targets, next_check_s=next_check_s)
        wake_s = next_check_s + memory.origin_s if self.ask is not None else math.inf
        return [*cuts, *starts], memory, wake_s, features

    def lay_out(self, state: ClusterState, memory: Memory, n_events: int) -> Laid | None:
        """The engine's arrays for this moment; None without MIG cards that are up."""
        cards = cards_of(state, memory.targets, self._cards)
        if not cards:
            return None
        table = table_of(cards, self._tables, self.policy, self.settings)
        requests, slots, start_s = self._seated(state, table, cards)
        n_running = len(requests)
        reach = Reach(state, cards)
        queue = admitted(reach.within(), whole=False)
        group = np.concatenate([np.full(n_running, ANYWHERE), reach.groups(queue)])
        allowed = reach.allowed()
        requests += queue
        self.jobs_table.forget(len(requests))
        at = self.jobs_table.rows(requests)  # may make room for new columns
        rows = self.jobs_table.columns[at]
        now_s = state.time_s - memory.origin_s
        empty = np.zeros(len(requests), dtype="U1")
        jobs = Jobs(
            job_id=empty,
            arrive_s=rows["submit_s"] - memory.origin_s,
            deadline_s=rows["deadline_s"] - memory.origin_s,
            run_s=rows["run_s"],
            kind=empty,
            memory_gb=rows["memory_gb"],
        )
        # Rules ask whether somebody has just come; a cluster shows a job some time after its submission.
        jobs.arrive_s[[row for row, one in enumerate(requests) if one.key not in memory.seen]] = now_s
        run_s = class_times(jobs, table.cuts, self.settings)
        _refuse_models(run_s, requests, table)
        home = (class_bits(run_s) & _on_cards(allowed, [_ever(card, table) for card in cards])[group]) != 0
        home[:n_running] = True
        if not home.all():
            requests = [requests[at] for at in np.flatnonzero(home).tolist()]
            jobs = Jobs(*(column[home] for column in vars(jobs).values()))
            run_s, group = run_s[home], group[home]
        arrays = job_arrays(jobs, run_s, self.policy.placement)
        world = table.world._replace(knobs=table.world.knobs.copy())  # prices are scratch
        filled = self._fill(state, memory, n_events, cards, table, world, arrays)
        usable = np.array([_ready(card) for card in cards], dtype=np.int64)
        began_s = np.array(start_s, dtype=float) - memory.origin_s
        self.seat(world, arrays, filled, np.array(slots, dtype=np.int64), began_s, usable)
        kept = np.array([card.kept for card in cards], dtype=np.bool_)
        return Laid(cards, table, world, arrays, filled, requests, n_running, kept, group, allowed)

    def _seated(
        self, state: ClusterState, table: Table, cards: list[Card]
    ) -> tuple[list[JobRequest], list[int], list[float]]:
        """Who is on which slot since when; what nobody accounts for is held for ever."""
        at = {(card.node, card.gpu): index for index, card in enumerate(cards)}
        present = [{one.start: one.profile for one in card.instances} for card in cards]
        taken: set[int] = set()
        requests, slots, start_s = [], [], []
        for job in state.running:
            for share in job.shares:
                gpu = at.get((share.node, share.gpu), -1) if share.n_gpus == 0 else -1
                slot = gpu * SLOTS + share.start
                if gpu < 0 or share.start not in present[gpu] or slot in taken:
                    continue
                taken.add(slot)
                requests.append(self._holder(job.request, cards[gpu], present[gpu][share.start], table))
                slots.append(slot)
                start_s.append(job.start_s)
        for index, card in enumerate(cards):
            for start in card.busy_by_others:
                slot = index * SLOTS + start
                if start in present[index] and slot not in taken:
                    taken.add(slot)
                    requests.append(self._holder(NOBODY, card, present[index][start], table))
                    slots.append(slot)
                    start_s.append(state.time_s)
        return requests, slots, start_s

    def _holder(self, request: JobRequest, card: Card, profile: str, table: Table) -> JobRequest:
        """The request itself, or one that fits where the job is: clusters put jobs where we would not."""
        column = table.column_of[card.model.id, profile]
        if len(request.run_s) == 5 and math.isfinite(request.run_s[column]):
            return request
        key = (id(request), column)
        if key not in self.strangers:
            if len(self.strangers) > 4096:
                self.strangers.clear()
            known_s = request.limit_s if math.isfinite(request.limit_s) else FOR_EVER_S
            run_s = tuple(known_s if at == column else math.inf for at in range(5))
            # The request is kept, so that its id stays its own.
            self.strangers[key] = (JobRequest(request.key, 0, run_s=run_s), request)
        return self.strangers[key][0]

    def _fill(
        self,
        state: ClusterState,
        memory: Memory,
        n_events: int,
        cards: list[Card],
        table: Table,
        world: World,
        jobs: JobArrays,
    ) -> State:
        arrays = fresh_state(world, jobs.spec.size, table.cuts)
        arrays.slot["slice_class"] = arrays.slot["wanted_class"] = -1
        for gpu, card in enumerate(cards):
            for one in card.instances:
                arrays.slot["slice_class"][gpu * SLOTS + one.start] = table.class_of[card.model.id, one.profile]
            for start, profile in card.goal:
                arrays.slot["wanted_class"][gpu * SLOTS + start] = table.class_of[card.model.id, profile]
            arrays.gpu["config"][gpu] = table.config_of(card)
            arrays.gpu["draining"][gpu] = card.goal != card.layout
        arrays.tally[AT_CONFIG:] = 0
        arrays.flow[:] = memory.flow
        arrays.now["time_s"] = arrays.now["last_event_s"] = state.time_s - memory.origin_s
        arrays.now["n_arrived"] = jobs.spec.size
        arrays.now["n_events"] = n_events
        arrays.now["n_draws"] = memory.n_draws
        arrays.now["pending"] = 1
        return arrays

    def _due(
        self, memory: Memory, state: ClusterState, n_events: int, happened: bool, n_gpus: int
    ) -> tuple[float, bool]:
        """When the rule is asked next by time, and whether it is asked now, by time or by events."""
        period_s, every = self.policy.repartition.period_s(), self.policy.repartition.every_events(n_gpus)
        now_s = state.time_s - memory.origin_s
        next_s = period_s if math.isnan(memory.next_check_s) else memory.next_check_s
        by_time = now_s >= next_s
        if by_time and math.isfinite(period_s):
            next_s = (math.floor(now_s / period_s) + 1) * period_s
        return next_s, by_time or (happened and every > 0 and n_events % every == 0)

    def _starts(self, laid: Laid) -> list[Start]:
        starts = []
        for row in range(laid.n_running, len(laid.requests)):
            slot = int(laid.state.job["slot"][row])
            request = laid.requests[row]
            if slot >= 0:
                card = laid.cards[slot // SLOTS]
                starts.append(Start(request.key, (Share(card.node, 0, card.gpu, slot % SLOTS),)))
        return starts


def _ready(card: Card) -> int:
    """Slots (bits) that may take jobs: usable, and part of what the card is to become."""
    goal = set(card.goal)
    return sum(1 << one.start for one in card.instances if one.usable and Placement(one.start, one.profile) in goal)


def _ever(card: Card, table: Table) -> int:
    """Slice classes (bits) that the card has or could be cut into."""
    present = {table.class_of[card.model.id, one.profile] for one in card.instances}
    return table.offered[card.model.id] | sum(1 << one for one in present)


def _on_cards(allowed: NDArray[np.bool_], classes: Sequence[int]) -> Ints:
    """(n_groups,) slice classes (bits) of the cards that each group may go to."""
    bits: Ints = np.bitwise_or.reduce(np.where(allowed, np.array(classes, dtype=np.int64), 0), axis=1)
    return bits


def _classes(laid: Laid) -> Ints:
    """(n_groups,) slice classes (bits) that a group may get now or wait for; of jobs that go anywhere, all."""
    if laid.allowed.shape[0] == 1:
        return np.array([-1])
    offered = laid.state.class_bits != 0
    classes = _on_cards(laid.allowed, offered @ (1 << np.arange(offered.shape[1])))
    classes[ANYWHERE] = -1
    return classes


def _refuse_models(run_s: Floats, requests: list[JobRequest], table: Table) -> None:
    for row, request in enumerate(requests):
        if request.gpu_model:
            wanted = {one.strip().lower() for one in request.gpu_model.split("|")}
            for index, (model, _) in enumerate(table.cuts.classes):
                if table.cuts.models[model].id not in wanted:
                    run_s[row, index] = np.inf


def _targets(laid: Laid, before: Mapping[str, Layout], config_before: Ints) -> dict[str, Layout]:
    """Where cards are being taken: new wishes, and old ones not yet reached."""
    targets = {}
    for gpu, card in enumerate(laid.cards):
        if card.kept:
            continue
        if laid.state.gpu["config"][gpu] != config_before[gpu]:
            wanted = laid.state.slot["wanted_class"][gpu * SLOTS : (gpu + 1) * SLOTS]
            names = [laid.table.cuts.classes[one][1].name if one >= 0 else "" for one in wanted.tolist()]
            target = tuple(Placement(start, name) for start, name in enumerate(names) if name)
        elif card.name in before:
            target = before[card.name]
        else:
            continue
        if target != card.layout:
            targets[card.name] = target
    # A card that is away, or is to stay as it is for a while, keeps its target.
    here = {card.name for card in laid.cards if not card.kept}
    return {name: layout for name, layout in before.items() if name not in here} | targets


def _cut(card: Card, targets: dict[str, Layout], new: set[tuple[str, int, int]]) -> Repartition | None:
    """The next step towards the card's target, if there is one now."""
    if card.kept or card.name not in targets:
        return None
    held = {start for node, gpu, start in new if (node, gpu) == (card.node, card.gpu)}
    layout = towards(card, targets[card.name], held)
    return Repartition(card.node, card.gpu, layout) if layout != card.layout else None
