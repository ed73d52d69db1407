"""The nouns. Frozen, no behaviour beyond looking at themselves.

Times are seconds, energies joules, powers watts, memory gigabytes (10^9 bytes as NVIDIA's profile names count them).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SLICE_SIZES = (1, 2, 3, 4, 7)
"""Compute slices of the MIG sizes a job has a run time for, in the order of every `run_s` column."""


DEADLINE_GRACE_S = 6e-8
"""A finish this little after the deadline still meets it (1e-9 min)."""


class Placement(NamedTuple):
    """One MIG instance on one GPU: a profile at a memory-slice offset."""

    start: int
    """first memory slice"""
    profile: str
    """NVIDIA's name, e.g. `3g.20gb`"""


Layout = tuple[Placement, ...]
"""How one GPU is cut: its instances from left to right (by `start`)."""


@dataclass(frozen=True, eq=False)
class Jobs:
    """A set of jobs as arrays, sorted by (arrival, job id); the position is the job index of every tie-break."""

    job_id: NDArray[np.str_]
    """(n,) unique names"""
    arrive_s: Floats
    """(n,) release time"""
    deadline_s: Floats
    """(n,) soft deadline, never before arrival"""
    run_s: Floats
    """(n, 5) seconds alone on a slice of SLICE_SIZES; inf = does not fit that size"""
    kind: NDArray[np.str_]
    """(n,) what the job is, e.g. `bert-train`; empty when unknown"""
    memory_gb: Floats
    """(n,) GPU memory the job needs; 0 = no known need"""

    def __len__(self) -> int:
        return int(self.arrive_s.size)


@dataclass(frozen=True, eq=False)
class GangJobs:
    """Jobs that take whole GPUs, all at once and for their whole run, sorted by (submission, job id)."""

    job_id: NDArray[np.str_]
    """(n,) unique names"""
    submit_s: Floats
    """(n,) after `origin_s`"""
    run_s: Floats
    """(n,) true run time on a GPU of speed 1; only the engine and rules labelled oracle may look"""
    limit_s: Floats
    """(n,) requested time, at which a job is killed; inf = none asked for"""
    n_gpus: Ints
    """(n,) at least 1"""
    gpu_model: NDArray[np.str_]
    """(n,) models the job accepts, joined by `|`; empty = any"""
    user: NDArray[np.str_]
    """(n,) empty where the trace has none"""
    group: NDArray[np.str_]
    """(n,) partition, account or virtual cluster; empty where the trace has none"""
    waited_s: Floats
    """(n,) how long it waited where it was recorded; nan = unknown"""
    origin_s: float
    """time 0, in seconds since 1970 UTC"""

    def __len__(self) -> int:
        return int(self.submit_s.size)


@dataclass(frozen=True, eq=False)
class GangRun:
    """What happened to a set of gang jobs under one policy."""

    start_s: Floats
    """(n,) of the run that ended the job; earlier ones were lost to a node's failure"""
    finish_s: Floats
    """(n,)"""
    promised_s: Floats
    """(n,) the start its first reservation promised; nan = it never had one"""
    killed: NDArray[np.bool_]
    """(n,) stopped at its limit before it was done"""
    n_starts: Ints
    """(n,) 1 + how often a failure sent the job back into the queue"""
    makespan_s: float
    """the last completion"""
    n_events: int
    stretches: GangStretches


@dataclass(frozen=True, eq=False)
class GangStretches:
    """GPUs of one node held by one job for a while, in the order they were given back."""

    job: Ints
    node: Ints
    n_gpus: Ints
    from_s: Floats
    to_s: Floats


@dataclass(frozen=True, eq=False)
class Run:
    """What happened to a job set under one policy."""

    first_start_s: Floats
    """(n,)"""
    finish_s: Floats
    """(n,)"""
    n_starts: Ints
    """(n,) 1 + how often the job was stopped"""
    energy_j: Floats
    """(n_gpus,) from time 0 to the last completion"""
    busy_slice_s: Floats
    """(n_gpus,) integral of busy compute slices"""
    makespan_s: float
    """the last completion"""
    n_events: int
    n_repartitions: int
    n_preemptions: int
    config_s: dict[str, float]
    """GPU-seconds in each configuration, by `<model>:<cut>`"""
    segments: Segments | None = None
    """every stretch a job ran, when recorded"""
    instances: Segments | None = None
    """every instance there was, `job` being -1, when recorded"""
    cuts: Cuts | None = None
    """how every GPU was cut, when recorded"""


@dataclass(frozen=True, eq=False)
class Segments:
    """Stretches of jobs on slices, in the order they ended."""

    job: Ints
    gpu: Ints
    start: Ints
    """first memory slice of the instance"""
    size: Ints
    """compute slices of the instance"""
    span: Ints
    """memory slices of the instance"""
    from_s: Floats
    to_s: Floats


@dataclass(frozen=True, eq=False)
class Cuts:
    """GPUs and their configurations over time; a re-cut counts to the new one from its start, as in `config_s`."""

    gpu: Ints
    config: Ints
    """index into `names`"""
    from_s: Floats
    to_s: Floats
    names: tuple[str, ...]
    """`<model>:<cut>`"""


# A live cluster: what an adapter reports and what it is told. Times here are seconds since 1970 UTC.


class JobKey(NamedTuple):
    """Who a job is. Cluster managers use ids again, so an id alone is nobody."""

    job_id: str
    submit_s: float


@dataclass(frozen=True, slots=True)
class JobRequest:
    """What a job asks for: whole GPUs (`n_gpus` >= 1) or one MIG slice (`run_s` given, `n_gpus` 0)."""

    key: JobKey
    n_gpus: int = 1
    """whole GPUs, all at once; 0 = one MIG slice"""
    limit_s: float = math.inf
    """requested time, at which it is killed"""
    gpu_model: str = ""
    """models it accepts, joined by `|`; empty = any"""
    nodes: tuple[str, ...] = ()
    """nodes it may use (features, node lists ...); empty = all"""
    n_nodes: int = 0
    """spread over exactly so many nodes, the same number of GPUs on each; 0 = as the policy likes"""
    user: str = ""
    group: str = ""
    """partition, account or virtual cluster"""
    predicted_s: float = 0.0
    """someone's guess of the run time; 0 = none, then the limit counts"""
    run_s: tuple[float, ...] = ()
    """MIG: seconds alone on a slice of SLICE_SIZES, estimated; inf = does not fit that size. A job that names its
    profile has one finite entry"""
    memory_gb: float = 0.0
    """MIG: GPU memory it needs; 0 = no known need"""
    deadline_s: float = math.inf
    """MIG: soft deadline; inf = none"""


@dataclass(frozen=True, slots=True)
class Share:
    """Some of a node: whole GPUs, or the MIG instance that begins at memory slice `start` of GPU `gpu`."""

    node: str
    n_gpus: int = 0
    """whole GPUs; 0 = a MIG instance"""
    gpu: int = -1
    """index of the card on the node; -1 = whole GPUs, whichever"""
    start: int = -1


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job that holds something."""

    request: JobRequest
    start_s: float
    shares: tuple[Share, ...]
    managed: bool = True
    """started through us or at least in our partition; others only take room"""


@dataclass(frozen=True, slots=True)
class Instance:
    """A MIG instance that exists."""

    start: int
    """first memory slice"""
    profile: str
    """NVIDIA's name, e.g. `3g.20gb`"""
    usable: bool = True
    """False while it is being created or destroyed"""


@dataclass(frozen=True, slots=True)
class MigGpu:
    """A card with MIG switched on, and its instances from left to right."""

    model: str
    """registry id, e.g. `a100-40gb`"""
    instances: tuple[Instance, ...]
    busy_by_others: tuple[int, ...] = ()
    """starts of instances that someone unknown to us uses"""


class NodeState(StrEnum):
    up = "up"
    drained = "drained"
    """what runs there may end, nothing new begins"""
    down = "down"


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """A machine as it is now."""

    name: str
    n_gpus: int
    """whole GPUs it has; 0 on a node that has MIG cards only"""
    n_free: int = 0
    """whole GPUs nobody holds, whatever its state"""
    gpu_model: str = ""
    state: NodeState = NodeState.up
    switch: int = 0
    speed: float = 1.0
    """how much faster than the run times say"""
    gpus: tuple[MigGpu, ...] = ()
    """its MIG cards"""


@dataclass(frozen=True, slots=True)
class Reservation:
    """Nodes that belong to someone else for a while."""

    name: str
    nodes: tuple[str, ...]
    from_s: float
    to_s: float
    users: tuple[str, ...] = ()
    """who may use them meanwhile"""


@dataclass(frozen=True, slots=True)
class Limit:
    """The most whole GPUs (or MIG slices) that one user or group may hold at a time."""

    max_gpus: int
    user: str = ""
    """of this user; empty = of the group"""
    group: str = ""


@dataclass(frozen=True, slots=True)
class ClusterState:
    """Everything a policy may know about a live cluster at one moment."""

    time_s: float
    nodes: tuple[NodeInfo, ...]
    queued: tuple[JobRequest, ...] = ()
    """jobs that may start now (no open dependency, held by nobody but us), by (submission, the cluster's order)"""
    running: tuple[RunningJob, ...] = ()
    """by (submission, the cluster's order); also those that are not ours"""
    reservations: tuple[Reservation, ...] = ()
    limits: tuple[Limit, ...] = ()


@dataclass(frozen=True, slots=True)
class Start:
    """Run a queued job exactly there."""

    key: JobKey
    shares: tuple[Share, ...]


@dataclass(frozen=True, slots=True)
class Stop:
    """Send a running job back into the queue; it keeps its progress where the cluster can do that."""

    key: JobKey


@dataclass(frozen=True, slots=True)
class Repartition:
    """Cut one card exactly so, now: every busy instance stands in the new layout, only idle ones go or come."""

    node: str
    gpu: int
    layout: Layout


Action = Start | Stop | Repartition
Plan = tuple[Action, ...]
"""Carried out in this order: stops, then cuts, then starts."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one action of a plan."""

    action: Action
    done: bool
    """accepted by the cluster; the next observation shows the effect"""
    why: str = ""
    """one sentence when it was not done"""
    took_s: float = 0.0
