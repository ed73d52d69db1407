"""A made-up two days on a small cluster: numbers that only change on purpose."""

from __future__ import annotations

import numpy as np
import pytest

from smartmig.gang_scenario import GangPolicySpec
from smartmig.hardware.nodes import parse_nodes
from smartmig.metrics.gang import summarise
from smartmig.sim.gang.run import simulate
from smartmig.sim.gang.world import Backfill
from smartmig.types import GangJobs

N = 400
CLUSTER = parse_nodes("3x8")


def two_days() -> GangJobs:
    """400 jobs without any draw: sizes, lengths and gaps take turns."""
    at = np.arange(N)
    run_s = 60.0 * (1 + at * 7 % 11) * np.where(at % 5 == 0, 40, np.where(at % 3 == 0, 8, 1))
    empty = np.full(N, "")
    return GangJobs(
        job_id=at.astype(str),
        submit_s=np.cumsum(60.0 + 140.0 * (at * 5 % 7)),
        run_s=run_s,
        limit_s=run_s * np.array([1.0, 2.0, 4.0])[at * 11 % 3],
        n_gpus=np.array([1, 2, 1, 4, 8, 1, 3])[at % 7],
        gpu_model=empty,
        user=np.array(["ann", "bob", "cem"])[at % 3],
        group=empty,
        waited_s=np.full(N, np.nan),
        origin_s=0.0,
    )


# selection, backfill: mean wait, p99 wait, mean bounded slowdown, utilisation, stranded
EXPECTED = {
    ("fcfs", "none"): (32423.900, 68860.600, 85.088630, 0.701920, 0.261557),
    ("fcfs", "easy"): (2925.900, 19839.200, 8.748803, 0.891291, 0.072186),
    ("fcfs", "conservative"): (3187.550, 26570.400, 7.973226, 0.876584, 0.086893),
    ("lcfs", "none"): (15475.150, 207674.400, 49.060114, 0.730568, 0.232909),
    ("lcfs", "easy"): (10005.750, 187043.800, 28.029227, 0.811495, 0.151982),
    ("lcfs", "conservative"): (3739.750, 29643.400, 7.733742, 0.862312, 0.101164),
    ("sjf", "none"): (5668.650, 79556.200, 4.606811, 0.725020, 0.238456),
    ("sjf", "easy"): (1887.550, 23375.200, 3.731583, 0.851582, 0.111442),
    ("sjf", "conservative"): (3014.600, 22273.000, 6.607086, 0.851952, 0.111524),
    ("wfp", "none"): (9176.000, 74885.200, 10.094037, 0.728457, 0.235019),
    ("wfp", "easy"): (1777.150, 16601.400, 3.890510, 0.880117, 0.082950),
    ("wfp", "conservative"): (2373.150, 17349.000, 6.281286, 0.890964, 0.072512),
}


@pytest.mark.parametrize(("selection", "backfill"), EXPECTED)
def test_gang__numbers_of_two_made_up_days(selection: str, backfill: str) -> None:
    jobs = two_days()
    run = simulate(jobs, CLUSTER, GangPolicySpec(selection, "best-fit", Backfill(backfill)).policy())
    costs = summarise(jobs, run, CLUSTER)
    found = (
        costs.mean_wait_s,
        costs.p99_wait_s,
        costs.mean_bounded_slowdown,
        costs.gpu_utilisation,
        costs.stranded_frac,
    )
    assert found == pytest.approx(EXPECTED[selection, backfill], rel=1e-5)
