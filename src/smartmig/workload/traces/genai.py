"""Image-generation requests of a production service with a strong daily cycle (Alibaba cluster-trace-v2026-GenAI).

Source: github.com/alibaba/clusterdata, cluster-trace-v2026-GenAI, file lora_request_trace; Lin et al., SoCC 2025.
Licence: none given; its authors allow use for research and study. The data is not part of this package.

The clock is shifted by an unknown constant: the shape of the day is real, its phase is not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from smartmig.errors import InputError
from smartmig.types import SLICE_SIZES, Floats, Jobs
from smartmig.workload.curves import Curve, curve_named, run_times
from smartmig.workload.mix import check_deadline, check_job_count, check_window, require_positive, size_run
from smartmig.workload.order import in_order
from smartmig.workload.table import Table
from smartmig.workload.trace_report import TraceReport

REQUIRED = ("gmt_create", "predict_type", "predict_status", "exec_time_seconds")
_DAY_S = 86400.0


@dataclass(frozen=True)
class GenaiRequests:
    """The requests as jobs; time 0 is the midnight before the first one, plus `start_s`.

    Requests with another status, without an execution time above 0, or outside the window are counted and left out.
    """

    path: Path
    """the request trace, .csv or .csv.gz"""
    statuses: tuple[str, ...] = ("SUCCEED",)
    """keep requests that ended so; a failed one says nothing about its full run time"""
    curve: str | Curve = "resnet50-infer"
    """how a request speeds up with the slice"""
    exec_size: int = 7
    """the slice size that `exec_time_seconds` is taken to hold on (7 = a whole GPU)"""
    deadline: tuple[float, float] = (2.0, 4.0)
    """deadline = arrival + U(low, high) * run time on `deadline_size`; the trace has none"""
    deadline_size: int = 7
    """the slice size whose run time the deadline is counted in"""
    start_s: float = 0.0
    """first moment to use, from the midnight before the first request; 86400 is the second day"""
    length_s: float = math.inf
    """how much of the trace to use"""
    load: float = 1.0
    """times the requests: 2.5 is every request twice and half of them, by chance, a third time; 0.1 keeps a tenth"""
    jitter_s: float = 600.0
    """a further copy arrives up to this much before or after its original, within the window"""

    def __post_init__(self) -> None:
        require_positive("load", self.load)
        check_window(self.start_s, self.length_s)
        if not 0 <= self.jitter_s < math.inf:
            raise InputError(f"jitter_s: got {self.jitter_s}, allowed is a number from 0 up")
        if self.exec_size not in SLICE_SIZES:
            raise InputError(f"exec_size: got {self.exec_size}, allowed are {', '.join(map(str, SLICE_SIZES))}")
        check_deadline(self.deadline, self.deadline_size)

    def jobs(self, seed: int = 0) -> Jobs:
        """The jobs; `seed` draws deadlines and copies."""
        return self.read(seed)[0]

    def read(self, seed: int = 0) -> tuple[Jobs, TraceReport]:
        """The jobs and what happened to the rows. Raises `InputError` with file and line.

        Draws (PCG64): which rows get the last, partial copy (one number a row of the file), the jitter of the further
        copies, the deadlines.
        """
        table = Table.read(Path(self.path), REQUIRED, optional=None)
        created_s = table.times("gmt_create")
        created_s -= created_s.min() // _DAY_S * _DAY_S
        exec_s = table.numbers("exec_time_seconds", empty=0.0)
        status = table.texts("predict_status")

        rows = table.rows
        rows.drop(~np.isin(status, np.array(self.statuses)), f"status is not {' or '.join(self.statuses)}")
        rows.drop(~(exec_s > 0), "execution time is missing or not above 0")
        rows.drop((created_s < self.start_s) | (created_s >= self.start_s + self.length_s), "outside the time window")
        rows.require_some(str(self.path))

        rng = np.random.Generator(np.random.PCG64(seed))
        check_job_count("load", self.load * rows.keep.sum())
        whole, part = divmod(self.load, 1.0)
        n_copies = np.where(rows.keep, int(whole) + (rng.random(table.n_rows) < part), 0)
        rows.drop(n_copies == 0, f"thinned to {self.load:g} of the load")
        rows.require_some(str(self.path))
        row = np.repeat(np.arange(table.n_rows), n_copies)
        copy = np.arange(row.size) - np.repeat(np.cumsum(n_copies) - n_copies, n_copies)
        arrive_s = self._jittered(rng, created_s[row] - self.start_s, copy)

        curve = curve_named(self.curve, "curve")
        at_size = curve.speedup[SLICE_SIZES.index(self.exec_size)]
        if math.isnan(at_size):
            raise InputError(f"exec_size: the curve '{curve.name}' does not fit {self.exec_size}g")
        run_s = run_times(exec_s[row] * at_size, np.tile(np.array(curve.speedup), (row.size, 1)))
        slack = rng.uniform(*self.deadline, row.size)
        kinds = np.strings.replace(np.strings.lower(table.texts("predict_type")), "_", "-")
        jobs = Jobs(
            # A request has no name: its row has, and a further copy says which one it is.
            job_id=np.array([f"{r}+{c}" if c else str(r) for r, c in zip(row.tolist(), copy.tolist(), strict=True)]),
            arrive_s=arrive_s,
            deadline_s=arrive_s + slack * size_run(run_s, self.deadline_size),
            run_s=run_s,
            kind=kinds[row],
            memory_gb=np.zeros(row.size),
        )
        return in_order(jobs), table.report(self._assumptions(curve, row.size))

    def _jittered(self, rng: np.random.Generator, arrive_s: Floats, copy: np.ndarray) -> Floats:
        """Arrivals with the further copies moved, and thrown back into the window where they would leave it."""
        moved = np.abs(arrive_s + np.where(copy > 0, rng.uniform(-1, 1, copy.size) * self.jitter_s, 0.0))
        end_s = self.length_s if math.isfinite(self.length_s) else float(arrive_s.max())
        return np.where(moved > end_s, np.maximum(2 * end_s - moved, 0.0), moved)

    def _assumptions(self, curve: Curve, n_jobs: int) -> dict[str, str]:
        return {
            "exec_size": f"exec_time_seconds is the run time on {self.exec_size}g",
            "curve": f"requests speed up like {curve.name}",
            "deadline": f"U({self.deadline[0]:g}, {self.deadline[1]:g}) times the run time on {self.deadline_size}g",
            "load": f"{self.load:g} times the requests: {n_jobs} jobs, copies moved by up to {self.jitter_s:g} s",
            "clock": "the publisher shifted it: the shape of the day is real, its phase is not",
            "memory_gb": "unknown, taken as none",
        }
