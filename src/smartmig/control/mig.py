"""One decision of the MIG world, by the simulator's own compiled pass, on arrays filled from a live cluster.

Cards are re-cut beside running work: a cut the rule asks for becomes the card's target, and every decision takes the
card as near to it as its busy instances allow. Jobs are not preempted: what a real job has done would be lost.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from smartmig.control.memory import Memory, counted_flow
from smartmig.control.mig_cards import Card, Known, Table, cards_of, reserved_nodes, table_of, towards
from smartmig.control.rows import JobTable, admitted
from smartmig.errors import InputError
from smartmig.jit import specialise
from smartmig.policy.encoding import AT_CONFIG, track, turn_clock
from smartmig.policy.placement.learned import AT_FEATURES, AT_NETWORK, Learned
from smartmig.policy.placement.rule import Kernels, PlacementRule
from smartmig.policy.repartition.mean_field import AT_PLAN, MeanField
from smartmig.policy.repartition.planner import Planner
from smartmig.policy.repartition.rule import RepartitionRule
from smartmig.policy.view import SLOTS, JobArrays, Kernel, State, World
from smartmig.sim.mig.heaps import push_end, push_waiting
from smartmig.sim.mig.kernel import Engine, engine
from smartmig.sim.mig.occupancy import set_usable
from smartmig.sim.mig.plugged import rule_control, rule_key
from smartmig.sim.mig.recut import recut
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

OVERDUE_S = 1.0
"""A job that should be done by now is expected to end after this long."""

NOBODY = JobRequest(JobKey("unknown", 0.0), 0)

FOR_EVER_S = 1e9
"""How long someone unknown holds an instance."""


@dataclass(frozen=True)
class MigPolicy:
    """Who decides."""

    placement: PlacementRule
    repartition: RepartitionRule


def seat(world: World, jobs: JobArrays, state: State, slot: Ints, start_s: Floats, usable: Ints) -> None:
    """Job i runs on `slot[i]` since `start_s[i]`, the others wait; cards offer what is usable."""
    now_s = state.now[0].time_s
    for job in range(slot.size):
        at = slot[job]
        gpu = at // SLOTS
        slice_class = state.slot[at].slice_class
        size = world.slice_class[slice_class].size
        state.gpu[gpu].taken |= 1 << (at - gpu * SLOTS)
        state.gpu[gpu].busy += size
        state.gpu[gpu].planned_busy += size
        state.slot[at].job = job
        state.job[job].slot = at
        state.job[job].n_starts = 1
        state.job[job].began_s = start_s[job]
        state.job[job].since_s = start_s[job]
        state.job[job].first_start_s = start_s[job]
        end_s = start_s[job] + jobs.run_s[job, slice_class]
        if end_s <= now_s:
            end_s = now_s + OVERDUE_S
        state.job[job].end_s = end_s
        state.slot[at].end_s = end_s
        push_end(state, at, end_s)
    for gpu in range(world.n_gpus):
        state.tally[AT_CONFIG + state.gpu[gpu].config] += 1
        state.tally[AT_CONFIG + world.config.size + state.gpu[gpu].config] += state.gpu[gpu].busy
        set_usable(world, state, gpu, usable[gpu])
    turn_clock(jobs, state)
    for job in range(jobs.spec.size):
        if job >= slot.size:
            push_waiting(jobs, state, job, rule_key(world, jobs, state, job))
        track(world, jobs, state, job, True)


def ask(world: World, jobs: JobArrays, state: State, knobs: Floats) -> None:
    """The repartition rule's wishes, begun."""
    for gpu in range(world.n_gpus):
        state.gpu[gpu].target = -1
    rule_control(world, jobs, state, knobs)
    for gpu in range(world.n_gpus):
        if state.gpu[gpu].target >= 0 and state.gpu[gpu].target != state.gpu[gpu].config:
            recut(world, jobs, state, gpu, state.gpu[gpu].target)


@functools.cache
def seating(name: str, rule: Kernels, built: Engine) -> Kernel:
    return specialise(seat, name, cached=True, rule_key=rule.key, set_usable=built.set_usable)


@functools.cache
def asking(name: str, control: Kernel, built: Engine) -> Kernel:
    return specialise(ask, name, cached=True, rule_control=control, recut=built.recut)


ROW = np.dtype([(name, np.float64) for name in ("submit_s", "deadline_s", "memory_gb")] + [("run_s", np.float64, 5)])


class MigTable(JobTable):
    def __init__(self) -> None:
        super().__init__(ROW)

    def row(self, request: JobRequest) -> tuple[Any, ...]:
        return request.key.submit_s, request.deadline_s, request.memory_gb, request.run_s


class Laid(NamedTuple):
    """A decision's arrays, and who is who."""

    cards: list[Card]
    table: Table
    world: World
    jobs: JobArrays
    state: State
    requests: list[JobRequest]
    n_running: int


class MigDecider:
    """Decides; keeps nothing but conversions it has already made."""

    def __init__(self, policy: MigPolicy, seed: int) -> None:
        if isinstance(policy.repartition, Planner):
            raise InputError("planner looks ahead in a simulation of known jobs; live, take mean-field or another rule")
        self.policy = policy
        self.settings = Settings(preempt=False, drain=True, seed=seed)
        name = rule_name(policy.placement)
        self.engine = engine(name, policy.placement.kernels)
        self.seat = seating(name, policy.placement.kernels, self.engine)
        control = type(policy.repartition).control
        self.ask = asking(f"{name}-{rule_name(policy.repartition)}", control, self.engine) if control else None
        self.jobs_table = MigTable()
        self._tables: dict[Any, Table] = {}
        self._cards: Known = {}
        self._unknown: dict[tuple[int, int], tuple[JobRequest, JobRequest]] = {}

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
            self.ask(world, jobs, arrays, knobs)
            if isinstance(rule, MeanField):
                features = knobs[2:AT_PLAN].copy()
        arrays.now["pending"] = 1
        self.engine.advance(world, jobs, arrays, -math.inf, 1 << 62)
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
        requests += admitted(state, whole=False)
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
        offered = table.offered
        for card in cards:
            for one in card.instances:
                offered |= 1 << table.class_of[card.model.id, one.profile]
        home = (class_bits(run_s) & offered) != 0
        home[:n_running] = True
        if not home.all():
            requests = [requests[at] for at in np.flatnonzero(home).tolist()]
            jobs = Jobs(*(column[home] for column in vars(jobs).values()))
            run_s = run_s[home]
        arrays = job_arrays(jobs, run_s, self.policy.placement)
        world = table.world._replace(knobs=table.world.knobs.copy())  # prices are scratch
        filled = self._fill(state, memory, n_events, cards, table, world, arrays)
        usable = _usable(state, cards, requests[n_running:])
        began_s = np.array(start_s, dtype=float) - memory.origin_s
        self.seat(world, arrays, filled, np.array(slots, dtype=np.int64), began_s, usable)
        return Laid(cards, table, world, arrays, filled, requests, n_running)

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
        if key not in self._unknown:
            known_s = request.limit_s if math.isfinite(request.limit_s) else FOR_EVER_S
            run_s = tuple(known_s if at == column else math.inf for at in range(5))
            # The request is kept, so that its id stays its own.
            self._unknown[key] = (JobRequest(request.key, 0, run_s=run_s), request)
        return self._unknown[key][0]

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
                # Rules know kinds of slices, not nodes: a choice that the request forbids is left out.
                if not request.nodes or card.node in request.nodes:
                    starts.append(Start(request.key, (Share(card.node, 0, card.gpu, slot % SLOTS),)))
        return starts


def _usable(state: ClusterState, cards: list[Card], queued: list[JobRequest]) -> Ints:
    """(n_gpus,) slots that may take jobs: ready, and part of what the card is to become."""
    closed = reserved_nodes(state, queued)
    bits = []
    for card in cards:
        goal = set(card.goal)
        mine = sum(1 << one.start for one in card.instances if one.usable and Placement(one.start, one.profile) in goal)
        bits.append(0 if card.node in closed else mine)
    return np.array(bits, dtype=np.int64)


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
    # A card that is away keeps its target.
    here = {card.name for card in laid.cards}
    return {name: layout for name, layout in before.items() if name not in here} | targets


def _cut(card: Card, targets: dict[str, Layout], new: set[tuple[str, int, int]]) -> Repartition | None:
    """The next step towards the card's target, if there is one now."""
    if card.name not in targets:
        return None
    held = {start for node, gpu, start in new if (node, gpu) == (card.node, card.gpu)}
    layout = towards(card, targets[card.name], held)
    return Repartition(card.node, card.gpu, layout) if layout != card.layout else None
