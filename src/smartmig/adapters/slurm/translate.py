"""Slurm's records -> `ClusterState`. No I/O; records that did not change give the same objects as before."""

from __future__ import annotations

import math
import pwd
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TypeVar

from smartmig.adapters.slurm import asks, marks
from smartmig.adapters.slurm.cards import MigKnobs, layouts_of
from smartmig.adapters.slurm.gres import total
from smartmig.adapters.slurm.reach import allowed, ends_in_time, have, needs_on_each, only_slurm
from smartmig.adapters.slurm.records import JobRecord, NodeRecord, PartitionRecord, ReservationRecord
from smartmig.adapters.slurm.rooms import NO_NEEDS, Needs, Rooms, needs_of
from smartmig.adapters.slurm.started import Started
from smartmig.adapters.slurm.states import NEVER, PARTITION_UP, JobState, node_state
from smartmig.errors import InputError
from smartmig.hardware.model import gpu_model
from smartmig.types import (
    SLICE_SIZES,
    ClusterState,
    Instance,
    JobKey,
    JobRequest,
    MigGpu,
    NodeInfo,
    Reservation,
    RunningJob,
    Share,
)

Job = TypeVar("Job")

ARRAY_WINDOW = 256
"""The first waiting tasks of an array that a policy sees; the others follow as these start."""
GUESSED_RUN_S = 3600.0
"""Of a MIG job without a time limit."""


@dataclass(frozen=True)
class Snapshot:
    """What Slurm said, all at about the same time."""

    jobs: tuple[JobRecord, ...] = ()
    nodes: tuple[NodeRecord, ...] = ()
    partition: PartitionRecord | None = None
    reservations: tuple[ReservationRecord, ...] = ()
    boot_s: int = 0
    """when the controller started"""


@dataclass(frozen=True)
class Seated:
    """A running job, and the MIG profile that it holds."""

    job: RunningJob
    profile: str = ""
    coming: bool = False
    """started by us, not yet running"""
    needs: tuple[Needs, ...] = ()
    """on each of its shares, of one that is coming"""

    @property
    def places(self) -> tuple[str, ...]:
        return tuple(share.node for share in self.job.shares)


@dataclass
class Read:
    """What a record says, found once."""

    record: JobRecord
    seat: Seated | None
    """it holds GPUs, or is about to"""
    waiting: tuple[JobRequest, ...] = ()
    """it waits for nothing but a decision; many for an array"""
    begin_s: float = 0.0
    """not before"""
    needs: Needs = NO_NEEDS
    """on each node"""
    narrowed: dict[JobKey, tuple[object, JobRequest | None]] = field(default_factory=dict)
    """why it may not go everywhere just now, and its request then; None = nowhere"""

    @property
    def request(self) -> JobRequest | None:
        return self.seat.job.request if self.seat is not None else self.waiting[0] if self.waiting else None


class Translator:
    """Remembers what it has translated of the records that are there."""

    def __init__(self, partition: str, mig: MigKnobs, reboot_s: float = 25.0, started: Started | None = None) -> None:
        """`reboot_s`: jobs older than the controller rest for so long after it started."""
        self.partition, self._mig, self.reboot_s = partition, mig, reboot_s
        self._started = started if started is not None else Started(None)
        self._known: dict[int, Read] = {}
        self._users: dict[int, str] = {}
        self._places: object = None

    def state(self, seen: Snapshot, now_s: float, cooling: Mapping[JobKey, float]) -> tuple[ClusterState, list[str]]:
        """And sentences on what is left to Slurm. `cooling`: jobs to leave alone until then."""
        part = seen.partition
        names = set(part.nodes) if part is not None else set()
        nodes = tuple(node for node in seen.nodes if node.name in names)
        places = (
            part,
            *((node.name, node.features, node.n_cpus, node.memory_mb, node_state(node.state)) for node in nodes),
        )
        if places != self._places:
            self._places, self._known = places, {}
        before, self._known = self._known, {}
        seated: list[Seated] = []
        pending: list[Read] = []
        tasks_running: dict[int, int] = {}
        for record in seen.jobs:
            read = before.get(record.job_id)
            if read is None or read.record is not record:
                read = _with_request_of(read, self._read(record, part, nodes))
            self._known[record.job_id] = read
            if read.seat is not None:
                seated.append(read.seat)
                if record.array_job_id:
                    tasks_running[record.array_job_id] = tasks_running.get(record.array_job_id, 0) + 1
            elif read.waiting and read.begin_s <= now_s:
                pending.append(read)
        if now_s < seen.boot_s + self.reboot_s:
            # The controller may have forgotten that one of these ran.
            pending = [read for read in pending if read.record.submit_s > seen.boot_s]
        infos, said = self._infos(nodes, seated)
        tempting = {info.name for info in infos if info.n_free or info.gpus}
        coming = [seat for seat in seated if seat.coming]
        rooms = Rooms(nodes, tempting, (one for seat in coming for one in zip(seat.places, seat.needs, strict=True)))
        fences = Fences([one for one in seen.reservations if one.nodes and now_s < one.end_s], now_s, pending)
        queued: list[JobRequest] = []
        for read in pending:
            lacking, own = rooms.lacking(read.needs), fences.of(read.record)
            window = ARRAY_WINDOW
            if read.record.array_max_tasks:
                window = max(read.record.array_max_tasks - tasks_running.get(read.record.array_job_id, 0), 0)
            for request in read.waiting[:window]:
                if cooling.get(request.key, 0.0) <= now_s:
                    forgotten = self._started.forgotten(request.key, seen.boot_s, now_s)
                    barred = lacking | fences.barring(request) if own is None else lacking
                    found = _narrowed(read, request, nodes, own, barred, forgotten)
                    queued += [found] if found is not None else []
        state = ClusterState(
            time_s=now_s,
            nodes=infos,
            queued=_in_order(queued, lambda request: request.key),
            running=_in_order(_placed(seated, infos), lambda job: job.request.key),
            reservations=fences.reservations(),
        )
        return state, said

    def _read(self, record: JobRecord, part: PartitionRecord | None, nodes: Sequence[NodeRecord]) -> Read:
        seat = self._seat(record)
        if seat is not None or self.partition not in record.partitions:
            return Read(record, seat)
        if part is None or part.state != PARTITION_UP:
            return Read(record, None)
        ask = asks.read_ask(record)
        if isinstance(ask, str) or not may_start(record, part):
            return Read(record, None)  # only Slurm can place it, or it waits for something else
        needs = needs_on_each(record, ask, nodes)
        found = allowed(record, needs, nodes)
        if not found or only_slurm(record, part, nodes):
            return Read(record, None)
        limited = () if len(found) == len(nodes) else tuple(node.name for node in found)
        waiting = tuple(self._request(record, key, ask, limited) for key in keys_of(record))
        parked_s = marks.read_parked(record.admin_comment)
        return Read(record, None, waiting, record.eligible_s if parked_s is None else parked_s, needs)

    def _request(self, record: JobRecord, key: JobKey, ask: asks.Ask, nodes: tuple[str, ...] = ()) -> JobRequest:
        limit_s = math.inf if record.limit_min is None else 60.0 * record.limit_min
        run_s: tuple[float, ...] = ()
        memory_gb = 0.0
        if ask.profile:
            compute, memory_gb = _slice(self._mig.model, ask.profile)
            guess_s = limit_s if math.isfinite(limit_s) else GUESSED_RUN_S
            run_s = tuple(guess_s if size == compute else math.inf for size in SLICE_SIZES)
        return JobRequest(
            key=key,
            n_gpus=ask.n_gpus,
            limit_s=limit_s,
            gpu_model=ask.gpu_type,
            nodes=nodes,
            n_nodes=ask.n_nodes,
            user=self._user(record.user_id),
            group=record.account or record.partitions[0],
            run_s=run_s,
            memory_gb=memory_gb,
        )

    def _seat(self, record: JobRecord) -> Seated | None:
        """A job that holds GPUs, or is about to: we started it and Slurm has not yet."""
        found = None
        mark = marks.read_start(record.admin_comment)
        if record.holds:
            found = self._running(record, mark)
        elif mark is not None and mark.submit_s == record.submit_s and record.priority != 0:
            ask = asks.read_ask(record)
            if record.base_state == JobState.PENDING and not isinstance(ask, str):
                job = RunningJob(self._request(record, key_of(record), ask), mark.at_s, mark.shares)
                needs = tuple(needs_of(record, len(mark.shares), share.n_gpus) for share in mark.shares)
                found = Seated(job, ask.profile, True, needs)
        return found

    def _running(self, record: JobRecord, mark: marks.StartMark | None) -> Seated | None:
        held = asks.gpus_by_node(record)
        if not held:
            return None
        slices = {share.node: share for share in (mark.shares if mark is not None else ()) if not share.n_gpus}
        shares: list[Share] = []
        for node, name, count, _ in held:
            if name == "gpu":
                shares.append(Share(node, count))
            else:
                # Where nobody said which slice, `_placed` finds one of the profile.
                shares += [slices.pop(node, Share(node)) for _ in range(count)]
        ask = asks.read_ask(record)
        if isinstance(ask, str):
            n_gpus = sum(share.n_gpus for share in shares)
            ask = asks.Ask(n_gpus) if n_gpus else asks.Ask(0, profile=held[0][3])
        managed = self.partition in record.partitions
        job = RunningJob(self._request(record, key_of(record), ask), float(record.start_s), tuple(shares), managed)
        return Seated(job, next((kind for _, name, _, kind in held if name == "mig"), ""))

    def _infos(self, nodes: Sequence[NodeRecord], seated: Sequence[Seated]) -> tuple[tuple[NodeInfo, ...], list[str]]:
        n_held: dict[str, int] = {}
        n_coming: dict[str, int] = {}
        for seat in seated:
            for share in seat.job.shares:
                n_held[share.node] = n_held.get(share.node, 0) + share.n_gpus
                if seat.coming:
                    n_coming[share.node] = n_coming.get(share.node, 0) + share.n_gpus
        infos, said = [], []
        for node in nodes:
            types = [gres.type for gres, count in node.has.items() if gres.name == "gpu" and count]
            if len(types) > 1:
                said.append(f"node {node.name} has several kinds of GPU ({node.gres}) and is left to Slurm")
                continue
            gpus: tuple[MigGpu, ...] = ()
            if total(node.has, "mig"):
                found = layouts_of(node, self._mig)
                if isinstance(found, str):
                    said.append(found)
                else:
                    model, layouts = found
                    gpus = tuple(MigGpu(model, tuple(Instance(p.start, p.profile) for p in row)) for row in layouts)
            n_gpus = total(node.has, "gpu")
            # Slurm counts what runs, also for users we may not see; what we started a moment ago comes on top.
            n_used = max(n_held.get(node.name, 0), total(node.used, "gpu") + n_coming.get(node.name, 0))
            infos.append(
                NodeInfo(
                    name=node.name,
                    n_gpus=n_gpus,
                    n_free=max(n_gpus - n_used, 0),
                    gpu_model=types[0] if types else "",
                    state=node_state(node.state),
                    gpus=gpus,
                )
            )
        return tuple(infos), said

    def _user(self, user_id: int) -> str:
        if user_id not in self._users:
            try:
                self._users[user_id] = pwd.getpwuid(user_id).pw_name
            except KeyError:
                self._users[user_id] = str(user_id)
        return self._users[user_id]


def _with_request_of(before: Read | None, now: Read) -> Read:
    """A job that begins to run asks for what it asked before: with the same object nobody converts it again."""
    known = before.request if before is not None else None
    if known is not None and now.seat is not None and now.seat.job.request == known:
        now.seat = replace(now.seat, job=replace(now.seat.job, request=known))
    return now


def key_of(record: JobRecord) -> JobKey:
    """Of a record that is one job."""
    if record.array_job_id and record.array_task_id is not None:
        return JobKey(f"{record.array_job_id}_{record.array_task_id}", float(record.submit_s))
    return JobKey(str(record.job_id), float(record.submit_s))


def keys_of(record: JobRecord) -> tuple[JobKey, ...]:
    """Of a record that may stand for many tasks of an array."""
    if record.array_job_id and record.array_task_id is None:
        tasks = asks.read_tasks(record.array_tasks, ARRAY_WINDOW)
        return tuple(JobKey(f"{record.array_job_id}_{task}", float(record.submit_s)) for task in tasks)
    return (key_of(record),)


def held_by_others(record: JobRecord) -> bool:
    """By its owner or an operator, which the submit script notes; or by somebody while we were not in charge; or by
    Slurm or an operator as it was queued again.

    Slurm's own reason does not tell: the waiting tasks of an array get another when its limit keeps one of them back.
    """
    ours = marks.is_hold(record.admin_comment, record.submit_s)
    return record.priority == 0 and (marks.USER_HOLD in record.comment or not ours)


def may_start(record: JobRecord, part: PartitionRecord) -> bool:
    """Whether a pending job waits for nothing but its time and a decision."""
    if record.state != JobState.PENDING or record.reason == NEVER or record.dependency or held_by_others(record):
        return False
    return ends_in_time(record, part)


class Fences:
    """Reservations, as Slurm keeps them: who names one gets its nodes and no others; nobody else gets them, not even
    its own users and accounts. Slurm itself has seen to it that only those name it who may."""

    def __init__(self, records: Sequence[ReservationRecord], now_s: float, pending: Sequence[Read]) -> None:
        self._records, self._now_s = records, now_s
        self._users: dict[str, set[str]] = {one.name: set() for one in records}
        for read in pending if records else ():
            for name in _named(read.record):
                if name in self._users:
                    self._users[name].add(read.waiting[0].user)

    def of(self, record: JobRecord) -> frozenset[str] | None:
        """The only nodes for this job; None if it names no reservation."""
        names = _named(record)
        if not names:
            return None
        open_now = [one.nodes for one in self._records if one.name in names and one.start_s <= self._now_s]
        return frozenset(name for nodes in open_now for name in nodes)

    def barring(self, request: JobRequest) -> frozenset[str]:
        """Nodes that a job which names none must leave alone though another one of its user may go there."""
        end_s = self._now_s + request.limit_s
        closed = [one.nodes for one in self._records if request.user in self._users[one.name] and end_s > one.start_s]
        return frozenset(name for nodes in closed for name in nodes)

    def reservations(self) -> tuple[Reservation, ...]:
        """A policy tells users apart, not jobs: those pass that have a job which names it."""
        return tuple(
            Reservation(one.name, one.nodes, one.start_s, one.end_s, tuple(sorted(self._users[one.name])))
            for one in self._records
        )


def _named(record: JobRecord) -> tuple[str, ...]:
    return tuple(record.reservation.split(",")) if record.reservation else ()


def _narrowed(
    read: Read,
    request: JobRequest,
    nodes: Sequence[NodeRecord],
    own: frozenset[str] | None,
    barred: frozenset[str],
    forgotten: frozenset[str],
) -> JobRequest | None:
    """The request for `own` nodes only, without those `barred` just now, and without those where a start of it may have
    been `forgotten` if the others have what it asks for; None if it can go nowhere."""
    if own is None and not barred and not forgotten:
        return request
    why = own, barred, forgotten
    known = read.narrowed.get(request.key)
    if known is not None and known[0] == why:
        return known[1]
    n_nodes = max(request.n_nodes, 1)
    names = request.nodes or tuple(node.name for node in nodes)
    left = tuple(name for name in names if name not in barred and (own is None or name in own))
    elsewhere = {name for name in left if name not in forgotten}
    ask = asks.Ask(request.n_gpus, request.n_nodes, request.gpu_model)
    if have([node for node in nodes if node.name in elsewhere], ask, nodes):
        left = tuple(name for name in left if name in elsewhere)
    found = None
    if len(left) >= n_nodes:
        found = request if left == names else replace(request, nodes=left)
    read.narrowed[request.key] = why, found
    return found


def _placed(seated: Sequence[Seated], nodes: Sequence[NodeInfo]) -> list[RunningJob]:
    """Give every slice in use a position: that of its mark, else the first of its profile that is free."""
    if not any(share.n_gpus == 0 for seat in seated for share in seat.job.shares):
        return [seat.job for seat in seated]
    taken = {(share.node, share.gpu, share.start) for seat in seated for share in seat.job.shares if share.gpu >= 0}
    free = {
        node.name: [
            (Share(node.name, 0, at, instance.start), instance.profile)
            for at, gpu in enumerate(node.gpus)
            for instance in gpu.instances
            if (node.name, at, instance.start) not in taken
        ]
        for node in nodes
    }
    placed = []
    for seat in seated:
        shares: list[Share] = []
        for share in seat.job.shares:
            if share.n_gpus or share.gpu >= 0:
                shares.append(share)
                continue
            spare = free.get(share.node, [])
            found = next((place for place in spare if place[1] == seat.profile), None)
            if found is not None:
                spare.remove(found)
                shares.append(found[0])
        if shares:
            same = tuple(shares) == seat.job.shares
            placed.append(seat.job if same else replace(seat.job, shares=tuple(shares)))
    return placed


def _in_order(jobs: list[Job], key_of_job: Callable[[Job], JobKey]) -> tuple[Job, ...]:
    """By submission, then by number."""
    return tuple(sorted(jobs, key=lambda job: _order(key_of_job(job))))


@lru_cache(maxsize=65536)
def _order(key: JobKey) -> tuple[float, int, int]:
    job, _, task = key.job_id.partition("_")
    return key.submit_s, int(job), int(task or 0)


def _slice(model_id: str, profile: str) -> tuple[int, float]:
    """Compute slices and gigabytes of a profile; what the card does not have fits nowhere."""
    try:
        found = gpu_model(model_id).profile(profile)
    except InputError:
        return 0, 0.0
    return found.compute, float(found.memory_gb)
