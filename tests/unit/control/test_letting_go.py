"""The cluster gets its own scheduling back: the kill switch, other modes, the end, and clusters that do not answer."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from live_cluster import JOBS, MANY, Deaf, gang_loop, turn_all
from smartmig.control.journal import open_journal
from smartmig.control.switch import Mode
from smartmig.errors import AdapterError, PartlyRefused
from smartmig.types import JobKey, Outcome, Repartition, Share, Start


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


class Picky(Away):
    """An actuator that lets go of all jobs but one."""

    def let_go(self, timeout_s: float) -> int:
        released: int = self.inner.let_go(timeout_s)
        if self.source.away:
            raise PartlyRefused(f"{released} jobs were let go, and one was refused")
        return released


def test_loop__a_cluster_that_refuses_one_job_gets_its_scheduling_back_all_the_same(tmp_path: Path) -> None:
    loop, cluster = gang_loop(tmp_path, JOBS)
    loop.settings = replace(loop.settings, max_failures=2)
    loop.source = Flaky(loop.source)
    loop.actuator = Picky(loop.actuator, loop.source)
    loop.step()
    loop.source.away = True
    for _ in range(2):
        assert loop.step() is None
    assert loop.killed
    assert cluster.own_scheduling
    loop.source.away = False
    loop.step()
    loop.journal.close()
    audits = [record.body["what"] for record in open_journal(str(tmp_path / "journal.db")).records(kinds=("audit",))]
    assert audits == ["take over", "kill", "let go"]


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


def test_loop__hands_cuts_over_one_by_one_and_starts_a_few_at_a_time(tmp_path: Path) -> None:
    loop, _ = gang_loop(tmp_path, JOBS)
    slow = loop.actuator = Slow(loop.actuator)
    slow.inner = Deaf(slow.inner)
    cuts = tuple(Repartition("node0", gpu, ()) for gpu in range(2))
    starts = tuple(Start(JobKey(str(at), 0.0), (Share("node0", 1),)) for at in range(20))
    loop.in_charge = True
    loop._act(1, (*cuts, *starts))
    loop.journal.close()
    assert slow.parts == [1, 1, 16, 4], "the kill switch comes in between"


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
