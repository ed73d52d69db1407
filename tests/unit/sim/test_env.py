"""The Gymnasium environment: the same world as `simulate`, cut into steps."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from smartmig.errors import InputError, UnknownName
from smartmig.hardware.cluster import parse_gpus
from smartmig.hardware.cuts import CutTable
from smartmig.metrics.objective import energy_tardiness
from smartmig.metrics.summary import summarise
from smartmig.policy.encoding import N_FEATURES
from smartmig.policy.placement.categorical_edf import CategoricalEdf
from smartmig.policy.plain import PlainView
from smartmig.policy.repartition.mean_field import MeanField
from smartmig.policy.repartition.no_partition import NoPartition
from smartmig.sim.mig.env import ENV_ID, MigRepartition
from smartmig.sim.mig.reference import simulate_plainly
from smartmig.sim.mig.run import Cluster, Policy, simulate
from smartmig.sim.mig.world import Settings
from smartmig.types import Jobs
from smartmig.workload.diurnal import DiurnalDay
from smartmig.workload.poisson import FixedRate
from smartmig.workload.seeds import TRAINING_FIRST

Info = dict[str, Any]
MODES = pytest.mark.parametrize(("preempt", "drain"), [(True, False), (True, True), (False, False), (False, True)])


def play(
    env: gymnasium.Env[Any, Any], choose: Callable[[Info], Any], day: int = 0
) -> tuple[list[float], list[Info], list[np.ndarray]]:
    """Rewards, infos and observations of a day, those of `reset` included."""
    seen, info = env.reset(seed=0, options={"day": day})
    rewards, infos, views = [0.0], [info], [seen]
    done = False
    while not done:
        seen, reward, done, truncated, info = env.step(choose(info))
        assert not truncated
        rewards.append(float(reward))
        infos.append(info)
        views.append(seen)
    return rewards, infos, views


def few_jobs(seed: int) -> Jobs:
    """Two hours' work for two GPUs."""
    return FixedRate(n_jobs=120, rate_per_min=1.5).jobs(seed)


def keep(info: Info) -> Any:
    return info["config"]


@MODES
def test_rewards__add_up_to_minus_et(preempt: bool, drain: bool) -> None:
    env = MigRepartition("2xa100-40gb", multiplier=2.0, preempt=preempt, drain=drain, events_per_decision=10)
    env.action_space.seed(1)
    rewards, infos, views = play(env, lambda _: env.action_space.sample())
    assert sum(rewards) == pytest.approx(-infos[-1]["et"], abs=1e-9)
    assert max(rewards) <= 0.0
    assert all(env.observation_space.contains(seen) for seen in views)
    n_configs = int(env.action_space.nvec[0])
    for seen in views:
        shares, busy = seen[N_FEATURES : N_FEATURES + n_configs], seen[N_FEATURES + n_configs :]
        assert shares.sum() == pytest.approx(1.0)
        assert busy.sum() <= 1.0 + 1e-6


def test_rewards__are_what_each_stretch_cost() -> None:
    """Worked out from the record of the same run: whole GPUs are idle or busy, a late job costs until it is done."""
    gpus = parse_gpus("8xa100-40gb")
    jobs = DiurnalDay(multiplier=20.0).jobs(3)
    policy = Policy(CategoricalEdf(), NoPartition())
    run = simulate(jobs, Cluster(gpus), policy, Settings(record=True))
    rewards, infos, _ = play(MigRepartition(), keep, day=3)
    assert run.segments is not None
    idle_w, busy_w = gpus[0].power.watts[0], gpus[0].power.watts[7]
    paid = -np.cumsum(rewards)
    for at in range(1, len(infos), 50):
        time_s = infos[at]["time_s"]
        ran_s = np.clip(time_s, run.segments.from_s, run.segments.to_s) - run.segments.from_s
        late_s = np.maximum(0.0, np.minimum(run.finish_s, time_s) - jobs.deadline_s)
        energy_j = len(gpus) * idle_w * time_s + (busy_w - idle_w) * ran_s.sum()
        assert paid[at] == pytest.approx(energy_tardiness(energy_j, late_s.sum() / len(jobs)), abs=1e-9)
    cost = summarise(jobs, run, 56)
    assert paid[-1] == pytest.approx(cost.et, abs=1e-9)
    for key in ("et", "mean_tardiness_s", "energy_j"):
        assert infos[-1][key] == pytest.approx(getattr(cost, key), rel=1e-12)
    assert infos[-1]["n_done"] == len(jobs)
    assert infos[-1]["time_s"] == run.makespan_s


def by_the_clock(time_s: float, gpu: int, n_configs: int) -> int:
    """Another cut every ten minutes, another one for every GPU."""
    return (int(time_s) // 600 + 5 * gpu) % n_configs


@dataclass(frozen=True)
class ByTheClock(MeanField):
    def plain_control(self, view: PlainView, cuts: CutTable, config: list[int]) -> list[int]:  # noqa: ARG002
        wanted = []
        for gpu, model in enumerate(cuts.gpu_model):
            own = [index for index, cut in enumerate(cuts.configs) if cut.model == model and cut.number is not None]
            wanted.append(own[by_the_clock(view.now_s, gpu, len(own))])
        return wanted


@MODES
def test_step__re_cuts_as_the_plain_twin_does(preempt: bool, drain: bool) -> None:
    text = "1xa100-40gb,1xa30,1xa100-40gb"
    env = MigRepartition(text, jobs=few_jobs, preempt=preempt, drain=drain)

    def choose(info: Info) -> list[int]:
        return [by_the_clock(info["time_s"], gpu, int(n)) for gpu, n in enumerate(env.action_space.nvec)]

    rewards, infos, _ = play(env, choose, day=7)
    jobs = few_jobs(7)
    policy = Policy(CategoricalEdf(), ByTheClock())
    run = simulate_plainly(jobs, Cluster(parse_gpus(text)), policy, Settings(preempt=preempt, drain=drain))
    assert run.n_repartitions > 20
    assert infos[-1]["et"] == pytest.approx(summarise(jobs, run, 18).et, rel=1e-9)
    assert sum(rewards) == pytest.approx(-infos[-1]["et"], abs=1e-9)
    assert infos[-1]["time_s"] == pytest.approx(run.makespan_s, rel=1e-9)


def test_step__comes_every_so_many_events_and_every_hour() -> None:
    jobs = few_jobs(0)
    late = np.where(np.arange(len(jobs)) < 60, 0.0, 3 * 3600.0)
    jobs = replace(jobs, arrive_s=jobs.arrive_s + late, deadline_s=jobs.deadline_s + late)
    env = MigRepartition("2xa100-40gb", jobs=lambda _: jobs, events_per_decision=10)
    _, infos, _ = play(env, keep)
    policy = Policy(CategoricalEdf(), NoPartition())
    run = simulate(jobs, Cluster(parse_gpus("2xa100-40gb")), policy, Settings())
    event_s = np.unique(np.concatenate([jobs.arrive_s, run.finish_s]))
    due_s = np.union1d(event_s[9:-1:10], np.arange(3600.0, run.makespan_s, 3600.0))
    np.testing.assert_allclose([info["time_s"] for info in infos], [*due_s, run.makespan_s], rtol=1e-9)


def test_spaces__have_the_cuts_of_each_gpu() -> None:
    env = MigRepartition("1xa100-40gb,1xa30", jobs=few_jobs)
    assert env.action_space.nvec.tolist() == [12, 4]
    assert env.observation_space.shape == (N_FEATURES + 2 * 16,)
    masks = env.action_masks()
    assert masks.shape == (16,)
    assert masks.all()
    env.reset(seed=0)
    _, _, _, _, info = env.step(np.array([11, 3]))
    assert info["config"].tolist() == [11, 3]


def test_env__passes_gymnasiums_checker() -> None:
    env = gymnasium.make(ENV_ID, gpus="2xa100-40gb", multiplier=2.0)
    check_env(env.unwrapped)


def test_env__is_made_by_name_and_in_vectors() -> None:
    by_module = gymnasium.make(f"smartmig.sim.mig.env:{ENV_ID}", gpus="1xa30", jobs=few_jobs)
    assert by_module.action_space.nvec.tolist() == [4]  # type: ignore[attr-defined]
    knobs = {"gpus": "2xa100-40gb", "jobs": few_jobs}
    envs = gymnasium.make_vec(ENV_ID, num_envs=3, vectorization_mode="sync", vector_kwargs={}, **knobs)
    seen, info = envs.reset(seed=5)
    assert info["config"].shape == (3, 2)
    n_ends = 0
    while n_ends < 3:
        seen, reward, terminated, truncated, info = envs.step(np.zeros((3, 2), dtype=np.int64))
        n_ends += int(terminated.sum())
        assert reward.shape == (3,)
        assert not truncated.any()
    assert seen.shape == (3, N_FEATURES + 2 * 12)
    assert np.all(info["et"][terminated] > 0)


def test_reset__draws_training_days_from_its_seed() -> None:
    days: list[int] = []

    def jobs(seed: int) -> Jobs:
        days.append(seed)
        return few_jobs(seed)

    env = MigRepartition("1xa100-40gb", jobs=jobs)
    first, _ = env.reset(seed=1)
    env.reset()
    again, _ = env.reset(seed=1)
    env.reset(seed=2)
    env.reset(options={"day": 17})
    assert days[0] == days[2]
    assert len(set(days)) == 4
    assert all(TRAINING_FIRST <= day < TRAINING_FIRST + 10_000_000 for day in days[:4])
    assert days[4] == 17
    np.testing.assert_array_equal(first, again)


def test_step__a_day_that_is_over_before_the_first_decision() -> None:
    jobs = FixedRate(n_jobs=2, rate_per_min=10.0).jobs(0)
    rewards, infos, _ = play(MigRepartition(jobs=lambda _: jobs, events_per_decision=50), keep)
    assert len(rewards) == 2
    assert rewards[-1] == pytest.approx(-infos[-1]["et"], abs=1e-12)
    assert infos[-1]["et"] == infos[0]["et"]


@pytest.mark.parametrize(
    ("knobs", "says"),
    [
        ({"events_per_decision": 0}, "events_per_decision must be at least 1, got 0"),
        ({"gpus": "0xa100-40gb"}, "gpus: entry 1"),
        ({"multiplier": -1.0}, "multiplier: got -1.0"),
        ({"deadline": (2.0, 1.0)}, "deadline: got 2.0:1.0"),
        ({"placement": "categorical-ed"}, "Did you mean 'categorical-edf'?"),
    ],
)
def test_env__refuses_bad_arguments(knobs: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError) as refused:
        MigRepartition(**knobs)
    assert says in str(refused.value)


def test_env__refuses_bad_calls() -> None:
    env = MigRepartition("2xa100-40gb", jobs=few_jobs)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(np.array([0, 0]))
    with pytest.raises(InputError, match=r"no option 'dya'\. Known: day"):
        env.reset(options={"dya": 3})
    with pytest.raises(InputError, match="day must be at least 0, got -1"):
        env.reset(options={"day": -1})
    env.reset(seed=0)
    for action in ([0, 12], [-1, 0], [0], [0, 0, 0], [0.5, 0.0]):
        with pytest.raises(InputError, match="is not in MultiDiscrete"):
            env.step(np.array(action))
    empty = replace(few_jobs(0), **{name: getattr(few_jobs(0), name)[:0] for name in few_jobs(0).__dict__})
    with pytest.raises(InputError, match="day 4 has no jobs"):
        MigRepartition("2xa100-40gb", jobs=lambda _: empty).reset(options={"day": 4})
    with pytest.raises(UnknownName):
        MigRepartition("2xa100-41gb")


def test_env__without_gymnasium_says_how_to_get_it() -> None:
    code = """
import sys
sys.modules["gymnasium"] = None
from smartmig.errors import InputError
try:
    import smartmig.sim.mig.env
except InputError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == ("smartmig.sim.mig.env needs Gymnasium, which is missing: pip install 'smartmig[gym]'\n")
