"""Training in turn, and the price network: both go on after a stop as if there had been none, and reward exactly ET."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from smartmig.errors import InputError
from smartmig.hardware.cluster import parse_gpus
from smartmig.policy.encoding import N_FEATURES
from smartmig.policy.placement.learned import Learned
from smartmig.policy.policy_file import JOINT, MEAN_FIELD, PRICES, SHIPPED, read_policy
from smartmig.policy.prices import N_PRICES, ROOM, hand_made, log_prices
from smartmig.policy.repartition.mean_field import MeanField
from smartmig.policy.repartition.static import Static
from smartmig.sim.mig.outcomes import PlacedDays
from smartmig.sim.mig.run import Cluster, Policy, simulate
from smartmig.sim.mig.world import Settings
from smartmig.train.settings import JointTraining, PriceTraining
from smartmig.workload.diurnal import DiurnalDay

torch = pytest.importorskip("torch", reason="pip install 'smartmig[train]'")

from smartmig.train.joint import JointTrainer  # noqa: E402
from smartmig.train.network import PriceNet  # noqa: E402
from smartmig.train.prices import PriceTrainer  # noqa: E402

CARDS = Cluster(parse_gpus("1xa100-40gb,1xh200-141gb"))
DAY = DiurnalDay(multiplier=1.0)
SMALL = JointTraining(
    rounds=2,
    cut_updates=2,
    price_rounds=2,
    days=4,
    siblings=2,
    pool=2,
    candidates=4,
    elite=2,
    price_days=1,
    validation_days=1,
    validate_every=1,
)
FEW = PriceTraining(iterations=4, days=4, siblings=2, pool=2, validation_days=1, validate_every=2)


def joint(training: JointTraining = SMALL) -> JointTrainer:
    start = read_policy(SHIPPED / "mean-field-paper.npz").weights, hand_made()
    return JointTrainer(CARDS, Settings(), DAY.jobs, training, start, n_threads=2)


def price_trainer() -> PriceTrainer:
    return PriceTrainer(CARDS, Static(), Settings(preempt=False), DAY.jobs, FEW, hand_made(), n_threads=2)


def test_joint__stopped_and_resumed_in_any_turn_finds_the_same(tmp_path: Path) -> None:
    whole = joint()
    for _ in range(SMALL.steps):
        whole.update()
    for stop in (1, 3, 4):
        first, second = joint(), joint()
        for _ in range(stop):
            first.update()
        first.save(tmp_path / "part.ckpt")
        second.load(tmp_path / "part.ckpt")
        for _ in range(SMALL.steps - stop):
            second.update()
        assert second.curve == whole.curve
        for one, other in zip(whole.best, second.best, strict=True):
            np.testing.assert_array_equal(one, other)


def test_joint__never_ends_worse_than_it_began() -> None:
    trainer = joint()
    trainer.update()
    began = trainer.cuts.curve[0]["validation_et"]
    for _ in range(SMALL.steps - 1):
        trainer.update()
    assert trainer.best_et <= began


def test_joint__exports_one_file_that_both_rules_run(tmp_path: Path) -> None:
    trainer = joint()
    trainer.update()
    trainer.export(path := tmp_path / "pair.npz", "smartmig train joint")
    assert read_policy(path, JOINT).about.gpus == ("a100-40gb", "h200-141gb")
    np.testing.assert_array_equal(read_policy(path, MEAN_FIELD).weights, trainer.best[0].astype(np.float32))
    np.testing.assert_array_equal(read_policy(path, PRICES).weights, trainer.best[1].astype(np.float32))
    run = simulate(DAY.jobs(5), CARDS, Policy(Learned(str(path)), MeanField(str(path))), Settings())
    assert np.isfinite(run.finish_s).all()


def test_joint__refuses_another_trainings_checkpoint(tmp_path: Path) -> None:
    joint().save(tmp_path / "a.ckpt")
    with pytest.raises(InputError, match="was trained with elite 2, asked is 3"):
        joint(JointTraining(**{**vars(SMALL), "elite": 3})).load(tmp_path / "a.ckpt")


def test_price_network__says_in_torch_what_the_kernel_says() -> None:
    net = PriceNet(hand_made(), seed=3)
    with torch.no_grad():
        net.weights["price"].normal_(generator=torch.Generator().manual_seed(1))
    features = np.random.default_rng(2).normal(size=N_FEATURES).astype(np.float32)
    out = np.zeros(N_PRICES)
    log_prices(np.concatenate([net.vector(), np.zeros(ROOM)]), features, out)
    np.testing.assert_allclose(out, net(torch.tensor(features)[None])[0].detach().numpy(), atol=1e-4)


def test_price_network__begins_with_the_prices_it_is_given() -> None:
    net = PriceNet(hand_made(), seed=3)
    assert net.weights["first"].detach().abs().sum() > 0
    wanted = torch.tensor(hand_made()[-N_PRICES:], dtype=torch.float32).expand(5, -1)
    torch.testing.assert_close(net(torch.randn(5, N_FEATURES)), wanted)


@pytest.mark.parametrize("mode", [Settings(), Settings(preempt=False, drain=True)])
def test_play__without_noise_is_the_run_and_costs_add_up_to_it(mode: Settings) -> None:
    days = PlacedDays(CARDS, MeanField(), mode, [DAY.jobs(1), DAY.jobs(2)], n_threads=2)
    played = days.play([0, 1], hand_made(), every_events=1, spread=0.0, seed=4)
    ran = days.run([0, 1], hand_made())
    for day in range(2):
        n_jobs = days.jobs[day].spec.size
        late_s, energy_j = played.cost[played.day == day].sum(axis=0)
        assert late_s / n_jobs == pytest.approx(ran.tardiness_s[day])
        # What was paid before the first list is idle power.
        assert energy_j == pytest.approx(ran.energy_j[day], rel=0.1)
        assert energy_j <= ran.energy_j[day] * (1 + 1e-9)
    np.testing.assert_allclose(played.total.et, ran.et)


def test_price_trainer__stopped_and_resumed_finds_the_same(tmp_path: Path) -> None:
    whole, first, second = price_trainer(), price_trainer(), price_trainer()
    for _ in range(4):
        whole.update()
    for _ in range(2):
        first.update()
    first.save(tmp_path / "part.ckpt")
    second.load(tmp_path / "part.ckpt")
    for _ in range(2):
        second.update()
    np.testing.assert_array_equal(whole.net.vector(), second.net.vector())
    np.testing.assert_array_equal(whole.best, second.best)
    second.export(tmp_path / "mine.npz", "smartmig train prices", "static")
    assert read_policy(tmp_path / "mine.npz", PRICES).about.scores["updates"] == 4
