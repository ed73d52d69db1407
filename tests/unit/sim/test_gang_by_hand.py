"""Small schedules of whole-GPU jobs worked out by hand, on the fast engine and on its plain twin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from smartmig.errors import InputError, NoNodesFit, SimulationError
from smartmig.hardware.nodes import Node, NodeCluster, Outage, parse_nodes
from smartmig.jit import kernel
from smartmig.policy.allocation.best_fit import BestFit
from smartmig.policy.gang_view import JobArrays, State, World, copy_state
from smartmig.policy.selection.rule import Ordered
from smartmig.policy.view import Kernel
from smartmig.sim.gang.kernel import FINISHED, PAUSED
from smartmig.sim.gang.reference import simulate_plainly
from smartmig.sim.gang.run import compiled, simulate
from smartmig.sim.gang.world import Backfill, GangPolicy, build_jobs, build_world, fresh_state
from smartmig.types import GangRun
from strategies import gang_policy, make_gangs

Simulate = Callable[..., GangRun]
ENGINES = pytest.mark.parametrize("engine", [simulate, simulate_plainly])
INF = float("inf")


def nodes_of(run: GangRun, job: int) -> dict[int, int]:
    """node -> GPUs of it that the job held."""
    mine = run.stretches.job == job
    return dict(zip(run.stretches.node[mine].tolist(), run.stretches.n_gpus[mine].tolist(), strict=True))


# ------------------------------------------------------------------------------------------------------------ backfill


@ENGINES
@pytest.mark.parametrize(("backfill", "starts"), [("none", [0, 10, 15]), ("easy", [0, 10, 0])])
def test_backfill__a_short_job_may_pass_a_blocked_head(engine: Simulate, backfill: str, starts: list[float]) -> None:
    jobs = make_gangs((0, 3, 10, 10), (0, 4, 5, 5), (0, 1, 2, 2))
    run = engine(jobs, parse_nodes("1x4"), gang_policy("fcfs", "best-fit", backfill))
    assert run.start_s.tolist() == starts


@ENGINES
def test_easy__what_would_delay_the_head_waits(engine: Simulate) -> None:
    # The last job ends after 2 s, but asks for 20: the head, promised 10, must not depend on that.
    jobs = make_gangs((0, 3, 10, 10), (0, 4, 5, 5), (0, 1, 2, 20))
    run = engine(jobs, parse_nodes("1x4"), gang_policy("fcfs", "best-fit", "easy"))
    assert run.start_s.tolist() == [0, 10, 15]
    assert run.promised_s[1] == 10


@ENGINES
def test_easy__a_long_job_takes_gpus_the_head_does_not_need(engine: Simulate) -> None:
    # The head gets node 0 at 10; the free GPU of node 1 is nobody's.
    jobs = make_gangs((0, 3, 10, 10), (0, 3, 50, 50), (0, 4, 5, 5), (0, 1, 100, 100))
    run = engine(jobs, parse_nodes("2x4"), gang_policy("fcfs", "best-fit", "easy"))
    assert run.start_s.tolist() == [0, 0, 10, 0]
    assert nodes_of(run, 3) == {1: 1}


@ENGINES
def test_easy__protects_the_head_only_conservative_everyone(engine: Simulate) -> None:
    # Head: 3 GPUs at 10. Third: all 4 at 15. Last: one GPU for 100 s, which the head leaves and the third does not.
    jobs = make_gangs((0, 2, 10, 10), (0, 3, 5, 5), (0, 4, 10, 10), (0, 1, 100, 100))
    easy = engine(jobs, parse_nodes("1x4"), gang_policy("fcfs", "best-fit", "easy"))
    assert easy.start_s.tolist() == [0, 10, 100, 0]
    conservative = engine(jobs, parse_nodes("1x4"), gang_policy("fcfs", "best-fit", "conservative"))
    assert conservative.start_s.tolist() == [0, 10, 15, 25]
    assert conservative.promised_s.tolist() == [0, 10, 15, 25]


@ENGINES
def test_conservative__reservations_move_up_when_a_job_ends_early(engine: Simulate) -> None:
    jobs = make_gangs((0, 4, 3, 10), (0, 4, 5, 5), (0, 4, 1, 1))
    run = engine(jobs, parse_nodes("1x4"), gang_policy("fcfs", "best-fit", "conservative"))
    assert run.promised_s.tolist() == [0, 10, 15]
    assert run.start_s.tolist() == [0, 3, 8]


@ENGINES
def test_easy__without_limits_nobody_can_be_promised_anything(engine: Simulate) -> None:
    jobs = make_gangs((0, 3, 10, INF), (0, 4, 5, INF), (0, 1, 20, INF))
    run = engine(jobs, parse_nodes("1x4"), gang_policy("fcfs", "best-fit", "easy"))
    assert run.start_s.tolist() == [0, 20, 0]
    assert np.isnan(run.promised_s).all()


# --------------------------------------------------------------------------------------------------- nodes and models


@ENGINES
def test_gang__large_jobs_take_whole_nodes_and_a_rest(engine: Simulate) -> None:
    jobs = make_gangs((0, 9, 10, 10))
    run = engine(jobs, parse_nodes("3x4"), gang_policy("fcfs", "best-fit"))
    assert nodes_of(run, 0) == {0: 4, 1: 4, 2: 1}


@ENGINES
def test_gang__a_small_job_waits_for_one_node_unless_the_rule_spreads(engine: Simulate) -> None:
    jobs = make_gangs((0, 3, 10, 10), (0, 3, 10, 10), (0, 2, 5, 5))
    together = engine(jobs, parse_nodes("2x4"), gang_policy("fcfs", "best-fit"))
    assert together.start_s.tolist() == [0, 0, 10]
    spread = engine(jobs, parse_nodes("2x4"), gang_policy("fcfs", "best-fit", spread=True))
    assert spread.start_s.tolist() == [0, 0, 0]
    assert nodes_of(spread, 2) == {0: 1, 1: 1}


@ENGINES
def test_gang__models_and_speeds(engine: Simulate) -> None:
    # Twice as fast on b; a job over both runs at the slower one's pace; `c` was never bought, `a|c` has a choice.
    cluster = parse_nodes("1x2:a,1x2:b@2")
    jobs = make_gangs((0, 1, 10, 20), (0, 1, 10, 20), (30, 4, 10, 20), model="b a|c a|b")
    run = engine(jobs, cluster, gang_policy("fcfs", "first-available"))
    assert run.finish_s.tolist() == [5, 10, 40]
    assert (nodes_of(run, 0), nodes_of(run, 1)) == ({1: 1}, {0: 1})


@ENGINES
def test_gang__is_killed_at_its_limit(engine: Simulate) -> None:
    run = engine(make_gangs((0, 1, 10, 4), (0, 1, 4, 4)), parse_nodes("1x2"), gang_policy("fcfs", "best-fit"))
    assert run.finish_s.tolist() == [4, 4]
    assert run.killed.tolist() == [True, False]


@ENGINES
def test_failure__kills_the_whole_gang_and_queues_it_again(engine: Simulate) -> None:
    cluster = NodeCluster((Node(2), Node(2)), (Outage(1, 5.0, 20.0),))
    jobs = make_gangs((0, 4, 10, 30), (1, 1, 3, 3))
    run = engine(jobs, cluster, gang_policy("fcfs", "best-fit", "easy"))
    # Both nodes are needed again from 20 on; the small one uses node 0 meanwhile.
    assert run.start_s.tolist() == [20, 5]
    assert run.finish_s.tolist() == [30, 8]
    assert run.n_starts.tolist() == [2, 1]
    assert run.stretches.to_s[run.stretches.job == 0].tolist() == [5, 5, 30, 30]


@ENGINES
def test_drain__lets_jobs_end_and_takes_no_new_ones(engine: Simulate) -> None:
    cluster = NodeCluster((Node(2),), (Outage(0, 5.0, 20.0, drain=True),))
    run = engine(make_gangs((0, 1, 10, 10), (6, 1, 1, 1)), cluster, gang_policy("fcfs", "best-fit"))
    assert run.finish_s.tolist() == [10, 21]


@ENGINES
def test_outage__two_on_end_are_one(engine: Simulate) -> None:
    cluster = NodeCluster((Node(1),), (Outage(0, 5.0, 10.0), Outage(0, 10.0, 20.0)))
    run = engine(make_gangs((6, 1, 1, 1)), cluster, gang_policy("fcfs", "best-fit", "conservative"))
    assert run.start_s.tolist() == [20]


# --------------------------------------------------------------------------------------------------------- allocation


THREE = NodeCluster((Node(4, "a"), Node(4, "b"), Node(4, "c")))


@ENGINES
@pytest.mark.parametrize(("allocation", "node"), [("first-available", 0), ("best-fit", 1), ("topology-aware", 1)])
def test_allocation__first_or_tightest_node(engine: Simulate, allocation: str, node: int) -> None:
    # Free: 3, 1 and 2 GPUs.
    jobs = make_gangs((0, 1, 50, 50), (0, 3, 50, 50), (0, 2, 50, 50), (1, 1, 9, 9), model="a b c a|b|c")
    run = engine(jobs, THREE, gang_policy("fcfs", allocation))
    assert nodes_of(run, 3) == {node: 1}


@ENGINES
@pytest.mark.parametrize(("allocation", "node"), [("best-fit", 0), ("fragmentation-aware", 2)])
def test_fragmentation_aware__goes_beside_jobs_that_end_no_earlier(
    engine: Simulate, allocation: str, node: int
) -> None:
    # Three GPUs free everywhere; node 2 stays in use until 200 anyway, the others would be whole again for the next
    # job of four at 50.
    rows = ((0, 4, 1, 1), (2, 1, 50, 50), (2, 1, 50, 50), (2, 1, 200, 200), (3, 1, 100, 100))
    run = engine(make_gangs(*rows, model="a a b c a|b|c"), THREE, gang_policy("fcfs", allocation))
    assert nodes_of(run, 4) == {node: 1}


@ENGINES
def test_topology_aware__keeps_a_gang_on_one_switch(engine: Simulate) -> None:
    # Switch 0 has one idle node left, switch 1 two: the pair goes there, though node 1 comes first.
    cluster = parse_nodes("4x2", nodes_per_switch=2)
    jobs = make_gangs((0, 1, 50, 50), (1, 4, 10, 10))
    assert nodes_of(engine(jobs, cluster, gang_policy("fcfs", "topology-aware")), 1) == {2: 2, 3: 2}
    assert nodes_of(engine(jobs, cluster, gang_policy("fcfs", "best-fit")), 1) == {1: 2, 2: 2}


@ENGINES
def test_topology_aware__fills_the_busier_switch_first(engine: Simulate) -> None:
    cluster = parse_nodes("4x2", nodes_per_switch=2)
    # At 2, nodes 0, 1 and 3 are idle: two GPUs would be left on switch 0, none on switch 1.
    jobs = make_gangs((0, 2, 1, 1), (0, 2, 1, 1), (0, 2, 50, 50), (2, 2, 10, 10))
    assert nodes_of(engine(jobs, cluster, gang_policy("fcfs", "topology-aware")), 3) == {3: 2}
    assert nodes_of(engine(jobs, cluster, gang_policy("fcfs", "best-fit")), 3) == {0: 2}


# ---------------------------------------------------------------------------------------------------------- selection


def order_of(engine: Simulate, selection: str, jobs: tuple[tuple[float, int, float, float], ...], **more: str) -> str:
    """Letters of the jobs in the order they start on one GPU-pair, after a job that holds it until 100."""
    table = make_gangs((0, 2, 100, 100), *jobs, **more)
    run = engine(table, parse_nodes("1x2"), gang_policy(selection, "best-fit"))
    return "".join("abcdef"[job - 1] for job in np.argsort(run.start_s, kind="stable") if job > 0)


# submission, GPUs, run, limit
TRIO = ((10, 2, 30, 40), (20, 2, 10, 50), (30, 2, 20, 20))


@ENGINES
@pytest.mark.parametrize(
    ("selection", "order"),
    [
        ("fcfs", "abc"),
        ("lcfs", "cba"),
        ("sjf", "cab"),
        ("sjf-predicted", "cab"),  # without predictions: the requests
        ("sjf-oracle", "bca"),
        ("f1", "abc"),  # 870 log10(submission) outweighs two GPUs' requests
    ],
)
def test_selection__fixed_orders(engine: Simulate, selection: str, order: str) -> None:
    assert order_of(engine, selection, TRIO) == order


@ENGINES
def test_sjf_predicted__uses_the_predictions(engine: Simulate) -> None:
    jobs = make_gangs((0, 2, 100, 100), *TRIO)
    run = engine(jobs, parse_nodes("1x2"), gang_policy("sjf-predicted", "best-fit"), np.array([1.0, 3, 1, 2]))
    assert np.argsort(run.start_s).tolist() == [0, 2, 3, 1]


@ENGINES
def test_wfp__large_jobs_that_waited_long_for_what_they_ask(engine: Simulate) -> None:
    # At 100: a (90/40)^3 x 2 = 22.8, b (80/50)^3 x 2 = 8.2, c (70/20)^3 x 2 = 85.8.
    # At 120: a (110/40)^3 x 2 = 41.6, b (100/50)^3 x 2 = 16.
    assert order_of(engine, "wfp", TRIO) == "cab"
    # (90/100)^3 x 2 = 1.46 against (95/100)^3 x 1 = 0.86: size counts.
    assert order_of(engine, "wfp", ((5, 1, 9, 100), (10, 2, 9, 100))) == "ba"


@ENGINES
def test_unicep__small_jobs_that_waited_long_for_what_they_ask(engine: Simulate) -> None:
    # 95 / (log2(3) x 100) = 0.60 against 90 / (log2(2) x 100) = 0.90.
    assert order_of(engine, "unicep", ((5, 2, 9, 100), (10, 1, 9, 100))) == "ba"
    # 90 / 10 against 80 / 5, over the same log2(3).
    assert order_of(engine, "unicep", ((10, 2, 9, 10), (20, 2, 9, 5))) == "ba"


@ENGINES
def test_unicep__is_looked_at_anew_at_every_decision(engine: Simulate) -> None:
    # At 100: 40/40 = 1 against 10/8 = 1.25; at 109: 49/40 = 1.2 against a newcomer's 8/10.
    jobs = ((60, 2, 9, 40), (90, 2, 9, 8), (101, 2, 9, 10))
    assert order_of(engine, "unicep", jobs) == "bac"


@ENGINES
def test_multifactor__who_used_little_goes_first(engine: Simulate) -> None:
    # User x held the pair until 100; y has used nothing, so y's younger job goes first, then x's: the same size, and
    # the age of an hour weighs little against the week that counts as old.
    assert order_of(engine, "multifactor", ((10, 2, 9, 9), (20, 2, 9, 9)), user="xxy") == "ba"
    assert order_of(engine, "multifactor", ((10, 2, 9, 9), (20, 2, 9, 9)), user="xxx") == "ab"
    # Larger jobs first, among users alike.
    assert order_of(engine, "multifactor", ((10, 1, 9, 9), (20, 2, 9, 9)), user="xxx") == "ba"


# ------------------------------------------------------------------------------------------------- what is refused


def test_jobs__that_fit_nowhere_are_refused() -> None:
    policy = gang_policy("fcfs", "best-fit")
    with pytest.raises(NoNodesFit, match=r"job '0' fits nowhere: it needs 9 GPUs; the cluster has 8"):
        simulate(make_gangs((0, 9, 1, 1)), parse_nodes("2x4"), policy)
    with pytest.raises(NoNodesFit, match=r"needs 1 GPUs of h100; the cluster has 0"):
        simulate(make_gangs((0, 1, 1, 1), model="h100"), parse_nodes("2x4:a100"), policy)
    one = make_gangs((0, 1, 1, 1))
    none = replace(one, **{name: getattr(one, name)[:0] for name in one.__dataclass_fields__ if name != "origin_s"})
    with pytest.raises(InputError, match="no jobs"):
        simulate(none, parse_nodes("2x4"), policy)
    with pytest.raises(InputError, match="job '1': needs"):
        simulate(make_gangs((0, 1, 1, 1), (0, 1, 1, 0)), parse_nodes("2x4"), policy)
    with pytest.raises(InputError, match="sorted"):
        simulate(make_gangs((1, 1, 1, 1), (0, 1, 1, 1)), parse_nodes("2x4"), policy)


@ENGINES
def test_engine__says_when_jobs_wait_for_ever(engine: Simulate) -> None:
    cluster = NodeCluster((Node(2),), (Outage(0, 0.0, INF),))
    with pytest.raises(SimulationError, match="1 jobs, '0' the first, wait and are never started"):
        engine(make_gangs((1, 1, 1, 1)), cluster, gang_policy("fcfs", "best-fit"))


@kernel
def always_job_0(world: World, jobs: JobArrays, state: State) -> int:  # noqa: ARG001
    return 0


@dataclass(frozen=True)
class Stubborn(Ordered):
    """A broken rule: it wants the first job even when that is gone."""

    select: ClassVar[Kernel | None] = always_job_0


def test_engine__stops_a_rule_that_picks_what_is_not_queued() -> None:
    jobs = make_gangs((0, 1, 5, 5), (0, 1, 5, 5))
    with pytest.raises(SimulationError, match="Stubborn chose a job that is not in the queue"):
        simulate(jobs, parse_nodes("1x2"), GangPolicy(Stubborn(), BestFit()))
    with pytest.raises(InputError, match="needs an order"):
        simulate(jobs, parse_nodes("1x2"), GangPolicy(Stubborn(), BestFit(), Backfill.conservative))


def test_engine__can_be_paused_and_copied_at_any_event() -> None:
    rng = np.random.default_rng(3)
    rows = [(float(t), int(rng.choice([1, 2, 4])), 30.0, 40.0) for t in np.sort(rng.integers(0, 300, 60))]
    jobs, cluster, policy = make_gangs(*rows), parse_nodes("2x4"), gang_policy("sjf", "best-fit", "easy")
    whole = simulate(jobs, cluster, policy)
    world, arrays = build_world(cluster, policy), build_jobs(jobs, cluster, policy, None)
    state, go_on = fresh_state(world, arrays), compiled(policy)
    events, status = 0, PAUSED
    while status == PAUSED:
        events += 7
        fork = copy_state(state)
        status = go_on(world, arrays, state, events)
        assert go_on(world, arrays, fork, events) == status
        assert fork.job.tobytes() == state.job.tobytes()
    assert status == FINISHED
    np.testing.assert_array_equal(state.job["finish_s"], whole.finish_s)


def test_engine__reports_progress() -> None:
    seen: list[int] = []
    policy = gang_policy("fcfs", "best-fit")
    simulate(make_gangs((0, 1, 1, 1), (1, 1, 1, 1)), parse_nodes("1x1"), policy, on_progress=seen.append)
    assert seen[-1] == 2
