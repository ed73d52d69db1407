"""The guard refuses, in one sentence, everything that must not reach a cluster."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from smartmig.control.guard import GuardMemory, GuardRules, allowed, check, drift
from smartmig.errors import InputError
from smartmig.policy.encoding import N_CELLS, N_FEATURES, N_TIME, input_names
from smartmig.policy.gang_encoding import AT_FREE, AT_QUEUE, AT_RESERVED, AT_RUSH, N_CLUSTER, N_OUTLINE, outline_names
from smartmig.types import (
    Action,
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
    Stop,
)

DAY_S = 86_400.0
RULES = GuardRules()


def key(name: str, submit_s: float = 0.0) -> JobKey:
    return JobKey(name, submit_s)


def start(name: str, *shares: Share) -> Start:
    return Start(key(name), shares)


WHOLE = ClusterState(
    100.0,
    (
        NodeInfo("a", 4, 2),
        NodeInfo("b", 4, 4, "v100"),
        NodeInfo("off", 4, 4, state=NodeState.down),
        NodeInfo("leaving", 4, 4, state=NodeState.drained),
    ),
    queued=(
        JobRequest(key("one"), 1, 50.0),
        JobRequest(key("two"), 2, 50.0, user="u", group="g"),
        JobRequest(key("old"), 4, gpu_model="a100"),
        JobRequest(key("there"), 1, nodes=("b",)),
    ),
    running=(
        RunningJob(JobRequest(key("busy"), 2, user="u", group="g"), 0.0, (Share("a", 2),)),
        RunningJob(JobRequest(key("foreign"), 0), 0.0, (), managed=False),
    ),
)

SLICES = ClusterState(
    100.0,
    (
        NodeInfo(
            "m",
            0,
            gpus=(
                MigGpu("a100-40gb", (Instance(0, "4g.20gb"), Instance(4, "3g.20gb"))),
                MigGpu("a100-40gb", (Instance(0, "7g.40gb", usable=False),), busy_by_others=(0,)),
            ),
        ),
    ),
    queued=(
        JobRequest(key("big"), 0, run_s=(math.inf, math.inf, 30.0, 20.0, 10.0), memory_gb=18),
        JobRequest(key("huge"), 0, run_s=(math.inf, math.inf, 30.0, 20.0, 10.0), memory_gb=30),
    ),
    running=(RunningJob(JobRequest(key("r"), 0, run_s=(9.0,) * 5), 0.0, (Share("m", 0, 0, 0),)),),
)


def why(state: ClusterState, *plan: Action, memory: GuardMemory | None = None, rules: GuardRules = RULES) -> list[str]:
    return [one.why for one in check(plan, state, memory or GuardMemory(), rules).refused]


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        ((start("one", Share("a", 1)), start("one", Share("b", 1))), "stands twice"),
        ((start("busy", Share("b", 2)),), "already runs"),
        ((start("nobody", Share("b", 1)),), "not in the queue"),
        ((start("one", Share("a", 2)),), "something else"),
        ((start("two", Share("a", 2), Share("m", 0, 0, 0)),), "something else"),
        ((start("two", Share("a", 3), Share("b", -1)),), "something else"),
        ((start("two"),), "something else"),
        ((start("two", Share("a", 1), Share("a", 1)),), "same share twice"),
        ((start("two", Share("a", 2)), start("one", Share("a", 1))), "has 0 free GPUs"),
        ((start("one", Share("nowhere", 1)),), "no node nowhere"),
        ((start("one", Share("off", 1)),), "is down"),
        ((start("one", Share("leaving", 1)),), "is drained"),
        ((start("old", Share("b", 4)),), "not one it may use"),
        ((start("there", Share("a", 1)),), "not one it may use"),
        ((Stop(key("one")),), "does not run"),
        ((Stop(key("foreign")),), "not ours"),
        ((Stop(key("busy")),), "stopped within the hour"),
    ],
)
def test_guard__refuses_on_whole_gpus(plan: tuple[Action, ...], reason: str) -> None:
    refused = why(WHOLE, *plan)
    assert len(refused) == 1
    assert reason in refused[0]


def test_guard__lets_the_rest_of_a_plan_pass() -> None:
    good, bad = start("one", Share("a", 1)), start("two", Share("off", 2))
    verdict = check((bad, good), WHOLE, GuardMemory(), RULES)
    assert verdict.plan == (good,)
    assert verdict.refused[0].action == bad
    assert verdict.fallback == ""


@pytest.mark.parametrize(
    ("from_s", "to_s", "users", "refused"),
    [(120.0, 999.0, (), True), (150.0, 999.0, (), False), (0.0, 90.0, (), False), (120.0, 999.0, ("u",), False)],
)
def test_guard__keeps_reservations(from_s: float, to_s: float, users: tuple[str, ...], refused: bool) -> None:
    state = replace(WHOLE, reservations=(Reservation("lesson", ("b",), from_s, to_s, users),))
    said = why(state, start("two", Share("b", 2)))
    assert bool(said) == refused
    assert not refused or "reserved (lesson)" in said[0]


@pytest.mark.parametrize("limit", [Limit(3, user="u"), Limit(3, group="g"), Limit(3, user="u", group="g")])
def test_guard__keeps_limits(limit: Limit) -> None:
    assert "may hold 3 GPUs and has 2" in why(replace(WHOLE, limits=(limit,)), start("two", Share("b", 2)))[0]
    roomy = replace(WHOLE, limits=(replace(limit, max_gpus=4),))
    assert why(roomy, start("two", Share("b", 2))) == []


def test_guard__a_job_that_waited_too_long_goes_first() -> None:
    young = JobRequest(JobKey("young", 9 * DAY_S), 1)
    state = replace(WHOLE, time_s=10 * DAY_S, queued=(WHOLE.queued[1], young))
    younger = Start(young.key, (Share("b", 1),))
    verdict = check((younger,), state, GuardMemory(), RULES)
    assert verdict.plan == ()
    assert "goes first" in verdict.fallback
    both = (start("two", Share("b", 2)), younger)
    assert check(both, state, GuardMemory(), RULES).plan == both
    impossible = replace(state, queued=(JobRequest(key("giant"), 99), young))
    assert check((younger,), impossible, GuardMemory(), RULES).plan == (younger,)


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        (Repartition("m", 0, (Placement(0, "7g.40gb"),)), "4g.20gb at memory slice 0 of m/0 is busy"),
        (Repartition("m", 1, (Placement(0, "1g.5gb"),)), "7g.40gb at memory slice 0 of m/1 is busy"),
        (Repartition("m", 0, (Placement(0, "4g.20gb"), Placement(2, "2g.10gb"))), "share memory slice"),
        (Repartition("m", 7, ()), "no card m/7"),
        (start("big", Share("m", 0, 0, 0)), "is taken"),
        (start("big", Share("m", 0, 0, 2)), "no instance"),
        (start("big", Share("m", 0, 1, 0)), "that may be used"),
        (start("huge", Share("m", 0, 0, 4)), "does not fit 3g.20gb"),
    ],
)
def test_guard__refuses_on_slices(action: Action, reason: str) -> None:
    refused = why(SLICES, action)
    assert len(refused) == 1
    assert reason in refused[0]


def test_guard__cuts_no_card_that_is_not_ours_to_cut_now() -> None:
    cut = Repartition("m", 0, (Placement(0, "4g.20gb"), Placement(4, "2g.10gb")))
    assert why(SLICES, cut) == []
    for state in (NodeState.drained, NodeState.down):
        away = replace(SLICES, nodes=(replace(SLICES.nodes[0], state=state),))
        assert why(away, cut) == [f"node m is {state.value}, so its cards keep their cut"]
    for from_s, to_s, users, refused in [
        (50.0, 150.0, (), True),
        (100.0, 150.0, ("ann",), True),
        (50.0, 100.0, (), False),
        (101.0, 150.0, (), False),
    ]:
        held = replace(SLICES, reservations=(Reservation("lesson", ("m",), from_s, to_s, users),))
        assert why(held, cut) == ["node m is reserved (lesson), so its cards keep their cut"] * refused
        assert why(replace(held, reservations=(replace(held.reservations[0], nodes=("n",)),)), cut) == []


def test_guard__no_start_on_an_instance_that_goes() -> None:
    cut = Repartition("m", 0, (Placement(0, "4g.20gb"), Placement(4, "2g.10gb")))
    assert why(SLICES, cut, start("big", Share("m", 0, 0, 4))) == [
        "job big: the instance at memory slice 4 of m/0 is about to be destroyed"
    ]
    assert why(SLICES, start("big", Share("m", 0, 0, 4))) == []


def test_guard__gives_a_mig_job_one_slice() -> None:
    two = start("big", Share("m", 0, 0, 4), Share("m", 0, 1, 0))
    assert why(SLICES, two) == ["job big asks for one MIG slice and would get 2"]
    assert why(SLICES, start("big")) == ["job big asks for one MIG slice and would get 0"]


def test_guard__refuses_to_flap() -> None:
    there = Repartition("m", 0, (Placement(0, "4g.20gb"), Placement(4, "2g.10gb")))
    memory = allowed(GuardMemory(), (there,), SLICES)
    card = replace(SLICES.nodes[0].gpus[0], instances=(Instance(0, "4g.20gb"), Instance(4, "2g.10gb")))
    now = replace(SLICES, time_s=160.0, nodes=(replace(SLICES.nodes[0], gpus=(card, SLICES.nodes[0].gpus[1])),))
    back = Repartition("m", 0, (Placement(0, "4g.20gb"), Placement(4, "3g.20gb")))
    assert why(now, back, memory=memory) == ["card m/0 would go back to the cut it had 60 s ago"]
    assert why(replace(now, time_s=230.0), back, memory=memory) == []
    # By way of a third cut it is the same.
    other = Repartition("m", 0, (Placement(0, "4g.20gb"),))
    memory = allowed(memory, (other,), now)
    card = replace(card, instances=(Instance(0, "4g.20gb"),))
    then = replace(now, time_s=170.0, nodes=(replace(now.nodes[0], gpus=(card, now.nodes[0].gpus[1])),))
    assert why(then, back, memory=memory) == ["card m/0 would go back to the cut it had 70 s ago"]
    assert why(then, there, memory=memory) == ["card m/0 would go back to the cut it had 10 s ago"]
    assert why(replace(then, time_s=230.0), back, memory=memory) == []


def test_guard__limits_cuts_and_attempts_by_the_hour() -> None:
    cut = Repartition("m", 0, (Placement(0, "4g.20gb"),))
    memory = GuardMemory()
    for at in range(RULES.max_cuts_per_card_h):
        memory = allowed(memory, (cut,), replace(SLICES, time_s=1000.0 + at))
    assert "was cut 12 times" in why(replace(SLICES, time_s=2000.0), cut, memory=memory)[0]
    assert why(replace(SLICES, time_s=9000.0), cut, memory=memory) == []
    tries = GuardMemory()
    for at in range(RULES.max_attempts_h):
        tries = allowed(tries, (start("one", Share("a", 1)),), replace(WHOLE, time_s=100.0 + at))
    assert "started 5 times" in why(replace(WHOLE, time_s=200.0), start("one", Share("a", 1)), memory=tries)[0]


def test_drift__is_told_by_the_worst_input() -> None:
    ranges = {"mig": (np.zeros(3), np.array([1.0, 2.0, 0.0]))}

    def told(*numbers: float, world: str = "mig") -> str:
        return drift({world: np.array(numbers)}, ranges, 0.5)

    assert told(0.5, 1.0, 0.0) == told(1.5, 2.9, 0.05) == ""
    said = told(1.7, 9.0, 0.0)
    assert said.startswith("2 of 3 inputs lie outside")
    assert "most of all 'jobs of throughput class 1 with 60 to 240 s of work left': 9 as the network reads it" in said
    assert told(1.7, 9.0, 0.0, world="gang") == "", "nothing is known of that world"
    assert "not finite" in told(np.nan, 0.0, 0.0, world="gang")
    assert drift({}, ranges, 0.5) == ""


def test_drift__every_input_has_a_name() -> None:
    cards, nodes = input_names(), outline_names()
    assert len(cards) == N_FEATURES
    assert [cards[at] for at in (0, N_CELLS, N_CELLS + N_TIME, N_CELLS + 2 * N_TIME + 3)] == [
        "jobs of throughput class 1 with less than 60 s of work left",
        "waiting jobs with less than 0 s left on a whole GPU",
        "jobs with less than 0 s to their deadline",
        "slices of 1g per GPU",
    ]
    assert len(nodes) == N_OUTLINE
    assert [nodes[at] for at in (AT_FREE, AT_QUEUE, AT_RESERVED, AT_RUSH, N_CLUSTER)] == [
        "share of GPUs free",
        "waiting jobs that ask for up to 1 h",
        "a reservation stands",
        "urgent submissions of late",
        "least in the queue: requested time",
    ]


def test_drift__what_a_network_does_not_read_may_be_anything() -> None:
    ranges = {"gang": (np.array([-np.inf, 0.0]), np.array([np.inf, 1.0]))}
    assert drift({"gang": np.array([1e9, 0.5])}, ranges, 0.5) == ""
    assert "1 of 2 inputs" in drift({"gang": np.array([1e9, 5.0])}, ranges, 0.5)
    assert "1 of 2 inputs" in drift({"gang": np.array([1e9, 1.2])}, ranges, 0.0)
    still = {"gang": (np.zeros(2), np.array([0.0, 1.0]))}
    assert drift({"gang": np.array([1e9, 5.0])}, still, math.inf) == "", "whoever wants no such check"


def test_guard__drift_costs_the_whole_plan() -> None:
    plan = (start("one", Share("a", 1)),)
    ranges = {"gang": (np.zeros(1), np.ones(1))}
    verdict = check(plan, WHOLE, GuardMemory(), RULES, {"gang": np.array([5.0])}, ranges)
    assert verdict.plan == ()
    assert "outside what the policy was trained on" in verdict.fallback


@pytest.mark.parametrize("margin", [-0.1, float("nan")])
def test_rules__that_make_no_sense_are_one_sentence(margin: float) -> None:
    with pytest.raises(InputError, match="the guard's drift_margin must be at least 0"):
        GuardRules(drift_margin=margin)


def test_starvation__nobody_waits_for_a_job_that_cannot_be_helped() -> None:
    nodes = (NodeInfo("n1", 4, 1), NodeInfo("n2", 4, 4))
    foreign = RunningJob(JobRequest(JobKey("f", 0.0), 3), 0.0, (Share("n1", 3),), managed=False)
    old = JobRequest(JobKey("old", 0.0), 6, user="ann")
    young = JobRequest(JobKey("young", 9000.0), 1, user="bob")
    state = ClusterState(10_000.0, nodes, (old, young), (foreign,))
    rules = GuardRules(max_wait_s=5000.0)
    plan = (Start(young.key, (Share("n2", 1),)),)
    assert check(plan, state, GuardMemory(), rules).plan == plan  # 6 GPUs are not ours to give
    ours = replace(state, running=(replace(foreign, managed=True),))
    assert "goes first" in check(plan, ours, GuardMemory(), rules).fallback
    limited = replace(ours, limits=(Limit(4, user="ann"),))
    assert check(plan, limited, GuardMemory(), rules).plan == plan
    reserved = replace(ours, reservations=(Reservation("lesson", ("n2",), 9_000.0, 99_000.0, ("bob",)),))
    assert check(plan, reserved, GuardMemory(), rules).plan == plan
    shaped = replace(ours, queued=(replace(old, n_gpus=10, n_nodes=2), young))
    assert check(plan, shaped, GuardMemory(), rules).plan == plan  # no two nodes have five
    narrow = replace(state, queued=(replace(old, n_gpus=4, nodes=("n1",)), young))
    assert check(plan, narrow, GuardMemory(), rules).plan == plan  # three of the four are not ours


def test_starvation__younger_ones_may_have_what_is_of_no_use_to_it() -> None:
    nodes = (NodeInfo("n1", 4, 0), NodeInfo("n2", 4, 4))
    ours = RunningJob(JobRequest(JobKey("r", 0.0), 4), 0.0, (Share("n1", 4),))
    old = JobRequest(JobKey("old", 0.0), 4, nodes=("n1",))
    young = JobRequest(JobKey("young", 9000.0), 1)
    state = ClusterState(10_000.0, nodes, (old, young), (ours,))
    rules = GuardRules(max_wait_s=5000.0)
    plan = (Start(young.key, (Share("n2", 1),)),)
    assert check(plan, state, GuardMemory(), rules).plan == plan
    free = replace(state, nodes=(replace(nodes[0], n_free=4), nodes[1]), running=())
    assert "goes first" in check((Start(young.key, (Share("n1", 1),)),), free, GuardMemory(), rules).fallback


def test_starvation__of_slices_counts_instances_it_fits() -> None:
    old, young = SLICES.queued[0], JobRequest(JobKey("young", 9000.0), 0, run_s=(9.0,) * 5)
    state = replace(SLICES, time_s=10_000.0, queued=(old, young))
    rules = GuardRules(max_wait_s=5000.0)
    plan = (Start(young.key, (Share("m", 0, 0, 4),)),)
    assert "goes first" in check(plan, state, GuardMemory(), rules).fallback
    giant = replace(state, queued=(replace(old, memory_gb=30.0), young))
    assert check(plan, giant, GuardMemory(), rules).plan == plan, "no card is cut for it, and ours is not the 7g.40gb"


def test_guard__keeps_to_the_number_of_nodes() -> None:
    state = replace(WHOLE, queued=(JobRequest(key("pair"), 2, 50.0, n_nodes=2),))
    assert why(state, start("pair", Share("a", 1), Share("b", 1))) == []
    assert "asks for 2 nodes" in why(state, start("pair", Share("a", 2)))[0]
