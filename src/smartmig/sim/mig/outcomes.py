"""Whole days under a learned placing and any repartition rule: many days at once, one thread a day.

`run` says what the days come to; `play` draws prices around the network's and returns what was seen, drawn and paid.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from smartmig.errors import SimulationError
from smartmig.jit import kernel
from smartmig.metrics.objective import energy_tardiness
from smartmig.policy.encoding import N_FEATURES, encode
from smartmig.policy.placement.learned import AT_NETWORK, HAND_MADE, Learned, priced_knobs
from smartmig.policy.prices import MOST, N_PRICES, log_prices
from smartmig.policy.repartition.rule import RepartitionRule
from smartmig.policy.view import JobArrays, State, World
from smartmig.sim.mig.kernel import CHECK_DUE, FINISHED, close_books
from smartmig.sim.mig.ledger import N_BOOKS, settle
from smartmig.sim.mig.run import Cluster, Policy, cuts_of, open_gpus, stepper
from smartmig.sim.mig.world import Settings, build_jobs, build_world, fresh_state
from smartmig.types import DEADLINE_GRACE_S, Floats, Ints, Jobs

NO_PAUSE = 1 << 62


class Outcomes(NamedTuple):
    """One number per day."""

    late_frac: Floats
    tardiness_s: Floats
    energy_j: Floats

    @property
    def et(self) -> Floats:
        pairs = zip(self.energy_j.tolist(), self.tardiness_s.tolist(), strict=True)
        return np.array([energy_tardiness(energy, late) for energy, late in pairs])


class Priced(NamedTuple):
    """Prices set on one or more days, one list after another."""

    features: Floats  # (n, N_FEATURES) float32
    noise: Floats  # (n, N_PRICES) float32, what was added to the logarithms, in units of the spread
    cost: Floats  # (n, 2) tardiness (s) and energy (J) of the whole cluster until the next list
    time_s: Floats  # (n,)
    day: Ints  # (n,) index of the day
    total: Outcomes


@kernel
def draw_prices(
    world: World,
    jobs: JobArrays,
    state: State,
    books: Floats,
    spread: float,
    noise: Floats,
    features: Floats,
    cost: Floats,
) -> None:
    """Settle what the last list of prices has cost, and set the next one: the network's, with noise."""
    settle(world, jobs, state, books, cost)
    encode(world, jobs, state, features)
    log_prices(world.knobs[AT_NETWORK:], features, world.knobs[:N_PRICES])
    for at in range(N_PRICES):
        wanted = world.knobs[at] + spread * noise[at]
        world.knobs[at] = math.exp(max(-MOST, min(MOST, wanted)))


class PlacedDays:
    """Job sets on one cluster, ready to be run under any weights of a placing network."""

    def __init__(
        self,
        cluster: Cluster,
        repartition: RepartitionRule,
        settings: Settings,
        job_sets: Sequence[Jobs],
        n_threads: int | None = None,
    ) -> None:
        self.policy = Policy(Learned(HAND_MADE), repartition)
        self.settings = settings
        self.cuts = cuts_of(cluster, repartition)
        self.world = build_world(self.cuts, self.policy.placement, settings, repartition.counted)
        reachable = (*self.cuts.start, *repartition.reachable(self.cuts))
        self.jobs = [build_jobs(jobs, self.cuts, self.policy.placement, settings, reachable) for jobs in job_sets]
        self.n_threads = n_threads or len(os.sched_getaffinity(0))
        self.cut_knobs: Floats | None = None

    def cut_with(self, knobs: Floats) -> None:
        """Go on with other knobs of the repartition rule."""
        self.cut_knobs = knobs

    def run(self, which: Sequence[int], weights: Floats, every_events: int = 1) -> Outcomes:
        """Days by index under these weights."""
        knobs = np.array(priced_knobs(weights, every_events))

        def one(index: int) -> tuple[float, float, float]:
            world, jobs, state = self._morning(index, knobs)
            step = self._stepper(world, jobs)
            while (status := step(state, NO_PAUSE)) == CHECK_DUE:
                pass
            if status != FINISHED:
                raise SimulationError(f"day {index} got stuck: jobs wait for a slice the policy never cut")
            return evening(world, jobs, state)

        with ThreadPoolExecutor(self.n_threads) as pool:
            return Outcomes(*np.array(list(pool.map(one, which))).reshape(len(which), 3).T)

    def play(self, which: Sequence[int], weights: Floats, every_events: int, spread: float, seed: int) -> Priced:
        """Days by index with prices drawn around the network's, every so many events."""
        knobs = np.array(priced_knobs(weights, 0))

        def one(item: tuple[int, int]) -> Priced:
            nth, index = item
            world, jobs, state = self._morning(index, knobs)
            step = self._stepper(world, jobs)
            rng = np.random.default_rng((seed, nth))
            books = np.zeros(N_BOOKS)
            seen: list[tuple[Floats, Floats, Floats, float]] = []
            cost = np.zeros(2)  # what was paid before the first list is nobody's doing
            while (status := step(state, int(state.now["n_events"][0]) + every_events)) == CHECK_DUE:
                noise, features = rng.standard_normal(N_PRICES), np.zeros(N_FEATURES)
                draw_prices(world, jobs, state, books, spread, noise, features, cost)
                cost = np.zeros(2)
                seen.append((features, noise, cost, float(state.now["time_s"][0])))
            if status != FINISHED:
                raise SimulationError(f"day {index} got stuck: jobs wait for a slice the policy never cut")
            settle(world, jobs, state, books, cost)
            features, noise, costs, time_s = (np.array(column) for column in zip(*seen, strict=True))
            total = Outcomes(*np.array([evening(world, jobs, state)]).T)
            day = np.full(len(seen), nth)
            return Priced._make([features.astype(np.float32), noise.astype(np.float32), costs, time_s, day, total])

        with ThreadPoolExecutor(self.n_threads) as pool:
            days = list(pool.map(one, enumerate(which)))
        *arrays, totals = zip(*days, strict=True)
        total = Outcomes(*(np.concatenate(part) for part in zip(*totals, strict=True)))
        return Priced._make([*(np.concatenate(array) for array in arrays), total])

    def _stepper(self, world: World, jobs: JobArrays) -> Callable[[State, int], int]:
        # Rules with a network compute in their knobs.
        own = None if self.cut_knobs is None else self.cut_knobs.copy()
        return stepper(world, jobs, self.policy, self.cuts, own)

    def _morning(self, index: int, knobs: Floats) -> tuple[World, JobArrays, State]:
        world = self.world._replace(knobs=knobs.copy())  # prices change as the day goes on
        jobs = self.jobs[index]
        state = fresh_state(world, jobs.spec.size, self.cuts)
        open_gpus(world, state, self.policy.placement)
        return world, jobs, state


def evening(world: World, jobs: JobArrays, state: State) -> tuple[float, float, float]:
    """Share of late jobs, mean tardiness (s) and energy (J) of a day that is over."""
    close_books(world, state)
    late_s = np.maximum(0.0, state.job["finish_s"] - jobs.spec["deadline_s"])
    return float((late_s > DEADLINE_GRACE_S).mean()), float(late_s.mean()), math.fsum(state.gpu["energy_j"])
