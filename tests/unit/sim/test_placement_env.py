"""The placing environment: the same world as `simulate`, one step per placing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from smartmig.errors import InputError
from smartmig.hardware.cluster import parse_gpus, parse_layouts
from smartmig.metrics.summary import summarise
from smartmig.policy.placement.largest_first import LargestFirst
from smartmig.policy.placement.rule import PlacementRule
from smartmig.policy.placement.smallest_first import SmallestFirst
from smartmig.policy.repartition.static import Static
from smartmig.sim.mig.lanes import Lanes
from smartmig.sim.mig.placement_env import ENV_ID, MigPlacement
from smartmig.sim.mig.questions import AT_COUNTS, AT_SLICES
from smartmig.sim.mig.run import Cluster, Policy, simulate
from smartmig.sim.mig.world import Settings
from smartmig.types import Jobs
from smartmig.workload.poisson import FixedRate

GPUS, LAYOUTS = "2xa100-40gb", "3,9"
SIZES = np.array([4, 2, 1, 2, 2, 2, 1])
Choose = Callable[[Any, np.ndarray], int]


def few_jobs(seed: int) -> Jobs:
    """An hour's work for two GPUs."""
    return FixedRate(n_jobs=80, rate_per_min=1.5, deadline=(2.0, 4.0)).jobs(seed)


def play(env: MigPlacement, choose: Choose, day: int = 0) -> tuple[list[float], dict[str, Any]]:
    seen, info = env.reset(seed=0, options={"day": day})
    rewards: list[float] = []
    done = False
    while not done:
        seen, reward, done, truncated, info = env.step(choose(seen, env.action_masks()))
        assert not truncated
        rewards.append(reward)
    return rewards, info


def largest(seen: Any, mask: np.ndarray) -> int:  # noqa: ARG001
    return int(np.argmax(np.where(mask[:-1], SIZES, 0)))


def smallest(seen: Any, mask: np.ndarray) -> int:  # noqa: ARG001
    return int(np.argmin(np.where(mask[:-1], SIZES, 9)))


def at_random(seed: int) -> Choose:
    rng = np.random.default_rng(seed)
    return lambda _, mask: int(rng.choice(np.flatnonzero(mask)))


@pytest.mark.parametrize(("choose", "rule"), [(largest, LargestFirst()), (smallest, SmallestFirst())])
def test_s1__answered_as_a_rule_does_it_is_that_rule(choose: Choose, rule: PlacementRule) -> None:
    env = MigPlacement(GPUS, LAYOUTS, jobs=few_jobs, observation="s1")
    rewards, info = play(env, choose, day=3)
    gpus, jobs = parse_gpus(GPUS), few_jobs(3)
    run = simulate(jobs, Cluster(gpus, parse_layouts(LAYOUTS, gpus)), Policy(rule, Static()), Settings(preempt=False))
    cost = summarise(jobs, run, 14)
    assert len(rewards) == len(jobs)
    assert sum(rewards) == pytest.approx(-cost.et, rel=1e-9)
    for key in ("et", "mean_tardiness_s", "energy_j", "late_frac"):
        assert info[key] == pytest.approx(getattr(cost, key), rel=1e-12)


@pytest.mark.parametrize("observation", ["ours", "s1"])
def test_rewards__say_the_same_of_a_day_in_three_ways(observation: str) -> None:
    found = {}
    for reward in ("et", "final", "s1"):
        env = MigPlacement(GPUS, LAYOUTS, jobs=few_jobs, observation=observation, reward=reward)
        found[reward], info = play(env, at_random(1))
    assert max(found["et"]) <= 0.0
    assert sum(found["et"]) == pytest.approx(-info["et"], rel=1e-9)
    assert found["final"][-1] == pytest.approx(-info["et"], rel=1e-9)
    assert not np.any(found["final"][:-1])
    shaped = np.array(found["s1"]) - np.array(found["final"])
    assert shaped.max() == 1.0
    assert shaped.min() >= -1.0
    assert np.isclose(shaped, 1.0).mean() == pytest.approx((1 - info["late_frac"]) * 80 / len(shaped))


def test_s1_observation__says_what_is_asked() -> None:
    env = MigPlacement(GPUS, LAYOUTS, jobs=few_jobs, observation="s1")
    seen, info = env.reset(options={"day": 0})
    jobs = few_jobs(0)
    run_min = jobs.run_s[0] / 60.0
    to_deadline_s = jobs.deadline_s[0] - jobs.arrive_s[0]
    expected = [to_deadline_s / 60.0, run_min[0], run_min[1:3].mean(), run_min[3:].mean()]
    np.testing.assert_allclose(np.expm1(seen[:4]), expected, rtol=1e-5)
    assert seen[4] == pytest.approx(jobs.run_s[0, 4] / to_deadline_s, rel=1e-5)
    histograms = seen[AT_COUNTS:AT_SLICES].reshape(4, 10)
    np.testing.assert_allclose(histograms.sum(axis=1), 1.0)
    slices = seen[AT_SLICES:-3].reshape(-1, 2)
    assert not slices[:, 0].any()
    np.testing.assert_allclose(slices[:, 1] * 7, SIZES)
    np.testing.assert_allclose(seen[-3:], [np.log(2.0), 1.0, 4 / 7], rtol=1e-6)
    assert info["n_waiting"] == 1
    seen, _, _, _, _ = env.step(0)
    assert seen[AT_SLICES] == 1.0  # the 4g slice is taken


def test_illegal_actions__count_as_waiting() -> None:
    results = []
    for answer in ("wait", "illegal"):
        env = MigPlacement(GPUS, LAYOUTS, jobs=few_jobs, observation="s1")
        env.reset(options={"day": 0})
        env.step(0)
        while env.action_masks()[0]:
            env.step(len(SIZES))
        seen, *_ = env.step(len(SIZES) if answer == "wait" else 0)
        results.append(seen)
    np.testing.assert_array_equal(*results)


def test_lanes__are_days_of_their_own() -> None:
    """Side by side in threads, of different lengths, begun anew while others run: as each of them alone."""
    gpus = parse_gpus(GPUS)
    cluster = Cluster(gpus, parse_layouts(LAYOUTS, gpus))

    def jobs_of(day: int) -> Jobs:
        return FixedRate(n_jobs=20 + 9 * day, rate_per_min=1.5).jobs(day)

    def first_legal(lanes: Lanes) -> np.ndarray:
        return np.argmax(lanes.masks, axis=1)

    alone = []
    for day in range(6):
        lanes = Lanes(cluster, 1)
        lanes.begin(0, lanes.prepare(jobs_of(day)))
        lanes.look([0])
        while not lanes.step(first_legal(lanes)).done[0]:
            pass
        alone.append(lanes.summary(0).et)
    lanes, running, found = Lanes(cluster, 3, n_threads=2), [0, 1, 2], {}
    waiting = [3, 4, 5]
    for lane, day in enumerate(running):
        lanes.begin(lane, lanes.prepare(jobs_of(day)))
    lanes.look(range(3))
    while len(found) < 6:
        for lane in np.flatnonzero(lanes.step(first_legal(lanes)).done):
            found[running[lane]] = lanes.summary(lane).et
            if waiting:
                running[lane] = waiting.pop(0)
                lanes.begin(lane, lanes.prepare(jobs_of(running[lane])))
                lanes.look([lane])
    assert [found[day] for day in range(6)] == alone


@pytest.mark.parametrize("knobs", [{}, {"observation": "s1", "mask_in_observation": True}])
def test_env__passes_gymnasiums_checker(knobs: dict[str, Any]) -> None:
    check_env(gymnasium.make(ENV_ID, gpus=GPUS, layouts=LAYOUTS, jobs=few_jobs, **knobs).unwrapped)


def test_env__mask_beside_the_observation() -> None:
    env = MigPlacement(GPUS, LAYOUTS, jobs=few_jobs, mask_in_observation=True)
    seen, _ = env.reset(seed=4)
    assert isinstance(seen, dict)
    np.testing.assert_array_equal(seen["action_mask"].astype(bool), env.action_masks())
    assert env.observation_space.contains(seen)


@pytest.mark.parametrize(
    ("knobs", "says"),
    [
        ({"observation": "s2"}, "observation: got 's2', allowed are ours, s1"),
        ({"reward": "tardiness"}, "reward: got 'tardiness', allowed are et, s1, final"),
        ({"window": 0}, "window must be at least 1, got 0"),
        ({"layouts": "1,1,1"}, "layouts"),
    ],
)
def test_env__refuses_bad_arguments(knobs: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError) as refused:
        MigPlacement(**knobs)
    assert says in str(refused.value)


def test_env__refuses_bad_calls() -> None:
    env = MigPlacement(GPUS, LAYOUTS, jobs=few_jobs, observation="s1")
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(0)
    with pytest.raises(InputError, match=r"no option 'dya'\. Known: day"):
        env.reset(options={"dya": 3})
    with pytest.raises(InputError, match="day must be at least 0, got -1"):
        env.reset(options={"day": -1})
    env.reset(seed=0)
    for action in (8, -1, 0.5):
        with pytest.raises(InputError, match="is not in Discrete"):
            env.step(action)  # type: ignore[arg-type]


def test_env__without_gymnasium_says_how_to_get_it() -> None:
    code = """
import sys
sys.modules["gymnasium"] = None
from smartmig.errors import InputError
try:
    import smartmig.sim.mig.placement_env
except InputError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert "placement_env needs Gymnasium, which is missing: pip install 'smartmig[gym]'" in done.stdout
