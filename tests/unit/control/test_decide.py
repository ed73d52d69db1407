"""What a live cluster has and a simulated one has not: node lists, shapes, reservations, limits, strangers."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from smartmig.cli.live_policy import PolicyNames
from smartmig.control.decide import Decider, decide
from smartmig.control.memory import Memory
from smartmig.types import (
    ClusterState,
    Instance,
    JobKey,
    JobRequest,
    Limit,
    MigGpu,
    NodeInfo,
    NodeState,
    Placement,
    Repartition,
    Reservation,
    RunningJob,
    Share,
    Start,
)

GANG = PolicyNames(backfill="none").policy(("gang",))
EASY = PolicyNames().policy(("gang",))
NODES = (NodeInfo("a", 4, 4, "v100"), NodeInfo("b", 4, 4, "a100"), NodeInfo("c", 4, 4, "a100"))


def job(name: str, n_gpus: int = 1, at_s: float = 0.0, limit_s: float = 100.0, **rest: object) -> JobRequest:
    return JobRequest(JobKey(name, at_s), n_gpus, limit_s, **rest)  # type: ignore[arg-type]


def starts(state: ClusterState, policy: object = GANG) -> dict[str, list[tuple[str, int]]]:
    plan = decide(state, policy).plan  # type: ignore[arg-type]
    assert all(isinstance(action, Start) for action in plan)
    return {action.key.job_id: [(share.node, share.n_gpus) for share in action.shares] for action in plan}


def test_decide__keeps_to_models_and_node_lists() -> None:
    queued = (
        job("listed", nodes=("c",)),
        job("model", gpu_model="V100"),
        job("both", 4, gpu_model="a100|v100", nodes=("a", "b")),
        job("nowhere", gpu_model="h100"),
    )
    got = starts(ClusterState(10.0, NODES, queued))
    assert got == {"listed": [("c", 1)], "model": [("a", 1)], "both": [("b", 4)]}


def test_decide__gives_the_number_of_nodes_that_is_asked_for() -> None:
    two = job("two", 4, n_nodes=2)
    assert starts(ClusterState(10.0, NODES, (two,))) == {"two": [("a", 2), ("b", 2)]}
    after = starts(ClusterState(10.0, NODES, (two, job("next", 1, 1.0))))
    assert after == {"two": [("a", 2), ("b", 2)], "next": [("b", 1)]}
    odd = job("odd", 3, n_nodes=2)
    assert starts(ClusterState(10.0, NODES, (odd,))) == {}
    assert starts(ClusterState(10.0, NODES, (job("one", 3, n_nodes=1),))) == {"one": [("a", 3)]}


def test_decide__a_shape_without_room_keeps_what_it_can_have_and_no_more() -> None:
    nodes = (NodeInfo("a", 8, 8), NodeInfo("b", 8, 0))
    runs = RunningJob(job("r", 8), 0.0, (Share("b", 8),))
    shaped = job("shaped", 8, n_nodes=2)
    small = tuple(job(f"small{at}", 1, 1.0 + at) for at in range(6))
    got = starts(ClusterState(10.0, nodes, (shaped, *small), (runs,)), EASY)
    assert got == {f"small{at}": [("a", 1)] for at in range(4)}  # a place of four is kept
    # Where it could not start on an empty cluster either, nobody waits for it.
    hopeless = replace(shaped, nodes=("a",))
    assert len(starts(ClusterState(10.0, nodes, (hopeless, *small), (runs,)), EASY)) == 6


def test_decide__shapes_without_room_do_not_hide_the_others() -> None:
    nodes = tuple(NodeInfo(f"n{at}", 8, 8) for at in range(8))
    hopeless = tuple(job(f"h{at}", 8, float(at), n_nodes=2, nodes=(f"n{at}",)) for at in range(3))
    small = tuple(job(f"small{at}", 1, 10.0 + at) for at in range(5))
    decision = Decider(EASY).decide(ClusterState(20.0, nodes, (*hopeless, *small)), Memory(), 2)
    assert [action.key.job_id for action in decision.plan] == ["small0", "small1"]
    assert decision.wake_s == 20.0, "there may be more"
    only = Decider(EASY).decide(ClusterState(20.0, nodes, hopeless), Memory(), 2)
    assert (only.plan, only.wake_s) == ((), math.inf)


@pytest.mark.parametrize(
    ("from_s", "to_s", "user", "free"),
    [(50.0, 200.0, "", False), (50.0, 200.0, "ann", True), (110.0, 200.0, "", True), (0.0, 10.0, "", True)],
)
def test_decide__stays_clear_of_reservations(from_s: float, to_s: float, user: str, free: bool) -> None:
    held = Reservation("lesson", ("b", "c"), from_s, to_s, ("ann",))
    state = ClusterState(10.0, NODES, (job("x", gpu_model="a100", user=user),), reservations=(held,))
    assert bool(starts(state)) == free


@pytest.mark.parametrize("limit", [Limit(3, user="u"), Limit(3, group="g"), Limit(3, user="u", group="g")])
def test_decide__keeps_to_limits(limit: Limit) -> None:
    runs = RunningJob(job("r", 1, user="u", group="g"), 0.0, (Share("a", 1),))
    mine = [job(str(at), 1, float(at), user="u", group="g") for at in range(5)]
    queued = (*mine, job("other", 1, 9.0))
    nodes = (replace(NODES[0], n_free=3), *NODES[1:])
    got = starts(ClusterState(10.0, nodes, queued, (runs,), limits=(limit,)))
    assert set(got) == {"0", "1", "other"}


def test_decide__gpus_that_nobody_accounts_for_are_taken() -> None:
    nodes = (NodeInfo("a", 4, 1), NodeInfo("b", 4, 3, state=NodeState.drained))
    assert starts(ClusterState(10.0, nodes, (job("big", 2), job("small", 1, 1.0)))) == {}
    assert starts(ClusterState(10.0, nodes, (job("small", 1),))) == {"small": [("a", 1)]}
    # What is already promised to a job under way counts, though the node still shows it as free.
    moving = RunningJob(job("moving", 4), 9.0, (Share("a", 4),))
    assert starts(ClusterState(10.0, (NodeInfo("a", 4, 4),), (job("x"),), (moving,))) == {}


def test_decide__a_job_past_its_limit_still_holds_its_gpus() -> None:
    late = RunningJob(job("late", 4, limit_s=5.0), 0.0, (Share("a", 4),))
    nodes = (NodeInfo("a", 4, 0), NodeInfo("b", 2, 2))
    queued = (job("wide", 4, 1.0), job("short", 1, 2.0, limit_s=0.5), job("long", 2, 3.0))
    for policy in (EASY, PolicyNames(backfill="conservative").policy(("gang",))):
        got = starts(ClusterState(100.0, nodes, queued, (late,)), policy)
        assert "wide" not in got
        assert got["short"] == [("b", 1)]


@pytest.mark.parametrize("backfill", ["none", "easy", "conservative"])
def test_decider__many_starts_come_a_few_at_a_time(backfill: str) -> None:
    policy = PolicyNames(backfill=backfill).policy(("gang",))
    queued = tuple(job(f"{k}", 1 + k % 3, float(k), 50.0 + k) for k in range(9))
    whole = ClusterState(100.0, NODES, queued)
    decider, memory, state, plans = Decider(policy), Memory(), whole, []
    while not plans or len(plans[-1]) == 2:
        decision = decider.decide(state, memory, 2)
        memory = decision.memory
        plans.append(decision.plan)
        given = {action.key: action.shares for action in decision.plan if isinstance(action, Start)}
        assert (decision.wake_s <= 100.0) == (len(given) == 2), "whoever is left is decided about at once"
        begun = tuple(RunningJob(one, 100.0, given[one.key]) for one in state.queued if one.key in given)
        held = {node.name: sum(s.n_gpus for one in begun for s in one.shares if s.node == node.name) for node in NODES}
        nodes = tuple(replace(node, n_free=node.n_free - held[node.name]) for node in state.nodes)
        rest = tuple(one for one in state.queued if one.key not in given)
        state = ClusterState(100.0, nodes, rest, (*state.running, *begun))
    assert [len(plan) for plan in plans[:-1]] == [2] * (len(plans) - 1)
    assert len(plans) > 2
    together = [action for plan in plans for action in plan]
    assert sorted(together, key=lambda action: action.key) == sorted(decide(whole, policy).plan, key=lambda a: a.key)


def test_decider__forgets_nothing_it_needs_and_keeps_nothing_else() -> None:
    decider, memory = Decider(EASY), Memory()
    for at in range(30):
        queued = tuple(job(f"{at}.{k}", 1, float(k)) for k in range(300))
        busy = tuple(replace(node, n_free=0) for node in NODES)
        decision = decider.decide(ClusterState(1000.0 + at, busy, queued), memory)
        memory = decision.memory
        assert decision.plan == ()
    assert decider.gang is not None
    assert len(decider.gang.table.requests) < 7000


SLICE = JobRequest(JobKey("s", 0.0), 0, run_s=(80.0, 45.0, 32.0, 30.0, 28.0), deadline_s=500.0)
CARD = MigGpu("a100-40gb", (Instance(0, "4g.20gb"), Instance(4, "3g.20gb")))
MIG = PolicyNames(placement="edf-most-packed").policy(("mig",))


def test_decide__slices_keep_to_models_memory_and_usable_instances() -> None:
    state = ClusterState(10.0, (NodeInfo("m", 0, gpus=(CARD,)),), (SLICE,))
    assert len(decide(state, MIG).plan) == 1
    for wish in (
        replace(SLICE, gpu_model="h200-141gb"),
        replace(SLICE, memory_gb=30.0),
        replace(SLICE, nodes=("elsewhere",)),
        replace(SLICE, run_s=(80.0, *(math.inf,) * 4)),
    ):
        assert decide(replace(state, queued=(wish,)), MIG).plan == ()
    used = replace(CARD, instances=(Instance(0, "4g.20gb", False), CARD.instances[1]), busy_by_others=(4,))
    assert decide(replace(state, nodes=(NodeInfo("m", 0, gpus=(used,)),)), MIG).plan == ()
    down = replace(state.nodes[0], state=NodeState.down)
    assert decide(replace(state, nodes=(down,)), MIG).plan == ()
    kept = Reservation("lesson", ("m",), 50.0, 90.0)
    assert decide(replace(state, reservations=(kept,)), MIG).plan == ()


def test_decide__a_card_goes_to_its_target_step_by_step() -> None:
    policy = PolicyNames(repartition={"id": "twice-daily", "day_cut": "10", "night_cut": "10"}).policy(("mig",))
    holder = RunningJob(SLICE, 0.0, (Share("m", 0, 0, 0),))
    state = ClusterState(36_000.0, (NodeInfo("m", 0, gpus=(CARD,)),), (), (holder,))
    decider = Decider(policy)
    first = decider.decide(state, Memory())
    (cut,) = first.plan
    assert isinstance(cut, Repartition)
    assert Placement(0, "4g.20gb") in cut.layout
    assert Placement(4, "3g.20gb") not in cut.layout
    now = tuple(Instance(start, profile) for start, profile in cut.layout)
    half = replace(state, time_s=36_010.0, nodes=(NodeInfo("m", 0, gpus=(replace(CARD, instances=now),)),))
    second = decider.decide(half, first.memory)
    assert second.plan == ()  # nothing more can be done while the job runs
    third = decider.decide(replace(half, time_s=36_020.0, running=()), second.memory)
    (last,) = third.plan
    assert isinstance(last, Repartition)
    assert sorted(profile for _, profile in last.layout) == ["1g.5gb"] * 3 + ["2g.10gb"] * 2


def test_decide__mixed_clusters_serve_both_kinds() -> None:
    policy = PolicyNames(placement="edf-most-packed").policy(("gang", "mig"))
    state = ClusterState(10.0, (*NODES, NodeInfo("m", 0, gpus=(CARD,))), (job("w", 2), SLICE))
    assert {action.key.job_id for action in decide(state, policy).plan if isinstance(action, Start)} == {"w", "s"}


def test_conservative__a_reservation_whose_room_is_not_given_back_in_time_moves() -> None:
    decider = Decider(PolicyNames(backfill="conservative").policy(("gang",)))
    late = RunningJob(JobRequest(JobKey("late", 0.0), 4, 100.0), 0.0, (Share("n1", 4),))
    queued = (JobRequest(JobKey("next", 1.0), 4, 50.0), JobRequest(JobKey("last", 2.0), 4, 50.0))
    state = ClusterState(50.0, (NodeInfo("n1", 4, 0),), queued, (late,))
    first = decider.decide(state, Memory())
    assert (first.plan, first.wake_s) == ((), 100.0)
    # Its limit is over, and it is still there: nobody starts on top of it.
    overdue = decider.decide(replace(state, time_s=130.0), first.memory)
    assert overdue.plan == ()
    assert overdue.wake_s == 131.0
    gone = decider.decide(replace(state, time_s=140.0, nodes=(NodeInfo("n1", 4, 4),), running=()), overdue.memory)
    assert [action.key.job_id for action in gone.plan if isinstance(action, Start)] == ["next"]


def test_memory__counts_urgent_submissions_as_the_engine_does() -> None:
    learned = PolicyNames(selection="learned").policy(("gang",))
    nodes = (NodeInfo("a", 8, 8), NodeInfo("b", 8, 8))
    first = (job("urgent", 5, 100.0, 3600.0), job("lasting", 8, 100.0, 3601.0), job("half a node", 4, 100.0, 60.0))
    memory = decide(ClusterState(100.0, nodes, first), learned).memory
    assert memory.urgent == (1.0, 100.0)
    later = (*first, job("again", 8, 3700.0, 10.0))
    memory = decide(ClusterState(4000.0, nodes, later), learned, memory).memory
    assert memory.urgent == (pytest.approx(1.0 + math.exp(-1.0)), 3700.0)
    assert decide(ClusterState(5000.0, nodes, later), learned, memory).memory.urgent == memory.urgent
