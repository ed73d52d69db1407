"""The wheel: modes, kill switch, what is under way, and a journal that gives the same plans again."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from live_cluster import again, fallbacks, gang_loop, mig_loop, turn_all
from smartmig.adapters.simulated.feed import made_up_gangs
from smartmig.cli.live_policy import PolicyNames
from smartmig.cli.policy_files import trained_ranges
from smartmig.control import in_flight
from smartmig.control.decide import Decider, Decision
from smartmig.control.effect import estimated, measured
from smartmig.control.explain import explain
from smartmig.control.guard import GuardMemory, GuardRules
from smartmig.control.history import histories
from smartmig.control.journal import Journal, JournalReader, States, open_journal
from smartmig.control.memory import Memory, begun, charged, started
from smartmig.control.replay import handed_over_since
from smartmig.control.switch import Mode
from smartmig.control.wire import guard_memory_from_json, guard_memory_to_json, rules_from_json
from smartmig.errors import AdapterError
from smartmig.hardware.nodes import parse_nodes
from smartmig.sim.gang.run import simulate
from smartmig.sim.gang.world import Backfill
from smartmig.types import ClusterState, JobKey, JobRequest, NodeInfo, Outcome, RunningJob, Share, Start
from smartmig.workload.diurnal import DiurnalDay
from strategies import gang_policy, make_gangs

JOBS = make_gangs(
    (0, 4, 30, 40), (0, 3, 20, 60), (1, 8, 10, 20), (2, 1, 5, 10), (3, 2, 50, 60), (4, 1, 5, 30), user="uvuvuv"
)


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


def test_replay__another_policy_differs_and_says_where(tmp_path: Path) -> None:
    loop, cluster = gang_loop(tmp_path, JOBS)
    turn_all(loop, cluster)
    loop.journal.close()
    report = again(str(tmp_path / "journal.db"), PolicyNames(selection="lcfs", backfill="none"), ("gang",))
    assert report.n_different > 0
    assert report.first_difference is not None


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


def test_kill__gives_the_cluster_back_and_resume_takes_it_again(tmp_path: Path) -> None:
    loop, cluster = gang_loop(tmp_path, JOBS)
    loop.step()
    assert loop.in_charge
    assert not cluster.own_scheduling
    (tmp_path / "kill").write_text("now\n")
    loop.step()
    assert loop.killed
    assert cluster.own_scheduling
    assert not loop.in_charge
    turn_all(loop, cluster)
    assert loop.counts.starts <= 2
    assert len(cluster.ended) == len(JOBS)
    (tmp_path / "kill").unlink()
    loop.step()
    assert not loop.killed
    assert loop.in_charge
    loop.journal.close()
    audits = [record.body["what"] for record in open_journal(str(tmp_path / "journal.db")).records(kinds=("audit",))]
    assert audits == ["take over", "kill", "let go", "resume", "take over"]


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


class Flaky:
    """A cluster that stops answering for a while."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.away = inner, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def observe(self, timeout_s: float) -> Any:
        if self.away:
            raise AdapterError("the cluster does not answer")
        return self.inner.observe(timeout_s)


def test_loop__a_cluster_that_is_away_for_long_gets_its_scheduling_back(tmp_path: Path) -> None:
    loop, cluster = gang_loop(tmp_path, JOBS)
    loop.settings = replace(loop.settings, max_failures=2)
    loop.source = Flaky(loop.source)
    loop.step()
    loop.source.away = True
    assert loop.step() is None
    assert loop.trouble == "the cluster does not answer"
    assert loop.in_charge
    loop.step()
    assert loop.killed
    assert cluster.own_scheduling
    assert (tmp_path / "kill").exists()
    loop.source.away = False
    loop.revive("back again")
    turn_all(loop, cluster)
    loop.journal.close()
    assert len(cluster.ended) == len(JOBS)


class Away:
    """An actuator that is away with its cluster."""

    def __init__(self, inner: Any, source: Flaky) -> None:
        self.inner, self.source = inner, source

    def __getattr__(self, name: str) -> Any:
        if self.source.away and name in ("let_go", "take_over", "apply"):
            raise AdapterError("the cluster does not answer")
        return getattr(self.inner, name)


def test_loop__a_cluster_that_is_away_altogether_is_waited_for(tmp_path: Path) -> None:
    loop, cluster = gang_loop(tmp_path, JOBS)
    loop.settings = replace(loop.settings, max_failures=2)
    loop.source = Flaky(loop.source)
    loop.actuator = Away(loop.actuator, loop.source)
    loop.step()
    loop.source.away = True
    for _ in range(4):
        assert loop.step() is None
    # It could not be given back, so the switch is not thrown: nobody would have to take it away again.
    assert not loop.killed
    assert not loop.in_charge
    loop.source.away = False
    turn_all(loop, cluster)
    loop.journal.close()
    assert loop.in_charge
    assert len(cluster.ended) == len(JOBS)


class Reluctant:
    """An actuator that lets go only at the second attempt."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.away = inner, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def take_over(self, timeout_s: float) -> int:
        held = self.inner.take_over(timeout_s)
        if self.away:
            raise AdapterError("half of the jobs are held")
        return held

    def let_go(self, timeout_s: float) -> int:
        if self.away:
            raise AdapterError("not now")
        return self.inner.let_go(timeout_s)


def reluctant(folder: Path) -> tuple[Any, Any]:
    loop, cluster = gang_loop(folder, JOBS)
    loop.actuator = Reluctant(loop.actuator)
    loop.step()
    loop.actuator.away = True
    return loop, cluster


@pytest.mark.parametrize("leave", ["kill", "mode", "pause"])
def test_loop__lets_go_until_it_has_let_go(tmp_path: Path, leave: str) -> None:
    loop, cluster = reluctant(tmp_path)
    if leave == "kill":
        assert loop.kill("enough") == 0
        assert loop.killed
    else:
        loop.change_mode(Mode.shadow if leave == "mode" else Mode.observe, "ann")
    loop.step()
    assert not cluster.own_scheduling
    loop.actuator.away = False
    if leave == "kill":
        loop.kill("again")
    else:
        loop.step()
    assert cluster.own_scheduling
    loop.journal.close()


def test_loop__what_was_taken_over_by_half_is_given_back(tmp_path: Path) -> None:
    loop, cluster = gang_loop(tmp_path, JOBS)
    loop.actuator = Reluctant(loop.actuator)
    loop.actuator.away = True
    assert loop.step() is None
    assert not cluster.own_scheduling
    loop.actuator.away = False
    loop.change_mode(Mode.shadow, "ann")
    assert cluster.own_scheduling
    loop.journal.close()


def test_loop__lets_go_when_it_stops_though_it_could_not_before(tmp_path: Path) -> None:
    loop, cluster = reluctant(tmp_path)
    loop.change_mode(Mode.shadow, "ann")
    assert not cluster.own_scheduling
    loop.actuator.away = False
    loop.stop()
    loop.run()
    assert cluster.own_scheduling
    loop.journal.close()


def test_kill__works_though_the_file_cannot_be_made_and_nobody_can_hear_it(tmp_path: Path) -> None:
    loop, cluster = gang_loop(tmp_path, JOBS)
    loop.step()
    (tmp_path / "taken").write_text("")
    loop.kill_file = tmp_path / "taken" / "kill"

    def deaf(event: str, body: dict[str, Any]) -> None:
        if body.get("what") == "kill":
            raise RuntimeError(f"{event} is lost")

    loop.listener = deaf
    with pytest.raises(RuntimeError, match="audit is lost"):
        loop.kill("enough")
    assert loop.killed
    assert cluster.own_scheduling
    loop.step()
    assert loop.killed, "only `resume` takes back what has no file"
    loop.journal.close()


def test_loop__a_cluster_may_be_away_for_weeks(tmp_path: Path) -> None:
    loop, _ = gang_loop(tmp_path, JOBS, mode=Mode.shadow)
    loop.source = Flaky(loop.source)
    loop.source.away = True
    loop._stop.set()  # no pauses
    for _ in range(1100):
        assert loop.step() is None
    assert loop.counts.errors == 1100
    loop.journal.close()


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


def test_loop__the_last_outcomes_are_written(tmp_path: Path) -> None:
    loop, cluster = gang_loop(tmp_path, JOBS)
    loop.settings = replace(loop.settings, settle_s=0.0)
    slow = loop.actuator.apply

    def apply(plan: Any, timeout_s: float) -> tuple[Outcome, ...]:
        time.sleep(0.3)
        return slow(plan, timeout_s)

    loop.actuator = Deaf(loop.actuator)
    loop.actuator.apply = apply  # type: ignore[method-assign]
    cluster.take_over()
    cluster.advance_to(0.0)
    loop.listener = lambda event, _: loop.stop() if event == "decision" else None
    loop.run()
    loop.journal.close()
    kinds = [record.kind for record in open_journal(str(tmp_path / "journal.db")).records()]
    assert kinds.count("outcome") == 1


class Deaf:
    """Accepts starts and forgets them."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def apply(self, plan: Any, timeout_s: float) -> tuple[Outcome, ...]:  # noqa: ARG002
        return tuple(Outcome(action, True) for action in plan)


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


MANY = make_gangs(*[(0, 1, 50, 60)] * 40)


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


def test_loop__nothing_is_done_that_is_not_written(tmp_path: Path) -> None:
    loop, cluster = gang_loop(tmp_path, JOBS)
    loop.journal.sync(30)
    with loop.journal.engine.begin() as connection:
        connection.execute(sa.text("ALTER TABLE smartmig_journal RENAME TO gone"))
    cluster.take_over()
    cluster.advance_to(0.0)
    loop.step()
    assert not cluster.running
    for _ in range(loop.pilot.rules.max_attempts_h + 1):
        loop._failures = 0  # no long pauses
        assert loop.step() is None
    assert loop.counts.failed > 0
    assert "the database refuses" in loop.trouble
    with loop.journal.engine.begin() as connection:
        connection.execute(sa.text("ALTER TABLE gone RENAME TO smartmig_journal"))
    loop.step()
    loop.journal.sync(30)
    turn = loop.step()
    assert turn is not None
    assert turn.judged.plan
    assert turn.judged.refused == (), "what was never asked for was no attempt"
    turn_all(loop, cluster)
    loop.journal.close()
    assert len(cluster.ended) == len(JOBS)
    # What could not be written at first was written later: the journal is whole.
    assert again(str(tmp_path / "journal.db"), PolicyNames(), ("gang",)).n_different == 0


def test_loop__a_journal_that_is_away_for_long_gives_the_cluster_its_scheduling_back(tmp_path: Path) -> None:
    loop, cluster = gang_loop(tmp_path, JOBS)
    loop.settings = replace(loop.settings, max_failures=2)
    loop.journal.sync(30)
    with loop.journal.engine.begin() as connection:
        connection.execute(sa.text("ALTER TABLE smartmig_journal RENAME TO gone"))
    cluster.take_over()
    cluster.advance_to(0.0)
    for _ in range(4):
        loop.step()
    assert loop.killed
    assert cluster.own_scheduling
    with loop.journal.engine.begin() as connection:
        connection.execute(sa.text("ALTER TABLE gone RENAME TO smartmig_journal"))
    loop.journal.close()


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


class Slow(Deaf):
    """Takes its time, for cuts and for parts of a plan alike."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.parts: list[int] = []

    def apply(self, plan: Any, timeout_s: float) -> tuple[Outcome, ...]:
        self.parts.append(len(plan))
        time.sleep(0.3)
        return self.inner.apply(plan, timeout_s)


def test_kill__comes_in_between_the_parts_of_a_plan(tmp_path: Path) -> None:
    loop, cluster = gang_loop(tmp_path, MANY, nodes="8x8")
    loop.settings = replace(loop.settings, settle_s=0.0, chunk=4)
    slow = loop.actuator = Slow(loop.actuator)
    cluster.take_over()
    cluster.advance_to(0.0)
    loop.step()
    while not slow.parts:
        time.sleep(0.01)
    begun_s = time.monotonic()
    loop.kill("enough")
    assert time.monotonic() - begun_s < 0.6, "no longer than what the cluster was being asked to do"
    assert cluster.own_scheduling
    loop.stop()
    loop.run()
    loop.journal.close()
    assert slow.parts == [4]


def test_loop__says_that_the_kill_file_cannot_be_looked_at(tmp_path: Path) -> None:
    loop, _ = gang_loop(tmp_path, JOBS)
    loop.kill_file = Path("/" + "x" * 300)  # "File name too long" stands for a disk that fails
    loop.step()
    assert "the kill file cannot be looked at" in loop.trouble
    assert not loop.killed
    loop.kill_file = tmp_path / "kill"
    loop.step()
    assert loop.trouble == ""
    loop.journal.close()


def test_fallback__decides_when_the_policy_fails(tmp_path: Path) -> None:
    loop, cluster = gang_loop(tmp_path, JOBS)

    def fail(*_: Any) -> None:
        raise ValueError("broken rule")

    loop.pilot.decider.decide = fail  # type: ignore[method-assign, assignment]
    turn_all(loop, cluster)
    loop.journal.close()
    assert len(cluster.ended) == len(JOBS)
    assert loop.counts.fallbacks == loop.counts.decisions
    bodies = [record.body for record in open_journal(str(tmp_path / "journal.db")).records(kinds=("decision",))]
    assert all("broken rule" in body["fallback"] for body in bodies if body["plan"])


def test_fallback__decides_when_a_plan_cannot_be_judged(tmp_path: Path) -> None:
    loop, cluster = mig_loop(tmp_path, DiurnalDay().jobs(1))
    timeless = JobRequest(JobKey("0", 0.0), 0)
    seen = replace(loop.source.observe(5), queued=(timeless,))
    node = seen.nodes[0]
    there = Share(node.name, 0, 0, node.gpus[0].instances[0].start)
    plan = (Start(timeless.key, (there,)),)
    loop.pilot.decider.decide = lambda *_: Decision(plan, Memory())  # type: ignore[method-assign, assignment]
    judged = loop.pilot.decide(seen)
    assert "the policy failed: IndexError" in judged.fallback
    assert judged.plan == ()
    assert cluster.queue == {}
    loop.journal.close()


def test_fallback__may_fail_as_well(tmp_path: Path) -> None:
    loop, cluster = gang_loop(tmp_path, JOBS)

    def fail(*_: Any) -> None:
        raise ValueError("broken rule")

    loop.pilot.decider.decide = loop.pilot.fallback.decide = fail  # type: ignore[method-assign, assignment]
    cluster.take_over()
    cluster.advance_to(0.0)
    assert loop.step().judged.plan == ()
    loop.journal.close()
    bodies = [record.body for record in open_journal(str(tmp_path / "journal.db")).records(kinds=("decision",))]
    assert ["the plain rule failed as well" in body["fallback"] for body in bodies] == [True]


def test_replay__knows_rules_without_an_end(tmp_path: Path) -> None:
    rules = GuardRules(max_wait_s=math.inf, drift_margin=math.inf)
    loop, cluster = gang_loop(tmp_path, JOBS, rules=rules)
    turn_all(loop, cluster)
    loop.journal.close()
    (boot,) = open_journal(str(tmp_path / "journal.db")).records(kinds=("boot",))
    assert rules_from_json(boot.body["guard"], "guard") == rules
    assert again(str(tmp_path / "journal.db"), PolicyNames(), ("gang",)).n_different == 0


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


def test_loop__what_was_seen_is_written_though_deciding_breaks_the_loop(tmp_path: Path) -> None:
    loop, cluster = gang_loop(tmp_path, JOBS)

    def fail(*_: Any) -> None:
        raise RuntimeError("a defect")

    loop.pilot.decide = fail  # type: ignore[method-assign, assignment]
    cluster.take_over()
    cluster.advance_to(0.0)
    with pytest.raises(RuntimeError, match="a defect"):
        loop.step()
    loop.journal.close()
    assert "state" in [record.kind for record in open_journal(str(tmp_path / "journal.db")).records()]


def test_drift__of_a_learned_policy_brings_the_fallback(tmp_path: Path) -> None:
    day = DiurnalDay(multiplier=6).jobs(0)
    loop, _ = mig_loop(tmp_path, day, names=PolicyNames(repartition="mean-field"))
    n = 58
    loop.pilot.ranges = {"mig": (np.full(n, 100.0), np.full(n, 101.0))}
    assert all("outside what the policy was trained on" in why for why in fallbacks(loop, 5))


@pytest.mark.parametrize(
    "names",
    [
        PolicyNames(repartition="mean-field"),
        PolicyNames(placement="learned"),
        PolicyNames(placement="learned", repartition="mean-field"),
        PolicyNames(
            placement={"id": "learned", "policy_file": "joint"},
            repartition={"id": "mean-field", "policy_file": "joint"},
        ),
    ],
    ids=["cutting", "placing", "both", "joint"],
)
@pytest.mark.parametrize("layouts", ["12,12,12,12", "10,5,9,2"])
def test_drift__shipped_policies_of_cards_come_to_any_cut(tmp_path: Path, names: PolicyNames, layouts: str) -> None:
    day = DiurnalDay(multiplier=10).jobs(3)
    loop, _ = mig_loop(tmp_path, day, "4xa100-40gb", layouts, names=names)
    loop.pilot.ranges = trained_ranges(names.policy(("mig",)))
    assert fallbacks(loop, 200) == {""}
    assert loop.turn is not None
    assert loop.turn.judged.drift_checked


def test_drift__a_flood_of_jobs_on_cards_is_not_decided_by_a_network(tmp_path: Path) -> None:
    names = PolicyNames(repartition="mean-field")
    loop, _ = mig_loop(tmp_path, DiurnalDay(multiplier=400).jobs(3), "4xa100-40gb", "1,1,1,1", names=names)
    loop.pilot.ranges = trained_ranges(names.policy(("mig",)))
    assert any("outside what the policy was trained on" in why for why in fallbacks(loop, 200))


def test_drift__cuts_of_a_refused_plan_are_not_made_later(tmp_path: Path) -> None:
    day = DiurnalDay(multiplier=6).jobs(0)
    loop, cluster = mig_loop(tmp_path, day, layouts="10,12", names=PolicyNames(repartition="mean-field"))
    before = [card.layout for machine in cluster.machines for card in machine.cards]
    loop.pilot.ranges = {"mig": (np.full(58, 100.0), np.full(58, 101.0))}
    for _ in range(100):
        loop.source.wait(1e9)
        loop.step()  # what has changed
        loop.step()  # and when nothing has, the network is not asked
    assert loop.counts.fallbacks > 0
    assert [card.layout for machine in cluster.machines for card in machine.cards] == before
    assert loop.counts.cuts == 0
    assert len(loop.books.finished) > 0


@pytest.mark.parametrize("goal", ["slowdown", "wait"])
def test_drift__shipped_agents_decide_on_usual_days_and_not_in_a_flood(tmp_path: Path, goal: str) -> None:
    learned = {"id": "learned", "policy_file": goal}
    names = PolicyNames(selection=learned, allocation=learned)
    jobs = made_up_gangs(64, 8, 0.8, seed=1)
    flood = replace(jobs, submit_s=np.zeros(len(jobs)), n_gpus=np.full(len(jobs), 2))
    for arriving, drifts in ((jobs, False), (flood, True)):
        folder = tmp_path / str(drifts)
        folder.mkdir()
        loop, _ = gang_loop(folder, arriving, "8x8", names=names)
        loop.pilot.ranges = trained_ranges(names.policy(("gang",)))
        why = fallbacks(loop, 40)
        assert any("outside what the policy was trained on" in one for one in why) == drifts


def test_mean_field__cuts_cards_beside_running_work(tmp_path: Path) -> None:
    day = DiurnalDay(multiplier=5).jobs(1)
    names = PolicyNames(placement="shortest-work", repartition="mean-field")
    loop, _ = mig_loop(tmp_path, day, layouts="1,10", names=names)
    for _ in range(300):
        if not loop.source.wait(1e9):
            break
        loop.step()
    loop.journal.sync(30)
    loop.journal.close()
    assert loop.counts.cuts > 0
    assert loop.counts.failed == 0
    assert all("go back to the cut" in one["why"] or "was cut 12 times" in one["why"] for one in loop.refusals)
    assert again(str(tmp_path / "journal.db"), names, ("mig",)).n_different == 0
    finished = list(loop.books.finished)
    assert loop.books.energy_j > 0
    effect = estimated(finished, loop.seen.nodes, names.policy(("mig",)))
    assert effect is not None
    assert effect.n_jobs == measured(finished).n_jobs == len(finished) > 50
    told = explain(Decider(names.policy(("mig",))), loop.seen, loop.pilot.memory)
    assert all(abs(sum(one["share"] for one in row["next"])) <= 1 + 1e-9 for row in told["cuts"])


def test_guard__after_a_restart_remembers_what_was_handed_over(tmp_path: Path) -> None:
    names = PolicyNames(placement="shortest-work", repartition="mean-field")
    loop, _ = mig_loop(tmp_path, DiurnalDay(multiplier=5).jobs(1), layouts="1,10", names=names)
    for _ in range(120):
        loop.source.wait(1e9)
        loop.step()
    loop.journal.sync(30)
    loop.journal.close()
    before = loop.pilot.guard_memory
    assert before.cuts
    assert before.left
    assert before.attempts
    reader = open_journal(str(tmp_path / "journal.db"))
    assert handed_over_since(reader, -1.0) == before
    later_s = sorted(time_s for times in before.attempts.values() for time_s in times)[-1]
    last = handed_over_since(reader, later_s)
    assert 0 < len(last.attempts) < len(before.attempts)
    assert handed_over_since(reader, later_s + 1.0).attempts == {}
    assert guard_memory_from_json(guard_memory_to_json(before)) == before


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


def test_journal__what_is_lost_is_said_and_nothing_builds_on_it(tmp_path: Path) -> None:
    loop, cluster = gang_loop(tmp_path, JOBS, mode=Mode.observe)
    loop.journal.close()
    journal = Journal(str(tmp_path / "other.db"), most_late=3)
    states = [replace(cluster.observe(), time_s=float(at)) for at in range(8)]
    journal.append_state(states[0])
    journal.sync(30)
    there = journal.engine
    journal.engine = sa.create_engine(f"sqlite:///{tmp_path}/no/such/folder.db")
    for state in states[1:6]:
        journal.append_state(state)
    with pytest.raises(AdapterError, match="refuses"):
        journal.sync(30)
    journal.engine = there
    journal.append_state(states[6])
    journal.append_state(states[7])
    journal.sync(30)
    reader, read = JournalReader(there), States()
    records = list(reader.records())
    assert [record.kind for record in records] == ["state", "error", "state", "state"]
    assert "records were lost" in records[1].body["what"]
    assert [read.read(record) for record in records if record.kind == "state"] == [states[0], states[6], states[7]]
    assert "full" in records[2].body
    journal.close()


def test_journal__a_commit_whose_answer_is_lost_is_not_written_again(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "journal.db"))
    losses = [True, False, True, False, False, False]

    def lose(connection: sa.Connection) -> None:
        """The database commits, and the answer never comes; or it never hears of it."""
        if losses:
            if losses.pop(0):
                connection.connection.commit()
            raise sa.exc.DBAPIError("COMMIT", None, ConnectionError("the server closed the connection"))

    sa.event.listen(journal.engine, "commit", lose)
    for at in range(12):
        journal.append("audit", float(at), {"what": at})
        if len(losses):
            with pytest.raises(AdapterError, match="the server closed the connection"):
                journal.sync(30)
        else:
            journal.sync(30)
    assert [record.body["what"] for record in JournalReader(journal.engine).records()] == list(range(12))
    journal.close()
