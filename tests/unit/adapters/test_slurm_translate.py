"""Slurm's records as a cluster's state, and what is to be done about a job besides plans."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_slurm_text import job, node

from smartmig.adapters.slurm import marks
from smartmig.adapters.slurm.asks import read_ask
from smartmig.adapters.slurm.cards import MigKnobs, counts_of, layouts_of, write_comment
from smartmig.adapters.slurm.keeper import Duty, duty_of
from smartmig.adapters.slurm.reach import only_slurm
from smartmig.adapters.slurm.records import JobRecord, PartitionRecord, ReservationRecord
from smartmig.adapters.slurm.started import Started
from smartmig.adapters.slurm.translate import Snapshot, Translator
from smartmig.types import ClusterState, JobKey, Placement, Share

NOW_S = 2000.0
MIG = MigKnobs("a100-40gb", 1)
NODES = (node("n1"), node("n2", features="fast"), node("m1", gres="mig:1g.5gb:7", gres_used="mig:1g.5gb:0"))
PART = PartitionRecord("gpu", "UP", ("n1", "n2", "m1"), 60)


def seen(*jobs: JobRecord, **changes: Any) -> Snapshot:
    return replace(Snapshot(jobs, NODES, PART), **changes)


def state_of(*jobs: JobRecord, **changes: Any) -> ClusterState:
    return Translator("gpu", MIG).state(seen(*jobs, **changes), NOW_S, {})[0]


def running(job_id: int, node_name: str, gres: str, **changes: Any) -> JobRecord:
    at = {"state": "RUNNING", "priority": 5, "start_s": 1500, "nodes": (node_name,), "gres_detail": gres}
    return job(job_id=job_id, **{**at, **changes})


def started(job_id: int, *shares: Share, **changes: Any) -> JobRecord:
    mark = marks.write_start(1000, 1990.0, shares)
    return job(job_id=job_id, **{"priority": 9, "reason": "Priority", "admin_comment": mark, **changes})


def test_state__a_held_job_is_queued_with_what_it_asks() -> None:
    (request,) = state_of(job(limit_min=30, features="fast", account="lab")).queued
    assert request.key == JobKey("7", 1000.0)
    assert (request.n_gpus, request.n_nodes, request.limit_s, request.nodes) == (1, 1, 1800.0, ("n2",))
    assert (request.user, request.group) == ("root", "lab")


@pytest.mark.parametrize(
    "changes",
    [
        {"dependency": "afterok:3(unfulfilled)"},
        {"comment": f"x {marks.USER_HOLD}"},
        {"admin_comment": ""},
        {"eligible_s": 3000},
        {"admin_comment": marks.write_parked(3000), "priority": 5, "eligible_s": marks.FAR_S},
        {"partition": "other"},
        {"partition": "gpu2"},
        {"limit_min": 61},
        {"limit_min": None},
        {"shared": 0},
        {"n_cpus": 33},
        {"required_nodes": ("elsewhere",)},
        {"state": "PENDING+COMPLETING"},
        {"state": "CANCELLED"},
    ],
)
def test_state__what_may_not_start_is_not_queued(changes: dict[str, Any]) -> None:
    assert state_of(job(**changes)).queued == ()


@pytest.mark.parametrize(
    "changes",
    [
        {"admin_comment": marks.write_parked(0), "priority": 5, "eligible_s": marks.FAR_S},
        {"admin_comment": "", "priority": 5, "reason": "Resources"},
        {"admin_comment": marks.write_start(900, 950.0, (Share("n1", 1),)), "priority": 5},
        {"partition": "other,gpu"},
        {"comment": marks.USER_HOLD, "priority": 5},
    ],
)
def test_state__what_waits_only_for_a_decision_is_queued(changes: dict[str, Any]) -> None:
    assert [request.key.job_id for request in state_of(job(**changes)).queued] == ["7"]


def test_state__a_partition_that_is_down_queues_nothing() -> None:
    assert state_of(job(), partition=replace(PART, state="DOWN")).queued == ()


def test_state__jobs_older_than_the_controller_rest_after_its_start() -> None:
    assert state_of(job(submit_s=1000), boot_s=1980).queued == ()
    assert len(state_of(job(submit_s=1985), boot_s=1980).queued) == 1
    assert len(state_of(job(submit_s=1000), boot_s=1970).queued) == 1


def test_state__a_forgotten_start_goes_elsewhere(tmp_path: Path) -> None:
    key = JobKey("7", 1000.0)
    Started(tmp_path / "started").note(key, ("n1",))
    boot_s = int(time.time())
    now_s = boot_s + 30.0
    # Another process reads what the first wrote, and a line that was cut off.
    with (tmp_path / "started").open("a") as file:
        file.write("8 10")
    translator = Translator("gpu", MIG, started=Started(tmp_path / "started"))

    def nodes(boot_s: int = boot_s, now_s: float = now_s, **changes: Any) -> tuple[str, ...]:
        return translator.state(seen(job(**changes), boot_s=boot_s), now_s, {})[0].queued[0].nodes

    assert nodes() == ("n2", "m1")
    # Nodes know an id, not when it was submitted; of another id they know nothing.
    assert nodes(submit_s=1001) == ("n2", "m1")
    assert nodes(job_id="8") == ()
    assert nodes(required_nodes=("n1",)) == ("n1",)
    # On two nodes there is not enough left without it.
    assert nodes(n_nodes=2, max_nodes=2, required_nodes=("n1", "n2")) == ("n1", "n2")
    # Nor has any other node what it asks for.
    Started(tmp_path / "started").note(key, ("m1",))
    translator = Translator("gpu", MIG, started=Started(tmp_path / "started"))
    assert nodes() == ("n2",)
    assert nodes(tres_per_node="gres:mig:1g.5gb:1") == nodes(tres_per_node="gres:gpu:v100:1") == ()
    # A controller that has been there all the time knows where the job is not; and nodes tell a new one in a while.
    assert nodes(boot_s=boot_s - 3600) == ()
    assert nodes(now_s=boot_s + 3600.0) == ()


def test_state__a_node_without_cpus_or_memory_is_left_out_while_it_lacks_them() -> None:
    busy = (node("n1", n_cpus_used=30), *NODES[1:])
    assert state_of(job(n_cpus=2), nodes=busy).queued[0].nodes == ()
    assert state_of(job(n_cpus=3), nodes=busy).queued[0].nodes == ("n2", "m1")
    assert state_of(job(memory_mb=4000, memory_per_cpu=False), nodes=busy).queued[0].nodes == ()
    full = (node("n1", memory_used_mb=62000), *NODES[1:])
    assert state_of(job(memory_mb=4000, memory_per_cpu=False), nodes=full).queued[0].nodes == ("n2", "m1")
    # What we started a moment ago counts, and where no GPU is free nobody is tempted.
    starts = started(1, Share("n2", 1), n_cpus=31)
    assert state_of(job(n_cpus=3), starts, nodes=busy).queued[0].nodes == ("m1",)
    taken = (node("n1", n_cpus_used=30, gres_used="gpu:a100:4"), *NODES[1:])
    assert state_of(job(n_cpus=3), nodes=taken).queued[0].nodes == ()
    # Nowhere: it keeps nobody from starting.
    assert state_of(job(n_cpus=3, required_nodes=("n1",)), nodes=busy).queued == ()


def test_state__a_job_wider_than_a_node_needs_its_cpus_on_several() -> None:
    eight = {"tres_per_node": "", "tres_per_job": "gres:gpu:8"}
    assert len(state_of(job(n_cpus=60, **eight)).queued) == 1
    assert state_of(job(n_cpus=66, **eight)).queued == ()


GPU_20 = {"cpus_per_tres": "gres:gpu:20"}


def test_state__what_a_job_asks_for_with_each_gpu_counts() -> None:
    busy = (node("n1", n_cpus_used=20, memory_used_mb=40000), *NODES[1:])
    assert state_of(job(**GPU_20), nodes=busy).queued[0].nodes == ("n2", "m1")
    assert state_of(job(mem_per_tres="gres:gpu:40000"), nodes=busy).queued[0].nodes == ("n2", "m1")
    assert state_of(job(mem_per_tres="gres:gpu:20000"), nodes=busy).queued[0].nodes == ()
    # The default memory for each CPU counts for these CPUs; memory for each GPU replaces it.
    assert state_of(job(memory_mb=2000, **GPU_20)).queued[0].nodes == ()
    assert state_of(job(memory_mb=4000, **GPU_20)).queued == ()
    assert state_of(job(memory_mb=4000, mem_per_tres="gpu:9", **GPU_20)).queued[0].nodes == ()
    assert state_of(job(tres_per_node="gres:gpu:2", **GPU_20)).queued == ()
    # What we started a moment ago counts, too.
    assert state_of(job(**GPU_20), started(1, Share("n2", 1), **GPU_20)).queued[0].nodes == ("n1", "m1")


def test_state__all_memory_is_that_of_a_node_on_which_nobody_has_any() -> None:
    everything = {"memory_mb": 0, "memory_per_cpu": False}
    busy = (node("n1", memory_used_mb=100, n_cpus_used=1), *NODES[1:])
    assert state_of(job(**everything), nodes=busy).queued[0].nodes == ("n2", "m1")
    state = state_of(job(**everything), started(1, Share("n2", 1), **everything), nodes=busy)
    assert state.queued[0].nodes == ("m1",)
    # Where memory is not handed out, nobody has any, and all may share.
    assert state_of(job(**everything), started(1, Share("n2", 1), **everything)).queued[0].nodes == ()


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, ""),
        ({"n_nodes": 2, "max_nodes": 2, "required_nodes": ("n1",)}, "only some of its nodes"),
        ({"tres_per_node": "", "tres_per_job": "gres:gpu:6", "required_nodes": ("n1",)}, "only some of its nodes"),
        ({"tres_per_node": "", "tres_per_job": "gres:gpu:4", "required_nodes": ("n1",)}, ""),
        ({"n_nodes": 2, "max_nodes": 2, "required_nodes": ("n1", "n2")}, ""),
        ({"required_nodes": ("m1",), "tres_per_node": "gres:mig:1g.5gb:1"}, ""),
        ({"tres_per_node": "", "tres_per_job": "gres:gpu:2", **GPU_20}, "more nodes than for its GPUs"),
        ({"limit_min": 90}, ""),
        ({"limit_min": 90, "partition": "gpu,other"}, "partition gpu cannot take it"),
        ({"partition": "gpu,other"}, ""),
        ({"partition": "gpu,other", "features": "slow"}, "partition gpu cannot take it"),
        ({"partition": "gpu,other", "excluded_nodes": ("n1", "n2")}, "partition gpu cannot take it"),
        ({"partition": "gpu,other", "tres_per_node": "gres:gpu:v100:1"}, "partition gpu cannot take it"),
        ({"partition": "gpu,other", "tres_per_node": "gres:gpu:5"}, "partition gpu cannot take it"),
        ({"shared": 0}, "--exclusive"),
    ],
)
def test_job__that_only_slurm_can_place_is_left_to_it(changes: dict[str, Any], why: str) -> None:
    said = only_slurm(job(**changes), PART, NODES)
    assert why in said
    assert bool(why) == bool(said)
    if said:
        assert state_of(job(**changes)).queued == ()


def test_job__of_several_partitions_is_left_to_slurm_while_ours_is_down() -> None:
    both = job(partition="gpu,other")
    assert only_slurm(both, replace(PART, state="DOWN"), NODES)
    drained = [node(one.name, state="IDLE+DRAIN") for one in NODES]
    assert only_slurm(both, PART, drained)
    translator = Translator("gpu", MIG)
    assert translator.state(seen(both, nodes=tuple(drained)), NOW_S, {})[0].queued == ()
    assert len(translator.state(seen(both), NOW_S, {})[0].queued) == 1


def test_state__who_names_a_reservation_gets_its_nodes_and_nobody_else() -> None:
    mine, later = ReservationRecord("mine", ("n1",), 1500, 9000), ReservationRecord("later", ("n2",), 2700, 9000)
    jobs = job(job_id=1, reservation="mine"), job(job_id=2), job(job_id=3, user_id=1, limit_min=5)
    state = state_of(*jobs, reservations=(mine, later))
    assert [request.nodes for request in state.queued] == [("n1",), ("n2", "m1"), ()]
    assert [(one.name, one.users) for one in state.reservations] == [("mine", ("root",)), ("later", ())]
    # Not before it begins; other jobs of the same user until then, as far as they end in time.
    early = job(job_id=1, reservation="later"), job(job_id=2, limit_min=5), job(job_id=3, limit_min=50)
    state = state_of(*early, reservations=(later,))
    assert [(request.key.job_id, request.nodes) for request in state.queued] == [("2", ()), ("3", ("n1", "m1"))]
    assert state_of(job(reservation="gone")).queued == ()
    assert state_of(job(), reservations=(replace(mine, end_s=1900),)).reservations == ()


def test_state__a_started_job_holds_its_gpus_before_slurm_shows_it() -> None:
    state = state_of(started(1, Share("n1", 3)), running(2, "n2", "gpu:a100:2(IDX:0-1)"))
    assert [(one.request.key.job_id, one.shares) for one in state.running] == [
        ("1", (Share("n1", 3),)),
        ("2", (Share("n2", 2),)),
    ]
    assert [one.n_free for one in state.nodes] == [1, 2, 0]
    assert state.queued == ()


def test_state__gpus_that_only_slurm_counts_are_not_free() -> None:
    busy = (node("n1", gres_used="gpu:a100:3"), *NODES[1:])
    state = state_of(started(1, Share("n1", 1)), nodes=busy)
    assert state.nodes[0].n_free == 0


def test_state__array_tasks_are_told_apart_within_their_limit() -> None:
    waiting = job(job_id=5, array_job_id=5, array_tasks="1-8", array_max_tasks=3)
    one = running(6, "n1", "gpu:a100:1", array_job_id=5, array_task_id=0)
    state = state_of(waiting, one)
    assert [request.key.job_id for request in state.queued] == ["5_1", "5_2"]
    assert [one.request.key.job_id for one in state.running] == ["5_0"]


def test_state__jobs_of_other_partitions_only_take_room() -> None:
    (one,) = state_of(running(9, "n1", "gpu:a100:4", partition="other")).running
    assert not one.managed


def test_state__jobs_that_rest_are_left_out_until_then() -> None:
    translator = Translator("gpu", MIG)
    assert translator.state(seen(job()), NOW_S, {JobKey("7", 1000.0): NOW_S + 1})[0].queued == ()
    assert translator.state(seen(job()), NOW_S + 1, {JobKey("7", 1000.0): NOW_S + 1})[0].queued != ()


def test_state__unchanged_jobs_are_the_same_objects() -> None:
    translator = Translator("gpu", MIG)
    first, second = job(), running(2, "n2", "gpu:a100:2")
    before = translator.state(seen(first, second), NOW_S, {})[0]
    after = translator.state(seen(first, second), NOW_S + 1, {})[0]
    assert after.queued[0] is before.queued[0]
    assert after.running[0] is before.running[0]


def test_state__a_job_that_begins_to_run_keeps_its_request() -> None:
    translator = Translator("gpu", MIG)
    (waits,) = translator.state(seen(job()), NOW_S, {})[0].queued
    (coming,) = translator.state(seen(started(7, Share("n1", 1))), NOW_S, {})[0].running
    record = running(7, "n1", "gpu:1(IDX:0)")
    (runs,) = translator.state(seen(record), NOW_S, {})[0].running
    assert coming.request is waits
    assert runs.request is waits
    (longer,) = translator.state(seen(replace(record, limit_min=50)), NOW_S, {})[0].running
    assert longer.request.limit_s == 3000.0


def test_state__slices_in_use_have_positions() -> None:
    said = running(1, "m1", "mig:1g.5gb:1", admin_comment=marks.write_start(1000, 1990.0, (Share("m1", 0, 0, 4),)))
    unsaid = running(2, "m1", "mig:1g.5gb:1", admin_comment="", tres_per_node="gres:mig:1g.5gb:1")
    state = state_of(replace(said, tres_per_node="gres:mig:1g.5gb:1"), unsaid)
    assert [one.shares for one in state.running] == [(Share("m1", 0, 0, 4),), (Share("m1", 0, 0, 0),)]
    assert state.running[0].request.n_gpus == 0
    assert state.running[0].request.run_s == (600.0, math.inf, math.inf, math.inf, math.inf)


def test_layouts__kept_in_the_comment_while_the_counts_agree() -> None:
    layout = (Placement(0, "1g.5gb"), Placement(2, "1g.5gb"), Placement(4, "3g.20gb"))
    comment = write_comment("a100-40gb", (layout,))
    cut = node("m1", gres="mig:1g.5gb:2,mig:3g.20gb:1,mig:2g.10gb:0", comment=comment)
    assert layouts_of(cut, MIG) == ("a100-40gb", (layout,))
    reset = node("m1", gres="mig:1g.5gb:7", comment=comment)
    found = layouts_of(reset, MIG)
    assert not isinstance(found, str)
    assert [placement.start for placement in found[1][0]] == list(range(7))
    assert counts_of(found[1]) == {"1g.5gb": 7}


def test_layouts__counts_that_fit_no_card_are_a_sentence() -> None:
    assert "cannot be cut" in layouts_of(node("m1", gres="mig:1g.5gb:8"), MIG)
    assert "not those of" in layouts_of(node("m1", gres="mig:9g.5gb:1"), MIG)
    two = layouts_of(node("m1", gres="mig:4g.20gb:2,mig:3g.20gb:2"), MigKnobs("a100-40gb", 2))
    assert not isinstance(two, str)
    assert [len(layout) for layout in two[1]] == [2, 2]


@pytest.mark.parametrize(
    ("changes", "duty"),
    [
        ({}, Duty.none),
        ({"tres_per_node": ""}, Duty.not_ours),
        ({"admin_comment": ""}, Duty.not_ours),
        ({"admin_comment": "", "priority": 4}, Duty.hold),
        ({"admin_comment": marks.LET_GO, "priority": 4}, Duty.hold),
        ({"admin_comment": marks.write_start(900, 950.0, (Share("n1", 1),)), "priority": 4}, Duty.hold),
        ({"reason": "JobHeldAdmin"}, Duty.none),
        ({"comment": marks.USER_HOLD}, Duty.not_ours),
        ({"admin_comment": marks.HOLDING}, Duty.none),
        ({"admin_comment": marks.LET_GO}, Duty.not_ours),
        ({"admin_comment": marks.write_start(1000, 1990.0, (Share("n1", 1),))}, Duty.none),
        ({"admin_comment": marks.write_start(900, 950.0, (Share("n1", 1),))}, Duty.not_ours),
        ({"shared": 0, "admin_comment": marks.write_given_back(900, 950.0, "x")}, Duty.not_ours),
        ({"tres_per_node": "gres:gpu:0"}, Duty.not_ours),
        ({"het_job_id": 7}, Duty.not_ours),
        ({"dependency": "afterok:3", "admin_comment": marks.write_parked(0)}, Duty.park),
        ({"dependency": "afterok:3(unfulfilled)"}, Duty.park),
        ({"dependency": "afterok:3", "admin_comment": marks.write_parked(0), "priority": 4}, Duty.none),
        ({"shared": 0}, Duty.give_back),
        ({"shared": 0, "job_id": 8}, Duty.none),
        ({"shared": 0, "priority": 4, "admin_comment": marks.write_given_back(1000, 1999.0, "x")}, Duty.none),
        ({"shared": 0, "priority": 4, "admin_comment": marks.write_given_back(1000, 1990.0, "x")}, Duty.take_back),
        ({"priority": 4, "reason": "Resources", "admin_comment": "@1991"}, Duty.none),
        ({"priority": 4, "reason": "Resources", "admin_comment": "@1980"}, Duty.take_back),
        ({"priority": 4, "reason": "ReqNodeNotAvail", "admin_comment": "@1991"}, Duty.take_back),
        ({"state": "RUNNING", "priority": 4}, Duty.not_ours),
    ],
)
def test_duty__of_a_pending_job(changes: dict[str, Any], duty: Duty) -> None:
    record = job(**changes)
    if record.admin_comment.startswith("@"):
        mark = marks.write_start(1000, float(record.admin_comment[1:]), (Share("n1", 1),))
        record = replace(record, admin_comment=mark)
    rests = {JobKey("8", 1000.0): NOW_S + 5}
    assert duty_of(record, NOW_S, 10.0, rests, isinstance(read_ask(record), str)) is duty
