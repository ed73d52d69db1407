"""The two agents: compiled as plain, within their bound on waiting, blind to true run times."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from smartmig.hardware.nodes import NodeCluster
from smartmig.policy import gang_encoding
from smartmig.policy.allocation.learned import Learned as LearnedAllocation
from smartmig.policy.gang_network import N_RULE, hand_made, n_gang_weights
from smartmig.policy.policy_file import GANG, About, PolicyFile, write_policy
from smartmig.policy.selection.learned import Learned
from smartmig.sim.gang.reference import simulate_plainly
from smartmig.sim.gang.run import simulate
from smartmig.sim.gang.world import Backfill, GangPolicy
from smartmig.types import GangJobs
from strategies import gang_worlds

World = tuple[GangJobs, NodeCluster]
N_POLICIES = 4


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Files of agents that nobody trained: rules and networks drawn at random."""
    folder: Path = tmp_path_factory.mktemp("agents")
    names = []
    for seed in range(N_POLICIES):
        rng = np.random.default_rng(seed)
        weights = rng.normal(0, 1.0, n_gang_weights())
        weights[:N_RULE] = hand_made()[:N_RULE] + rng.normal(0, 0.7, N_RULE)
        about = About(GANG, gang_encoding.VERSION, ("3x8",), "", preempt=False, drain=False, command="none")
        write_policy(folder / f"{seed}.npz", PolicyFile(about, weights))
        names.append(str(folder / f"{seed}.npz"))
    return names


def policy(name: str, guard_s: float = 50.0, pause_s: float = 10.0, spread: bool = False) -> GangPolicy:
    return GangPolicy(Learned(name, "", guard_s, pause_s), LearnedAllocation(name, spread), Backfill.none)


@given(world=gang_worlds(), number=st.integers(0, N_POLICIES - 1), guard_s=st.sampled_from([5.0, 50.0, 1e9]))
@hypothesis_settings(max_examples=60)
def test_agents__kernel_equals_plain_twin(agents: list[str], world: World, number: int, guard_s: float) -> None:
    who = policy(agents[number], guard_s)
    fast, plain = simulate(*world, who), simulate_plainly(*world, who)
    np.testing.assert_array_equal(fast.start_s, plain.start_s)
    np.testing.assert_array_equal(fast.finish_s, plain.finish_s)
    ours, theirs = fast.stretches, plain.stretches
    held = [sorted(zip(s.from_s, s.job, s.node, s.n_gpus, strict=True)) for s in (ours, theirs)]
    assert held[0] == held[1]


@given(
    world=gang_worlds(away=False),
    number=st.integers(0, N_POLICIES - 1),
    guard_s=st.sampled_from([0.5, 5.0, 30.0]),
    pause_s=st.sampled_from([0.0, 3.0, 20.0]),
    spread=st.booleans(),
)
@hypothesis_settings(max_examples=80)
def test_guard__bounds_extra_waiting(
    agents: list[str], world: World, number: int, guard_s: float, pause_s: float, spread: bool
) -> None:
    jobs, cluster = world
    if not np.isfinite(jobs.limit_s).all():
        jobs = GangJobs(**{**vars(jobs), "limit_s": np.where(np.isinf(jobs.limit_s), 90.0, jobs.limit_s)})
    run = simulate(jobs, cluster, policy(agents[number], guard_s, pause_s, spread))
    longest_s = float(jobs.limit_s.max())
    due_s = jobs.submit_s + guard_s
    for job in range(len(jobs)):
        n_ahead = int((run.start_s[:job] > due_s[job]).sum())
        assert run.start_s[job] <= due_s[job] + (n_ahead + 1) * (pause_s + longest_s)
