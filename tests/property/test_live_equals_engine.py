"""The control loop on a simulated cluster starts the same jobs at the same times on the same nodes as the engine."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from smartmig.adapters.simulated import Edge, SimulatedCluster, connect, gang_arrivals, mig_arrivals, mig_nodes
from smartmig.control.decide import Decider, LivePolicy
from smartmig.control.memory import Memory, Use
from smartmig.control.mig import MigPolicy
from smartmig.hardware.cluster import parse_gpus, parse_layouts
from smartmig.hardware.nodes import NodeCluster
from smartmig.policy.selection.learned import Learned as LearnedSelection
from smartmig.registry import ALLOCATIONS, load
from smartmig.sim.gang.run import simulate
from smartmig.sim.gang.world import Backfill, GangPolicy
from smartmig.sim.mig.run import Cluster
from smartmig.sim.mig.run import simulate as simulate_mig
from smartmig.sim.mig.world import Settings
from smartmig.types import GangJobs, Jobs, NodeInfo
from strategies import gang_policy, gang_worlds, job_sets, policies

ENGINES = [
    *((("fcfs", "lcfs", "sjf", "sjf-predicted", "f1"), allocation) for allocation in ALLOCATIONS),
    (("wfp",), "best-fit"),
    (("unicep",), "topology-aware"),
    (("multifactor",), "fragmentation-aware"),
]

Held = list[tuple[str, str, int, float, float]]


def run_live(jobs: GangJobs, cluster: NodeCluster, policy: GangPolicy) -> Held:
    """Who held which GPUs of which node, from when to when."""
    nodes = tuple(
        NodeInfo(f"n{at}", node.n_gpus, node.n_gpus, node.model, switch=node.switch, speed=node.speed)
        for at, node in enumerate(cluster.nodes)
    )
    edges = [Edge(outage.from_s, 1, outage.node, not outage.drain) for outage in cluster.outages]
    edges += [Edge(outage.to_s, -1, outage.node) for outage in cluster.outages if outage.to_s < math.inf]
    simulated = SimulatedCluster(nodes, gang_arrivals(jobs), tuple(edges))
    source, actuator, _ = connect(simulated, speedup=0)
    actuator.take_over(1)
    decider = Decider(LivePolicy(gang=policy))
    # The engine knows every user of the trace from the first moment on.
    memory = Memory(users={str(user): Use() for user in jobs.user} | {"*": Use()})
    held: Held = []
    running: dict[tuple[str, float], tuple[tuple[str, int], ...]] = {}
    wake_s = math.inf
    for _ in range(40 * len(jobs) + 200):
        if simulated.next_event_s == math.inf and wake_s == math.inf:
            break
        source.wait(max(0.0, wake_s - simulated.time_s))
        state = source.observe(1)
        now = {
            (job.request.key.job_id, job.start_s): tuple((s.node, s.n_gpus) for s in job.shares)
            for job in state.running
        }
        for job, shares in running.items():
            if job not in now:
                held += [(job[0], node, n, job[1], state.time_s) for node, n in shares]
        decision = decider.decide(state, memory)
        wake_s = decision.wake_s
        outcomes = actuator.apply(decision.plan, 1)
        memory = decider.applied(state, decision.memory, [action.key for action in decision.plan])
        assert all(outcome.done for outcome in outcomes), outcomes
        running = {
            (job.request.key.job_id, job.start_s): tuple((s.node, s.n_gpus) for s in job.shares)
            for job in source.observe(1).running
        }
    assert not simulated.queue
    return sorted(held)


@pytest.mark.parametrize(("selections", "allocation"), ENGINES)
@given(data=st.data(), world=gang_worlds(), backfill=st.sampled_from(Backfill), spread=st.booleans())
@hypothesis_settings(max_examples=40)
def test_live__starts_what_the_engine_starts(
    selections: tuple[str, ...],
    allocation: str,
    data: st.DataObject,
    world: tuple[GangJobs, NodeCluster],
    backfill: Backfill,
    spread: bool,
) -> None:
    jobs, cluster = world
    policy = gang_policy(data.draw(st.sampled_from(selections)), allocation, backfill, spread)
    check_same(jobs, cluster, policy)


@given(
    world=gang_worlds(),
    backfill=st.sampled_from([Backfill.none, Backfill.easy]),
    guard_s=st.sampled_from([1.0, 5.0, 20.0]),
    pause_s=st.sampled_from([0.0, 4.0, 30.0]),
)
@hypothesis_settings(max_examples=60)
def test_live__learned_agents_and_their_guard_start_what_the_engine_starts(
    world: tuple[GangJobs, NodeCluster], backfill: Backfill, guard_s: float, pause_s: float
) -> None:
    allocation = load(ALLOCATIONS, "allocation", "learned")()
    check_same(*world, GangPolicy(LearnedSelection(guard_s=guard_s, pause_s=pause_s), allocation, backfill))


def check_same(jobs: GangJobs, cluster: NodeCluster, policy: GangPolicy) -> None:
    s = simulate(jobs, cluster, policy).stretches
    names = jobs.job_id[s.job]
    expected = sorted(
        (str(name), f"n{node}", int(n), float(a), float(b))
        for name, node, n, a, b in zip(names, s.node, s.n_gpus, s.from_s, s.to_s, strict=True)
    )
    assert run_live(jobs, cluster, policy) == expected
    assert np.isfinite([row[4] for row in expected]).all()


def run_cards(jobs: Jobs, gpus: str, layouts: str, policy: MigPolicy) -> list[tuple[str, float, float]]:
    """(job, start, end) on a simulated cluster of MIG cards."""
    simulated = SimulatedCluster(mig_nodes(gpus, layouts), mig_arrivals(jobs))
    source, actuator, _ = connect(simulated, speedup=0)
    actuator.take_over(1)
    decider, memory, wake_s = Decider(LivePolicy(mig=policy)), Memory(), math.inf
    while simulated.next_event_s < math.inf:
        source.wait(max(0.0, wake_s - simulated.time_s))
        state = source.observe(1)
        decision = decider.decide(state, memory)
        memory, wake_s = decision.memory, decision.wake_s
        outcomes = actuator.apply(decision.plan, 1)
        assert all(outcome.done for outcome in outcomes), outcomes
    assert not simulated.queue
    return sorted((one.request.key.job_id, one.start_s, one.end_s) for one in simulated.ended)


@pytest.mark.parametrize(
    "placement", ["edf-most-packed", "categorical-edf", "shortest-work", "learned", "random-slice"]
)
@given(jobs=job_sets(), layouts=st.sampled_from(["1,2,10", "5,5,3", "12,1,7"]))
@hypothesis_settings(max_examples=25)
def test_live__places_slices_as_the_engine_does(placement: str, jobs: Jobs, layouts: str) -> None:
    rules = policies(placement, "static")
    gpus = parse_gpus("3xa100-40gb")
    cluster = Cluster(gpus, parse_layouts(layouts, gpus))
    run = simulate_mig(jobs, cluster, rules, Settings(preempt=False, drain=True))
    expected = sorted(
        (str(name), float(start), float(end))
        for name, start, end in zip(jobs.job_id, run.first_start_s, run.finish_s, strict=True)
    )
    live = run_cards(jobs, "3xa100-40gb", layouts, MigPolicy(rules.placement, rules.repartition))
    assert [row[0] for row in live] == [row[0] for row in expected]
    np.testing.assert_allclose([row[1:] for row in live], [row[1:] for row in expected], rtol=1e-12, atol=1e-9)


def test_live__ends_a_rounding_apart_are_one_instant() -> None:
    """Two slices come free 2e-15 s apart: a rule that draws among the free ones must see both, as in the engine."""
    arrive_s, run_s = np.array([3.5, 9.5]), np.full((2, 5), np.inf)
    run_s[:, 4] = 18.5 / 3, 1 / 6
    ends_s = arrive_s + run_s[:, 4]
    assert 0 < abs(ends_s[0] - ends_s[1]) < 1e-14
    empty = np.full(2, "")
    jobs = Jobs(np.arange(2).astype(str), arrive_s, ends_s, run_s, empty, np.zeros(2))
    simulated = SimulatedCluster(mig_nodes("2xa100-40gb", "1,1"), mig_arrivals(jobs))
    simulated.advance_to(9.5)
    assert len(simulated.running) == 2
    simulated.advance_to(simulated.next_event_s)
    assert not simulated.running
