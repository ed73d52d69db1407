"""The plain rule behind every live policy: what it does about a cluster that is not whole, and that records name it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest

from live_cluster import about
from smartmig.cli.live_policy import FALLBACK, OLD_FALLBACK, PolicyNames
from smartmig.cli.recorded import recorded_pilot
from smartmig.control.guard import GuardRules
from smartmig.control.memory import Memory
from smartmig.control.pilot import Judged, Pilot
from smartmig.errors import InputError
from smartmig.sim.gang.world import Backfill
from smartmig.types import ClusterState, JobKey, JobRequest, NodeInfo, NodeState

GANG = ("gang",)
NODES = (NodeInfo("n1", 8, 8), NodeInfo("n2", 8, 8, state=NodeState.drained), NodeInfo("n3", 8, 8))
NEEDS_ALL = JobRequest(JobKey("all", 20.0), 24, 3600.0)
"""the first in the queue; it waits until the drained node is back"""
SMALL = tuple(JobRequest(JobKey(f"small{at}", 900.0 + at), 1, 60.0) for at in range(5))


def started(judged: Judged) -> list[str]:
    return [action.key.job_id for action in judged.plan if hasattr(action, "shares")]


def fail(*_: Any) -> None:
    raise ValueError("broken rule")


def test_fallback__a_job_that_waits_for_a_drained_node_stops_nobody() -> None:
    pilot = Pilot(PolicyNames().policy(GANG), FALLBACK.policy(GANG), GuardRules())
    pilot.decider.decide = fail  # type: ignore[method-assign, assignment]
    judged = pilot.decide(ClusterState(1000.0, NODES, (NEEDS_ALL, *SMALL)))
    assert "broken rule" in judged.fallback
    assert started(judged) == [one.key.job_id for one in SMALL]


@pytest.mark.parametrize(("selection", "backfill"), [("sjf", "easy"), ("sjf", "none"), ("lcfs", "easy")])
def test_fallback__who_starves_starts_though_the_first_waits_for_a_drained_node(selection: str, backfill: str) -> None:
    starves = JobRequest(JobKey("starves", 30.0), 16, 3600.0)
    names = PolicyNames(selection=selection, backfill=backfill)
    pilot = Pilot(names.policy(GANG), FALLBACK.policy(GANG), GuardRules(max_wait_s=500.0))
    judged = pilot.decide(ClusterState(1000.0, NODES, (NEEDS_ALL, starves, *SMALL)))
    assert "goes first" in judged.fallback
    assert started(judged) == ["starves"]


def test_replay__takes_the_fallback_that_was_recorded() -> None:
    boot = about(PolicyNames(), GANG, GuardRules())
    state = ClusterState(1000.0, NODES, (NEEDS_ALL, *SMALL))
    plans = {}
    for record in (boot, {**boot, "fallback": asdict(OLD_FALLBACK)}, {**boot, "fallback": None}):
        if record["fallback"] is None:
            del record["fallback"]  # as they were written before
        pilot = recorded_pilot("j.db", record, Memory())
        pilot.decider.decide = fail  # type: ignore[method-assign, assignment]
        plans[str(record.get("fallback"))] = started(pilot.decide(state))
        assert pilot.fallback.policy.gang is not None
    assert list(plans.values()) == [[one.key.job_id for one in SMALL], [], []]


def test_old_fallback__did_not_backfill() -> None:
    gang = OLD_FALLBACK.policy(GANG).gang
    assert gang is not None
    assert gang.backfill is Backfill.none


@pytest.mark.parametrize("broken", [{"policy": "fcfs"}, {"fallback": {"no": 1}}, {"seed": "x"}, {"worlds": 3}])
def test_replay__a_record_of_another_make_is_refused(broken: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="not one that this version writes"):
        recorded_pilot("j.db", {**about(PolicyNames(), GANG, GuardRules()), **broken}, Memory())
