"""What the keeper and the actuator ask of Slurm."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_slurm_text import job, node

from smartmig.adapters.slurm import marks
from smartmig.adapters.slurm.actuator import Rules, SlurmActuator
from smartmig.adapters.slurm.calls import Hold, Release, SlurmRefusal, SlurmSilence
from smartmig.adapters.slurm.cards import MigKnobs
from smartmig.adapters.slurm.keeper import BEHIND, STOP_S, Keeper, release_all
from smartmig.adapters.slurm.records import JobRecord, NodeRecord, PartitionRecord, ReservationRecord
from smartmig.adapters.slurm.source import Cooling, SlurmSource
from smartmig.adapters.slurm.started import Started
from smartmig.adapters.slurm.translate import Translator
from smartmig.errors import AdapterError
from smartmig.types import Share, Start


class FakeSlurm:
    """Answers with what it is given, and notes what it is asked to do; silent for calls named in `silent`."""

    def __init__(self, *records: JobRecord) -> None:
        self.records, self.machines = records, (node(),)
        self.silent: set[str] = set()
        self.refused: set[str] = set()
        """jobs that cannot be released"""
        self.late: set[str] = set()
        """calls still under way"""
        self.done: list[tuple[Any, ...]] = []

    def _heard(self, call: str) -> None:
        if call in self.silent:
            raise SlurmSilence(f"{call}: no answer")

    def jobs(self, __: str, _: float) -> tuple[JobRecord, ...]:
        self._heard("jobs")
        return self.records

    def job(self, job_id: int, _: float) -> tuple[JobRecord, ...]:
        return tuple(record for record in self.records if record.job_id == job_id)

    def nodes(self, _: float) -> tuple[NodeRecord, ...]:
        self._heard("nodes")
        return self.machines

    def node(self, name: str, _: float) -> NodeRecord:
        self._heard("node")
        return next(machine for machine in self.machines if machine.name == name)

    def partitions(self, _: float) -> tuple[PartitionRecord, ...]:
        self._heard("partitions")
        return (PartitionRecord("gpu", "UP", ("n1",), None),)

    def reservations(self, _: float) -> tuple[ReservationRecord, ...]:
        self._heard("reservations")
        return ()

    def boot_s(self, _: float) -> int:
        return 0

    def release(self, name: str, release: Release, _: float) -> None:
        if name in self.refused:
            raise SlurmRefusal(f"release of {name}: no")
        self.done.append((name, release))

    def hold(self, name: str, hold: Hold, _: float) -> None:
        self.done.append((name, hold))

    def requeue(self, name: str, _: float) -> None:
        self.done.append((name, "requeue"))

    def set_node(self, name: str, gres: str, comment: str, _: float) -> None:
        self._heard("set_node")
        self.done.append((name, gres, comment))

    def owes(self) -> bool:
        return bool(self.late)

    def close(self) -> bool:
        self.done.append(("closed",))
        return True


def tended(record: JobRecord) -> list[tuple[Any, ...]]:
    slurm = FakeSlurm(record)
    Keeper(slurm, slurm, "gpu", 10.0, Cooling(), threading.Lock()).tend(5.0)
    return slurm.done


@pytest.mark.parametrize("submit_s", [1000, 900], ids=["did not start", "queued again"])
@pytest.mark.parametrize("own", [(), ("n4", "n5")])
def test_keeper__a_job_comes_back_with_the_nodes_its_owner_asked_for(submit_s: int, own: tuple[str, ...]) -> None:
    mark = marks.write_start(submit_s, 1001.0, (Share("n1", 1),), own)
    record = job(priority=9, reason="Resources", required_nodes=("n1",), admin_comment=mark)
    assert tended(record) == [("7", Hold(own))]


def test_keeper__a_job_that_other_partitions_can_take_has_its_turn() -> None:
    ((_, release),) = tended(job(partition="other,gpu", features="slow"))
    assert "partition gpu cannot take it" in release.mark
    assert (release.partition, release.nodes) == ("", None)
    assert tended(job(partition="other,gpu")) == tended(job(features="slow")) == []


def test_keeper__niceness_of_a_turn_ends_with_it() -> None:
    ((_, release),) = tended(job(shared=0, nice=50))
    assert release.nice == 50 + BEHIND
    given = marks.write_given_back(1000, 1001.0, "why")
    given_back = job(shared=0, priority=9, nice=50 + BEHIND, admin_comment=given)
    assert tended(given_back) == [("7", Hold(None, 50))]
    slurm = FakeSlurm(given_back, job(job_id=8))
    assert release_all(slurm, slurm, "gpu", 5.0) == 2
    assert [release.nice for _, release in slurm.done] == [50, None]


def test_keeper__a_held_job_is_parked_again_with_the_start_its_owner_asked_for() -> None:
    ((_, release),) = tended(job(dependency="afterok:3", admin_comment=marks.write_parked(77), eligible_s=marks.FAR_S))
    assert (release.mark, release.begin_s) == (marks.write_parked(77), marks.FAR_S)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({}, "7"),
        ({"array_job_id": 5, "array_task_id": 3}, "5_3"),
        ({"array_job_id": 7, "array_tasks": "0-2,4%2"}, "7_[0-2,4]"),
        ({"array_job_id": 7, "array_tasks": "0-8:3,20"}, "7_[0,3,6,20]"),
        ({"array_job_id": 7, "array_tasks": "0-19998:2"}, f"7_[{','.join(map(str, range(0, 20000, 2)))}]"),
    ],
)
def test_keeper__tasks_that_wait_together_are_named_without_the_others(changes: dict[str, Any], name: str) -> None:
    waiting = job(**changes, priority=9, admin_comment="")
    assert tended(waiting) == [(name, Hold())]
    slurm = FakeSlurm(job(**changes))
    assert release_all(slurm, slurm, "gpu", 5.0) == 1
    assert slurm.done == [(name, Release(marks.LET_GO))]


def test_release_all__takes_away_only_a_pin_of_ours() -> None:
    slurm = FakeSlurm(
        job(required_nodes=("n4",)),
        job(job_id=8, required_nodes=("n1",), admin_comment=marks.write_start(1000, 5.0, (Share("n1", 1),))),
    )
    assert release_all(slurm, slurm, "gpu", 5.0) == 2
    assert [release.nodes for _, release in slurm.done] == [None, ()]


def test_release_all__goes_on_past_refusals_and_says_what_was_refused() -> None:
    slurm = FakeSlurm(*(job(job_id=at) for at in (7, 8, 9)))
    slurm.refused = {"7", "9"}
    with pytest.raises(AdapterError, match=r"^1 jobs were let go, and Slurm refused 2: job 7: .*; job 9: "):
        release_all(slurm, slurm, "gpu", 5.0)
    assert slurm.done == [("8", Release(marks.LET_GO))]


@pytest.mark.parametrize(
    "after",
    [
        (),
        (job(state="RUNNING", priority=9),),
        (job(submit_s=2000),),
        (job(admin_comment=marks.LET_GO, priority=9),),
        (job(comment=marks.USER_HOLD),),
    ],
    ids=["gone", "started", "another of that id", "let go", "held by its owner"],
)
def test_release_all__what_does_not_wait_for_us_any_more_may_be_refused(after: tuple[JobRecord, ...]) -> None:
    class Moves(FakeSlurm):
        def release(self, name: str, release: Release, timeout_s: float) -> None:
            self.records = after
            super().release(name, release, timeout_s)

    slurm = Moves(job())
    slurm.refused = {"7"}
    assert release_all(slurm, slurm, "gpu", 5.0) == 0


def actuator(slurm: FakeSlurm, off_file: Path) -> SlurmActuator:
    cooling, started, mig = Cooling(), Started(None), MigKnobs("a100-40gb", 1)
    source = SlurmSource(slurm, Translator("gpu", mig, started=started), cooling, 0.01)
    rules = Rules("gpu", mig, off_file, 10.0, ())
    return SlurmActuator([slurm], lambda: (slurm, slurm), source, cooling, started, rules)


def test_take_over__that_fails_leaves_the_switch_off(tmp_path: Path) -> None:
    slurm, off_file = FakeSlurm(job()), tmp_path / "off"
    off_file.touch()
    slurm.silent = {"jobs"}
    acts = actuator(slurm, off_file)
    with pytest.raises(AdapterError, match="no answer"):
        acts.take_over(1.0)
    assert off_file.exists()
    slurm.silent = set()
    assert acts.take_over(1.0) == 1
    assert not off_file.exists()
    acts.close()


STRAY = job(priority=9, admin_comment="")


def test_keeper__ends_between_two_jobs() -> None:
    class Ends(FakeSlurm):
        def hold(self, name: str, hold: Hold, timeout_s: float) -> None:
            super().hold(name, hold, timeout_s)
            keeper.stop()

    slurm = Ends(STRAY, replace(STRAY, job_id=8))
    keeper = Keeper(slurm, slurm, "gpu", 10.0, Cooling(), threading.Lock())
    assert keeper.tend(5.0) == 2
    assert slurm.done == [("7", Hold()), ("closed",)]


def test_keeper__an_error_of_any_kind_is_said_and_does_not_end_it(caplog: pytest.LogCaptureFixture) -> None:
    class Trips(FakeSlurm):
        n_looks = 0

        def jobs(self, partition: str, timeout_s: float) -> tuple[JobRecord, ...]:
            self.n_looks += 1
            if self.n_looks == 1:
                raise ValueError("a value that nobody thought of")
            return super().jobs(partition, timeout_s)

    slurm = Trips(STRAY)
    keeper = Keeper(slurm, slurm, "gpu", 10.0, Cooling(), threading.Lock())
    keeper.start()
    end_s = time.monotonic() + 10.0
    while not slurm.done and time.monotonic() < end_s:
        time.sleep(0.01)
    keeper.stop()
    assert slurm.done[0] == ("7", Hold())
    assert "a value that nobody thought of" in caplog.text


class Slow(FakeSlurm):
    """Holds a job some time after it was asked to; whoever waits for that is told that Slurm is silent, or waits."""

    def __init__(self, waits: bool, *records: JobRecord) -> None:
        super().__init__(*records)
        self.waits, self.begun, self.may_hold = waits, threading.Event(), threading.Event()

    def hold(self, name: str, hold: Hold, timeout_s: float) -> None:
        self.begun.set()
        if not self.waits:
            threading.Thread(target=self._hold_later, args=(name, hold, timeout_s)).start()
            raise SlurmSilence("hold: no answer")
        self._hold_later(name, hold, timeout_s)

    def _hold_later(self, name: str, hold: Hold, timeout_s: float) -> None:
        self.may_hold.wait()
        self.records = (job(),)
        super().hold(name, hold, timeout_s)

    def release(self, name: str, release: Release, timeout_s: float) -> None:
        super().release(name, release, timeout_s)
        self.records = (replace(STRAY, admin_comment=marks.LET_GO),)


@pytest.mark.parametrize("waits", [True, False], ids=["under way", "in doubt"])
def test_let_go__a_hold_that_comes_late_does_not_stay(tmp_path: Path, waits: bool) -> None:
    slurm = Slow(waits, job())
    acts = actuator(slurm, tmp_path / "off")
    acts.take_over(5.0)
    slurm.records = (STRAY,)
    assert slurm.begun.wait(10.0)
    threading.Timer(STOP_S + 0.2 if waits else 0.2, slurm.may_hold.set).start()
    assert acts.let_go(10.0) == 1
    assert [done for done in slurm.done if done[0] == "7"] == [("7", Hold()), ("7", Release(marks.LET_GO))]
    acts.close()


@pytest.mark.parametrize(("late_s", "owed"), [(0.2, False), (1.5, True)], ids=["in doubt", "under way"])
def test_let_go__a_start_that_comes_late_does_not_stay(tmp_path: Path, late_s: float, owed: bool) -> None:
    class Late(FakeSlurm):
        def release(self, name: str, release: Release, timeout_s: float) -> None:
            if marks.read_start(release.mark) is None:
                super().release(name, release, timeout_s)
                self.records = (replace(STRAY, admin_comment=marks.LET_GO),)
                return
            self.late = {name} if owed else set()
            threading.Timer(late_s, self.begin, (release,)).start()
            raise SlurmSilence("release: no answer")

        def begin(self, release: Release) -> None:
            self.records = (job(priority=9, required_nodes=release.nodes or (), admin_comment=release.mark),)
            self.late = set()

    slurm = Late(job())
    acts = actuator(slurm, tmp_path / "off")
    acts.take_over(5.0)
    key = acts._source.observe(5.0).queued[0].key
    (outcome,) = acts.apply((Start(key, (Share("n1", 1),)),), 5.0)
    assert not outcome.done
    assert acts.let_go(10.0) == 2
    released = [done for done in slurm.done if done[0] == "7"]
    assert released == [("7", Release(marks.LET_GO)), ("7", Release(marks.LET_GO, ()))]
    assert not slurm.late
    acts.close()


def test_let_go__a_call_that_does_not_end_is_an_error_and_tried_again(tmp_path: Path) -> None:
    class Owes(FakeSlurm):
        settled = False

        def close(self) -> bool:
            return self.settled

    slurm = Owes(job())
    acts = actuator(slurm, tmp_path / "off")
    acts.take_over(5.0)
    with pytest.raises(AdapterError, match="still owes an answer"):
        acts.let_go(0.7)
    assert ("7", Release(marks.LET_GO)) in slurm.done
    slurm.records, slurm.settled = (), True
    assert acts.let_go(5.0) == 0
    acts.close()
