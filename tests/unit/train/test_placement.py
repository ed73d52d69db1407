"""The search for prices: learns a trivial task in seconds, and goes on after a stop as if there had been none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from smartmig.errors import InputError
from smartmig.hardware.cluster import parse_gpus, parse_layouts
from smartmig.policy.placement.learned import Learned
from smartmig.policy.repartition.static import Static
from smartmig.sim.mig.run import Cluster, Policy, simulate
from smartmig.sim.mig.world import Settings
from smartmig.train.placement import NEVER, PriceSearch
from smartmig.train.settings import PlacementTraining
from smartmig.types import Jobs

SMALL = PlacementTraining(generations=6, candidates=8, elite=3, days=2, pool=3, validation_days=2, validate_every=2)


def long_and_short(seed: int) -> Jobs:
    """Jobs of an hour on any slice, with time to spare, and urgent ones of seconds on the whole GPU: the long ones must
    not take the large slice."""
    rng = np.random.default_rng(seed)
    n = 60
    is_long = np.arange(n) % 10 == 0
    arrive_s = np.sort(rng.uniform(0, 3600, n))
    run_s = np.where(is_long[:, None], 3600.0, np.array([70.0, 35.0, 24.0, 18.0, 10.0])) * np.ones((n, 5))
    names = np.array([f"{at:03}" for at in range(n)])
    deadline_s = arrive_s + np.where(is_long, 7200.0, 30.0)
    return Jobs(names, arrive_s, deadline_s, run_s, np.full(n, "", np.str_), np.zeros(n))


def search(training: PlacementTraining = SMALL) -> PriceSearch:
    cards = parse_gpus("2xa100-40gb")
    cluster = Cluster(cards, parse_layouts("1,12", cards))
    return PriceSearch(cluster, Static(), Settings(preempt=False), long_and_short, training, n_threads=1)


def test_search__learns_to_keep_long_jobs_off_the_large_slice() -> None:
    found = search(PlacementTraining(generations=25, candidates=16, elite=4, days=2, pool=3, validation_days=2))
    hand_made = found.score(found.validation.run([0, 1], found.base, NEVER))
    for _ in range(25):
        found.update()
    assert found.best_score < 0.5 * hand_made


def test_search__stopped_and_resumed_finds_the_same(tmp_path: Path) -> None:
    whole, first, second = search(), search(), search()
    for _ in range(6):
        whole.update()
    for _ in range(3):
        first.update()
    first.save(tmp_path / "part.ckpt")
    second.load(tmp_path / "part.ckpt")
    for _ in range(3):
        second.update()
    np.testing.assert_array_equal(whole.best, second.best)
    assert [row["train_score"] for row in whole.curve] == [row["train_score"] for row in second.curve]


def test_search__refuses_another_searchs_checkpoint(tmp_path: Path) -> None:
    one = search()
    one.save(tmp_path / "part.ckpt")
    other = search(PlacementTraining(**{**vars(SMALL), "elite": 4}))
    with pytest.raises(InputError, match="was trained with elite 3, asked is 4"):
        other.load(tmp_path / "part.ckpt")
    (tmp_path / "part.ckpt").write_text("hello")
    with pytest.raises(InputError, match="not a checkpoint"):
        one.load(tmp_path / "part.ckpt")


def test_search__exports_what_learned_runs(tmp_path: Path) -> None:
    found = search()
    found.update()
    found.update()
    found.export(tmp_path / "mine.npz", "smartmig train placement", "static")
    rule = Learned(str(tmp_path / "mine.npz"))
    run = simulate(long_and_short(5), found.cluster, Policy(rule, Static()), Settings(preempt=False))
    assert np.isfinite(run.finish_s).all()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [({"elite": 9}, "--elite must be at most"), ({"days": 4}, "--days must be at most"), ({"spread": 0.0}, "--spread")],
)
def test_settings__wrong_ones_are_one_sentence(wrong: dict[str, float], says: str) -> None:
    with pytest.raises(InputError, match=says):
        PlacementTraining(**{**vars(SMALL), **wrong})
