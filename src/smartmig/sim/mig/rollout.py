"""Looking ahead: cuts rolled forward in the engine, for the repartition rule `planner`.

A look ahead starts from a small copy of the state: the jobs now in the system, and arrivals drawn from those seen so
far. It costs the same on the first day of a trace and on the last, and sees nothing a live cluster would not know. The
copy's arrays are parts of one block of memory, so that going back to the start is one copy whatever a state holds.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from smartmig.errors import SimulationError
from smartmig.hardware.cuts import CutTable
from smartmig.jit import kernel, specialise
from smartmig.policy.draw import draw_below, draw_share
from smartmig.policy.encoding import AT_EDGE, TIME_EDGES_S
from smartmig.policy.placement.rule import Kernels
from smartmig.policy.repartition.planner import Planner, candidates
from smartmig.policy.view import JobArrays, Kernel, State, World, left_now
from smartmig.sim.mig.kernel import BAD_CHOICE, CHECK_DUE, STUCK, Engine, advance, engine, hopeless
from smartmig.sim.mig.occupancy import charge
from smartmig.sim.mig.plugged import rule_control
from smartmig.sim.mig.recut import recut
from smartmig.sim.mig.world import fresh_state
from smartmig.types import Floats, Ints

BY_JOB = ("job", "wait", "aside", "segment")
"""Arrays of a state that are longer with more jobs; all others travel as they are."""

NEVER = 1 << 62

GIVE_UP_AFTER = 4
"""Futures after which a candidate that has gained nothing drops out."""


@kernel
def draw_future(
    jobs: JobArrays,
    few: JobArrays,
    n_present: int,
    first: int,
    n_arrived: int,
    now_s: float,
    end_s: float,
    rate_hz: float,
    seed: int,
    nth: int,
) -> int:
    """Fill `few` from `n_present` on with arrivals until `end_s`, drawn from the jobs first..n_arrived-1.

    Returns how many jobs there are then; the rows that are left over never arrive.
    """
    time_s = now_s
    at = n_present
    while at < few.spec.size - 1 and rate_hz > 0.0:
        time_s -= math.log(1.0 - draw_share(seed, nth)) / rate_hz
        if time_s >= end_s:
            break
        like = first + draw_below(seed, nth + 1, n_arrived - first)
        nth += 2
        few.spec[at] = jobs.spec[like]
        few.spec[at].arrive_s = time_s
        few.spec[at].deadline_s = time_s + (jobs.spec[like].deadline_s - jobs.spec[like].arrive_s)
        for slice_class in range(few.run_s.shape[1]):
            few.run_s[at, slice_class] = jobs.run_s[like, slice_class]
        at += 1
    for rest in range(at, few.spec.size):
        few.spec[rest].arrive_s = np.inf
        few.spec[rest].deadline_s = np.inf
    return at


def roll(
    world: World, jobs: JobArrays, state: State, end_s: float, period_s: float, every_events: int, knobs: Floats
) -> int:
    """`kernel.run_controlled` up to a time."""
    while True:
        due_events = (state.now[0].n_events // every_events + 1) * every_events if every_events > 0 else NEVER
        status = advance(world, jobs, state, min(state.now[0].next_check_s, end_s), due_events)
        if status != CHECK_DUE:
            return status
        if not state.now[0].pending:
            if state.now[0].time_s >= end_s:
                return status
            state.now[0].next_check_s += period_s
        for gpu in range(world.n_gpus):
            state.gpu[gpu].target = -1
        rule_control(world, jobs, state, knobs)
        for gpu in range(world.n_gpus):
            if state.gpu[gpu].target >= 0 and state.gpu[gpu].target != state.gpu[gpu].config:
                recut(world, jobs, state, gpu, state.gpu[gpu].target)


@kernel
def cost_s(world: World, jobs: JobArrays, state: State, n_jobs: int, energy_weight: float) -> float:
    """Tardiness of all jobs that have arrived plus energy, in seconds of tardiness.

    A job that is not done is taken to run on from now on a middling slice, between its smallest and its largest.
    """
    now_s = state.now[0].time_s
    total_s = 0.0
    for gpu in range(world.n_gpus):
        charge(world, state, gpu, state.gpu[gpu].busy)
        total_s += energy_weight * state.gpu[gpu].energy_j
    for job in range(n_jobs):
        finish_s = state.job[job].finish_s
        if np.isnan(finish_s):
            middling_s = math.sqrt(jobs.spec[job].whole_s * jobs.spec[job].single_s)
            finish_s = now_s + left_now(jobs, state, job) * middling_s
        total_s += max(0.0, finish_s - jobs.spec[job].deadline_s)
    return total_s


def try_cuts(
    world: World,
    jobs: JobArrays,
    start: Ints,
    block: Ints,
    state: State,
    n_jobs: int,
    targets: Ints,
    which: Ints,
    costs: Floats,
    end_s: float,
    period_s: float,
    every_events: int,
    knobs: Floats,
    energy_weight: float,
) -> int:
    """Roll each cut of `which` forward and write its cost.

    `start` is a block with the state to begin from, `block` that of `state`, which is overwritten.
    """
    for candidate in which:
        for word in range(start.size):
            block[word] = start[word]
        for gpu in range(world.n_gpus):
            target = targets[candidate, gpu]
            if target >= 0 and target != state.gpu[gpu].config:
                recut(world, jobs, state, gpu, target)
        status = roll(world, jobs, state, end_s, period_s, every_events, knobs)
        if status == BAD_CHOICE:
            return status
        costs[candidate] = cost_s(world, jobs, state, n_jobs, energy_weight)
    return CHECK_DUE


@functools.cache
def rollout_engine(name: str, rule: Kernels, control_name: str, control: Kernel) -> Kernel:
    """`try_cuts` for a placement rule and a base rule."""
    built = engine(name, rule)
    bindings: dict[str, Any] = {"advance": built.advance, "recut": built.recut, "rule_control": control}
    bindings["roll"] = specialise(roll, f"{name}-{control_name}", cached=False, **bindings)
    return specialise(try_cuts, f"{name}-{control_name}", cached=True, **bindings)


def in_one_block(state: State) -> tuple[State, Ints]:
    """The state with its arrays laid one after another in one block of words, and the block."""
    sizes = [-(-array.nbytes // 8) for array in state]
    block = np.zeros(sum(sizes), dtype=np.int64)
    parts = []
    for array, part in zip(state, np.split(block, np.cumsum(sizes)[:-1]), strict=True):
        view = part.view(np.uint8)[: array.nbytes].view(array.dtype).reshape(array.shape)
        view[...] = array
        parts.append(view)
    return State._make(parts), block


def better_half(costs: Floats, alive: Ints) -> Ints:
    """The cheaper half of the candidates on the futures tried so far, and row 0, which they must beat.

    After a few futures, one that is no cheaper than row 0 is given up too: chance will not make up for it.
    """
    total = costs[:, alive].sum(axis=0)
    better = alive[np.argsort(total, kind="stable")[: (alive.size + 1) // 2]]
    if len(costs) >= GIVE_UP_AFTER:
        better = better[costs[:, better].sum(axis=0) < costs[:, 0].sum()]
    return np.union1d(better, [0])


class LookAhead:
    """The planner at work on one run."""

    def __init__(self, planner: Planner, world: World, jobs: JobArrays, cuts: CutTable, try_cuts: Kernel) -> None:
        base = planner.base_rule
        self.planner, self.jobs, self.cuts = planner, jobs, cuts
        # Looking ahead must not leave a trace: rules may keep prices and clocks in their knobs.
        self.world = world._replace(record=False, knobs=world.knobs.copy())
        self.control: Kernel = type(base).control
        self.knobs = base.knobs(cuts, world)
        self.period_s, self.every_events = base.period_s(), base.every_events(world.n_gpus)
        self.try_cuts = try_cuts
        self.make_room(64)

    def make_room(self, n_jobs: int) -> None:
        """Memory for looks ahead with so many jobs."""
        self.n_room = n_jobs
        fresh = fresh_state(self.world, n_jobs, self.cuts)
        self.new_job = fresh.job[:1].copy()
        self.start, self.start_block = in_one_block(fresh)
        self.state, self.block = in_one_block(fresh)
        self.few = JobArrays._make(np.zeros((n_jobs, *array.shape[1:]), array.dtype) for array in self.jobs)

    def decide(self, state: State, nth: int) -> Ints:
        """Wanted configuration of each GPU (-1 = keep) at the nth decision, which fixes the futures drawn."""
        planner, now = self.planner, state.now[0]
        proposal = self.propose(state)
        n_arrived = int(now["n_arrived"])
        # Jobs that wait though nothing runs may need another cut to run at all: the base rule knows which.
        blocked = now["n_waiting"] > 0 and not (state.slot["job"] >= 0).any()
        if nth % planner.every or n_arrived < planner.min_history or blocked:
            return proposal
        targets = candidates(self.cuts, state, proposal, planner.reach, planner.n_candidates)
        return targets[self.best(state, targets, nth)]

    def propose(self, state: State) -> Ints:
        """What the base rule would do."""
        state.gpu["target"] = -1
        self.control(self.world, self.jobs, state, self.knobs)
        proposal = np.where(state.gpu["target"] == state.gpu["config"], -1, state.gpu["target"])
        state.gpu["target"] = -1
        return proposal

    def best(self, state: State, targets: Ints, nth: int) -> int:
        """Row of the cut to take: the base rule's (row 0), or one that beats it beyond doubt."""
        planner = self.planner
        stop_s = time.perf_counter() + planner.budget_s if planner.budget_s > 0 else math.inf
        now_s = float(state.now["time_s"][0])
        rate_hz = self.rate_hz(now_s, int(state.now["n_arrived"][0]))
        n_present = self.gather(state, rate_hz * planner.horizon_s)
        costs = np.full((planner.n_samples, len(targets)), np.nan)
        alive = np.arange(len(targets))
        n_tried = 0
        halve_at = planner.n_first
        while n_tried < planner.n_samples and alive.size > 1:
            n_jobs = self.imagine(state, n_present, rate_hz, nth * planner.n_samples + n_tried)
            if not self.try_out(now_s, n_jobs, targets, alive, costs[n_tried], stop_s):
                break
            n_tried += 1
            if n_tried == halve_at:
                alive = better_half(costs[:n_tried], alive)
                halve_at *= 2
        if n_tried < 2:
            return 0
        row = int(alive[np.argmin(costs[:n_tried, alive].sum(axis=0))])
        gain_s = costs[:n_tried, 0] - costs[:n_tried, row]
        sure = gain_s.mean() > planner.sureness * gain_s.std(ddof=1) / math.sqrt(n_tried)
        return row if sure else 0

    def rate_hz(self, now_s: float, n_arrived: int) -> float:
        """Arrivals per second of late."""
        arrive_s = self.jobs.spec["arrive_s"][:n_arrived]
        window_s = min(self.planner.rate_window_s, now_s - float(arrive_s[0]))
        n_recent = n_arrived - int(np.searchsorted(arrive_s, now_s - window_s))
        return n_recent / window_s if window_s > 0 else 0.0

    def gather(self, state: State, n_expected: float) -> int:
        """Copy the present into `start` and `few`, with the jobs in the system numbered anew, in their order."""
        n_waiting = int(state.now["n_waiting"][0])
        waiting = state.wait["job"][:n_waiting]
        taken = np.flatnonzero(state.slot["job"] >= 0)
        runs = state.slot["job"][taken]
        present = np.sort(np.concatenate([waiting, runs]))
        n_present = present.size
        n_needed = n_present + int(n_expected + 6 * math.sqrt(n_expected)) + 8
        if n_needed > self.n_room:
            self.make_room(2 * n_needed)
        start, few = self.start, self.few
        for name in State._fields:
            if name not in BY_JOB:
                getattr(start, name)[...] = getattr(state, name)
        start.job[:n_present] = state.job[present]
        start.job[n_present:] = self.new_job
        start.wait[:n_waiting] = state.wait[:n_waiting]
        start.wait["job"][:n_waiting] = np.searchsorted(present, waiting)
        start.slot["job"][taken] = np.searchsorted(present, runs)
        running = state.running[: int(state.now["n_running"][0])]
        running = running[state.job["slot"][running] >= 0]  # the others are done, or stopped by a re-cut
        start.running[: running.size] = np.searchsorted(present, running)
        start.now["n_running"] = running.size
        start.now["n_arrived"] = n_present
        start.now["n_done"] = 0
        start.now["n_segments"] = 0
        few.spec[:n_present] = self.jobs.spec[present]
        few.run_s[:n_present] = self.jobs.run_s[present]
        return n_present

    def imagine(self, state: State, n_present: int, rate_hz: float, nth: int) -> int:
        """Draw the nth future into `few`; the number of jobs there are in it."""
        now_s, n_arrived = float(state.now["time_s"][0]), int(state.now["n_arrived"][0])
        first = max(0, n_arrived - self.planner.n_history)
        end_s = now_s + self.planner.horizon_s
        n_jobs: int = draw_future(
            self.jobs, self.few, n_present, first, n_arrived, now_s, end_s, rate_hz, self.world.seed, nth << 20
        )
        few, tally = self.few, self.start.tally
        few.by_deadline[:] = np.argsort(few.spec["deadline_s"], kind="stable")
        few.spec["deadline_rank"][few.by_deadline] = np.arange(self.n_room)
        for edge, edge_s in enumerate(TIME_EDGES_S):
            tally[AT_EDGE + edge] = np.sum(few.spec["deadline_s"] < now_s + edge_s)
        return n_jobs

    def try_out(self, now_s: float, n_jobs: int, targets: Ints, alive: Ints, costs: Floats, stop_s: float) -> bool:
        """Try the cuts on the future drawn last; False when time is up before the end."""
        # A kernel cannot look at the clock: with a budget, one cut at a time.
        for part in (alive,) if stop_s == math.inf else np.split(alive, alive.size):
            if time.perf_counter() > stop_s:
                return False
            status = self.try_cuts(
                self.world,
                self.few,
                self.start_block,
                self.block,
                self.state,
                n_jobs,
                targets,
                part,
                costs,
                now_s + self.planner.horizon_s,
                self.period_s,
                self.every_events,
                self.knobs,
                self.planner.energy_weight,
            )
            if status == BAD_CHOICE:
                raise SimulationError("the placement rule chose a slice that is taken or does not fit the job")
        return True


def planned_stepper(
    world: World,
    jobs: JobArrays,
    planner: Planner,
    cuts: CutTable,
    built: Engine,
    try_cuts: Kernel,
    asked_every: int = 0,
    told: Callable[[State, Ints], None] | None = None,
) -> Callable[[State, int], int]:
    """The engine under a planner, as `run.stepper` wants it; comes back after every decision.

    `asked_every`: events between two decisions, where they shall come at other times than the base rule's.
    `told`: called with every decision before it is carried out.
    """
    ahead = LookAhead(planner, world, jobs, cuts, try_cuts)
    period_s, every_events = ahead.period_s, asked_every or ahead.every_events

    def go_on(state: State, pause_events: int) -> int:
        now = state.now
        if now["next_check_s"][0] == 0.0:
            now["next_check_s"] = period_s
        due_events = (int(now["n_events"][0]) // every_events + 1) * every_events if every_events > 0 else NEVER
        next_check_s = float(now["next_check_s"][0])
        status = int(built.advance(world, jobs, state, next_check_s, min(due_events, pause_events)))
        if status != CHECK_DUE:
            return status
        by_time = not now["pending"][0]
        if by_time:
            if hopeless(world, jobs, state):
                return STUCK
            now["next_check_s"] += period_s
        if by_time or now["n_events"][0] == due_events:
            n_looks = int(now["n_events"][0]) // every_events if every_events > 0 else 0
            n_looks += round(next_check_s / period_s) if period_s < math.inf else 0
            targets = ahead.decide(state, n_looks)
            if told is not None:
                told(state, targets)
            for gpu, target in enumerate(targets.tolist()):
                if target >= 0:
                    built.recut(world, jobs, state, gpu, target)
        return status

    return go_on
