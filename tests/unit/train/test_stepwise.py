"""Placing learned a step at a time: every algorithm learns, policies are kept as arrays, studies say what they ran."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from smartmig.errors import InputError
from smartmig.hardware.cluster import parse_gpus, parse_layouts
from smartmig.sim.mig.run import Cluster
from smartmig.train.group import group_advantage
from smartmig.train.placer import Placer, read_placer, write_placer
from smartmig.train.settings import StepTraining
from smartmig.train.stepwise import train_placer
from smartmig.train.study import Trainer, ablations, algorithms, run_study
from smartmig.types import Jobs
from smartmig.workload.poisson import FixedRate

SMALL = StepTraining(
    steps=3072, layers="32", lanes=8, update_steps=512, batch=128, epochs=6, pool=2, learning_rate=3e-3, reward="s1"
)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Threads that wait for each other take longer than such small networks."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def cluster(layouts: str = "1,12") -> Cluster:
    gpus = parse_gpus("2xa100-40gb")
    return Cluster(gpus, parse_layouts(layouts, gpus))


def easy(seed: int) -> Jobs:
    """One job at a time, in time on the whole GPU and on nothing else: there is one right answer."""
    jobs = FixedRate(n_jobs=40, rate_per_min=0.01, deadline=(1.5, 1.5)).jobs(seed)
    return replace(jobs, arrive_s=np.arange(40) * 1e5, deadline_s=np.arange(40) * 1e5 + 1.5 * jobs.run_s[:, 4])


@pytest.mark.parametrize("algorithm", ["ppo", "kl", "grpo", "dqn"])
def test_training__finds_the_slice_that_is_in_time(algorithm: str) -> None:
    settings = replace(SMALL, algorithm=algorithm)
    told: list[int] = []
    kept = train_placer(cluster(), easy, settings, told.append, keep_at=[1024])
    assert [steps for steps, _ in kept] == [1024, 3072]
    assert told == sorted(told)
    played = kept[-1][1].run(cluster(), [easy(0), easy(1)])
    assert max(day.summary.late_frac for day in played) < 0.15  # onto any free slice: seven in eight


@pytest.mark.parametrize("algorithm", ["ppo", "grpo"])
def test_training__goes_on_as_if_it_had_not_been_stopped(algorithm: str, tmp_path: Path) -> None:
    settings = replace(SMALL, steps=2048, algorithm=algorithm)
    [(_, whole)] = train_placer(cluster(), easy, settings)
    asked = iter([False, False, True])
    checkpoint = tmp_path / "mine.ckpt"
    assert train_placer(cluster(), easy, settings, checkpoint=checkpoint, stop=lambda: next(asked)) == []
    torch.manual_seed(5)
    np.random.seed(5)
    [(_, resumed)] = train_placer(cluster(), easy, settings, checkpoint=checkpoint, resume=True)
    for (weights, bias), (their_weights, their_bias) in zip(whole.layers, resumed.layers, strict=True):
        np.testing.assert_array_equal(weights, their_weights)
        np.testing.assert_array_equal(bias, their_bias)
    with pytest.raises(InputError, match="was trained with layers 32, asked is 16"):
        train_placer(cluster(), easy, replace(settings, layers="16"), checkpoint=checkpoint, resume=True)


def random_placer(settings: StepTraining, n_seen: int, n_actions: int) -> Placer:
    rng = np.random.default_rng(0)
    shapes = [(n_seen, 8), (8, n_actions)]
    return Placer(tuple((rng.normal(size=shape), rng.normal(size=shape[1])) for shape in shapes), settings)


def test_placer__is_the_same_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    placer = random_placer(SMALL, 5 + 40 + 16 + 3, 9)
    write_placer(path, placer)
    again = read_placer(path)
    assert again.settings == SMALL
    seen, masks = np.random.default_rng(1).normal(size=(50, 64)), np.ones((50, 9), dtype=bool)
    masks[:, 3] = False
    assert (again.act(seen, masks) == placer.act(seen, masks)).mean() > 0.9  # half precision
    assert 3 not in again.act(seen, masks)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(InputError, match="not a placer's file"):
        read_placer(path)


def test_placer__of_s1_refuses_another_cluster() -> None:
    placer = random_placer(SMALL, 64, 9)
    placer.run(cluster("1,12"), [easy(0)])
    with pytest.raises(InputError, match="serves the cuts it was trained on only"):
        placer.run(cluster("1,1"), [easy(0)])


def test_advantage__is_against_the_siblings() -> None:
    rewards = np.array([[0.0, 0.0, 5.0, 5.0], [1.0, 3.0, 7.0, 7.0]])
    found = group_advantage(rewards, [slice(0, 2), slice(2, 4)], 0.5)
    assert found[:, 2:] == pytest.approx(np.zeros((2, 2)))
    assert found[:, 0] == pytest.approx(-found[:, 1])
    assert found[1, 1] == pytest.approx(2 * found[0, 1])


def test_study__trains_nothing_again_that_it_has(tmp_path: Path) -> None:
    [variant] = [replace(v, settings=replace(v.settings, layers="8", pool=1)) for v in ablations(256)[:1]]

    def study(train: Trainer) -> list[float]:
        rows = run_study(train, cluster(), [variant], 2, 1, 0.2, lambda *_: None, kept=tmp_path)
        return [day.et for row in rows for days in row.runs for day in days]

    def refuse(*_: object) -> list[tuple[int, Placer]]:
        raise AssertionError("trained again")

    assert study(train_placer) == study(refuse)


def test_study__one_row_per_variant_beside_largest_first() -> None:
    variants = [replace(v, settings=replace(v.settings, layers="8", pool=1)) for v in ablations(256)[:2]]
    rows = run_study(train_placer, cluster(), variants, 2, 1, 0.2, lambda *_: None)
    labels = [row.label for row in rows]
    assert labels == ["Largest-First", "all as S1", "Largest-First, U(1, 1.5)", "U(1, 1.5)"]
    assert all(len(days) == 2 for row in rows for days in row.runs)
    assert {len({(row.group, row.label) for row in rows})} == {len(rows)}
    assert {v.group for v in ablations(1000)} >= {"deadline slack", "observation", "reward", "network", "steps"}
    assert [v.settings.algorithm for v in algorithms(1000)] == ["ppo", "kl", "grpo", "dqn"]


def test_study__trains_each_variant_as_often_as_asked_with_other_seeds() -> None:
    [variant] = [replace(v, settings=replace(v.settings, layers="8", pool=1)) for v in ablations(256)[:1]]
    rule, learned = run_study(train_placer, cluster(), [variant], 2, 3, 0.2, lambda *_: None)
    assert (len(rule.runs), len(learned.runs)) == (1, 3)
    means = [np.mean([day.et for day in days]) for days in learned.runs]
    assert len(set(means)) > 1
    assert learned.of("et").mean == pytest.approx(np.mean(means))
    assert learned.of("et").n == 3
    assert rule.of("et").n == 2


@pytest.mark.parametrize(
    ("knobs", "says"),
    [
        ({"algorithm": "sac"}, "algorithm: got 'sac', allowed are ppo, kl, grpo, dqn"),
        ({"layers": "64,x"}, "layers: got '64,x'"),
        ({"steps": 0}, "steps must be at least 1, got 0"),
    ],
)
def test_settings__refuse_what_makes_no_sense(knobs: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        StepTraining(**knobs)  # type: ignore[arg-type]
