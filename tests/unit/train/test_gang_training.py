"""Training the two agents: on a cluster where long jobs must leave room, whole, stopped and resumed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from live_cluster import fallbacks, gang_loop
from smartmig.cli.live_policy import PolicyNames
from smartmig.cli.policy_files import trained_ranges
from smartmig.errors import InputError
from smartmig.gang_scenario import GangPolicySpec
from smartmig.hardware.nodes import parse_nodes
from smartmig.metrics.gang import summarise
from smartmig.policy.gang_encoding import N_CLUSTER
from smartmig.policy.gang_network import N_RULE, N_SELECTOR
from smartmig.policy.run_times import fit_run_times
from smartmig.sim.gang.run import simulate
from smartmig.sim.gang.world import Backfill
from smartmig.train.settings import GangTraining
from smartmig.types import GangJobs

torch = pytest.importorskip("torch", reason="pip install 'smartmig[train]'")

from smartmig.sim.gang.batch import Stretches, Tape, cost_to_go  # noqa: E402
from smartmig.sim.gang.explore import MAX_SLOTS, RECORD_HEAD, SLOT_WIDTH  # noqa: E402
from smartmig.train.gang import GangTrainer, start  # noqa: E402
from smartmig.train.gang_network import GangNet, choice_log_probability  # noqa: E402

CLUSTER = parse_nodes("4x4")
DAY_S = 86_400.0
SMALL = GangTraining(
    generations=3, candidates=6, elite=2, updates=2, families=1, siblings=2, stretch_days=3.0, request_seeds=1,
    validation_seeds=1, validate_every=1, kept_share=1.0,
)  # fmt: skip


def crowd(seed: int, days: float = 6.0, n_jobs: int = 900) -> GangJobs:
    """Minutes-long jobs and day-long ones, of one GPU or a node, on a cluster that is nearly full."""
    rng = np.random.default_rng(seed)
    short = rng.random(n_jobs) < 0.9
    run_s = np.where(short, rng.uniform(30, 900, n_jobs), rng.uniform(2, 12, n_jobs) * 3600)
    empty = np.full(n_jobs, "")
    return GangJobs(
        job_id=np.arange(n_jobs).astype(str),
        submit_s=np.sort(rng.uniform(0, days * DAY_S, n_jobs)),
        run_s=run_s,
        limit_s=np.where(short, 3600.0, 2 * DAY_S),
        n_gpus=rng.choice([1, 2, 4], n_jobs, p=[0.4, 0.2, 0.4]),
        gpu_model=empty,
        user=empty,
        group=empty,
        waited_s=np.full(n_jobs, np.nan),
        origin_s=0.0,
    )


def trainer(training: GangTraining = SMALL) -> GangTrainer:
    return GangTrainer(crowd, lambda seed: crowd(100 + seed), CLUSTER, training, n_threads=1)


def test_training__finds_agents_that_beat_shortest_request_first(tmp_path: Path) -> None:
    mine = trainer()
    while mine.iteration < mine.total:
        mine.update()
    mine.export(tmp_path / "mine.npz", "smartmig train gang", "4x4")
    rule = {"id": "learned", "policy_file": str(tmp_path / "mine.npz")}
    crowds = [crowd(seed) for seed in range(200, 205)]
    learned, sjf = (
        sum(summarise(jobs, simulate(jobs, CLUSTER, spec.policy()), CLUSTER).mean_bounded_slowdown for jobs in crowds)
        for spec in (GangPolicySpec(rule, rule), GangPolicySpec("sjf", "best-fit", Backfill.easy))
    )
    assert learned < 0.8 * sjf
    assert {"train_score", "selector_kl", "allocator_kl"} <= set(mine.curve[-1])


def test_training__writes_down_what_the_agents_saw(tmp_path: Path) -> None:
    """A live guard lets them decide about such jobs, and about no others."""
    mine, names = tmp_path / "mine.npz", {"id": "learned", "policy_file": str(tmp_path / "mine.npz")}
    trainer(replace(SMALL, predictor=True)).export(mine, "smartmig train gang", "4x4")
    chosen = PolicyNames(selection=names, allocation=names)
    ranges = trained_ranges(chosen.policy(("gang",)))
    low, high = ranges["gang"]
    assert ((low < high) & (low < 0.5) & (high > 0.5)).sum() > 20
    assert np.isinf(low[9:36]).all(), "the nodes of other GPU models are not looked at"

    def why(jobs: GangJobs, folder: str) -> set[str]:
        (tmp_path / folder).mkdir()
        loop, _ = gang_loop(tmp_path / folder, jobs, "4x4", names=chosen)
        loop.pilot.ranges = ranges
        return fallbacks(loop, 60)

    assert why(crowd(7), "usual") == {""}
    large = crowd(7)
    large.n_gpus[5:] = 16
    assert any("inputs lie outside what the policy was trained on" in one for one in why(large, "large"))


def test_training__stopped_and_resumed_gives_the_same_agents(tmp_path: Path) -> None:
    whole = trainer()
    while whole.iteration < whole.total:
        whole.update()
    first = trainer()
    for _ in range(4):  # into the PPO updates
        first.update()
    first.save(tmp_path / "a.ckpt")
    second = trainer()
    second.load(tmp_path / "a.ckpt")
    while second.iteration < second.total:
        second.update()
    np.testing.assert_array_equal(whole.net.vector(), second.net.vector())
    np.testing.assert_array_equal(whole.best, second.best)
    with pytest.raises(InputError, match="was trained with candidates 6, asked is 8"):
        trainer(replace(SMALL, candidates=8)).load(tmp_path / "a.ckpt")


def test_tape__holds_what_torch_computes() -> None:
    """The kernel's draw and the torch mirror give a choice the same probability."""
    net = GangNet(seed=1)
    with torch.no_grad():
        for name in ("slot_out", "wait_out", "kind_out"):
            net.weights[name].copy_(
                0.3 * torch.randn(net.weights[name].shape, generator=torch.Generator().manual_seed(2))
            )
    net.start_from(start())
    jobs = crowd(3, days=2.0, n_jobs=300)
    times = fit_run_times(jobs.limit_s, jobs.n_gpus, jobs.run_s)
    tape = Tape(slots=400, kinds=400, share=1.0, from_s=0.0, temperature=0.5)
    played = Stretches([jobs], CLUSTER, times, (1e9, 0.0), n_threads=1).play([0], net.vector(), [7], tape)[0]
    assert len(played.slots) > 100
    assert len(played.kinds) > 20
    for records, scores in ((played.slots, net.slots), (played.kinds, net.kinds)):
        tensor = torch.tensor(records)
        log_p, entropy = choice_log_probability(scores(tensor), tensor, 0.5)
        np.testing.assert_allclose(log_p.detach().numpy(), records[:, 3], atol=2e-4)
        assert float(entropy.detach()) > 0.01
    options = played.slots[:, RECORD_HEAD + N_CLUSTER :].reshape(-1, MAX_SLOTS, SLOT_WIDTH)
    assert (played.slots[:, 1] < played.slots[:, 2]).all()
    assert np.isfinite(options).all()


def test_network__starts_as_the_rule_alone() -> None:
    net = GangNet(seed=0)
    net.start_from(start())
    jobs = crowd(4, days=2.0, n_jobs=300)
    stretches = Stretches([jobs], CLUSTER, None, (1e9, 0.0), n_threads=1)
    with_net, rule = stretches.waits([0, 0], [net.vector(), start()])
    np.testing.assert_array_equal(with_net, rule)
    assert (net.vector()[:N_RULE] == start()[:N_RULE].astype(np.float32)).all()
    assert net.vector()[N_SELECTOR] == 1.0


def test_cost_to_go__adds_up_what_waiting_costs() -> None:
    jobs = crowd(5, days=1.0, n_jobs=4)
    start_s = jobs.submit_s + np.array([0.0, 600.0, 0.0, 0.0])
    grid_s, to_go = cost_to_go(jobs, start_s, np.full(4, 2.0), horizon_s=1e12, step_s=60.0)
    before = np.searchsorted(grid_s, jobs.submit_s[1]) - 1
    assert to_go[before] == pytest.approx(2.0 * 600.0, abs=2 * 60.0 * 2)
    assert to_go[-1] == 0.0


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"goal": "speed"}, "--goal: got 'speed'"),
        ({"siblings": 1}, "--siblings must be at least 2"),
        ({"kept_share": 0.0}, "--kept-share must lie in"),
        ({"temperature": 0.0}, "--temperature must be above 0"),
        ({"stretch_days": 99.0}, "shorter than --stretch-days 99"),
    ],
)
def test_settings__wrong_ones_are_one_sentence(wrong: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        trainer(replace(SMALL, **wrong))
