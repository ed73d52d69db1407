"""The nouns. Frozen, no behaviour beyond looking at themselves.

Times are seconds, energies joules, powers watts, memory gigabytes (10^9 bytes as NVIDIA's profile names count them).
"""

from __future__ import annotations

from dataclasses import dataclass
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
