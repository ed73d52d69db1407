"""The planner looks ahead with the engine that runs the day, never cuts what no card allows, and loses no job."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import assume, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from smartmig.errors import InputError, SimulationError
from smartmig.hardware.layouts import check_layout
from smartmig.policy.encoding import recount
from smartmig.policy.placement.shortest_work import ShortestWork
from smartmig.policy.repartition.planner import Planner, candidates
from smartmig.policy.repartition.slice_count import SliceCount
from smartmig.policy.view import JobArrays, State, World
from smartmig.sim.mig.kernel import CHECK_DUE, FINISHED
from smartmig.sim.mig.rollout import LookAhead
from smartmig.sim.mig.run import Cluster, Policy, cuts_of, open_gpus, rollouts, simulate, stepper
from smartmig.sim.mig.world import Settings, build_jobs, build_world, fresh_state
from smartmig.types import Jobs, Placement
from strategies import worlds

EAGER = Planner(every=1, horizon_s=300.0, n_samples=2, n_first=1, reach=6, sureness=0.0, min_history=1)
"""Changes its mind at the slightest reason."""


def part_way(
    jobs: Jobs, cluster: Cluster, mode: Settings, n_events: int
) -> tuple[Policy, World, JobArrays, State, LookAhead]:
    """A run under the base rule, stopped after so many events, and a planner that looks at it."""
    policy = Policy(ShortestWork(), SliceCount())
    cuts = cuts_of(cluster, policy.repartition)
    world = build_world(cuts, policy.placement, replace(mode, record=False), counted=True)
    try:
        arrays = build_jobs(jobs, cuts, policy.placement, mode, (*cuts.start, *policy.repartition.reachable(cuts)))
    except InputError:
        assume(False)
        raise
    state = fresh_state(world, len(jobs), cuts)
    open_gpus(world, state, policy.placement)
    assume(stepper(world, arrays, policy, cuts)(state, n_events) == CHECK_DUE)
    ahead = LookAhead(EAGER, world, arrays, cuts, rollouts(policy.placement, EAGER))
    return policy, world, arrays, state, ahead


@given(worlds(), st.integers(1, 25))
@hypothesis_settings(max_examples=80)
def test_look_ahead__into_the_true_future_is_what_happens(
    setting: tuple[Jobs, Cluster, Settings], n_events: int
) -> None:
    policy, world, arrays, state, ahead = part_way(*setting, n_events)
    n_arrived, n_all = int(state.now["n_arrived"][0]), arrays.spec.size
    n_present = ahead.gather(state, float(n_all))
    in_system = np.flatnonzero(np.isnan(state.job["finish_s"][:n_arrived]))
    assert n_present == in_system.size
    n_jobs = n_present + n_all - n_arrived
    ahead.few.spec["arrive_s"] = np.inf
    ahead.few.spec[:n_jobs] = arrays.spec[np.concatenate([in_system, np.arange(n_arrived, n_all)])]
    ahead.few.run_s[n_present:n_jobs] = arrays.run_s[n_arrived:]
    keep = np.full((1, world.n_gpus), -1)
    long = replace(EAGER, horizon_s=86_400.0)
    ahead.planner = long
    assert ahead.try_out(float(state.now["time_s"][0]), n_jobs, keep, np.array([0]), np.zeros(1), np.inf)
    assume(stepper(world, arrays, policy, ahead.cuts)(state, 1 << 60) == FINISHED)
    foreseen_s = ahead.state.job["finish_s"][:n_jobs]
    actual_s = np.concatenate([state.job["finish_s"][in_system], state.job["finish_s"][n_arrived:]])
    np.testing.assert_array_equal(foreseen_s, actual_s)


@given(worlds(), st.integers(1, 25))
@hypothesis_settings(max_examples=60)
def test_look_ahead__begins_with_the_running_counts_of_its_own_jobs(
    setting: tuple[Jobs, Cluster, Settings], n_events: int
) -> None:
    _, world, arrays, state, ahead = part_way(*setting, n_events)
    ahead.counted = True
    tally, _ = recount(world, arrays, state)
    state.tally[:] = tally  # what a counted base rule leaves when it is asked
    n_present = ahead.gather(state, 10.0)
    n_jobs = ahead.imagine(state, n_present, 10.0 / EAGER.horizon_s, 7)
    few, start = ahead.few, ahead.start
    assert n_present <= n_jobs < few.spec.size
    np.testing.assert_array_equal(start.tally, recount(world, few, start)[0])
    np.testing.assert_array_equal(np.sort(few.by_deadline), np.arange(few.spec.size))
    assert (np.diff(few.spec["deadline_s"][few.by_deadline][:n_jobs]) >= 0).all()
    np.testing.assert_array_equal(few.spec["deadline_rank"][few.by_deadline], np.arange(few.spec.size))


@given(worlds(), st.integers(1, 25), st.integers(0, 6), st.integers(1, 40))
@hypothesis_settings(max_examples=60)
def test_candidates__are_cuts_of_the_card_and_change_one_gpu(
    setting: tuple[Jobs, Cluster, Settings], n_events: int, reach: int, n_most: int
) -> None:
    _, _, _, state, ahead = part_way(*setting, n_events)
    before = state.gpu["config"].copy()
    proposal = ahead.propose(state)
    np.testing.assert_array_equal(state.gpu["config"], before)
    tried = candidates(ahead.cuts, state, proposal, reach, n_most)
    configs = ahead.cuts.configs
    assert 1 <= len(tried) <= n_most
    assert len(np.unique(tried, axis=0)) == len(tried)
    np.testing.assert_array_equal(tried[0], proposal)
    for row in tried[1:]:
        assert (row >= 0).sum() <= 1
        for gpu in np.flatnonzero(row >= 0):
            assert configs[row[gpu]].model == state.gpu["model"][gpu]
            assert configs[row[gpu]].number is not None
            assert row[gpu] != before[gpu]
            assert abs(configs[row[gpu]].n_slices - configs[before[gpu]].n_slices) <= reach


@given(worlds())
@hypothesis_settings(max_examples=60)
def test_planner__runs_every_job_once_on_legal_cuts(setting: tuple[Jobs, Cluster, Settings]) -> None:
    jobs, cluster, mode = setting
    try:
        run = simulate(jobs, cluster, Policy(ShortestWork(), EAGER), mode)
    except (InputError, SimulationError):
        # Nothing the planner could have helped: its base rule fails alike.
        with np.testing.assert_raises((InputError, SimulationError)):
            simulate(jobs, cluster, Policy(ShortestWork(), SliceCount()), mode)
        return
    s = run.segments
    assert s is not None
    assert np.isfinite(run.finish_s).all()
    np.testing.assert_array_equal(np.bincount(s.job, minlength=len(jobs)), run.n_starts)
    for index, gpu in enumerate(cluster.gpus):
        names = {(p.compute, p.memory_slices): p.name for p in gpu.profiles if not p.media}
        mine = np.flatnonzero(s.gpu == index)
        for moment in s.from_s[mine]:
            now = [i for i in mine if s.from_s[i] <= moment < s.to_s[i]]
            places = sorted((int(s.start[i]), names[int(s.size[i]), int(s.span[i])]) for i in now)
            check_layout(gpu, tuple(Placement(*place) for place in places))
