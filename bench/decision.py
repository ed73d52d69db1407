"""What one decision of the learned policy costs, from running counts to rows, for few GPUs and for many."""

from __future__ import annotations

import time

import numpy as np

from bench.measure import Outcome
from smartmig.hardware.cluster import parse_gpus
from smartmig.policy.encoding import AT_CONFIG, N_CELLS, N_FEATURES, encode
from smartmig.policy.network import at_rows, rows
from smartmig.policy.repartition.mean_field import AT_PLAN, MeanField
from smartmig.registry import PLACEMENTS, load
from smartmig.sim.mig.run import Cluster, cuts_of
from smartmig.sim.mig.world import Settings, build_jobs, build_world, fresh_state
from smartmig.types import Floats
from smartmig.workload.diurnal import DiurnalDay

N_DECISIONS = 20_000


def decision_seconds(n_gpus: int) -> Floats:
    """Wall time of each of many decisions, called from Python, as a live controller calls them."""
    rule = MeanField()
    placement = load(PLACEMENTS, "placement", "shortest-work")()
    cuts = cuts_of(Cluster(parse_gpus(f"{n_gpus}xa100-40gb")), rule)
    world = build_world(cuts, placement, Settings(), counted=True)
    jobs = build_jobs(DiurnalDay().jobs(seed=0), cuts, placement, Settings(), range(len(cuts.configs)))
    state = fresh_state(world, jobs.spec.size, cuts)
    n_configs = len(cuts.configs)
    rng = np.random.default_rng(0)
    # Every configuration in use: the most rows there can be.
    state.tally[AT_CONFIG : AT_CONFIG + n_configs] = rng.multinomial(n_gpus, np.full(n_configs, 1 / n_configs))
    state.tally[:N_CELLS] = rng.integers(0, n_gpus, N_CELLS)
    plan = rule.knobs(cuts, world)[AT_PLAN:]
    features = np.zeros(N_FEATURES)
    took = np.empty(N_DECISIONS)
    for at in range(N_DECISIONS):
        state.now["time_s"] = 4.0 * at
        began = time.perf_counter()
        encode(world, jobs, state, features)
        rows(world, state, plan, features, 3)
        took[at] = time.perf_counter() - began
    present = state.tally[AT_CONFIG : AT_CONFIG + n_configs] > 0
    matrix = plan[at_rows(n_configs) :].reshape(n_configs, n_configs)
    np.testing.assert_allclose(matrix[present].sum(axis=1), 1.0)
    return took[N_DECISIONS // 10 :]


def p99() -> Outcome:
    few, many = decision_seconds(8), decision_seconds(100_000)
    worst = max(np.quantile(few, 0.99), np.quantile(many, 0.99)) * 1e6
    detail = f"8 GPUs {np.median(few) * 1e6:.1f} us, 100,000 GPUs {np.median(many) * 1e6:.1f} us in the median"
    return Outcome(worst, "us p99", detail, at_most=100.0)


def growth() -> Outcome:
    """In the median; eight GPUs can hold eight of the twelve configurations at most, so their rows are fewer."""
    few, many = np.median(decision_seconds(8)), np.median(decision_seconds(100_000))
    return Outcome(many / few, "x", f"100,000 GPUs {many * 1e6:.1f} us, 8 GPUs {few * 1e6:.1f} us", at_most=1.5)


BENCHMARKS = {"decision": p99, "decision-growth": growth}
