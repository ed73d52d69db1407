"""What a learned policy's inputs looked like in training: least and greatest value of each, kept in its file.

The guard of a live controller holds the inputs it sees against these.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from smartmig.errors import SimulationError
from smartmig.policy.encoding import N_FEATURES, encode
from smartmig.policy.placement.rule import PlacementRule
from smartmig.policy.repartition.rule import RepartitionRule
from smartmig.sim.mig.kernel import CHECK_DUE, FINISHED
from smartmig.sim.mig.run import Cluster, Policy, cuts_of, open_gpus, stepper
from smartmig.sim.mig.world import Settings, build_jobs, build_world, fresh_state
from smartmig.types import Floats, Jobs


def feature_ranges(
    cluster: Cluster,
    placement: PlacementRule,
    repartition: RepartitionRule,
    settings: Settings,
    job_sets: Sequence[Jobs],
    every_events: int = 1,
) -> Floats:
    """(2, N_FEATURES) over all events of these days under the policy."""
    policy = Policy(placement, repartition)
    cuts = cuts_of(cluster, repartition)
    world = build_world(cuts, placement, settings, counted=True)
    low, high = np.full(N_FEATURES, np.inf), np.full(N_FEATURES, -np.inf)
    features = np.zeros(N_FEATURES)
    for jobs in job_sets:
        arrays = build_jobs(jobs, cuts, placement, settings, (*cuts.start, *repartition.reachable(cuts)))
        state = fresh_state(world, len(jobs), cuts)
        open_gpus(world, state, placement)
        go_on = stepper(world, arrays, policy, cuts)
        status = CHECK_DUE
        while status == CHECK_DUE:
            status = go_on(state, int(state.now["n_events"][0]) + every_events)
            encode(world, arrays, state, features)
            np.minimum(low, features, out=low)
            np.maximum(high, features, out=high)
        if status != FINISHED:
            raise SimulationError("a day got stuck: jobs wait for a slice the policy never cut")
    return np.stack([low, high])
