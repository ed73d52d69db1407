"""Slurm's records -> `ClusterState`. No I/O; records that did not change give the same objects as before."""

from __future__ import annotations

import math
import pwd
from collections.abc import Mapping
from dataclasses import dataclass, field

from smartmig.adapters.slurm import asks, cards, marks
from smartmig.adapters.slurm.gres import total
from smartmig.adapters.slurm.records import JobRecord, NodeRecord, PartitionRecord, ReservationRecord
from smartmig.adapters.slurm.states import HELD_BY_ADMIN, HELD_BY_USER, NEVER, PARTITION_UP, JobState, node_state
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

ARRAY_WINDOW = 256
"""The first waiting tasks of an array that a policy sees; the others follow as these start."""


@dataclass(frozen=True)
class Snapshot:
    """What Slurm said, all at about the same time."""

    jobs: tuple[JobRecord, ...] = ()
    nodes: tuple[NodeRecord, ...] = ()
    partition: PartitionRecord | None = None
    reservations: tuple[ReservationRecord, ...] = ()


@dataclass(frozen=True)
class View:
    """A state, and what one needs to act on it."""

    state: ClusterState
    records: Mapping[JobKey, JobRecord]
    """of every queued and running job"""
    in_flight: Mapping[JobKey, marks.StartMark]
    """started by us, not yet running"""
    foreign: tuple[str, ...]
    """sentences on what is left to Slurm"""


@dataclass
class Translator:
    """Remembers what it has translated."""

    partition: str
    mig_model: str = "a100-40gb"
    mig_cards: int = 1
    _requests: dict[int, tuple[object, ...]] = field(default_factory=dict)
    _running: dict[int, tuple[object, ...]] = field(default_factory=dict)
    _users: dict[int, str] = field(default_factory=dict)
    _places: object = None
    _nodes: tuple[NodeRecord, ...] = ()

    def view(self, seen: Snapshot, now_s: float, cooling: Mapping[JobKey, float]) -> View:
        """`cooling`: jobs to leave alone until then."""
        part = seen.partition
        ours = set(part.nodes) if part is not None else set()
        self._nodes = tuple(node for node in seen.nodes if node.name in ours)
        places = tuple((node.name, node.features, node.n_cpus, node.memory_mb) for node in self._nodes)
        if places != self._places:
            self._places = places
            self._requests.clear()
        records: dict[JobKey, JobRecord] = {}
        in_flight: dict[JobKey, marks.StartMark] = {}
        running: list[tuple[JobKey, RunningJob]] = []
        queued: list[tuple[JobKey, JobRequest]] = []
        tasks_running: dict[int, int] = {}
        pending: list[JobRecord] = []
        for record in seen.jobs:
            started = marks.read_start(record.admin_comment) if record.admin_comment else None
            if record.holds:
                for key, job in self._held(record, started):
                    running.append((key, job))
                    records[key] = record
            elif record.base_state == JobState.PENDING and self.partition in record.partitions:
                if started is not None and started.submit_s == record.submit_s and record.priority != 0:
                    key = key_of(record)
                    in_flight[key] = started
                    records[key] = record
                    running.append((key, RunningJob(self._request(record, key), started.at_s, started.shares)))
                else:
                    pending.append(record)
                    continue
            else:
                continue
            if record.array_job_id:
                tasks_running[record.array_job_id] = tasks_running.get(record.array_job_id, 0) + 1
        foreign: list[str] = []
        if part is not None and part.state == PARTITION_UP:
            for record in pending:
                if not may_start(record, part, now_s):
                    continue
                window = ARRAY_WINDOW
                if record.array_max_tasks:
                    window = record.array_max_tasks - tasks_running.get(record.array_job_id, 0)
                for key, request in self._waiting(record)[: max(window, 0)]:
                    if cooling.get(key, 0.0) <= now_s:
                        queued.append((key, request))
                        records[key] = record
        nodes, running_placed, said = self._places_of(running, in_flight)
        foreign += said
        state = ClusterState(
            time_s=now_s,
            nodes=nodes,
            queued=tuple(request for key, request in sorted(queued, key=lambda pair: _order(pair[0]))),
            running=tuple(job for key, job in sorted(running_placed, key=lambda pair: _order(pair[0]))),
            reservations=tuple(
                Reservation(r.name, r.nodes, r.start_s, r.end_s, tuple(r.users.split(",")) if r.users else ())
                for r in seen.reservations
            ),
        )
        return View(state, records, in_flight, tuple(foreign))

    def _waiting(self, record: JobRecord) -> tuple[tuple[JobKey, JobRequest], ...]:
        kept = self._requests.get(record.job_id)
        if kept is not None and kept[0] is record:
            return kept[1]  # type: ignore[return-value]
        ask = asks.read_ask(record)
        found: tuple[tuple[JobKey, JobRequest], ...] = ()
        if not isinstance(ask, str):
            nodes = self._allowed(record, ask)
            if nodes is not None:
                found = tuple((key, self._request(record, key, ask, nodes)) for key in keys_of(record))
        self._requests[record.job_id] = (record, found)
        return found

    def _allowed(self, record: JobRecord, ask: asks.Ask) -> tuple[str, ...] | None:
        """Nodes the job may ever use: () = all of ours, None = none of them."""
        cpus, memory = asks.cpus_per_node(record, ask.n_nodes), asks.memory_per_node(record, ask.n_nodes)
        own = own_nodes(record)
        fitting = [
            node.name
            for node in self._nodes
            if node.name not in record.excluded_nodes
            and (not own or node.name in own)
            and asks.has_features(node, record.features)
            and cpus <= node.n_cpus
            and memory <= node.memory_mb
        ]
        if not fitting:
            return None
        return () if len(fitting) == len(self._nodes) else tuple(fitting)

    def _request(
        self, record: JobRecord, key: JobKey, ask: asks.Ask | None = None, nodes: tuple[str, ...] = ()
    ) -> JobRequest:
        limit_s = math.inf if record.limit_min is None else 60.0 * record.limit_min
        run_s: tuple[float, ...] = ()
        memory_gb = 0.0
        if ask is None:
            read = asks.read_ask(record)
            ask = read if not isinstance(read, str) else asks.Ask(max(1, sum(h[2] for h in asks.gpus_by_node(record))))
        if ask.profile:
            compute, memory_gb = _slice(self.mig_model, ask.profile)
            finite_s = limit_s if math.isfinite(limit_s) else 3600.0
            run_s = tuple(finite_s if size == compute else math.inf for size in SLICE_SIZES)
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

    def _held(self, record: JobRecord, started: marks.StartMark | None) -> tuple[tuple[JobKey, RunningJob], ...]:
        kept = self._running.get(record.job_id)
        if kept is not None and kept[0] is record:
            return kept[1]  # type: ignore[return-value]
        held = asks.gpus_by_node(record)
        found: tuple[tuple[JobKey, RunningJob], ...] = ()
        if held:
            key = key_of(record)
            positions = {share.node: share for share in (started.shares if started else ()) if not share.n_gpus}
            shares = []
            for node, name, count, kind in held:
                if name == "gpu":
                    shares.append(Share(node, count))
                else:
                    # Where nobody said which slice, `_places_of` finds one of the profile.
                    shares += [positions.pop(node, Share(node, 0, -1, _UNPLACED)) for _ in range(count)]
                    self._profiles[key] = kind
            managed = self.partition in record.partitions
            found = ((key, RunningJob(self._request(record, key), float(record.start_s), tuple(shares), managed)),)
        self._running[record.job_id] = (record, found)
        return found

    _profiles: dict[JobKey, str] = field(default_factory=dict)

    def _places_of(
        self, running: list[tuple[JobKey, RunningJob]], in_flight: Mapping[JobKey, marks.StartMark]
    ) -> tuple[tuple[NodeInfo, ...], list[tuple[JobKey, RunningJob]], list[str]]:
        said: list[str] = []
        n_held: dict[str, int] = {}
        n_coming: dict[str, int] = {}
        for key, job in running:
            for share in job.shares:
                n_held[share.node] = n_held.get(share.node, 0) + share.n_gpus
                if key in in_flight:
                    n_coming[share.node] = n_coming.get(share.node, 0) + share.n_gpus
        nodes = []
        for record in self._nodes:
            types = [gres.type for gres, count in record.has.items() if gres.name == "gpu" and count]
            n_gpus = total(record.has, "gpu")
            if len(types) > 1:
                said.append(f"node {record.name} has several kinds of GPU ({record.gres}) and is left to Slurm")
                continue
            gpus: tuple[MigGpu, ...] = ()
            if total(record.has, "mig"):
                found = cards.layouts_of(record, self.mig_model, self.mig_cards)
                if isinstance(found, str):
                    said.append(found)
                else:
                    model, layouts = found
                    gpus = tuple(MigGpu(model, tuple(Instance(p.start, p.profile) for p in row)) for row in layouts)
            # Slurm counts what runs, also for users we may not see; what we started a moment ago comes on top.
            used = max(n_held.get(record.name, 0), total(record.used, "gpu") + n_coming.get(record.name, 0))
            nodes.append(
                NodeInfo(
                    name=record.name,
                    n_gpus=n_gpus,
                    n_free=max(n_gpus - used, 0),
                    gpu_model=types[0] if types else "",
                    state=node_state(record.state),
                    gpus=gpus,
                )
            )
        return tuple(nodes), self._placed(running, tuple(nodes)), said

    def _placed(
        self, running: list[tuple[JobKey, RunningJob]], nodes: tuple[NodeInfo, ...]
    ) -> list[tuple[JobKey, RunningJob]]:
        """Give every slice in use a position: that of its mark, else the first of its profile that is free."""
        if not any(share.n_gpus == 0 for _, job in running for share in job.shares):
            return running
        taken = {(share.node, share.gpu, share.start) for _, job in running for share in job.shares if share.gpu >= 0}
        free = {
            node.name: [
                (at, instance.start, instance.profile)
                for at, gpu in enumerate(node.gpus)
                for instance in gpu.instances
                if (node.name, at, instance.start) not in taken
            ]
            for node in nodes
        }
        answer = []
        for key, job in running:
            shares = []
            for share in job.shares:
                if share.n_gpus or share.gpu >= 0:
                    shares.append(share)
                    continue
                spare = free.get(share.node, [])
                found = next((place for place in spare if place[2] == self._profiles.get(key)), None)
                if found is not None:
                    spare.remove(found)
                    shares.append(Share(share.node, 0, found[0], found[1]))
            if shares:
                placed = tuple(shares)
                kept = job if placed == job.shares else RunningJob(job.request, job.start_s, placed, job.managed)
                answer.append((key, kept))
        return answer

    def _user(self, user_id: int) -> str:
        if user_id not in self._users:
            try:
                self._users[user_id] = pwd.getpwuid(user_id).pw_name
            except KeyError:
                self._users[user_id] = str(user_id)
        return self._users[user_id]


_UNPLACED = -1


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


def held_by_owner(record: JobRecord) -> bool:
    return record.priority == 0 and marks.USER_HOLD in record.comment


def own_nodes(record: JobRecord) -> tuple[str, ...]:
    """The nodes its owner asked for: in the record until we pin it, in our mark from then on."""
    mark = marks.read_start(record.admin_comment)
    return record.required_nodes if mark is None else mark.own


def may_start(record: JobRecord, part: PartitionRecord, now_s: float) -> bool:
    """Whether a pending job waits for nothing but a decision."""
    if record.state != JobState.PENDING or record.reason in (HELD_BY_ADMIN, NEVER) or record.dependency:
        return False
    if held_by_owner(record) or marks.is_given_back(record.admin_comment, record.submit_s):
        return False
    if record.priority == 0 and (record.reason != HELD_BY_USER or not marks.is_ours(record.admin_comment)):
        return False
    if part.max_min is not None and (record.limit_min is None or record.limit_min > part.max_min):
        return False
    parked = marks.read_parked(record.admin_comment)
    begin_s = parked if parked is not None else record.eligible_s
    return begin_s <= now_s


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
