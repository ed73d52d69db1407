"""What the keeper and the actuator ask of Slurm."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from test_slurm_text import job, node

from smartmig.adapters.slurm import marks
from smartmig.adapters.slurm.actuator import Rules, SlurmActuator
from smartmig.adapters.slurm.calls import Hold, Release, SlurmSilence
from smartmig.adapters.slurm.cards import MigKnobs
from smartmig.adapters.slurm.keeper import BEHIND, Keeper, release_all
from smartmig.adapters.slurm.records import JobRecord, NodeRecord, PartitionRecord, ReservationRecord
from smartmig.adapters.slurm.source import Cooling, SlurmSource
from smartmig.adapters.slurm.started import Started
from smartmig.adapters.slurm.translate import Translator
from smartmig.errors import AdapterError
from smartmig.types import Share


class FakeSlurm:
    """Answers with what it is given, and notes what it is asked to do; silent for calls named in `silent`."""

    def __init__(self, *records: JobRecord) -> None:
        self.records, self.machines = records, (node(),)
        self.silent: set[str] = set()
        self.done: list[tuple[Any, ...]] = []

    def _heard(self, call: str) -> None:
        if call in self.silent:
            raise SlurmSilence(f"{call}: no answer")

    def jobs(self, __: str, _: float) -> tuple[JobRecord, ...]:
        self._heard("jobs")
        return self.records

    def job(self, job_id: int, _: float) -> tuple[JobRecord, ...]:
        return tuple(record for record in self.records if record.job_id == job_id)

    def nodes(self, _: float) -> tuple[NodeRecord, ...] | None:
        self._heard("nodes")
        return self.machines

    def node(self, name: str, _: float) -> NodeRecord:
        self._heard("node")
        return next(machine for machine in self.machines if machine.name == name)

    def partitions(self, _: float) -> tuple[PartitionRecord, ...] | None:
        self._heard("partitions")
        return (PartitionRecord("gpu", "UP", ("n1",), None),)

    def reservations(self, _: float) -> tuple[ReservationRecord, ...] | None:
        self._heard("reservations")
        return ()

    def boot_s(self, _: float) -> int:
        return 0

    def release(self, name: str, release: Release, _: float) -> None:
        self.done.append((name, release))

    def hold(self, name: str, hold: Hold, _: float) -> None:
        self.done.append((name, hold))

    def requeue(self, name: str, _: float) -> None:
        self.done.append((name, "requeue"))

    def set_node(self, name: str, gres: str, comment: str, _: float) -> None:
        self._heard("set_node")
        self.done.append((name, gres, comment))

    def close(self) -> None:
        self.done.append(("closed",))


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
    assert (release.partition, release.nodes) == ("", ())
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
