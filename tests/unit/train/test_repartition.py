"""The trainer learns, and stopping it changes nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="pip install 'smartmig[train]'")

from smartmig.errors import InputError
from smartmig.hardware.cluster import parse_gpus
from smartmig.policy.policy_file import read_policy
from smartmig.policy.repartition.mean_field import MeanField
from smartmig.policy.repartition.slice_count import SliceCount
from smartmig.registry import PLACEMENTS, load
from smartmig.sim.mig.batch import Days, Setting
from smartmig.sim.mig.run import Cluster, Policy, simulate
from smartmig.sim.mig.world import Settings
from smartmig.train.ppo import advantage
from smartmig.train.repartition import Trainer
from smartmig.train.settings import Training
from smartmig.types import Jobs

SMALL = Training(
    iterations=4,
    days=16,
    siblings=8,
    pool=4,
    teacher_days=0,
    validation_days=2,
    validate_every=2,
    sample_share=1.0,
    events_per_gpu=1.0,
)


def setting() -> Setting:
    placement = load(PLACEMENTS, "placement", "shortest-work")()
    return Setting(Cluster(parse_gpus("1xa100-40gb", "")), placement, Settings())


def crowd(seed: int) -> Jobs:
    """Jobs that run no faster on more than one slice, several at a time: a whole GPU is the worst cut there is."""
    rng = np.random.default_rng(seed)
    n = 60
    arrive = np.sort(rng.uniform(0, 3000, n))
    run = np.tile(rng.uniform(100, 200, n)[:, None], (1, 5))
    return Jobs(np.arange(n).astype(np.str_), arrive, arrive + 250, run, np.full(n, "", dtype=np.str_), np.zeros(n))


def trainer(training: Training, teacher: SliceCount | None = None) -> Trainer:
    return Trainer(setting(), crowd, training, teacher, n_threads=2)


def test_trainer__learns_to_cut_for_a_crowd() -> None:
    run = trainer(replace(SMALL, iterations=25, learning_rate=3e-3, entropy=0.01, validate_every=5))
    which = range(2)
    before = run.validation.et(run.validation.play(which, run.net.vector(), rule=run.decide), which).mean()
    for _ in range(25):
        run.update()
    assert run.best_et < 0.5 * before


def test_imitation__does_what_the_teacher_does() -> None:
    run = trainer(replace(SMALL, teacher_days=4, teacher_epochs=300), SliceCount(base=0.5, hysteresis=1.0))
    told: list[tuple[str, int, int, str]] = []
    run.imitate(lambda *words: told.append(words))
    teacher_et = run.teacher_et()
    assert run.best_et < 1.15 * teacher_et
    assert told[-1][1] == 300


def test_resume__goes_on_as_if_never_stopped(tmp_path: Path) -> None:
    whole = trainer(SMALL)
    for _ in range(4):
        whole.update()
    first = trainer(SMALL)
    for _ in range(2):
        first.update()
    first.save(tmp_path / "a.ckpt")
    second = trainer(SMALL)
    second.load(tmp_path / "a.ckpt")
    for _ in range(2):
        second.update()
    np.testing.assert_array_equal(whole.net.vector(), second.net.vector())
    np.testing.assert_array_equal(whole.best, second.best)
    timed = {"decisions_per_s", "play_s"}
    for one, other in zip(whole.curve, second.curve, strict=True):
        assert {k: v for k, v in one.items() if k not in timed} == {k: v for k, v in other.items() if k not in timed}


def test_resume__refuses_another_trainings_checkpoint(tmp_path: Path) -> None:
    trainer(SMALL).save(tmp_path / "a.ckpt")
    with pytest.raises(InputError, match="was trained with seed 0, asked is 1"):
        trainer(replace(SMALL, seed=1)).load(tmp_path / "a.ckpt")
    (tmp_path / "b.ckpt").write_bytes(b"nothing")
    with pytest.raises(InputError, match="not a checkpoint"):
        trainer(SMALL).load(tmp_path / "b.ckpt")


def test_export__writes_a_policy_the_simulator_runs(tmp_path: Path) -> None:
    run = trainer(SMALL)
    run.update()
    run.export(tmp_path / "p.npz", "smartmig train repartition ...", "shortest-work")
    assert read_policy(tmp_path / "p.npz").about.settings["n_gpus"] == 1
    rule = MeanField(policy_file=str(tmp_path / "p.npz"), events_per_gpu=1.0)
    result = simulate(crowd(0), setting().cluster, Policy(setting().placement, rule), Settings())
    assert np.isfinite(result.finish_s).all()


def test_play__costs_add_up_to_the_day() -> None:
    days = Days(setting(), [crowd(0), crowd(1)], 2)
    played = days.play([0, 1], np.random.default_rng(0).normal(size=run_weights()) * 0.2, rule=MeanField(top=3))
    for day in range(2):
        paid = played.cost[played.day == day].sum(axis=0)
        # The first decision comes with the first events: what was paid before it is idle power and nothing late.
        assert paid[0] == pytest.approx(played.total[day, 0])
        assert paid[1] == pytest.approx(played.total[day, 1], rel=0.05)


def run_weights() -> int:
    from smartmig.policy.network import n_weights

    return n_weights()


def test_advantage__is_nothing_between_equal_siblings() -> None:
    days = Days(setting(), [crowd(0)], 2)
    rule = SliceCount(base=0.5, hysteresis=1.0)
    played = days.play([0, 0, 0], teacher=rule)
    cost = played.cost[:, 0] + played.cost[:, 1]
    np.testing.assert_allclose(advantage(cost, played.time_s, played.day, 3, 3600.0), 0, atol=1e-6)
