"""What whole days come to under a learned placing and any repartition rule: many days at once, one thread a day."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from smartmig.errors import SimulationError
from smartmig.metrics.objective import energy_tardiness
from smartmig.policy.placement.learned import HAND_MADE, Learned, priced_knobs
from smartmig.policy.repartition.rule import RepartitionRule
from smartmig.sim.mig.kernel import CHECK_DUE, FINISHED, close_books
from smartmig.sim.mig.run import Cluster, Policy, cuts_of, open_gpus, stepper
from smartmig.sim.mig.world import Settings, build_jobs, build_world, fresh_state
from smartmig.types import DEADLINE_GRACE_S, Floats, Jobs

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

    def run(self, which: Sequence[int], weights: Floats, every_events: int = 1) -> Outcomes:
        """Days by index under these weights."""
        knobs = np.array(priced_knobs(weights, every_events))

        def one(index: int) -> tuple[float, float, float]:
            world = self.world._replace(knobs=knobs.copy())  # prices change as the day goes on
            jobs = self.jobs[index]
            state = fresh_state(world, jobs.spec.size, self.cuts)
            open_gpus(world, state, self.policy.placement)
            step = stepper(world, jobs, self.policy, self.cuts)
            while (status := step(state, NO_PAUSE)) == CHECK_DUE:
                pass
            if status != FINISHED:
                raise SimulationError(f"day {index} got stuck: jobs wait for a slice the policy never cut")
            close_books(world, state)
            late_s = np.maximum(0.0, state.job["finish_s"] - jobs.spec["deadline_s"])
            energy_j = math.fsum(state.gpu["energy_j"])
            return float((late_s > DEADLINE_GRACE_S).mean()), float(late_s.mean()), energy_j

        with ThreadPoolExecutor(self.n_threads) as pool:
            return Outcomes(*np.array(list(pool.map(one, which))).reshape(len(which), 3).T)
