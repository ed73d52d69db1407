"""A journal of several sessions: what it says about jobs, and that it gives the same plans again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from live_cluster import about, gang_loop, mig_loop, turn_all
from smartmig.cli.app import make_app
from smartmig.cli.live_policy import PolicyNames
from smartmig.control.guard import GuardMemory, GuardRules
from smartmig.control.history import ClusterPast, histories
from smartmig.control.journal import Journal, open_journal
from smartmig.control.memory import Memory
from smartmig.control.wire import guard_memory_to_json, memory_to_json, outcomes_to_json, plan_to_json
from smartmig.errors import InputError, SmartmigError
from smartmig.types import ClusterState, JobKey, JobRequest, NodeInfo, Outcome, RunningJob, Share, Start
from smartmig.workload.diurnal import DiurnalDay
from smartmig.workload.gang.jobs_csv import CsvGangs
from strategies import make_gangs

JOBS = make_gangs((0, 4, 30, 40), (0, 3, 20, 60), (1, 8, 10, 20), (2, 1, 5, 10))
REAL = about(PolicyNames(), ("gang",), GuardRules()) | {"adapter": "slurm:partition=gpu"}


def run(*args: object) -> tuple[str, str]:
    """What it prints: stdout and stderr."""
    done = CliRunner().invoke(make_app(args[:1]), [str(arg) for arg in args])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.stdout, " ".join(done.stderr.split())


def pasts(place: str) -> list[ClusterPast]:
    return histories(open_journal(place).records())


def runs(past: ClusterPast) -> dict[str, tuple[float, float]]:
    return {one.request.key.job_id: (one.start_s, one.end_s) for one in past.finished}


def simulated_session(folder: Path, jobs: Any = JOBS) -> None:
    loop, cluster = gang_loop(folder, jobs)
    turn_all(loop, cluster)
    loop.journal.close()


def request(job_id: str) -> JobRequest:
    return JobRequest(JobKey(job_id, 0.0), 1, 600.0)


def state(time_s: float, running: dict[str, float], queued: tuple[str, ...] = ()) -> ClusterState:
    """One node; running jobs with their starts."""
    jobs = tuple(RunningJob(request(job), start_s, (Share("n1", 1),)) for job, start_s in running.items())
    return ClusterState(time_s, (NodeInfo("n1", 8, 8 - len(jobs)),), tuple(map(request, queued)), jobs)


def session(place: str, *seen: ClusterState, boot: dict[str, Any] = REAL, starts: str = "") -> None:
    """`starts`: a job that the cluster accepts after the last look."""
    journal = Journal(place)
    memories = {"memory": memory_to_json(Memory()), "handed_over": guard_memory_to_json(GuardMemory())}
    journal.append("boot", seen[0].time_s, {**boot, **memories})
    for one in seen:
        journal.append_state(one)
    if starts:
        action = Start(request(starts).key, (Share("n1", 1),))
        decision = {"n": 1, "mode": "act", "acts": True, "plan": plan_to_json((action,))}
        journal.append("decision", seen[-1].time_s, decision)
        journal.append("outcome", seen[-1].time_s, {"n": 1, "outcomes": outcomes_to_json((Outcome(action, True),))})
    journal.close()


def test_history__jobs_that_ended_while_nobody_looked_are_left_out(tmp_path: Path) -> None:
    place = str(tmp_path / "j.db")
    all_three = dict.fromkeys("abc", 5.0)
    session(place, state(0.0, {}, ("a", "b", "c")), state(10.0, all_three), state(20.0, {"b": 5.0, "c": 5.0}))
    # b ended between the two; d was started and ended; e was started and still runs.
    session(place, state(5000.0, {"c": 5.0, "e": 4000.0}), state(5010.0, {"e": 4000.0}), state(5020.0, {}))
    (past,) = pasts(place)
    assert past.sessions == [1, 2]
    assert runs(past) == {"a": (5.0, 20.0), "c": (5.0, 5010.0), "e": (4000.0, 5020.0)}


def test_history__a_start_of_the_session_before_is_not_one_of_this(tmp_path: Path) -> None:
    place = str(tmp_path / "j.db")
    session(place, state(0.0, {}, ("a", "b")), starts="a")
    session(place, state(1000.0, {}, ("b",)), state(1010.0, {}, ("b",)), starts="b")
    session(place, state(2000.0, {"b": 1010.0}), state(2010.0, {}))
    (past,) = pasts(place)
    assert runs(past) == {"b": (1010.0, 2010.0)}


def test_history__short_jobs_of_one_session_are_still_seen(tmp_path: Path) -> None:
    simulated_session(tmp_path)
    (past,) = pasts(str(tmp_path / "journal.db"))
    assert len(past.finished) == len(JOBS)


def test_history__every_simulated_session_is_a_cluster_of_its_own(tmp_path: Path) -> None:
    place = str(tmp_path / "journal.db")
    session(place, state(0.0, {"a": 0.0}), state(10.0, {}))
    simulated_session(tmp_path)
    simulated_session(tmp_path, make_gangs((0, 2, 7, 9)))
    session(place, state(50.0, {"b": 40.0}), state(60.0, {}))
    assert [(past.sessions, len(past.finished)) for past in pasts(place)] == [([2], 4), ([3], 1), ([1, 4], 2)]


def test_history__needs_sessions(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "j.db"))
    journal.append_state(state(0.0, {}))
    journal.close()
    with pytest.raises(InputError, match="without a session before it"):
        pasts(str(tmp_path / "j.db"))


def test_export__of_a_simulated_cluster_is_its_newest_session(tmp_path: Path) -> None:
    place, out = tmp_path / "journal.db", tmp_path / "jobs.csv"
    simulated_session(tmp_path, make_gangs((0, 2, 7, 9)))
    simulated_session(tmp_path)
    said, told = run("journal", "export", place, "-o", out, "--json")
    assert json.loads(said) == {"n_jobs": 4, "world": "gang", "out": str(out), "sessions": [2], "n_sessions": 2}
    assert told == "session 2 of 2; the others watched other clusters: --session N"
    jobs = CsvGangs(out).read()[0]
    assert sorted(jobs.run_s.tolist()) == [5.0, 10.0, 20.0, 30.0]
    assert len(set(jobs.job_id.tolist())) == 4
    run("simulate", "--world", "gang", "--nodes", "2x4", "--trace", out)
    _, told = run("journal", "export", place, "-o", out, "--session", "1")
    assert told == f"session 1 of 2; the others watched other clusters: --session N 1 job written to {out}"
    assert CsvGangs(out).read()[0].run_s.tolist() == [7.0]


def test_export__leaves_out_sessions_in_which_nothing_ended(tmp_path: Path) -> None:
    simulated_session(tmp_path)
    session(str(tmp_path / "journal.db"), state(0.0, {"a": 0.0}), boot=REAL | {"adapter": "simulated:nodes=1x8"})
    said, _ = run("journal", "export", tmp_path / "journal.db", "-o", tmp_path / "jobs.csv", "--json")
    assert json.loads(said)["sessions"] == [1]
    with pytest.raises(SmartmigError, match="no job was seen to run and end in session 2"):
        run("journal", "export", tmp_path / "journal.db", "-o", tmp_path / "jobs.csv", "--session", "2")
    with pytest.raises(InputError, match="--session: got 3, allowed are 1 to 2"):
        run("journal", "export", tmp_path / "journal.db", "-o", tmp_path / "jobs.csv", "--session", "3")


def test_export__of_a_real_cluster_is_all_of_its_sessions(tmp_path: Path) -> None:
    place, out = str(tmp_path / "j.db"), tmp_path / "jobs.csv"
    session(place, state(0.0, {"a": 0.0, "b": 0.0}), state(10.0, {"b": 0.0}))
    session(place, state(9000.0, {"c": 8990.0}), state(9010.0, {}))
    said, told = run("journal", "export", place, "-o", out, "--json")
    assert json.loads(said)["sessions"] == [1, 2]
    assert told == ""
    assert sorted(CsvGangs(out).read()[0].run_s.tolist()) == [10.0, 20.0]


def test_export__of_cards_is_their_session(tmp_path: Path) -> None:
    simulated_session(tmp_path)
    loop, _ = mig_loop(tmp_path, DiurnalDay(multiplier=2).jobs(0))
    for _ in range(40):
        loop.source.wait(1e9)
        loop.step()
    loop.journal.close()
    said, _ = run("journal", "export", tmp_path / "journal.db", "-o", tmp_path / "jobs.csv", "--json")
    assert (json.loads(said)["world"], json.loads(said)["sessions"]) == ("mig", [2])
    said, _ = run("journal", "export", tmp_path / "journal.db", "-o", tmp_path / "jobs.csv", "--json", "--session", "1")
    assert (json.loads(said)["world"], json.loads(said)["n_jobs"]) == ("gang", 4)
