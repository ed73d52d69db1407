"""What a learned policy's inputs looked like in training: least and greatest value of each, kept in its file.

The guard of a live controller holds the inputs it sees against these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from smartmig.errors import SimulationError
from smartmig.hardware.layouts import configurations
from smartmig.hardware.model import GpuModel
from smartmig.policy.encoding import N_FEATURES, encode
from smartmig.policy.placement.rule import PlacementRule
from smartmig.policy.repartition.rule import RepartitionRule
from smartmig.sim.mig.kernel import CHECK_DUE, FINISHED
from smartmig.sim.mig.run import Cluster, Policy, cuts_of, open_gpus, stepper
from smartmig.sim.mig.world import Settings, build_jobs, build_world, fresh_state
from smartmig.types import Floats, Jobs, Layout


def feature_ranges(
    cluster: Cluster,
    placement: PlacementRule,
    repartition: RepartitionRule,
    settings: Settings,
    job_sets: Sequence[Jobs],
) -> Floats:
    """(2, N_FEATURES) over all events of these days under the policy.

    Every day begins as the policy does; then some begin with all GPUs in one configuration, each in turn, because a
    cluster may be cut in any way when a controller comes.
    """
    low, high = np.full(N_FEATURES, np.inf), np.full(N_FEATURES, -np.inf)
    starts = [(jobs, cluster) for jobs in job_sets]
    for at, layouts in enumerate(equal_cuts(cluster.gpus)):
        starts.append((job_sets[at % len(job_sets)], replace(cluster, layouts=layouts)))
    for jobs, begun in starts:
        _widen(low, high, begun, Policy(placement, repartition), settings, jobs)
    return np.stack([low, high])


def equal_cuts(gpus: Sequence[GpuModel]) -> list[tuple[Layout, ...]]:
    """All GPUs in the first of their model's configurations, all in the second, ..."""
    options = [configurations(gpu) for gpu in gpus]
    most = max(len(layouts) for layouts in options)
    return [tuple(layouts[min(at, len(layouts) - 1)] for layouts in options) for at in range(most)]


def _widen(low: Floats, high: Floats, cluster: Cluster, policy: Policy, settings: Settings, jobs: Jobs) -> None:
    """Take what is seen on this day into the ranges."""
    cuts = cuts_of(cluster, policy.repartition)
    world = build_world(cuts, policy.placement, settings, counted=True)
    reachable = (*cuts.start, *policy.repartition.reachable(cuts))
    arrays = build_jobs(jobs, cuts, policy.placement, settings, reachable)
    state = fresh_state(world, len(jobs), cuts)
    open_gpus(world, state, policy.placement)
    go_on = stepper(world, arrays, policy, cuts)
    features = np.zeros(N_FEATURES)
    status = CHECK_DUE
    while status == CHECK_DUE:
        encode(world, arrays, state, features)
        np.minimum(low, features, out=low)
        np.maximum(high, features, out=high)
        status = go_on(state, int(state.now["n_events"][0]) + 1)
    if status != FINISHED:
        raise SimulationError("a day got stuck: jobs wait for a slice the policy never cut")
