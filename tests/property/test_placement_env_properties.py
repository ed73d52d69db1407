"""Placing one job at a time: what the mask admits, that waiting ends, that one policy serves any cluster."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import assume, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from smartmig.errors import InputError
from smartmig.policy.view import SLOTS
from smartmig.sim.mig.lanes import OBSERVATIONS, Lanes
from smartmig.sim.mig.questions import N_SIZES
from smartmig.sim.mig.run import Cluster
from smartmig.types import SLICE_SIZES, Jobs
from strategies import clusters, job_sets, layouts_for


@st.composite
def days(draw: st.DrawFn) -> tuple[Jobs, Cluster]:
    """Some jobs are choosy; where one fits nothing there is, none of that day is."""
    gpus, jobs = draw(clusters()), draw(job_sets())
    layouts = draw(layouts_for(gpus))
    assume(any(layouts))
    cluster = Cluster(gpus, layouts)
    try:
        Lanes(cluster).prepare(jobs)
    except InputError:
        longest_s = np.where(np.isfinite(jobs.run_s), jobs.run_s, 0.0).max(axis=1, keepdims=True)
        run_s = np.where(np.isfinite(jobs.run_s), jobs.run_s, longest_s)
        jobs = replace(jobs, run_s=run_s, memory_gb=np.zeros(len(jobs)))
    return jobs, cluster


def begin(day: tuple[Jobs, Cluster], observation: str) -> Lanes:
    jobs, cluster = day
    lanes = Lanes(cluster, 1, observation=observation)
    lanes.begin(0, lanes.prepare(jobs))
    lanes.look([0])
    return lanes


def expected_mask(lanes: Lanes, jobs: Jobs) -> tuple[list[int], np.ndarray]:
    """Jobs asked about and the legal actions, from the bare state."""
    state, run_s = lanes.lane(0), lanes.jobs.run_s[0]
    now = state.now[0]
    there = [slot for slot in range(state.slot.size) if state.slot["slice_class"][slot] >= 0]
    kind = {slot: int(state.slot["slice_class"][slot]) for slot in there}
    free = [slot for slot in there if state.slot["job"][slot] < 0]
    unstarted = [job for job in range(int(now["n_arrived"])) if np.isnan(state.job["first_start_s"][job])]
    fitting = [job for job in unstarted if any(np.isfinite(run_s[job, kind[slot]]) for slot in free)]
    by_deadline = sorted(fitting, key=lambda job: (jobs.deadline_s[job], job))
    mask = np.zeros(lanes.n_actions, dtype=bool)
    mask[-1] = now["n_arrived"] < len(jobs) or len(free) < len(there)
    if lanes.s1:
        asked = by_deadline[:1]
        for at, slot in enumerate(there):
            mask[at] = slot in free and np.isfinite(run_s[asked[0], kind[slot]])
        return asked, mask
    half = (lanes.n_window + 1) // 2
    whole_s = lanes.jobs.spec["whole_s"][0]
    asked = sorted(fitting, key=lambda job: (whole_s[job], job))[:half]
    asked += [-1] * (half - len(asked))
    asked += [job for job in by_deadline if job not in asked][: lanes.n_window - half]
    for at, job in enumerate(asked):
        for slot in free:
            size = int(lanes.world.slice_class["size"][kind[slot]])
            if job >= 0 and np.isfinite(run_s[job, kind[slot]]):
                mask[at * N_SIZES + SLICE_SIZES.index(size)] = True
    return asked, mask


@given(days(), st.sampled_from(OBSERVATIONS), st.integers(0, 1 << 30))
@hypothesis_settings(max_examples=60)
def test_mask__admits_exactly_the_legal_actions(day: tuple[Jobs, Cluster], observation: str, seed: int) -> None:
    lanes, rng = begin(day, observation), np.random.default_rng(seed)
    jobs, n_started, done = day[0], 0, False
    while not done:
        asked, mask = expected_mask(lanes, jobs)
        assert [job for job in lanes.questions.window[0] if job >= 0] == [job for job in asked if job >= 0]
        np.testing.assert_array_equal(lanes.masks[0], mask)
        assert np.isfinite(lanes.seen).all()
        action = int(rng.choice(np.flatnonzero(mask)))
        slot = int(lanes.questions.slot[0, action])
        n_started += action != lanes.n_actions - 1
        if action != lanes.n_actions - 1:
            job = asked[0 if lanes.s1 else action // N_SIZES]
            size = lanes.world.slice_class["size"][lanes.lane(0).slot["slice_class"][slot]]
            assert lanes.s1 or size == SLICE_SIZES[action % N_SIZES]
            assert 0 <= slot // SLOTS < len(day[1].gpus)
        done = bool(lanes.step(np.array([action])).done[0])
        if action != lanes.n_actions - 1:
            assert lanes.lane(0).job["n_starts"][job] == 1
    assert n_started == len(jobs)


@given(days(), st.sampled_from(OBSERVATIONS))
@hypothesis_settings(max_examples=60)
def test_wait__never_deadlocks(day: tuple[Jobs, Cluster], observation: str) -> None:
    """Who always waits where that is legal is done all the same: at most one wait per event, one placing per job."""
    lanes = begin(day, observation)
    n_steps, n_jobs, done = 0, len(day[0]), False
    while not done:
        wait = lanes.n_actions - 1
        action = wait if lanes.masks[0, wait] else int(np.argmax(lanes.masks[0]))
        done = bool(lanes.step(np.array([action])).done[0])
        n_steps += 1
        assert n_steps <= 3 * n_jobs
    assert np.isfinite(lanes.lane(0).job["finish_s"][:n_jobs]).all()


@given(days(), days(), st.integers(0, 1 << 30))
@hypothesis_settings(max_examples=40)
def test_policy__made_for_one_cluster_runs_on_any(
    one: tuple[Jobs, Cluster], other: tuple[Jobs, Cluster], seed: int
) -> None:
    lanes = begin(one, "ours")
    weights = np.random.default_rng(seed).normal(size=(lanes.n_seen, lanes.n_actions))
    for day in (one, other):
        lanes = begin(day, "ours")
        done = False
        while not done:
            scores = np.where(lanes.masks, lanes.seen @ weights, -np.inf)
            done = bool(lanes.step(np.argmax(scores, axis=1)).done[0])
        assert np.isfinite(lanes.lane(0).job["finish_s"][: len(day[0])]).all()
