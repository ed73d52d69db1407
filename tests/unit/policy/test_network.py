"""The network's kernels against torch, and what a policy file refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from smartmig.errors import InputError
from smartmig.hardware.cluster import parse_gpus
from smartmig.policy import encoding
from smartmig.policy.encoding import AT_CONFIG, N_FEATURES, describe
from smartmig.policy.network import at_rows, n_weights, plan_of, rows
from smartmig.policy.policy_file import (
    GANG,
    JOINT,
    MEAN_FIELD,
    PRICES,
    RUN_TIMES,
    SHIPPED,
    About,
    PolicyFile,
    read_policy,
    write_policy,
)
from smartmig.policy.repartition.mean_field import MeanField
from smartmig.registry import PLACEMENTS, load
from smartmig.sim.mig.run import Cluster, cuts_of
from smartmig.sim.mig.world import Settings, build_world, fresh_state

ABOUT = About(
    "mean-field", encoding.VERSION, ("a100-40gb",), "shortest-work", True, False, "smartmig train repartition"
)


@pytest.mark.parametrize("gpus", ["16xa100-40gb", "16xa30", "16xh200-141gb", "9xa100-40gb,7xh200-141gb"])
def test_rows__equal_the_torch_mirror(gpus: str) -> None:
    torch = pytest.importorskip("torch", reason="pip install 'smartmig[train]'")
    from smartmig.train.network import MeanFieldNet

    cluster = Cluster(parse_gpus(gpus, ""))
    cuts = cuts_of(cluster, MeanField())
    world = build_world(cuts, load(PLACEMENTS, "placement", "shortest-work")(), Settings(), counted=True)
    state = fresh_state(world, 1, cuts)
    rng = np.random.default_rng(3)
    n_configs = len(cuts.configs)
    count = rng.multinomial(16, np.full(n_configs, 1 / n_configs))
    busy = np.array([rng.integers(0, n * size + 1) for n, size in zip(count, world.config_compute, strict=True)])
    state.tally[AT_CONFIG:] = np.concatenate([count, busy])
    features = rng.normal(size=N_FEATURES).astype(np.float32)
    net = MeanFieldNet(describe(cuts), world.config["model"], world.config_compute, world.card, seed=1)
    with torch.no_grad():
        net.weights["card"].normal_(generator=torch.Generator().manual_seed(2))
    plan = plan_of(net.vector(), describe(cuts), np.ones(n_configs))
    rows(world, state, plan, features.astype(np.float64), n_configs)
    ours = plan[at_rows(n_configs) :].reshape(n_configs, n_configs)
    present = np.flatnonzero(count)
    with torch.no_grad():
        gpus = torch.tensor(np.stack([count, busy]))[None]
        at = torch.zeros(len(present), dtype=torch.int64)
        logits = net(torch.tensor(features)[None], gpus, at, torch.tensor(present))
    np.testing.assert_allclose(ours[present], torch.softmax(logits, dim=1).numpy(), atol=1e-5)
    assert (ours[count == 0] == 0).all()


def test_keep_top__keeps_the_likeliest_and_they_sum_to_one() -> None:
    from smartmig.policy.network import keep_top

    plan = np.array([0.0, 3.0, 1.0, 3.0, -np.inf])
    keep_top(plan, 0, 5, 2)
    np.testing.assert_allclose(plan, [0, 0.5, 0, 0.5, 0])
    plan = np.array([5.0, -np.inf])
    keep_top(plan, 0, 2, 3)
    np.testing.assert_allclose(plan, [1, 0])


def test_policy_file__comes_back_as_written(tmp_path: Path) -> None:
    weights = np.arange(n_weights(), dtype=np.float32).astype(np.float64)
    write_policy(tmp_path / "p.npz", PolicyFile(ABOUT, weights))
    back = read_policy(tmp_path / "p.npz")
    assert back.about == ABOUT
    np.testing.assert_array_equal(back.weights, weights)


@pytest.mark.parametrize(
    ("about", "n", "says"),
    [
        (replace(ABOUT, encoding=99), n_weights(), "encoding 99, this version reads encoding"),
        (replace(ABOUT, kind="placement"), n_weights(), "holds a 'placement' policy"),
        (ABOUT, 7, "7 weights where"),
    ],
)
def test_policy_file__that_does_not_fit_is_refused(tmp_path: Path, about: About, n: int, says: str) -> None:
    write_policy(tmp_path / "p.npz", PolicyFile(about, np.zeros(n)))
    with pytest.raises(InputError, match=says):
        read_policy(tmp_path / "p.npz")


def test_policy_file__missing_or_damaged_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such policy file"):
        read_policy(tmp_path / "none.npz")
    path = tmp_path / "p.npz"
    write_policy(path, PolicyFile(ABOUT, np.random.default_rng(0).normal(size=n_weights())))
    whole = path.read_bytes()
    middle = len(whole) // 2
    for broken in (b"", b"hello", whole[:200], whole[:middle], whole[:middle] + b"????" + whole[middle + 4 :]):
        path.write_bytes(broken)
        with pytest.raises(InputError, match=r"policy file|damaged"):
            read_policy(path)


def test_mean_field__refuses_a_card_of_another_size(tmp_path: Path) -> None:
    path = tmp_path / "p.npz"
    write_policy(path, PolicyFile(ABOUT, np.zeros(n_weights())))
    rule = MeanField(policy_file=str(path))
    cuts = cuts_of(Cluster(parse_gpus("2xa30", "")), rule)
    world = build_world(cuts, load(PLACEMENTS, "placement", "shortest-work")(), Settings(), counted=True)
    with pytest.raises(InputError, match="trained on a100-40gb, whose cuts differ from those of a30"):
        rule.knobs(cuts, world)


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.npz")), ids=lambda path: path.name)
def test_shipped_policy__is_small_and_says_how_it_was_made(path: Path) -> None:
    kind, verb, score = {
        "prices": (PRICES, "placement", "validation_score"),
        "joint": (JOINT, "joint", "validation_et"),
        "mean": (MEAN_FIELD, "repartition", "validation_et"),
        "gang": (GANG, "gang", "validation_score"),
    }[path.name.partition("-")[0]]
    predicts = path.name.endswith("-run-times.npz")
    about = read_policy(path, RUN_TIMES if predicts else kind).about
    assert path.stat().st_size < 100_000
    assert about.command.startswith(f"smartmig train {verb} -o")
    assert f"-o {path.name.replace('-run-times', '')}" in about.command
    assert predicts or np.isfinite(about.scores[score])
