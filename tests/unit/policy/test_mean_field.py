"""Mean field: small clusters do their work however restless the policy is."""

from __future__ import annotations

import numpy as np
import pytest

from smartmig.hardware.cluster import parse_gpus
from smartmig.policy.placement.shortest_work import ShortestWork
from smartmig.policy.repartition.mean_field import MeanField
from smartmig.sim.mig.run import Cluster, Policy, simulate
from smartmig.sim.mig.world import Settings
from smartmig.workload.diurnal import DiurnalDay


@pytest.mark.parametrize("gpus", ["1xa100-40gb,1xh200-141gb", "2xa100-40gb"])
@pytest.mark.parametrize("mode", [Settings(), Settings(preempt=False, drain=True)])
def test_control__never_re_cuts_so_often_that_nothing_runs(gpus: str, mode: Settings) -> None:
    jobs = DiurnalDay(multiplier=1.0).jobs(20_000_000)
    run = simulate(jobs, Cluster(parse_gpus(gpus)), Policy(ShortestWork(), MeanField()), mode)
    assert np.isfinite(run.finish_s).all()
    assert run.n_events < 1000 * len(jobs)
