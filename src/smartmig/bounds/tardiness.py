"""S3's lower bound on tardiness: a time-indexed MIP for small job sets.

Jobs are linearised and given whole GPUs, as in S3's energy bound; time is cut into slots of eps. A job may use at most
eps of a slot, all jobs together m eps, and a slot after the deadline counts as tardy unless the job's work is done by
its end. Releases and completions are rounded in the schedule's favour, so the optimum is a lower bound as it stands,
and at most 2 n eps below the summed tardiness of the best linearised schedule.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from smartmig.bounds.joint import Bound
from smartmig.errors import InputError, SmartmigError
from smartmig.hardware.model import GpuModel
from smartmig.types import DEADLINE_GRACE_S, SLICE_SIZES, Floats, Jobs

MOST_CELLS = 200_000
"""Jobs times slots beyond which HiGHS would not finish its first relaxation in reasonable time."""

MIP_ASSUMPTIONS = (
    "preemption is free, and a job runs on one GPU at a time",
    "run times are linearised: a job takes least k p_k / 7 on a whole GPU, which no slice beats",
)


def mip_tardiness_bound(
    jobs: Jobs, gpus: Sequence[GpuModel], slot_s: float | None = None, time_limit_s: float = 60.0
) -> Bound:
    """Mean tardiness of any schedule is at least this (S3, for some 50 jobs).

    `slot_s` is eps; by default the horizon is cut into 60 slots. When the time limit ends the search, the solver's
    dual bound is returned, which is valid too. Raises `InputError` for mixed clusters and for job sets too large.
    """
    if len(jobs) == 0:
        raise InputError("there are no jobs to bound")
    if not gpus or len(set(gpus)) != 1:
        raise InputError("S3's tardiness bound is for clusters of one GPU model; the priced bound takes any")
    if not time_limit_s > 0:
        raise InputError(f"time limit: got {time_limit_s}, allowed is a number of seconds above 0")
    began_s = time.perf_counter()
    sizes = [size if size <= gpus[0].n_compute else np.inf for size in SLICE_SIZES]
    work_s = np.min(jobs.run_s * np.array(sizes), axis=1) / gpus[0].n_compute
    if not np.all(np.isfinite(work_s)):
        raise InputError(f"job '{jobs.job_id[np.argmax(~np.isfinite(work_s))]}' fits no slice of {gpus[0].id}")
    first_s = float(jobs.arrive_s.min())
    # Some best schedule never idles a GPU that a job could use, and such schedules are over by then.
    span_s = float(np.ptp(jobs.arrive_s) + work_s.sum() / len(gpus) + work_s.max())
    eps_s = span_s / 60 if slot_s is None else slot_s
    if not 0 < eps_s < np.inf:
        raise InputError(f"slot: got {slot_s}, allowed is a number of seconds above 0")
    n_slots = int(np.ceil(span_s / eps_s)) + 1
    if len(jobs) * n_slots > MOST_CELLS:
        raise InputError(
            f"S3's MIP would have {len(jobs)} jobs x {n_slots} slots, at most {MOST_CELLS} cells are allowed: "
            "take longer slots or the priced bound"
        )
    late_s, finished = _solve(jobs, work_s, len(gpus), eps_s, n_slots, first_s, time_limit_s)
    value_s = max(0.0, late_s * (1 - 1e-9) / len(jobs) - DEADLINE_GRACE_S)
    error_s = 2 * len(jobs) * eps_s
    method = f"S3's time-indexed MIP, slots of {eps_s:.3g} s, error of the sum at most 2 n eps = {error_s:.4g} s"
    if not finished:
        method += ", solver's dual bound at the time limit"
    solve_s = time.perf_counter() - began_s
    return Bound("mean_tardiness_s", value_s, method, solve_s, None, MIP_ASSUMPTIONS, stopped=not finished)


def _solve(
    jobs: Jobs, work_s: Floats, n_gpus: int, eps_s: float, n_slots: int, first_s: float, time_limit_s: float
) -> tuple[float, bool]:
    """Summed tardiness, and whether it is the optimum. Variables: done[j, s], the share of job j done by the end of
    slot s, then ready[j, s], 1 only when it is all done."""
    # Half a second that no other bound should pay.
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import coo_array

    n = len(jobs)
    n_cells = n * n_slots
    done = np.arange(n_cells).reshape(n, n_slots)
    ready = done + n_cells
    slot_start_s = first_s + np.arange(n_slots) * eps_s
    lower = np.zeros(2 * n_cells)
    upper = np.ones(2 * n_cells)
    # Nothing is done before the slot of the release; by the horizon everything is.
    for job in range(n):
        upper[done[job, slot_start_s + eps_s <= jobs.arrive_s[job]]] = 0.0
        lower[done[job, -1]] = 1.0
    tardy = slot_start_s[None, :] >= jobs.deadline_s[:, None]
    upper[ready[~tardy]] = 0.0
    cost = np.zeros(2 * n_cells)
    cost[ready[tardy]] = -eps_s
    rows: list[np.ndarray] = []
    columns: list[np.ndarray] = []
    values: list[np.ndarray] = []
    low: list[np.ndarray] = []
    high: list[np.ndarray] = []
    n_rows = 0

    def add(cells: Sequence[tuple[np.ndarray, np.ndarray]], least: float, most: np.ndarray) -> None:
        nonlocal n_rows
        size = most.size
        for column, value in cells:
            rows.append(n_rows + np.arange(size))
            columns.append(column)
            values.append(np.broadcast_to(value, size))
        low.append(np.full(size, least))
        high.append(most)
        n_rows += size

    steps = np.broadcast_to((eps_s / np.maximum(work_s, 1e-12))[:, None], (n, n_slots - 1)).ravel()
    one = np.ones(1)
    add([(done[:, 1:].ravel(), one), (done[:, :-1].ravel(), -one)], 0.0, np.minimum(steps, 1.0))
    add([(done[:, 0], one)], 0.0, np.minimum(eps_s / np.maximum(work_s, 1e-12), 1.0))
    add([(ready[tardy], one), (done[tardy], -one)], -np.inf, np.zeros(int(tardy.sum())))
    # One row per slot: the work all jobs get in it.
    for job in range(n):
        rows.append(n_rows + np.arange(n_slots))
        columns.append(done[job])
        values.append(np.full(n_slots, work_s[job]))
        rows.append(n_rows + np.arange(1, n_slots))
        columns.append(done[job, :-1])
        values.append(np.full(n_slots - 1, -work_s[job]))
    low.append(np.full(n_slots, -np.inf))
    high.append(np.full(n_slots, n_gpus * eps_s))
    n_rows += n_slots
    matrix = coo_array(
        (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))), shape=(n_rows, 2 * n_cells)
    ).tocsr()
    integral = np.zeros(2 * n_cells, dtype=np.int64)
    integral[ready[tardy]] = 1
    result = milp(
        cost,
        integrality=integral,
        bounds=Bounds(lower, upper),
        constraints=LinearConstraint(matrix, np.concatenate(low), np.concatenate(high)),
        options={"time_limit": time_limit_s},
    )
    base_s = eps_s * float(tardy.sum())
    if result.status == 0:
        dual = result.mip_dual_bound if result.mip_dual_bound is not None else result.fun
        return base_s + float(dual), True
    if result.mip_dual_bound is None or not np.isfinite(result.mip_dual_bound):
        if result.status == 1:
            return 0.0, False
        raise SmartmigError(f"S3's tardiness MIP found no answer: {result.message}")
    return base_s + float(result.mip_dual_bound), False
