"""The running counts a learned policy reads are what a count from scratch gives, at every moment of every run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import assume, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from smartmig.errors import InputError
from smartmig.policy.encoding import N_FEATURES, encode, recount
from smartmig.policy.network import at_rows, n_weights
from smartmig.policy.repartition.mean_field import AT_PLAN, MeanField
from smartmig.sim.mig.kernel import CHECK_DUE, FINISHED, STUCK
from smartmig.sim.mig.run import Cluster, cuts_of, open_gpus, stepper
from smartmig.sim.mig.world import Settings, build_jobs, build_world, fresh_state
from smartmig.types import Jobs
from strategies import policies, worlds


@given(worlds(), st.sampled_from(["slice-count", "twice-daily"]))
@hypothesis_settings(max_examples=60)
def test_running_counts__equal_a_count_from_scratch(world: tuple[Jobs, Cluster, Settings], repartition: str) -> None:
    jobs, cluster, mode = world
    mode = replace(mode, record=False)
    policy = policies("shortest-work", repartition)
    cuts = cuts_of(cluster, policy.repartition)
    built = build_world(cuts, policy.placement, mode, counted=True)
    try:
        arrays = build_jobs(jobs, cuts, policy.placement, mode, (*cuts.start, *policy.repartition.reachable(cuts)))
    except InputError:
        assume(False)
        raise
    state = fresh_state(built, len(jobs), cuts)
    open_gpus(built, state, policy.placement)
    go_on = stepper(built, arrays, policy, cuts)
    features = np.zeros(N_FEATURES)
    status = CHECK_DUE
    n_events = 0
    while status == CHECK_DUE:
        n_events += 1
        status = go_on(state, n_events)
        assert status in (CHECK_DUE, FINISHED, STUCK)
        encode(built, arrays, state, features)
        tally, flow = recount(built, arrays, state)
        np.testing.assert_array_equal(state.tally, tally)
        np.testing.assert_allclose(state.flow, flow, rtol=1e-9)
        assert np.isfinite(features).all()


class Untrained(MeanField):
    """A mean-field rule with random weights that chooses among all its entries: whatever a network may come up with."""

    def knobs(self, cuts, world):  # type: ignore[no-untyped-def]
        weights = np.random.default_rng(world.seed).normal(size=n_weights()) * 0.5
        return self.knobs_of(cuts, weights)


@given(worlds(), st.booleans())
@hypothesis_settings(max_examples=60)
def test_mean_field__never_proposes_an_illegal_cut(world: tuple[Jobs, Cluster, Settings], grouped: bool) -> None:
    jobs, cluster, mode = world
    policy = policies("shortest-work", "no-partition")
    rule = Untrained(top=30, grouped=grouped)
    cuts = cuts_of(cluster, rule)
    built = build_world(cuts, policy.placement, mode, counted=True)
    state = fresh_state(built, len(jobs), cuts)
    open_gpus(built, state, policy.placement)
    arrays = build_jobs(jobs, cuts, policy.placement, mode, range(len(cuts.configs)))
    knobs = rule.knobs(cuts, built)
    n_configs = len(cuts.configs)
    for _ in range(5):
        MeanField.control(built, arrays, state, knobs)
        rows = knobs[AT_PLAN + at_rows(n_configs) :].reshape(n_configs, n_configs)
        for gpu, model in enumerate(cuts.gpu_model):
            present, target = state.gpu["config"][gpu], state.gpu["target"][gpu]
            assert target == -1 or cuts.configs[target].model == model
            assert target in (-1, present) or cuts.configs[target].number is not None
            assert rows[present].sum() == 1.0 or abs(rows[present].sum() - 1.0) < 1e-12
            others = [index for index, config in enumerate(cuts.configs) if config.model != model]
            assert (rows[present, others] == 0).all()
