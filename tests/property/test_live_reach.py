"""Whatever nodes jobs for slices may use: each start keeps to them, and what one may not have goes to the next."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from smartmig.cli.live_policy import PolicyNames
from smartmig.control.decide import decide
from smartmig.control.guard import GuardMemory, GuardRules, check
from smartmig.types import (
    SLICE_SIZES,
    ClusterState,
    Instance,
    JobKey,
    JobRequest,
    MigGpu,
    NodeInfo,
    NodeState,
    Reservation,
    Share,
    Start,
)

NOW_S = 1000.0
CUTS = (
    ("7g.40gb",),
    ("4g.20gb", "3g.20gb"),
    ("2g.10gb", "2g.10gb", "3g.20gb"),
    ("1g.5gb", "1g.5gb", "2g.10gb", "3g.20gb"),
)
START = {"7g.40gb": 8, "4g.20gb": 4, "3g.20gb": 4, "2g.10gb": 2, "1g.5gb": 1}
NAMES = ("m0", "m1", "m2", "m3")
FAST = PolicyNames(placement="shortest-work").policy(("mig",))


@st.composite
def cards(draw: st.DrawFn) -> MigGpu:
    instances, at = [], 0
    for profile in draw(st.sampled_from(CUTS)):
        instances.append(Instance(at, profile, draw(st.integers(0, 5)) > 0))
        at += START[profile]
    busy = tuple(one.start for one in instances if draw(st.integers(0, 2)) == 0)
    return MigGpu("a100-40gb", tuple(instances), busy)


@st.composite
def states(draw: st.DrawFn) -> ClusterState:
    up = st.sampled_from([NodeState.up, NodeState.up, NodeState.up, NodeState.drained, NodeState.down])
    n_nodes = draw(st.integers(1, 4))
    nodes = tuple(
        NodeInfo(name, 0, gpus=tuple(draw(st.lists(cards(), min_size=1, max_size=2))), state=draw(up))
        for name in NAMES[:n_nodes]
    )
    lists = st.lists(st.sampled_from(NAMES), max_size=2, unique=True).map(tuple)
    users = st.sampled_from(["ann", "bob", ""])
    reservations = tuple(
        Reservation(f"r{at}", draw(lists), from_s, from_s + draw(st.sampled_from([50.0, 5000.0])), (draw(users),))
        for at, from_s in enumerate(draw(st.lists(st.sampled_from([900.0, 1050.0, 5000.0]), max_size=3)))
    )
    queued = []
    for at in range(draw(st.integers(0, 12))):
        run_s = [600.0, 320.0, 250.0, 200.0, 150.0]
        if draw(st.booleans()):
            only = draw(st.integers(0, 4))
            run_s = [one if size == only else math.inf for size, one in enumerate(run_s)]
        queued.append(
            JobRequest(
                JobKey(str(at), 900.0 + at // 2),
                0,
                limit_s=draw(st.sampled_from([30.0, 700.0, math.inf])),
                nodes=draw(st.one_of(st.just(()), lists)),
                user=draw(users),
                run_s=tuple(run_s),
                memory_gb=draw(st.sampled_from([0.0, 0.0, 8.0])),
                deadline_s=draw(st.sampled_from([1100.0, 1500.0, 9000.0])),
            )
        )
    return ClusterState(NOW_S, nodes, tuple(queued), reservations=reservations)


@pytest.mark.parametrize(
    ("placement", "never_waits"),
    [
        ("shortest-work", True),
        ("edf-most-packed", True),
        ("random-slice", True),
        ("learned", False),
        ("earliest-finish-waiting", False),
    ],
)
@given(state=states())
@hypothesis_settings(max_examples=150)
def test_reach__starts_keep_to_it_and_leave_nothing_lying(
    placement: str, never_waits: bool, state: ClusterState
) -> None:
    policy = PolicyNames(placement=placement).policy(("mig",))
    decision = decide(state, policy)
    assert decide(state, policy).plan == decision.plan
    verdict = check(decision.plan, state, GuardMemory(), GuardRules())
    assert verdict.refused == ()
    if never_waits:
        started = {action.key for action in decision.plan}
        taken = {share for action in decision.plan for share in action.shares}
        for request in state.queued:
            if request.key in started:
                continue
            for node in state.nodes:
                for gpu, card in enumerate(node.gpus):
                    for one in card.instances:
                        share = Share(node.name, 0, gpu, one.start)
                        more = (*decision.plan, Start(request.key, (share,)))
                        if share not in taken:
                            assert len(check(more, state, GuardMemory(), GuardRules()).refused) == 1


@given(state=states(), at=st.integers(0, 12), sizes=st.sets(st.sampled_from(SLICE_SIZES)))
@hypothesis_settings(max_examples=100)
def test_reach__who_can_go_nowhere_changes_nothing(state: ClusterState, at: int, sizes: set[int]) -> None:
    run_s = tuple(60.0 if size in sizes else math.inf for size in SLICE_SIZES)
    lost = JobRequest(JobKey("lost", 950.0), 0, nodes=("elsewhere",), run_s=run_s, deadline_s=1001.0)
    more = (*state.queued[:at], lost, *state.queued[at:])
    with_it = ClusterState(state.time_s, state.nodes, more, reservations=state.reservations)
    assert decide(with_it, FAST).plan == decide(state, FAST).plan
