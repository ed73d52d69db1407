"""What a learned policy sees: distributions of jobs and GPUs, kept as running counts.

`track` moves one job between the histograms' bins whenever its status changes, so the counts cost the same for eight
GPUs and for a hundred thousand; `recount` says what they mean, from scratch. `encode` turns counts into the numbers a
network reads. Simulation, training and live control all call these and nothing else.

Counted, each per GPU of the cluster:
  jobs in the system by (scaling, work left on a 1g slice)      jobs that wait by time left on a whole GPU (S1's bins)
  jobs in the system by time to deadline (S1's bins)            GPUs and busy slices by configuration
and beside them the arrival rates of jobs and of work, and the time of day.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from smartmig.hardware.cuts import CutTable
from smartmig.hardware.layouts import sizes
from smartmig.jit import kernel
from smartmig.policy.view import JobArrays, State, World
from smartmig.types import SLICE_SIZES, Floats

VERSION = 2
"""A trained network fits the encoding it was trained with and no other: count up with every change here."""

WORK_EDGES_S = (60.0, 240.0, 600.0, 1200.0, 2100.0)
"""Work left, in seconds on a 1g slice: inference is mostly below four minutes, training begins at forty or more."""

TIME_EDGES_S = (0.0, 3.0, 12.0, 30.0, 60.0, 300.0, 600.0, 1200.0, 1800.0)
"""S1's histogram bins (0, .05, .2, .5, 1, 5, 10, 20, 30 minutes)."""

N_SCALINGS = 4
"""S3's throughput classes."""

N_WORK = len(WORK_EDGES_S) + 1
N_TIME = len(TIME_EDGES_S) + 1
N_CELLS = N_SCALINGS * N_WORK

# Where each histogram begins in State.tally.
AT_WAIT = N_CELLS
AT_DEADLINE = AT_WAIT + N_TIME
AT_EDGE = AT_DEADLINE + N_TIME  # by edge: jobs of the whole set, in order of deadline, that lie before now + edge
AT_CONFIG = AT_EDGE + len(TIME_EDGES_S)  # GPUs by configuration, then their busy slices

JOB_RATE_S, WORK_RATE_S = 600.0, 1800.0
"""Time constants of the two rate estimates."""

DAY_S = 86_400.0

N_FEATURES = N_CELLS + 2 * N_TIME + 3 + len(SLICE_SIZES) + 2 + 4
"""histograms; in the system, waiting, busy share; slices by size; two rates; time of day"""

N_DESCRIPTORS = len(SLICE_SIZES) + 2
"""of a configuration: slices by size, number of slices, compute slices in use"""


def input_names() -> list[str]:
    """What each number that `encode` fills in is about, in words for people."""
    classes, work, times = range(1, N_SCALINGS + 1), bins(WORK_EDGES_S), bins(TIME_EDGES_S)
    names = [f"jobs of throughput class {one} with {left} s of work left" for one in classes for left in work]
    names += [f"waiting jobs with {left} s left on a whole GPU" for left in times]
    names += [f"jobs with {left} s to their deadline" for left in times]
    names += ["jobs in the system", "waiting jobs", "busy share of the slices"]
    names += [f"slices of {size}g per GPU" for size in SLICE_SIZES]
    return [*names, "arrivals of late", "work that arrived of late", *["time of day"] * 4]


def bins(edges: Sequence[float]) -> list[str]:
    """Words for the bins between these edges."""
    inner = [f"{low:g} to {high:g}" for low, high in pairwise(edges)]
    return [f"less than {edges[0]:g}", *inner, f"{edges[-1]:g} or more"]


@kernel
def work_bin(work_s: float) -> int:
    at = 0
    for edge_s in WORK_EDGES_S:
        at += work_s >= edge_s
    return at


@kernel
def time_bin(time_s: float) -> int:
    at = 0
    for edge_s in TIME_EDGES_S:
        at += time_s >= edge_s
    return at


@kernel
def deadline_bin(jobs: JobArrays, state: State, job: int) -> int:
    """Bin of the job's time to deadline, as of the last `turn_clock`."""
    at = 0
    for edge in range(len(TIME_EDGES_S)):
        at += jobs.spec[job].deadline_rank >= state.tally[AT_EDGE + edge]
    return at


@kernel
def track(world: World, jobs: JobArrays, state: State, job: int, present: bool) -> None:
    """The job came, went, started, stopped or made progress: move it to the bins where it belongs now."""
    if not world.counted:
        return
    cell = -1
    wait_bin = -1
    if present:
        left = state.job[job].left
        cell = jobs.spec[job].scaling * N_WORK + work_bin(left * jobs.spec[job].single_s)
        if state.job[job].slot < 0:
            wait_bin = time_bin(left * jobs.spec[job].whole_s)
    before = state.job[job].cell
    if cell != before:
        if cell < 0 or before < 0:
            state.tally[AT_DEADLINE + deadline_bin(jobs, state, job)] += 1 if present else -1
        if before >= 0:
            state.tally[before] -= 1
        if cell >= 0:
            state.tally[cell] += 1
        state.job[job].cell = cell
    before = state.job[job].wait_bin
    if wait_bin != before:
        if before >= 0:
            state.tally[AT_WAIT + before] -= 1
        if wait_bin >= 0:
            state.tally[AT_WAIT + wait_bin] += 1
        state.job[job].wait_bin = wait_bin


@kernel
def track_arrival(world: World, jobs: JobArrays, state: State, job: int) -> None:
    """The job has just been put among the waiting ones."""
    if not world.counted:
        return
    track(world, jobs, state, job, True)
    passed_s = jobs.spec[job].arrive_s - state.flow[2]
    state.flow[0] = state.flow[0] * math.exp(-passed_s / JOB_RATE_S) + 1.0
    state.flow[1] = state.flow[1] * math.exp(-passed_s / WORK_RATE_S) + jobs.spec[job].single_s
    state.flow[2] = jobs.spec[job].arrive_s


@kernel
def turn_clock(jobs: JobArrays, state: State) -> None:
    """Move the jobs whose time to deadline fell below an edge; every job passes every edge once."""
    for edge in range(len(TIME_EDGES_S)):
        until_s = state.now[0].time_s + TIME_EDGES_S[edge]
        before = state.tally[AT_EDGE + edge]
        while before < jobs.by_deadline.size and jobs.spec[jobs.by_deadline[before]].deadline_s < until_s:
            job = jobs.by_deadline[before]
            before += 1
            if state.job[job].cell >= 0:
                state.tally[AT_DEADLINE + edge + 1] -= 1
                state.tally[AT_DEADLINE + edge] += 1
        state.tally[AT_EDGE + edge] = before


@kernel
def encode(world: World, jobs: JobArrays, state: State, features: Floats) -> None:
    """Fill `features` (N_FEATURES,) from the running counts."""
    turn_clock(jobs, state)
    now_s = state.now[0].time_s
    n_configs = world.config.size
    per_gpu = 1.0 / world.n_gpus
    n_jobs = 0
    n_waiting = 0
    for at in range(N_CELLS):
        n_jobs += state.tally[at]
    for at in range(AT_WAIT, AT_DEADLINE):
        n_waiting += state.tally[at]
    for at in range(AT_EDGE):
        features[at] = math.log1p(4.0 * state.tally[at] * per_gpu)
    at = AT_EDGE
    features[at] = math.log1p(n_jobs * per_gpu)
    features[at + 1] = math.log1p(n_waiting * per_gpu)
    features[at + 2] = 0.0
    for size in range(len(SLICE_SIZES)):
        features[at + 3 + size] = 0.0
    n_compute = 0
    for config in range(n_configs):
        n_gpus = state.tally[AT_CONFIG + config]
        features[at + 2] += state.tally[AT_CONFIG + n_configs + config]
        for size in range(len(SLICE_SIZES)):
            n_slices = world.config_sizes[config, size]
            features[at + 3 + size] += n_slices * n_gpus * per_gpu
        n_compute += world.config_compute[config] * n_gpus
    features[at + 2] /= max(1, n_compute)
    at += 3 + len(SLICE_SIZES)
    passed_s = now_s - state.flow[2]
    features[at] = math.log1p(state.flow[0] * math.exp(-passed_s / JOB_RATE_S) * per_gpu)
    features[at + 1] = state.flow[1] * math.exp(-passed_s / WORK_RATE_S) / WORK_RATE_S * per_gpu / 4.0
    angle = 2.0 * math.pi * (now_s % DAY_S) / DAY_S
    features[at + 2] = math.sin(angle)
    features[at + 3] = math.cos(angle)
    features[at + 4] = math.sin(2.0 * angle)
    features[at + 5] = math.cos(2.0 * angle)


def recount(world: World, jobs: JobArrays, state: State) -> tuple[np.ndarray, Floats]:
    """The counts and flows of the present moment, from scratch: what the running ones must equal after `turn_clock`."""
    now = state.now[0]
    n_configs = world.config.size
    count = np.zeros_like(state.tally)
    deadline_s = jobs.spec["deadline_s"]
    for edge, edge_s in enumerate(TIME_EDGES_S):
        count[AT_EDGE + edge] = np.sum(deadline_s < now["time_s"] + edge_s)
    for job in range(int(now["n_arrived"])):
        if not np.isnan(state.job["finish_s"][job]):
            continue
        left = state.job["left"][job]
        spec = jobs.spec[job]
        count[spec["scaling"] * N_WORK + work_bin(left * spec["single_s"])] += 1
        # Deadline against now + edge, as `turn_clock` compares: a difference would round the other way now and then.
        count[AT_DEADLINE + sum(spec["deadline_s"] >= now["time_s"] + edge_s for edge_s in TIME_EDGES_S)] += 1
        if state.job["slot"][job] < 0:
            count[AT_WAIT + time_bin(left * spec["whole_s"])] += 1
    for gpu in state.gpu:
        count[AT_CONFIG + gpu["config"]] += 1
        count[AT_CONFIG + n_configs + gpu["config"]] += gpu["busy"]
    arrived = jobs.spec[: int(now["n_arrived"])]
    ago_s = (arrived["arrive_s"][-1] if arrived.size else 0.0) - arrived["arrive_s"]
    flow = np.array(
        [
            np.exp(-ago_s / JOB_RATE_S).sum(),
            (np.exp(-ago_s / WORK_RATE_S) * arrived["single_s"]).sum(),
            arrived["arrive_s"][-1] if arrived.size else 0.0,
        ]
    )
    return count, flow


def describe(cuts: CutTable) -> Floats:
    """(n_configs, N_DESCRIPTORS) what a network knows of each configuration: serves any card."""
    table = np.zeros((len(cuts.configs), N_DESCRIPTORS))
    for row, config in zip(table, cuts.configs, strict=True):
        of_sizes = sizes(cuts.models[config.model], config.variants[0])
        for size in of_sizes:
            row[SLICE_SIZES.index(size)] += 1.0 / (7 // size)
        row[len(SLICE_SIZES)] = len(of_sizes) / 7
        row[len(SLICE_SIZES) + 1] = sum(of_sizes) / 7
    return table
