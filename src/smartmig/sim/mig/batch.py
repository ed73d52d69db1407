"""Many days at once: what a trainer calls.

`Days` holds job sets in array form. `play` runs whole days under a mean-field policy or a teacher, one thread a day
and nothing per event in Python, and returns what was seen, done and paid at every decision.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple, cast

import numpy as np

from smartmig.errors import SimulationError
from smartmig.jit import specialise
from smartmig.metrics.objective import energy_tardiness
from smartmig.policy.encoding import AT_CONFIG, N_FEATURES, encode
from smartmig.policy.network import at_rows
from smartmig.policy.placement.rule import Kernels, PlacementRule
from smartmig.policy.repartition.mean_field import AT_PLAN, MeanField
from smartmig.policy.repartition.planner import Planner
from smartmig.policy.repartition.rule import RepartitionRule
from smartmig.policy.view import JobArrays, Kernel, State, World
from smartmig.sim.mig.kernel import CHECK_DUE, FINISHED, engine
from smartmig.sim.mig.ledger import N_BOOKS, settle
from smartmig.sim.mig.plugged import rule_control
from smartmig.sim.mig.rollout import planned_stepper
from smartmig.sim.mig.run import Cluster, cuts_of, open_gpus, rollouts, rule_name
from smartmig.sim.mig.world import Settings, build_jobs, build_world, fresh_state
from smartmig.types import Floats, Ints, Jobs

NO_PAUSE = 1 << 62


class Played(NamedTuple):
    """Decisions of one or more days, one after another."""

    features: Floats  # (n, N_FEATURES) float32
    gpus: Ints  # (n, 2, n_configs) GPUs by configuration, and their busy slices
    moves: Ints  # (n, n_configs, n_configs) GPUs that went from row to column; grouped: the choice of each row
    kept: Ints  # (n, n_configs) bit = column a row could choose from
    cost: Floats  # (n, 2) tardiness (s) and energy (J) of the whole cluster from this decision to the next
    time_s: Floats  # (n,)
    day: Ints  # (n,) index of the day
    total: Floats  # (n_days, 2) tardiness and energy of each whole day


def play_day(
    world: World,
    jobs: JobArrays,
    state: State,
    every_events: int,
    knobs: Floats,
    matrix_at: int,
    grouped: bool,
    books: Floats,
    features: Floats,
    gpus: Ints,
    moves: Ints,
    kept: Ints,
    cost: Floats,
    time_s: Floats,
) -> int:
    """Run one day to its end, recording every decision; the number of decisions, or -1 if the day got stuck.

    `matrix_at`: where the policy leaves its rows in `knobs`, -1 for a teacher. `cost[0]` is what was paid before the
    first decision, `cost[n]` from the nth on.
    """
    n_configs = world.config.size
    n = 0
    while True:
        due = (state.now[0].n_events // every_events + 1) * every_events
        status = advance(world, jobs, state, state.now[0].next_check_s, due)
        if status != CHECK_DUE and status != FINISHED:
            return -1
        if status == CHECK_DUE and not state.now[0].pending:
            state.now[0].next_check_s += 3600.0
            if state.now[0].next_check_s - state.now[0].last_event_s > 2 * 86_400.0:
                return -1
        settle(world, jobs, state, books, cost[n])
        if status == FINISHED:
            return n
        if n == time_s.size:
            return -2
        encode(world, jobs, state, features[n])
        for config in range(n_configs):
            gpus[n, 0, config] = state.tally[AT_CONFIG + config]
            gpus[n, 1, config] = state.tally[AT_CONFIG + n_configs + config]
            kept[n, config] = -1
            for other in range(n_configs):
                moves[n, config, other] = 0
        time_s[n] = state.now[0].time_s
        for gpu in range(world.n_gpus):
            state.gpu[gpu].target = -1
        rule_control(world, jobs, state, knobs)
        if matrix_at >= 0:
            for config in range(n_configs):
                kept[n, config] = 0
                for other in range(n_configs):
                    if knobs[matrix_at + config * n_configs + other] > 0.0:
                        kept[n, config] |= 1 << other
        for gpu in range(world.n_gpus):
            config = state.gpu[gpu].config
            target = state.gpu[gpu].target
            if target < 0:
                target = config
            if grouped:
                moves[n, config, target] = 1
            else:
                moves[n, config, target] += 1
            if target != config:
                recut(world, jobs, state, gpu, target)
        if grouped:  # a row with a mover made one choice, whatever the others of the row did
            for config in range(n_configs):
                for other in range(n_configs):
                    if other != config and moves[n, config, other] > 0:
                        moves[n, config, config] = 0
        n += 1


def joined(days: Sequence[Played]) -> Played:
    return Played(*(np.concatenate(arrays) for arrays in zip(*days, strict=True)))


def row_choices(config: Ints, targets: Ints, n_configs: int) -> Ints:
    """(n_configs, n_configs) the choice of each row that has GPUs: where some of them go, or to stay."""
    moves: Any = np.zeros((n_configs, n_configs), dtype=np.int16)
    for present in np.unique(config):
        goes = targets[(config == present) & (targets >= 0) & (targets != present)]
        moves[present, goes if goes.size else present] = 1
    return cast("Ints", moves)


advance: Kernel = None
recut: Kernel = None


@functools.cache
def player(placement_name: str, placement: Kernels, control_name: str, control: Kernel) -> Kernel:
    built = engine(placement_name, placement)
    bindings = {"advance": built.advance, "recut": built.recut, "rule_control": control}
    return specialise(play_day, f"{placement_name}-{control_name}", cached=True, **bindings)


@dataclass(frozen=True)
class Setting:
    """Where a policy is trained: the cluster, who places, and how the world behaves."""

    cluster: Cluster
    placement: PlacementRule
    settings: Settings


class Days:
    """Job sets ready to be played on one cluster, in parallel threads."""

    def __init__(self, setting: Setting, job_sets: Sequence[Jobs], n_threads: int | None = None) -> None:
        self.setting = setting
        self.rule = MeanField()
        self.cuts = cuts_of(setting.cluster, self.rule)
        self.world = build_world(self.cuts, setting.placement, setting.settings, counted=True)
        reachable = self.rule.reachable(self.cuts)
        self.jobs = [build_jobs(jobs, self.cuts, setting.placement, setting.settings, reachable) for jobs in job_sets]
        self.n_threads = n_threads or len(os.sched_getaffinity(0))
        self.fresh = fresh_state(self.world, 1, self.cuts)
        open_gpus(self.world, self.fresh, setting.placement)

    def place_with(self, knobs: Floats) -> None:
        """Go on with other knobs of the placement rule."""
        self.world = self.world._replace(knobs=knobs)

    def play(
        self,
        which: Sequence[int],
        weights: Floats | None = None,
        teacher: RepartitionRule | None = None,
        seed: int = 0,
        rule: MeanField | None = None,
    ) -> Played:
        """Days by index under the network's weights, or under a teacher; `seed` is that of the draws.

        A teacher is asked as often as the network would be.
        """
        learned = rule or self.rule
        if isinstance(teacher, Planner):
            planner = teacher
            with ThreadPoolExecutor(self.n_threads) as pool:
                watch = pool.map(lambda nth, index: self._watch(nth, index, planner, learned), count(), which)
                return joined(list(watch))
        who: RepartitionRule = teacher if teacher is not None else learned
        run = player(
            rule_name(self.setting.placement), self.setting.placement.kernels, rule_name(who), type(who).control
        )
        every = learned.every_events(self.world.n_gpus)
        n_configs = len(self.cuts.configs)

        def one(item: tuple[int, int]) -> Played:
            nth, index = item
            jobs = self.jobs[index]
            # Knobs are copied because a learned placing keeps its prices there.
            own = self.world.knobs.copy()
            world = self.world._replace(seed=(seed * 1_000_003 + nth) & 0x7FFFFFFF, knobs=own)
            state = self._state(jobs)
            if weights is not None:
                knobs = learned.knobs_of(self.cuts, weights)
            else:
                knobs = who.knobs(self.cuts, world)
            matrix_at = -1 if teacher is not None else AT_PLAN + at_rows(n_configs)
            room = 2 * jobs.spec.size // every + 200
            while True:
                out = (
                    np.zeros((room, N_FEATURES), dtype=np.float32),
                    np.zeros((room, 2, n_configs), dtype=np.int16),
                    np.zeros((room, n_configs, n_configs), dtype=np.int16),
                    np.zeros((room, n_configs), dtype=np.int64),
                    np.zeros((room + 1, 2)),
                    np.zeros(room),
                )
                n = run(world, jobs, state, every, knobs, matrix_at, learned.grouped, np.zeros(N_BOOKS), *out)
                if n != -2:
                    break
                room *= 2  # re-cuts are events too
                state = self._state(jobs)
            if n < 0:
                raise SimulationError(f"training day {index} got stuck: jobs wait for a slice the policy never cut")
            *seen, cost, time_s = out
            arrays = [*(array[:n] for array in seen), cost[1 : n + 1], time_s[:n]]
            return Played._make([*arrays, np.full(n, nth), self._total(jobs, state)])

        with ThreadPoolExecutor(self.n_threads) as pool:
            return joined(list(pool.map(one, enumerate(which))))

    def _watch(self, nth: int, index: int, planner: Planner, learned: MeanField) -> Played:
        """One day under a planner; what its decisions cost one by one is not taken down."""
        jobs, placement = self.jobs[index], self.setting.placement
        n_configs = len(self.cuts.configs)
        features, gpus, moves, time_s = [], [], [], []

        def told(state: State, targets: Ints) -> None:
            seen: Any = np.zeros(N_FEATURES, dtype=np.float32)
            encode(self.world, jobs, state, seen)
            features.append(seen)
            gpus.append(state.tally[AT_CONFIG : AT_CONFIG + 2 * n_configs].reshape(2, n_configs).astype(np.int16))
            moves.append(row_choices(state.gpu["config"], targets, n_configs))
            time_s.append(float(state.now["time_s"][0]))

        built = engine(rule_name(placement), placement.kernels)
        asked_every = learned.every_events(self.world.n_gpus)
        tries = rollouts(placement, planner)
        world = self.world._replace(knobs=self.world.knobs.copy())
        step = planned_stepper(world, jobs, planner, self.cuts, built, tries, asked_every, told)
        state = self._state(jobs)
        state.now["next_check_s"] = 0.0
        while (status := step(state, NO_PAUSE)) == CHECK_DUE:
            pass
        if status != FINISHED:
            raise SimulationError(f"training day {index} got stuck: jobs wait for a slice the planner never cut")
        n = len(features)
        kept, cost = np.full((n, n_configs), -1, dtype=np.int64), np.full((n, 2), np.nan)
        seen = [np.array(features), np.array(gpus), np.array(moves), kept, cost, np.array(time_s)]
        return Played._make([*seen, np.full(n, nth), self._total(jobs, state)])

    def _total(self, jobs: JobArrays, state: State) -> Floats:
        """(1, 2) tardiness and energy of a finished day."""
        late = np.maximum(0.0, state.job["finish_s"] - jobs.spec["deadline_s"]).sum()
        watts = self.world.power_w[state.gpu["model"], state.gpu["busy"]]
        since_charged_j = (watts * (state.now["time_s"][0] - state.gpu["charged_s"])).sum()
        return np.array([[late, state.gpu["energy_j"].sum() + since_charged_j]])

    def _state(self, jobs: JobArrays) -> State:
        """Time 0 of a day: every GPU open."""
        state = fresh_state(self.world, jobs.spec.size, self.cuts)
        # Which slices are open is the same on every day; only the arrays by job differ in length.
        for name in ("slot", "gpu", "class_bits", "open_gpus", "n_open", "open_levels", "end"):
            getattr(state, name)[...] = getattr(self.fresh, name)
        state.now["n_free"] = self.fresh.now["n_free"]
        state.now["next_check_s"] = 3600.0
        return state

    def et(self, played: Played, which: Sequence[int]) -> Floats:
        """ET of each day played."""
        n_jobs = np.array([self.jobs[index].spec.size for index in which])
        late_s, energy_j = played.total.T
        return np.array([energy_tardiness(e, t / n) for e, t, n in zip(energy_j, late_s, n_jobs, strict=True)])
