"""The fast whole-GPU engine and its plain twin give the same run, whatever the cluster, jobs, rules and backfill."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from smartmig.hardware.nodes import Node, NodeCluster
from smartmig.jit import kernel
from smartmig.policy.allocation.best_fit import BestFit
from smartmig.policy.gang_plain import PlainGang
from smartmig.policy.gang_view import JobArrays, State, World, can_start, next_waiting
from smartmig.policy.selection.rule import Ordered
from smartmig.policy.view import Kernel
from smartmig.registry import ALLOCATIONS, SELECTIONS
from smartmig.sim.gang.reference import simulate_plainly
from smartmig.sim.gang.run import simulate
from smartmig.sim.gang.world import Backfill, GangPolicy
from smartmig.types import GangJobs, GangRun
from strategies import gang_policy, gang_worlds

FIXED = ("fcfs", "lcfs", "sjf", "sjf-predicted", "sjf-oracle", "f1")
ENGINES = [
    *((FIXED, allocation) for allocation in ALLOCATIONS),
    (("wfp",), "best-fit"),
    (("unicep",), "topology-aware"),
    (("multifactor",), "fragmentation-aware"),
]


def rows(run: GangRun) -> list[tuple[float, ...]]:
    s = run.stretches
    return sorted(zip(s.job, s.node, s.n_gpus, s.from_s, s.to_s, strict=True))


def assert_same(fast: GangRun, plain: GangRun) -> None:
    for column in ("start_s", "finish_s", "promised_s", "killed", "n_starts"):
        np.testing.assert_array_equal(getattr(fast, column), getattr(plain, column), err_msg=column)
    assert (fast.makespan_s, fast.n_events) == (plain.makespan_s, plain.n_events)
    assert rows(fast) == rows(plain)


@pytest.mark.parametrize(("selections", "allocation"), ENGINES)
@given(data=st.data(), world=gang_worlds(), backfill=st.sampled_from(Backfill), spread=st.booleans())
@hypothesis_settings(max_examples=60)
def test_gang_kernel__equals_reference(
    selections: tuple[str, ...],
    allocation: str,
    data: st.DataObject,
    world: tuple[GangJobs, NodeCluster],
    backfill: Backfill,
    spread: bool,
) -> None:
    jobs, cluster = world
    policy = gang_policy(data.draw(st.sampled_from(selections)), allocation, backfill, spread)
    guess = st.lists(st.integers(0, 30), min_size=len(jobs), max_size=len(jobs))
    predicted_s = np.array(data.draw(guess), dtype=float)
    assert_same(simulate(jobs, cluster, policy, predicted_s), simulate_plainly(jobs, cluster, policy, predicted_s))


@kernel
def largest_that_fits(world: World, jobs: JobArrays, state: State) -> int:
    chosen = -1
    at = next_waiting(state, 0)
    while at >= 0:
        if can_start(world, jobs, state, at) and (chosen < 0 or jobs.spec[at].n_gpus > jobs.spec[chosen].n_gpus):
            chosen = at
        at = next_waiting(state, at + 1)
    # Nothing fits: the oldest gets the reservation, once.
    return next_waiting(state, 0) if chosen < 0 and state.now[0].reserved < 0 else chosen


@dataclass(frozen=True)
class LargestThatFits(Ordered):
    """Picks job by job, as a learned rule does."""

    select: ClassVar[Kernel | None] = largest_that_fits

    def plain_select(self, view: PlainGang) -> int | None:
        fitting = [job for job in sorted(view.queue) if view.can_start(job)]
        if fitting:
            return max(fitting, key=lambda job: (view.jobs.n_gpus[job], -job))
        return min(view.queue) if not view.reserved else None


@given(world=gang_worlds(), backfill=st.sampled_from([Backfill.none, Backfill.easy]))
@hypothesis_settings(max_examples=60)
def test_gang_kernel__equals_reference_for_a_rule_that_picks(
    world: tuple[GangJobs, NodeCluster], backfill: Backfill
) -> None:
    policy = GangPolicy(LargestThatFits(), BestFit(), backfill)
    assert_same(simulate(*world, policy), simulate_plainly(*world, policy))


@pytest.mark.slow
@pytest.mark.parametrize("allocation", ALLOCATIONS)
@pytest.mark.parametrize("selection", SELECTIONS)
def test_gang__every_combination_runs(selection: str, allocation: str) -> None:
    cluster = NodeCluster((Node(4), Node(4, switch=1), Node(2, switch=1)))
    n = 40
    rng = np.random.default_rng(1)
    empty = np.full(n, "")
    jobs = GangJobs(
        np.arange(n).astype(str),
        np.sort(rng.integers(0, 200, n)).astype(float),
        rng.integers(1, 60, n).astype(float),
        rng.integers(40, 90, n).astype(float),
        rng.choice([1, 2, 4, 6], n),
        empty,
        rng.choice(["u", "v"], n),
        empty,
        np.full(n, np.nan),
        0.0,
    )
    for backfill in Backfill:
        if selection == "learned" and backfill is Backfill.conservative:
            continue  # it picks job by job: refused, see test_bad_input
        policy = gang_policy(selection, allocation, backfill)
        assert_same(simulate(jobs, cluster, policy), simulate_plainly(jobs, cluster, policy))
