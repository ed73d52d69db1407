"""What the loop writes down, and what can be read out of it again."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from live_cluster import JOBS, Deaf, again, gang_loop, mig_loop, turn_all
from smartmig.cli.live_policy import PolicyNames
from smartmig.control.guard import GuardRules
from smartmig.control.journal import Journal, JournalReader, States, open_journal
from smartmig.control.replay import handed_over_since
from smartmig.control.switch import Mode
from smartmig.control.wire import guard_memory_from_json, guard_memory_to_json, rules_from_json
from smartmig.errors import AdapterError
from smartmig.types import Outcome
from smartmig.workload.diurnal import DiurnalDay


def test_replay__another_policy_differs_and_says_where(tmp_path: Path) -> None:
    loop, cluster = gang_loop(tmp_path, JOBS)
    turn_all(loop, cluster)
    loop.journal.close()
    report = again(str(tmp_path / "journal.db"), PolicyNames(selection="lcfs", backfill="none"), ("gang",))
    assert report.n_different > 0
    assert report.first_difference is not None


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


def test_replay__knows_rules_without_an_end(tmp_path: Path) -> None:
    rules = GuardRules(max_wait_s=math.inf, drift_margin=math.inf)
    loop, cluster = gang_loop(tmp_path, JOBS, rules=rules)
    turn_all(loop, cluster)
    loop.journal.close()
    (boot,) = open_journal(str(tmp_path / "journal.db")).records(kinds=("boot",))
    assert rules_from_json(boot.body["guard"], "guard") == rules
    assert again(str(tmp_path / "journal.db"), PolicyNames(), ("gang",)).n_different == 0


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
