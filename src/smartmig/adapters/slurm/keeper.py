"""Keeps the queue in order beside the plans, while smartmig is in charge; and lets go of it when it is not."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from enum import Enum, auto

from smartmig.adapters.slurm import asks, marks
from smartmig.adapters.slurm.calls import Hold, Release, SlurmReads, SlurmRefusal, SlurmSilence, SlurmWrites
from smartmig.adapters.slurm.reach import only_slurm, own_nodes
from smartmig.adapters.slurm.records import JobRecord, NodeRecord, PartitionRecord
from smartmig.adapters.slurm.source import Cooling
from smartmig.adapters.slurm.states import JobState
from smartmig.adapters.slurm.translate import held_by_others, key_of, keys_of
from smartmig.errors import AdapterError, PartlyRefused
from smartmig.types import JobKey

PERIOD_S = 1.0
CALL_S = 10.0
STOP_S = 1.0
"""How long letting go waits for what is under way, before it releases what it sees."""
COOL_S, LONGEST_COOL_S = 5.0, 300.0
"""A job that could not start is left alone for so long, twice as long each time."""
LONGEST_TURN_S = 60.0
"""The same for a job that only Slurm can place, which has its turn so often at least."""
BEHIND = 1_000_000_000
"""What the niceness of such a job grows by meanwhile; nobody asks for half as much."""
CURABLE = frozenset({"", "0", "None", "Priority", "Resources", "BeginTime", "Cleaning", "Dependency"})
"""Reasons for which Slurm may start a job by itself in a moment; for any other it is taken back after `HOPELESS_S`."""
HOPELESS_S = 2.0
"""sched/builtin looks at no job behind one that cannot start, so nothing may stand there for long."""

log = logging.getLogger(__name__)


class Duty(Enum):
    """What to do about a pending job, plans aside."""

    not_ours = auto()
    none = auto()
    """it waits for a plan, or starts"""
    hold = auto()
    """Slurm would start it on its own: submitted before we came, queued again, or let go by an administrator"""
    park = auto()
    """it has dependencies, which Slurm looks at only while the job is not held"""
    take_back = auto()
    """we started it or gave it back, and it does not run: a limit, a licence, a node that went, no room"""
    give_back = auto()
    """only Slurm can place it, and it is its turn"""


def duty_of(
    record: JobRecord, now_s: float, start_grace_s: float, cooling: Mapping[JobKey, float], only_slurms: bool
) -> Duty:
    """`only_slurms`: nobody else can place it."""
    comment, held = record.admin_comment, record.priority == 0
    if record.state != JobState.PENDING or held_by_others(record) or not asks.asks_gpus(record):
        return Duty.not_ours
    given_s = marks.read_given_back(comment, record.submit_s)
    if given_s is not None and not held:
        return Duty.take_back if now_s - given_s > HOPELESS_S else Duty.none
    mark = marks.read_start(comment)
    if mark is not None and mark.submit_s == record.submit_s and not held:
        patience_s = start_grace_s if record.reason in CURABLE else min(HOPELESS_S, start_grace_s)
        late = now_s - mark.at_s > patience_s and not record.dependency
        return Duty.take_back if late else Duty.none
    if only_slurms and not record.dependency:
        rests = cooling.get(key_of(record), 0.0) > now_s
        return Duty.give_back if not rests else Duty.none if held else Duty.hold
    if marks.read_parked(comment) is not None and not held:
        return Duty.none
    if record.dependency:
        return Duty.park
    return Duty.none if held else Duty.hold


class Keeper:
    """Looks at the queue once a second, on a thread of its own and with a handle of its own."""

    def __init__(
        self,
        reads: SlurmReads,
        writes: SlurmWrites,
        partition: str,
        start_grace_s: float,
        cooling: Cooling,
        one_at_a_time: threading.Lock,
    ) -> None:
        """`one_at_a_time` is held from looking at a job to changing it, here and by those who start jobs."""
        self._reads, self._writes = reads, writes
        self._partition, self._start_grace_s = partition, start_grace_s
        self._cooling, self._one_at_a_time = cooling, one_at_a_time
        self._part: PartitionRecord | None = None
        self._nodes: tuple[NodeRecord, ...] = ()
        self._looked = False
        """whether partition and nodes were read in this round"""
        self._end = threading.Event()
        self._in_doubt = False
        """whether Slurm may still do what was asked last"""
        self._thread = threading.Thread(target=self._keep, name="slurm-keeper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> bool:
        """Whether nothing that we asked for can happen any more, which may be asked again: a hold may be late."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join(STOP_S)
        if not self._reads.close() or self._thread.is_alive():
            return False
        in_doubt, self._in_doubt = self._in_doubt, False
        return not in_doubt

    def _keep(self) -> None:
        while not self._end.wait(PERIOD_S):
            try:
                self.tend(CALL_S)
            except AdapterError as error:
                # A controller that is away comes back; then everything is looked at again.
                log.warning("the queue is not looked after: %s", error)
            except Exception:
                log.exception("the queue is not looked after")

    def tend(self, timeout_s: float) -> int:
        """Bring strays into our queue, hand back what we cannot place, take back what did not start; how many jobs
        are ours."""
        self._in_doubt = True
        n_ours = self._tend(timeout_s)
        self._in_doubt = False
        return n_ours

    def _tend(self, timeout_s: float) -> int:
        end_s = time.monotonic() + timeout_s
        self._looked = False
        n_ours = 0
        cooling = self._cooling.untils()
        present: set[JobKey] = set()
        for record in self._reads.jobs(self._partition, timeout_s):
            if record.base_state != JobState.PENDING or self._partition not in record.partitions:
                continue
            present.update((key_of(record), *keys_of(record)))
            duty = duty_of(record, time.time(), self._start_grace_s, cooling, bool(self._only_slurm(record, end_s)))
            n_ours += duty is not Duty.not_ours
            if duty in (Duty.none, Duty.not_ours):
                continue
            if self._end.is_set():
                return n_ours
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                raise SlurmSilence(f"the queue was not looked after to its end within {timeout_s:g} s")
            with suppress(SlurmRefusal), self._one_at_a_time:
                # The list may be older than the last plan.
                for now in _now(self._writes, record, left_s):
                    if self._end.is_set():
                        return n_ours
                    self._do_duty(now, left_s)
        self._cooling.forget(present)
        return n_ours

    def _only_slurm(self, record: JobRecord, end_s: float) -> str:
        """Why only Slurm can place it; most jobs need no look at the nodes for that."""
        ask = asks.read_ask(record)
        if isinstance(ask, str):
            return ask
        told = record.cpus_per_tres or record.mem_per_tres or own_nodes(record) or len(record.partitions) > 1
        if not told or not asks.asks_gpus(record):
            return ""
        if not self._looked:
            parts = self._reads.partitions(max(end_s - time.monotonic(), 0.001))
            self._part = next((part for part in parts if part.name == self._partition), None)
            self._nodes = self._reads.nodes(max(end_s - time.monotonic(), 0.001))
            self._looked = True
        return only_slurm(record, self._part, self._nodes) if self._part is not None else ""

    def _do_duty(self, record: JobRecord, timeout_s: float) -> None:
        name, job_id, now_s = name_of(record), key_of(record).job_id, time.time()
        before = as_before(record)
        why = self._only_slurm(record, time.monotonic() + timeout_s)
        match duty_of(record, now_s, self._start_grace_s, self._cooling.untils(), bool(why)):
            case Duty.take_back:
                self._writes.hold(name, before, timeout_s)
                started = marks.read_start(record.admin_comment) is not None
                longest_s = LONGEST_COOL_S if started else LONGEST_TURN_S
                patience_s = self._cooling.leave(key_of(record), now_s, COOL_S, longest_s)
                log.warning("job %s did not start (%s) and is left alone for %g s", job_id, record.reason, patience_s)
            case Duty.give_back:
                mark = marks.write_given_back(record.submit_s, now_s, why)
                self._writes.release(name, Release(mark, before.nodes, nice=own_nice(record) + BEHIND), timeout_s)
                log.warning("job %s is left to Slurm: %s", job_id, why)
            case Duty.park:
                begin_s = marks.read_parked(record.admin_comment)
                if begin_s is None:
                    begin_s = 0 if record.eligible_s >= marks.FAR_S else record.eligible_s
                release = Release(marks.write_parked(begin_s), before.nodes, begin_s=marks.FAR_S)
                self._writes.release(name, release, timeout_s)
            case Duty.hold:
                self._writes.hold(name, before, timeout_s)
                log.info("job %s waits for smartmig now", job_id)


def release_all(reads: SlurmReads, writes: SlurmWrites, partition: str, timeout_s: float) -> int:
    """Every job that we hold, parked or pinned is Slurm's again; how many. Goes on past jobs that Slurm refuses, and
    raises `PartlyRefused` at the end if any of them still waits for us."""
    end_s = time.monotonic() + timeout_s
    n_released = 0
    refused: list[str] = []
    for record in reads.jobs(partition, timeout_s):
        if not _waits_for_us(record, partition):
            continue
        left_s = end_s - time.monotonic()
        if left_s <= 0:
            raise SlurmSilence(f"only {n_released} jobs were let go within {timeout_s:g} s; call it again")
        parked_s = marks.read_parked(record.admin_comment)
        begin_s = 0 if parked_s is None else max(parked_s, int(time.time()))
        before = as_before(record)
        try:
            writes.release(name_of(record), Release(marks.LET_GO, before.nodes, "", begin_s, before.nice), left_s)
            n_released += 1
        except SlurmRefusal as error:
            if any(_waits_for_us(now, partition) for now in _now(writes, record, left_s)):
                refused.append(f"job {key_of(record).job_id}: {error}")
    if refused:
        first = "; ".join(refused[:3])
        raise PartlyRefused(f"{n_released} jobs were let go, and Slurm refused {len(refused)}: {first}")
    return n_released


def _waits_for_us(record: JobRecord, partition: str) -> bool:
    mark = record.admin_comment
    pending = record.base_state == JobState.PENDING and partition in record.partitions
    return pending and marks.is_ours(mark) and mark != marks.LET_GO and not held_by_others(record)


def _now(writes: SlurmWrites, record: JobRecord, timeout_s: float) -> list[JobRecord]:
    """The same job as Slurm has it now; empty if it is gone."""
    try:
        found = writes.job(record.job_id, timeout_s)
    except SlurmRefusal:
        return []
    return [now for now in found if now.job_id == record.job_id and now.submit_s == record.submit_s]


def own_nice(record: JobRecord) -> int:
    """Its owner's."""
    return record.nice - BEHIND if record.nice > BEHIND // 2 else record.nice


def as_before(record: JobRecord) -> Hold:
    """Held, where and with the niceness that its owner asked for."""
    pinned = marks.read_start(record.admin_comment) is not None
    nice = own_nice(record)
    return Hold(own_nodes(record) if pinned else None, nice if nice != record.nice else None)


def name_of(record: JobRecord) -> str:
    """As Slurm's calls take it: `12`, `12_3`, or `12_[0-2,4]` for tasks that wait together. Those are named one by one,
    because `12` would be all of them, also those that run or that somebody holds."""
    if not record.array_job_id or record.array_task_id is not None:
        return key_of(record).job_id
    tasks = record.array_tasks.partition("%")[0]
    if ":" in tasks:  # scontrol knows no steps
        tasks = ",".join(map(str, asks.read_tasks(tasks, sys.maxsize)))
    return f"{record.array_job_id}_[{tasks}]"
