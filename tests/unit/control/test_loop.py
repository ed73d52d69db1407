"""The wheel: modes, what is under way, and what is decided about when."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from live_cluster import JOBS, MANY, Deaf, again, gang_loop, mig_loop, turn_all
from smartmig.cli.live_policy import PolicyNames
from smartmig.control import in_flight
from smartmig.control.decide import Decider
from smartmig.control.explain import explain
from smartmig.control.guard import GuardMemory
from smartmig.control.history import histories
from smartmig.control.journal import open_journal
from smartmig.control.memory import Memory, begun, charged, started
from smartmig.control.switch import Mode
from smartmig.hardware.nodes import parse_nodes
from smartmig.sim.gang.run import simulate
from smartmig.sim.gang.world import Backfill
from smartmig.types import ClusterState, JobKey, JobRequest, NodeInfo, Outcome, RunningJob, Share, Start
from smartmig.workload.diurnal import DiurnalDay
from strategies import gang_policy


@pytest.mark.parametrize("selection", ["fcfs", "multifactor"])
@pytest.mark.parametrize("backfill", ["none", "easy", "conservative"])
def test_loop__in_charge_runs_every_job_as_the_simulator_would(tmp_path: Path, selection: str, backfill: str) -> None:
    names = PolicyNames(selection=selection, backfill=backfill)
    loop, cluster = gang_loop(tmp_path, JOBS, names=names)
    turn_all(loop, cluster)
    loop.journal.close()
    starts = {one.request.key.job_id: one.start_s for one in cluster.ended}
    if selection == "fcfs":
        run = simulate(JOBS, parse_nodes("2x4"), gang_policy(selection, "best-fit", Backfill(backfill)))
        assert starts == {str(job): float(at) for job, at in zip(JOBS.job_id, run.start_s, strict=True)}
    assert len(cluster.ended) == len(JOBS)
    assert loop.counts.starts == len(JOBS)
    report = again(str(tmp_path / "journal.db"), names, ("gang",))
    assert (report.n_different, report.n_starts_now) == (0, len(JOBS))
    assert report.n_decisions == loop.counts.decisions


def test_loop__shadow_decides_and_touches_nothing(tmp_path: Path) -> None:
    loop, cluster = gang_loop(tmp_path, JOBS, mode=Mode.shadow)
    turn_all(loop, cluster)
    loop.journal.close()
    assert cluster.own_scheduling
    assert loop.counts.decisions > 0
    assert loop.counts.starts == 0
    assert len(cluster.ended) == len(JOBS)
    kinds = [record.kind for record in open_journal(str(tmp_path / "journal.db")).records()]
    assert "outcome" not in kinds
    assert kinds.count("decision") == loop.counts.decisions
    assert again(str(tmp_path / "journal.db"), PolicyNames(), ("gang",)).n_different == 0


def test_loop__observe_only_looks(tmp_path: Path) -> None:
    loop, cluster = gang_loop(tmp_path, JOBS, mode=Mode.observe)
    turn_all(loop, cluster)
    loop.journal.close()
    kinds = {record.kind for record in open_journal(str(tmp_path / "journal.db")).records()}
    assert kinds == {"boot", "state"}
    (past,) = histories(open_journal(str(tmp_path / "journal.db")).records())
    assert sorted(one.request.key.job_id for one in past.finished) == sorted(JOBS.job_id.tolist())


def test_loop__modes_change_while_it_runs(tmp_path: Path) -> None:
    loop, cluster = gang_loop(tmp_path, JOBS)
    loop.step()
    loop.change_mode(Mode.shadow, "ann")
    assert cluster.own_scheduling
    loop.change_mode(Mode.act, "ann")
    loop.pause(True, "ann")
    before = loop.counts.decisions
    loop.step()
    assert not cluster.own_scheduling
    assert loop.counts.decisions == before
    loop.pause(False, "ann")
    turn_all(loop, cluster)
    loop.journal.close()
    assert len(cluster.ended) == len(JOBS)


def test_loop__neither_a_pause_nor_an_empty_plan_is_turned_without_rest(tmp_path: Path) -> None:
    loop, cluster = gang_loop(tmp_path, MANY, nodes="8x8")
    loop.settings = replace(loop.settings, rest_s=0.5)
    waits: list[float] = []

    class Waits:
        def __getattr__(self, name: str) -> Any:
            return getattr(source, name)

        def wait(self, patience_s: float) -> bool:
            waits.append(patience_s)
            if len(waits) == 2:
                loop.pause(True, "ann")
            if len(waits) == 5:
                loop.stop()
            return True

    source, loop.source = loop.source, Waits()
    cluster.take_over()
    cluster.advance_to(0.0)
    loop.run()
    assert waits[:2] == [0.0, 0.0], "more can start"
    assert all(patience_s >= 0.5 for patience_s in waits[2:])
    loop.journal.close()


def test_loop__does_not_ask_again_for_what_is_under_way(tmp_path: Path) -> None:
    loop, cluster = gang_loop(tmp_path, JOBS)
    loop.actuator = Deaf(loop.actuator)
    cluster.take_over()
    cluster.advance_to(0.0)
    assert [type(action) for action in loop.step().judged.plan] == [Start, Start]
    assert loop.step().judged.plan == ()
    cluster.advance_to(0.5)
    assert loop.step().judged.plan == ()
    cluster.time_s += 100.0  # longer than `in_flight_s`: the starts are lost, the jobs queued again
    assert len(loop.step().judged.plan) == 2
    assert loop.counts.lost == 2
    loop.journal.close()


def test_loop__many_starts_are_handed_over_a_few_at_a_time(tmp_path: Path) -> None:
    loop, cluster = gang_loop(tmp_path, MANY, nodes="8x8")
    cluster.take_over()
    cluster.advance_to(0.0)
    most, plans = loop.settings.most_starts, []
    while not plans or len(plans[-1]) == most:
        turn = loop.step()
        plans.append(turn.judged.plan)
        assert (turn.judged.wake_s <= 0.0) == (len(plans[-1]) == most), "who is left is decided about at once"
    assert [len(plan) for plan in plans] == [most, most, 40 - 2 * most]
    turn_all(loop, cluster)
    loop.journal.close()
    assert {one.start_s for one in cluster.ended} == {0.0}
    assert again(str(tmp_path / "journal.db"), PolicyNames(), ("gang",)).n_different == 0


def test_loop__what_is_not_carried_out_is_decided_all_at_once(tmp_path: Path) -> None:
    loop, cluster = gang_loop(tmp_path, MANY, nodes="8x8", mode=Mode.shadow)
    cluster.take_over()
    cluster.advance_to(0.0)
    turn = loop.step()
    assert len(turn.judged.plan) == 40
    assert turn.judged.wake_s > 0.0, "the same would be decided again and again"
    loop.journal.close()


def test_loop__jobs_that_the_guard_refuses_stand_before_nobody(tmp_path: Path) -> None:
    loop, cluster = gang_loop(tmp_path, MANY, nodes="8x8")
    cluster.take_over()
    cluster.advance_to(0.0)
    first = [action.key for action in Decider(loop.pilot.decider.policy).decide(loop.source.observe(5), Memory()).plan]
    tired = GuardMemory(attempts=dict.fromkeys(first[:20], (0.0,) * loop.pilot.rules.max_attempts_h))
    loop.pilot.guard_memory = tired
    turn = loop.step()
    assert {action.key for action in turn.judged.plan} == set(first[20:])
    assert len(turn.judged.refused) == 20
    loop.journal.close()


class Stubborn(Deaf):
    """A cluster that takes none of the first jobs."""

    def apply(self, plan: Any, timeout_s: float) -> tuple[Outcome, ...]:
        takes = [action for action in plan if int(action.key.job_id) >= 20]
        done = {outcome.action.key: outcome for outcome in self.inner.apply(tuple(takes), timeout_s)}
        return tuple(done.get(action.key, Outcome(action, False, "not now")) for action in plan)


def test_loop__jobs_that_the_cluster_refuses_stand_before_nobody(tmp_path: Path) -> None:
    loop, cluster = gang_loop(tmp_path, MANY, nodes="8x8")
    loop.actuator = Stubborn(loop.actuator)
    cluster.take_over()
    cluster.advance_to(0.0)
    for _ in range(2):
        loop.step()
    assert len(cluster.running) == 20
    assert loop.step().judged.wake_s > 0.0, "a cluster that refuses is not asked without a pause"
    loop.journal.close()
    assert again(str(tmp_path / "journal.db"), PolicyNames(), ("gang",)).n_different == 0


class Crashing(Deaf):
    """An actuator that fails in a way nobody thought of."""

    def apply(self, plan: Any, timeout_s: float) -> tuple[Outcome, ...]:  # noqa: ARG002
        time.sleep(0.2)
        raise RuntimeError("what is this?")


def test_loop__ends_with_what_its_acting_thread_stumbled_over(tmp_path: Path) -> None:
    loop, cluster = gang_loop(tmp_path, MANY, nodes="8x8")
    loop.settings = replace(loop.settings, settle_s=0.0)
    loop.actuator = Crashing(loop.actuator)
    cluster.take_over()
    cluster.advance_to(0.0)
    with pytest.raises(RuntimeError, match="what is this"):
        loop.run()
    loop.journal.close()
    assert cluster.own_scheduling
    outcomes = [record.body for record in open_journal(str(tmp_path / "journal.db")).records(kinds=("outcome",))]
    assert len(outcomes) == loop.counts.decisions
    assert not any(one["done"] for body in outcomes for one in body["outcomes"])


def test_overlay__gpus_on_their_way_to_a_job_are_not_free(tmp_path: Path) -> None:
    loop, cluster = gang_loop(tmp_path, JOBS, mode=Mode.observe)
    cluster.take_over()
    cluster.advance_to(0.0)
    state = cluster.observe()
    # Somebody whose jobs we may not see holds two of the four.
    hidden = replace(state, nodes=(replace(state.nodes[0], n_free=2), state.nodes[1]), running=())
    ours = Start(hidden.queued[0].key, (Share("node0", 2),))
    pending = in_flight.handed_over(in_flight.Pending(), (ours,), 0.0)
    assert in_flight.overlaid(hidden, pending).nodes[0].n_free == 0
    loop.journal.close()


def test_memory__charges_a_start_once_though_it_was_seen_before_the_cluster_said_so() -> None:
    request = JobRequest(JobKey("1", 0.0), 2, user="ann")
    waiting = ClusterState(0.0, (NodeInfo("a", 4, 4),), queued=(request,))
    runs = replace(waiting, time_s=1.0, queued=(), running=(RunningJob(request, 0.0, (Share("a", 2),)),))
    seen = charged(begun(Memory(), waiting), runs, 3600.0)
    assert seen.users["ann"].n_gpus == 2
    assert started(seen, waiting, {request.key}, 3600.0).users["ann"].n_gpus == 2


def test_explain__orders_the_queue_and_scores_the_nodes(tmp_path: Path) -> None:
    loop, cluster = gang_loop(tmp_path, JOBS, mode=Mode.observe)
    cluster.take_over()
    cluster.advance_to(4.0)
    loop.step()
    for selection in ("fcfs", "wfp"):
        decider = Decider(PolicyNames(selection=selection).policy(("gang",)))
        state = loop.seen
        told = explain(decider, state, decider.decide(state, loop.pilot.memory).memory)["queue"]
        assert len(told) == 6
        assert [one["score"] for one in told] == sorted(one["score"] for one in told)
        assert {node["node"] for node in told[0]["nodes"]} <= {"node0", "node1"}
    loop.journal.close()


def test_overlay__shows_cuts_under_way_as_not_usable(tmp_path: Path) -> None:
    from smartmig.types import Placement, Repartition

    loop, cluster = mig_loop(tmp_path, DiurnalDay(multiplier=1).jobs(0), layouts="1,1", mode=Mode.observe)
    state = cluster.observe()
    cut = Repartition("node0", 0, (Placement(0, "4g.20gb"), Placement(4, "3g.20gb")))
    pending = in_flight.handed_over(in_flight.Pending(), (cut,), 0.0)
    seen = in_flight.overlaid(state, pending).nodes[0].gpus[0]
    assert [(one.profile, one.usable) for one in seen.instances] == [("4g.20gb", False), ("3g.20gb", False)]
    assert in_flight.still(pending, replace(state, time_s=61.0), 60.0)[0] == in_flight.Pending()
    loop.journal.close()
