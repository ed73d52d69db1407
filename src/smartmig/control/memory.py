"""What a policy remembers between two decisions, beyond what the cluster shows.

A simulated run keeps these things in its `State`; live they are a value that goes in and comes out, so a decision stays
a function and a journal can be replayed. Times count from `origin_s`, midnight UTC of the first day: rules that read
the time of day see the right one, and sums of times keep their precision.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from smartmig.policy.encoding import JOB_RATE_S, WORK_RATE_S
from smartmig.policy.gang_view import BRIEF_S, RUSH_S
from smartmig.types import ClusterState, JobKey, JobRequest, Layout

DAY_S = 86_400.0

EVERYBODY = "*"
"""In `Memory.users`: all users together."""


class Use(NamedTuple):
    """Of one user: GPUs held, and past use as of `since_s`."""

    n_gpus: int = 0
    used_gpu_s: float = 0.0
    since_s: float = 0.0


class Promise(NamedTuple):
    """A reservation of conservative backfill: a start, and GPUs by node."""

    begin_s: float
    parts: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Memory:
    """Empty before the first decision."""

    origin_s: float = math.nan
    """time 0 of everything below, in seconds since 1970 UTC"""
    n_events: int = 0
    """observations that showed something new"""
    n_draws: int = 0
    """random numbers drawn so far"""
    next_check_s: float = math.nan
    """when the repartition rule is asked next by time"""
    seen: frozenset[JobKey] = frozenset()
    """jobs of the last observation"""
    held: Mapping[JobKey, tuple[str, int]] = field(default_factory=dict)
    """running jobs whose users are charged: user and GPUs"""
    users: Mapping[str, Use] = field(default_factory=dict)
    mix: tuple[float, ...] = ()
    """decayed count of submitted jobs by size"""
    urgent: tuple[float, float] = (0.0, 0.0)
    """decayed count of urgent submissions, and when it was brought up to date"""
    flow: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """decayed sums of arrived jobs and of their work, and when they were brought up to date"""
    up: tuple[str, ...] = ()
    """nodes that took jobs at the last observation"""
    promises: Mapping[JobKey, Promise] = field(default_factory=dict)
    guarded_s: float = -math.inf
    """when a learned selector's own guard last started a job that had waited too long; it then pauses"""
    targets: Mapping[str, Layout] = field(default_factory=dict)
    """cut that a card (`node/gpu`) is being drained towards, until it has it"""


def begun(memory: Memory, state: ClusterState) -> Memory:
    """The memory with its time 0."""
    if not math.isnan(memory.origin_s):
        return memory
    return replace(memory, origin_s=math.floor(state.time_s / DAY_S) * DAY_S)


def charged(memory: Memory, state: ClusterState, half_life_s: float) -> Memory:
    """Users pay for what they hold: from a job's start until it is gone."""
    users = {EVERYBODY: Use(), **memory.users}
    held = dict(memory.held)
    changes: list[tuple[float, str, int]] = []
    running = {job.request.key: job for job in state.running}
    for key, (user, n_gpus) in memory.held.items():
        if key not in running:
            changes.append((state.time_s - memory.origin_s, user, -n_gpus))
            del held[key]
    for request in (*state.queued, *(job.request for job in state.running)):
        users.setdefault(request.user, Use())
    starts = sorted((job.start_s, at) for at, job in enumerate(state.running) if job.request.key not in held)
    for start_s, at in starts:
        request = state.running[at].request
        held[request.key] = (request.user, request.n_gpus)
        changes.append((start_s - memory.origin_s, request.user, request.n_gpus))
    _charge(users, sorted(changes, key=lambda change: change[0]), half_life_s)
    return replace(memory, users=users, held=held)


def started(memory: Memory, state: ClusterState, keys: Collection[JobKey], half_life_s: float) -> Memory:
    """Jobs that have just been started count from now on, even if they end before anyone looks again; not twice if
    somebody has looked meanwhile."""
    requests = [request for request in state.queued if request.key in keys and request.key not in memory.held]
    users, held = dict(memory.users), dict(memory.held)
    held |= {request.key: (request.user, request.n_gpus) for request in requests}
    now_s = state.time_s - memory.origin_s
    _charge(users, [(now_s, request.user, request.n_gpus) for request in requests], half_life_s)
    return replace(memory, users=users, held=held)


def _charge(users: dict[str, Use], changes: Iterable[tuple[float, str, int]], half_life_s: float) -> None:
    for time_s, user, n_gpus in changes:
        for name in (user, EVERYBODY):
            use = users[name]
            at_s = max(time_s, use.since_s)
            users[name] = Use(use.n_gpus + n_gpus, used(use, at_s, half_life_s), at_s)


def used(use: Use, now_s: float, half_life_s: float) -> float:
    """As `gang_view.usage`."""
    past_s = now_s - use.since_s
    if past_s == 0.0:
        return use.used_gpu_s
    rate = math.log(2.0) / half_life_s
    kept = math.exp(-rate * past_s)  # not numpy's, which rounds otherwise than compiled code
    return use.used_gpu_s * kept + use.n_gpus * (1.0 - kept) / rate


def counted_sizes(memory: Memory, state: ClusterState, decay: float, widest: int) -> Memory:
    """The size mix knows of every submission."""
    mix = np.zeros(widest + 1)
    mix[: min(len(memory.mix), widest + 1)] = memory.mix[: widest + 1]
    for request in newcomers(memory, state):
        if request.n_gpus > 0:
            mix *= decay
            mix[min(request.n_gpus, widest)] += 1.0
    return replace(memory, mix=tuple(mix.tolist()))


def counted_urgent(memory: Memory, state: ClusterState, widest: int) -> Memory:
    """Urgent submissions of late, as `gang_view.count_urgent` keeps them."""
    count, since_s = memory.urgent
    for request in newcomers(memory, state):
        if request.limit_s <= BRIEF_S and 2 * request.n_gpus > widest:
            arrive_s = max(request.key.submit_s - memory.origin_s, since_s)
            count = count * math.exp((since_s - arrive_s) / RUSH_S) + 1.0
            since_s = arrive_s
    return replace(memory, urgent=(count, since_s))


def counted_flow(memory: Memory, state: ClusterState) -> Memory:
    """Arrival rates of MIG jobs and of their work, as `encoding.track_arrival` keeps them."""
    jobs, work, since_s = memory.flow
    for request in newcomers(memory, state):
        if request.n_gpus == 0:
            arrive_s = max(request.key.submit_s - memory.origin_s, since_s)
            passed_s = arrive_s - since_s
            finite = [run_s for run_s in request.run_s if math.isfinite(run_s)]
            jobs = jobs * math.exp(-passed_s / JOB_RATE_S) + 1.0
            work = work * math.exp(-passed_s / WORK_RATE_S) + (finite[0] if finite else 0.0)
            since_s = arrive_s
    return replace(memory, flow=(jobs, work, since_s))


def newcomers(memory: Memory, state: ClusterState) -> list[JobRequest]:
    """Requests that were not there last time, by submission."""
    present = (*state.queued, *(job.request for job in state.running))
    return sorted((one for one in present if one.key not in memory.seen), key=lambda one: one.key.submit_s)


def remembered(memory: Memory, state: ClusterState) -> Memory:
    """Who is there now."""
    seen = frozenset([one.key for one in state.queued]) | {job.request.key for job in state.running}
    changed = seen != memory.seen
    return replace(memory, seen=seen, n_events=memory.n_events + changed)
