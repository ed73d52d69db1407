"""Prices: the compiled network is the one its shapes describe, and the hand-made one places as `shortest-work`."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from smartmig.errors import InputError
from smartmig.hardware.cluster import parse_gpus
from smartmig.policy.encoding import N_FEATURES, VERSION
from smartmig.policy.placement.learned import HAND_MADE, Learned
from smartmig.policy.placement.shortest_work import ShortestWork
from smartmig.policy.policy_file import MEAN_FIELD, PRICES, About, PolicyFile, write_policy
from smartmig.policy.prices import MOST, N_PRICES, ROOM, SHAPES, hand_made, log_prices, n_price_weights, set_prices
from smartmig.policy.repartition.slice_count import SliceCount
from smartmig.policy.repartition.static import Static
from smartmig.sim.mig.run import Cluster, Policy, simulate
from smartmig.sim.mig.world import Settings
from smartmig.workload.diurnal import DiurnalDay


def by_name(weights: np.ndarray) -> dict[str, np.ndarray]:
    parts, at = {}, 0
    for name, shape in SHAPES.items():
        size = math.prod(shape)
        parts[name] = weights[at : at + size].reshape(shape)
        at += size
    return parts


def test_log_prices__are_those_of_two_tanh_layers() -> None:
    rng = np.random.default_rng(3)
    weights = rng.normal(0.0, 0.3, n_price_weights())
    features = rng.normal(0.0, 1.0, N_FEATURES)
    out = np.zeros(N_PRICES)
    log_prices(np.concatenate([weights, np.zeros(ROOM)]), features, out)
    w = by_name(weights)
    hidden = np.tanh(features @ w["first"] + w["first_bias"])
    hidden = np.tanh(hidden @ w["second"] + w["second_bias"])
    np.testing.assert_allclose(out, hidden @ w["price"] + w["price_bias"], rtol=1e-12)


def test_set_prices__stay_finite_whatever_the_network_says() -> None:
    weights = np.full(n_price_weights(), 50.0)
    out = np.zeros(N_PRICES)
    set_prices(np.concatenate([weights, np.zeros(ROOM)]), np.ones(N_FEATURES), out)
    np.testing.assert_allclose(out, math.exp(MOST))


@pytest.mark.parametrize("mode", [Settings(), Settings(preempt=False), Settings(preempt=False, drain=True)])
@pytest.mark.parametrize("rule", [Static(), SliceCount()])
def test_hand_made__places_as_shortest_work(mode: Settings, rule: Static | SliceCount) -> None:
    jobs = DiurnalDay(multiplier=4.0).jobs(11)
    cluster = Cluster(parse_gpus("2xa100-40gb"))
    one = simulate(jobs, cluster, Policy(Learned(HAND_MADE), rule), mode)
    other = simulate(jobs, cluster, Policy(ShortestWork(), rule), mode)
    np.testing.assert_allclose(one.finish_s, other.finish_s, rtol=1e-4)
    assert one.energy_j.sum() == pytest.approx(other.energy_j.sum())


def write(path: Path, kind: str = PRICES, n: int | None = None) -> str:
    about = About(
        kind, VERSION, ("a100-40gb",), "with static", preempt=True, drain=False, command="smartmig train placement"
    )
    write_policy(path, PolicyFile(about, hand_made()[:n]))
    return str(path)


def test_learned__runs_a_policy_from_a_file(tmp_path: Path) -> None:
    jobs = DiurnalDay(multiplier=1.0).jobs(3)
    cluster = Cluster(parse_gpus("1xa100-40gb"))
    own = Learned(write(tmp_path / "mine.npz"))
    one, other = (simulate(jobs, cluster, Policy(rule, Static()), Settings()) for rule in (own, Learned(HAND_MADE)))
    # The file keeps 32 bits of every weight.
    np.testing.assert_allclose(one.finish_s.sum(), other.finish_s.sum(), rtol=1e-3)


@pytest.mark.parametrize(
    ("kind", "n", "says"),
    [(MEAN_FIELD, None, "holds a 'mean-field' policy, needed is 'prices'"), (PRICES, 5, "damaged: 5 weights")],
)
def test_learned__refuses_what_does_not_fit(tmp_path: Path, kind: str, n: int | None, says: str) -> None:
    with pytest.raises(InputError, match=says):
        Learned(write(tmp_path / "other.npz", kind, n))
    with pytest.raises(InputError, match="no such policy file"):
        Learned(str(tmp_path / "none.npz"))
    with pytest.raises(InputError, match="every_events must be at least 1"):
        Learned(every_events=0)
