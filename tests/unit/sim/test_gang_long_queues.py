"""Queues of more than one word of bits: the same answers as a plain look."""

from __future__ import annotations

import numpy as np
import pytest

from smartmig.hardware.nodes import parse_nodes
from smartmig.policy.gang_view import next_waiting
from smartmig.sim.gang.occupancy import dequeue, enqueue
from smartmig.sim.gang.reference import simulate_plainly
from smartmig.sim.gang.run import simulate
from smartmig.sim.gang.world import Backfill, build_jobs, build_world, fresh_state
from strategies import gang_policy, make_gangs


def test_queue__finds_the_next_rank_over_words_and_blocks() -> None:
    n = 10_000
    jobs, cluster, policy = make_gangs(*[(0, 1, 1, 1)] * n), parse_nodes("1x1"), gang_policy("lcfs", "best-fit")
    arrays = build_jobs(jobs, cluster, policy, None)
    state = fresh_state(build_world(cluster, policy), arrays)
    rng = np.random.default_rng(0)
    queued = np.sort(rng.choice(n, 60, replace=False))
    for rank in queued:
        enqueue(arrays, state, int(arrays.ranked["job"][rank]))
    gone = rng.choice(queued, 20, replace=False)
    for rank in gone:
        dequeue(arrays, state, int(arrays.ranked["job"][rank]))
    left = np.setdiff1d(queued, gone)
    for start in [0, *left.tolist(), *(left + 1).tolist(), 63, 64, 4095, 4096, n - 1, n]:
        after = left[left >= start]
        assert next_waiting(state, start) == (after[0] if after.size else -1)
    assert state.now["n_waiting"][0] == 40


@pytest.mark.parametrize("backfill", Backfill)
@pytest.mark.parametrize("selection", ["fcfs", "sjf"])
def test_gang_kernel__equals_reference_with_many_in_the_queue(selection: str, backfill: Backfill) -> None:
    rng = np.random.default_rng(5)
    n = 80 if backfill is Backfill.conservative else 300  # the twin plans every job anew
    rows = [
        (float(submit), int(rng.choice([1, 1, 2, 4, 6])), float(rng.integers(1, 100)), float(rng.integers(20, 150)))
        for submit in np.sort(rng.integers(0, 60, n))
    ]
    jobs, cluster, policy = make_gangs(*rows), parse_nodes("3x4"), gang_policy(selection, "best-fit", backfill)
    fast, plain = simulate(jobs, cluster, policy), simulate_plainly(jobs, cluster, policy)
    np.testing.assert_array_equal(fast.start_s, plain.start_s)
    np.testing.assert_array_equal(fast.finish_s, plain.finish_s)
    np.testing.assert_array_equal(fast.promised_s, plain.promised_s)
