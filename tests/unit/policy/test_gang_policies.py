"""What the agents see and the files they come in."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from smartmig.errors import InputError
from smartmig.gang_scenario import GangPolicySpec
from smartmig.hardware.nodes import parse_nodes
from smartmig.policy.gang_encoding import N_CELLS, N_SIZES, REQUEST_EDGES_S, VERSION, cell_of, cells
from smartmig.policy.gang_files import agents_of, times_of
from smartmig.policy.gang_network import hand_made
from smartmig.policy.policy_file import GANG, MEAN_FIELD, SHIPPED, About, PolicyFile, read_policy, write_policy
from smartmig.policy.run_times import fit_run_times, run_times_of
from smartmig.policy.selection.learned import Learned
from smartmig.sim.gang.run import simulate
from smartmig.sim.gang.world import Backfill
from strategies import make_gangs


@pytest.mark.parametrize("name", ["slowdown", "wait"])
def test_shipped_agents__say_how_they_were_made_and_need_no_torch(name: str) -> None:
    policy = read_policy(SHIPPED / f"gang-{name}.npz", GANG)
    assert policy.about.command.startswith("smartmig train gang")
    assert policy.about.settings["goal"] == name
    assert (SHIPPED / f"gang-{name}.npz").stat().st_size < 50_000
    assert times_of(agents_of(name).predictor).mean_s.min() > 0
    with pytest.raises(InputError, match="holds a 'gang' policy, needed is 'mean-field'"):
        read_policy(SHIPPED / f"gang-{name}.npz", MEAN_FIELD)


def test_cells__are_the_same_for_arrays_and_kernels() -> None:
    limits = np.array([1.0, *REQUEST_EDGES_S, *(edge + 1 for edge in REQUEST_EDGES_S), np.inf])
    sizes = np.array([1, 2, 3, 4, 5, 8, 9, 100])
    for n_gpus in sizes:
        many = cells(limits, np.full(limits.size, n_gpus))
        assert many.tolist() == [cell_of(limit, n_gpus) for limit in limits]
        assert many.max() < N_CELLS


def test_run_times__learn_a_cells_mean_and_lean_on_its_class() -> None:
    limit_s, n_gpus = np.full(4000, 3600.0), np.repeat([1, 8], 2000)
    run_s = np.where(n_gpus == 1, 100.0, 1000.0)
    times = fit_run_times(limit_s, n_gpus, run_s)
    assert times.mean_s[0] == pytest.approx(100, rel=0.1)
    assert times.mean_s[3] == pytest.approx(1000, rel=0.1)
    assert 100 < times.mean_s[1] < 1000  # nobody asked for two GPUs
    assert times.urgency[0] == pytest.approx(0.01, rel=0.1)
    assert (times.predict(np.array([50.0]), np.array([8])) == 50.0).all()  # never above the request
    again = run_times_of(times.vector())
    np.testing.assert_array_equal(again.mean_s, times.mean_s)
    assert times.mean_s.size == N_CELLS == times.urgency.size
    assert times.mean_s[5 * N_SIZES] > times.mean_s[N_SIZES]


def test_learned__keeps_its_reservations_without_backfill() -> None:
    """The head of an overdue queue is reserved for, and short jobs pass it: strict and EASY are the same to it."""
    jobs = make_gangs((0, 6, 500, 600), (1, 8, 50, 60), (2, 2, 90, 100), (3, 1, 5, 10))
    cluster = parse_nodes("1x8")
    starts = []
    for backfill in (Backfill.none, Backfill.easy):
        rule = {"id": "learned", "guard_s": 0.5}
        starts.append(simulate(jobs, cluster, GangPolicySpec(rule, "learned", backfill).policy()).start_s.tolist())
    assert starts[0] == starts[1]
    assert starts[0][1] == 500.0
    assert starts[0][2] == 2.0


def test_learned__an_empty_cluster_never_waits() -> None:
    """However much room a rule wants to keep."""
    jobs = make_gangs((0, 8, 50, 90_000), (1, 8, 50, 90_000), (2, 8, 50, 90_000))
    run = simulate(jobs, parse_nodes("1x8"), GangPolicySpec("learned", "learned").policy())
    assert run.start_s.tolist() == [0.0, 50.0, 100.0]


def test_learned__keeps_a_node_for_urgent_jobs_while_such_come(tmp_path: Path) -> None:
    """Thirty lasting jobs fill thirty nodes, unless a brief one of a whole node came of late: then the last of them
    waits, until that was long enough ago."""
    rule = hand_made(need_large=(-1.0, 0.5, 0.5, 0.5), quiet=(1.0, 1.0, 0.3))
    about = About(GANG, VERSION, ("30x8",), "", preempt=False, drain=False, command="none")
    write_policy(tmp_path / "rule.npz", PolicyFile(about, rule))
    learned = {"id": "learned", "policy_file": str(tmp_path / "rule.npz")}
    policy = GangPolicySpec(learned, learned, Backfill.easy).policy()
    lasting = [(10, 8, 80_000, 86_000)] * 30
    looks = [(60.0 * minute, 1, 5, 10) for minute in range(1, 300)]  # an event a minute: somebody looks
    quiet = simulate(make_gangs((0, 1, 5, 10), *lasting), parse_nodes("30x8"), policy)
    assert quiet.start_s[1:].tolist() == [10.0] * 30
    run = simulate(make_gangs((0, 8, 5, 1000), *lasting, *looks), parse_nodes("30x8"), policy)
    starts = sorted(run.start_s[1:31].tolist())
    assert starts[:29] == [10.0] * 29
    ends_s = -3600.0 * math.log(math.expm1(0.15))  # half quiet: the need of 0.5 is down to 0
    assert ends_s < starts[29] < ends_s + 65


@pytest.mark.parametrize("knobs", [{"guard_s": 0.0}, {"pause_s": -1.0}])
def test_learned__refuses_a_guard_that_is_none(knobs: dict[str, float]) -> None:
    with pytest.raises(InputError, match="guard_s must be above 0"):
        Learned(**knobs)


def test_agents__a_damaged_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "half.npz").write_bytes((SHIPPED / "gang-wait.npz").read_bytes()[:500])
    with pytest.raises(InputError, match="not a policy file, or a damaged one"):
        agents_of(str(tmp_path / "half.npz"))
