"""Jobs for slices go to nodes they may use, and keep nothing anywhere else."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from smartmig.cli.live_policy import FALLBACK, PolicyNames
from smartmig.control.decide import Decider, decide
from smartmig.control.guard import GuardRules
from smartmig.control.memory import Memory
from smartmig.control.pilot import Pilot
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

RUN_S = (80.0, 45.0, 32.0, 30.0, 28.0)
HALVES = MigGpu("a100-40gb", (Instance(0, "4g.20gb"), Instance(4, "3g.20gb")))
WHOLE = MigGpu("a100-40gb", (Instance(0, "7g.40gb"),))
M1, M2 = NodeInfo("m1", 0, gpus=(HALVES,)), NodeInfo("m2", 0, gpus=(HALVES,))
PLACEMENTS = ("shortest-work", "edf-most-packed", "learned", "earliest-finish-waiting")
MAINTENANCE = Reservation("maintenance", ("m1",), 0.0, 1e6)


def job(name: str, at_s: float = 90.0, **rest: object) -> JobRequest:
    return JobRequest(JobKey(name, at_s), 0, **{"run_s": RUN_S, **rest})  # type: ignore[arg-type]


def given(state: ClusterState, placement: str) -> dict[str, str]:
    """Who is started on which node; the guard has nothing to refuse."""
    policy = PolicyNames(placement=placement).policy(("mig",))
    judged = Pilot(policy, FALLBACK.policy(("mig",)), GuardRules()).decide(state)
    assert (judged.refused, judged.fallback) == ((), "")
    return {action.key.job_id: action.shares[0].node for action in judged.plan if isinstance(action, Start)}


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("run_s", [RUN_S, (math.inf, math.inf, 32.0, math.inf, math.inf)])
def test_reach__a_node_list_is_kept_where_another_node_is_as_good(placement: str, run_s: tuple[float, ...]) -> None:
    state = ClusterState(100.0, (M1, M2), (job("listed", nodes=("m2",), run_s=run_s),))
    assert given(state, placement) == {"listed": "m2"}


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_reach__nobody_keeps_what_he_may_not_have(placement: str) -> None:
    only = MigGpu("a100-40gb", (Instance(0, "3g.20gb"),))
    nodes = (replace(M1, gpus=(only,)), replace(M2, gpus=(only,)))
    listed, young = job("listed", nodes=("m2",), deadline_s=200.0), job("young", 95.0, deadline_s=300.0)
    assert given(ClusterState(100.0, nodes, (listed, young)), placement) == {"listed": "m2", "young": "m1"}
    # The listed one's node is taken: it waits, and the younger one has the slice of the other.
    taken = (nodes[0], replace(nodes[1], gpus=(replace(only, busy_by_others=(0,)),)))
    assert given(ClusterState(100.0, taken, (listed, young)), placement) == {"young": "m1"}


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_reach__keeps_clear_of_reservations_as_the_guard_does(placement: str) -> None:
    later = Reservation("later", ("m1",), 1e6, 2e6, ("root",))
    state = ClusterState(100.0, (M1, M2), (job("endless"),), reservations=(later,))
    assert given(state, placement) == {"endless": "m2"}
    # Who will be done by then, or may use the node meanwhile, does not wait for the others' room.
    brief = tuple(job(f"brief{at}", 91.0 + at, limit_s=100.0) for at in range(4))
    assert {*given(replace(state, queued=brief), placement).values()} == {"m1", "m2"}
    one = replace(state, nodes=(M1,), queued=(job("theirs", user="root"), job("other", 91.0)))
    assert given(one, placement) == {"theirs": "m1"}


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_reach__a_slice_that_is_elsewhere_only_is_not_waited_for(placement: str) -> None:
    """7g, which it would like best, is on the other node."""
    state = ClusterState(
        100.0,
        (replace(M1, gpus=(replace(WHOLE, busy_by_others=(0,)),)), replace(M2, gpus=(HALVES,))),
        (job("listed", nodes=("m2",), run_s=(7e4, 3.5e4, 2.3e4, 1.8e4, 10.0), deadline_s=120.0),),
    )
    assert given(state, placement) == {"listed": "m2"}


@pytest.mark.parametrize("repartition", ["static", "mean-field", "twice-daily"])
def test_reach__who_can_go_nowhere_disturbs_nobody(repartition: str) -> None:
    policy = PolicyNames(repartition=repartition).policy(("mig",))
    nodes = (M1, NodeInfo("gone", 0, gpus=(HALVES,), state=NodeState.down))
    hopeless = tuple(job(f"h{at}", 80.0 + at, nodes=("gone",), user="u") for at in range(9))
    young = job("young", 95.0, user="u")
    state = ClusterState(100.0, nodes, (*hopeless, young), limits=(Limit(1, user="u"),))
    alone = replace(state, queued=(young,))
    assert decide(state, policy).plan == decide(alone, policy).plan
    assert [action.key.job_id for action in decide(state, policy).plan if isinstance(action, Start)] == ["young"]
    known = decide(state, policy).memory  # that they came, counts
    left = decide(replace(state, queued=hopeless), policy, known)
    assert left.plan == decide(replace(state, queued=()), policy, known).plan


def test_reach__a_mixed_queue_is_served_in_the_rules_order() -> None:
    quarters = MigGpu("a100-40gb", (Instance(0, "3g.20gb"), Instance(4, "3g.20gb")))
    nodes = tuple(NodeInfo(name, 0, gpus=(quarters,)) for name in ("m1", "m2"))
    lists = {"a": (), "b": ("m2",), "c": (), "d": ("m1",), "e": ("m2",), "f": ()}
    queued = tuple(
        job(name, 90.0 + at, nodes=nodes_, deadline_s=200.0 + at) for at, (name, nodes_) in enumerate(lists.items())
    )
    got = given(ClusterState(100.0, nodes, queued), "edf-most-packed")
    assert got == {"a": "m1", "b": "m2", "c": "m1", "e": "m2"}


CUTS = ("mean-field", {"id": "twice-daily", "day_cut": "10", "night_cut": "10"})


@pytest.mark.parametrize("repartition", CUTS)
def test_cuts__leave_reserved_nodes_alone(repartition: str) -> None:
    names = PolicyNames(repartition=repartition)
    pilot = Pilot(names.policy(("mig",)), FALLBACK.policy(("mig",)), GuardRules(drift_margin=math.inf))
    nodes = tuple(NodeInfo(name, 0, gpus=(WHOLE,) * 4) for name in ("m1", "m2"))
    cut: set[str] = set()
    long_s = (600.0, 400.0, 300.0, 250.0, 200.0)
    for at in range(5):
        queued = tuple(job(str(n), 36_000.0, run_s=long_s, limit_s=1000.0, deadline_s=38_000.0) for n in range(12 + at))
        judged = pilot.decide(ClusterState(36_010.0 + at, nodes, queued, reservations=(MAINTENANCE,)))
        assert (judged.refused, judged.fallback) == ((), "")
        cut |= {action.node for action in judged.plan if isinstance(action, Repartition)}
    assert cut == {"m2"}


@pytest.mark.parametrize("repartition", CUTS)
def test_cuts__whoever_a_node_is_reserved_for_finds_it_as_it_was(repartition: str) -> None:
    lesson = replace(MAINTENANCE, users=("ann",))
    decider = Decider(PolicyNames(placement="edf-most-packed", repartition=repartition).policy(("mig",)))
    hers = job("hers", 36_000.0, user="ann", run_s=(math.inf,) * 4 + (28.0,))
    state = ClusterState(36_010.0, (NodeInfo("m1", 0, gpus=(WHOLE,)),), (hers,), reservations=(lesson,))
    decision = decider.decide(state, Memory())
    assert decision.plan == (Start(hers.key, (Share("m1", 0, 0, 0),)),)
    assert decision.memory.targets == {}


def test_cuts__begun_before_a_reservation_go_on_after_it() -> None:
    target = (Placement(0, "1g.5gb"),)
    before = Memory(targets={"m1/0": target})
    policy = PolicyNames(placement="edf-most-packed").policy(("mig",))
    state = ClusterState(100.0, (replace(M1, gpus=(WHOLE,)), M2), reservations=(replace(MAINTENANCE, to_s=200.0),))
    during = decide(state, policy, before)
    assert (during.plan, during.memory.targets) == ((), before.targets)
    after = decide(replace(state, time_s=200.0), policy, during.memory)
    assert after.plan == (Repartition("m1", 0, target),)


def test_decider__strangers_of_long_ago_are_forgotten() -> None:
    """Jobs on slices that they do not fit are written down, and there are always new ones."""
    decider, memory = Decider(PolicyNames().policy(("mig",))), Memory()
    ones = MigGpu("a100-40gb", tuple(Instance(start, "1g.5gb") for start in range(7)))
    nodes = (NodeInfo("m1", 0, gpus=(ones,) * 8),)
    for at in range(100):
        running = tuple(
            RunningJob(job(f"{at}.{n}", run_s=()), 50.0, (Share("m1", 0, n // 7, n % 7),)) for n in range(56)
        )
        memory = decider.decide(ClusterState(100.0 + at, nodes, (), running), memory).memory
    assert decider.mig is not None
    assert len(decider.mig.strangers) <= 4096 + 56
