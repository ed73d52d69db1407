"""Learned placing: whatever the network says, only free slices that fit are taken, and nobody waits for ever."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from hypothesis import assume, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from smartmig.errors import InputError, SimulationError
from smartmig.policy.placement.learned import Learned, priced_knobs
from smartmig.policy.placement.rule import Kernels
from smartmig.policy.placement.shortest_work import ShortestWork
from smartmig.policy.prices import n_price_weights
from smartmig.policy.repartition.rule import RepartitionRule
from smartmig.policy.repartition.slice_count import SliceCount
from smartmig.policy.repartition.static import Static
from smartmig.policy.view import World
from smartmig.sim.mig.run import Cluster, Policy, simulate
from smartmig.sim.mig.world import Settings
from smartmig.types import Jobs
from strategies import worlds


@dataclass(frozen=True)
class Drawn(Learned):
    """With weights out of a hat."""

    seed: int = 0
    spread: float = 1.0
    kernels: ClassVar[Kernels] = Learned.kernels

    def knobs(self, world: World) -> tuple[float, ...]:  # noqa: ARG002
        return priced_knobs(np.random.default_rng(self.seed).normal(0.0, self.spread, n_price_weights()), 1)


@given(worlds(), st.sampled_from([Static(), SliceCount()]), st.integers(0, 1 << 30), st.sampled_from([0.1, 1.0, 5.0]))
@hypothesis_settings(max_examples=60)
def test_learned__any_weights_on_any_cluster_finish_every_job(
    setting: tuple[Jobs, Cluster, Settings], rule: RepartitionRule, seed: int, spread: float
) -> None:
    jobs, cluster, mode = setting
    if mode.drain and isinstance(rule, Static):
        rule = SliceCount()
    if isinstance(rule, SliceCount):  # it may cut away the only slice that fits a job which comes late in the order
        assume(np.isfinite(jobs.run_s).all() and not jobs.memory_gb.any())
    try:
        simulate(jobs, cluster, Policy(ShortestWork(), rule), mode)
    except (InputError, SimulationError):
        assume(False)  # jobs that fit nothing there is, which no placing can help
    run = simulate(jobs, cluster, Policy(Drawn(seed=seed, spread=spread), rule), mode)  # refuses illegal choices
    assert np.isfinite(run.finish_s).all()
    assert (run.first_start_s >= jobs.arrive_s - 1e-9).all()
