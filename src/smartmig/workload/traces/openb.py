"""Pods of a production GPU cluster that ask for a part of a GPU (Alibaba cluster-trace-gpu-v2023, "openb").

Source: github.com/alibaba/clusterdata, folder cluster-trace-gpu-v2023; Weng et al., USENIX ATC 2023.
Licence: none given; its authors allow use for research and study. The data is not part of this package.

The trace says what a pod asked for and how long it ran there, nothing about MIG: every step from there to run times on
slices is an assumption, and every assumption is a knob.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from smartmig.errors import InputError
from smartmig.types import SLICE_SIZES, Jobs
from smartmig.workload.curves import Curve, curve_named, run_times
from smartmig.workload.mix import check_deadline, check_window, require_positive, size_run
from smartmig.workload.order import in_order
from smartmig.workload.table import Table
from smartmig.workload.trace_report import TraceReport

REQUIRED = ("name", "num_gpu", "gpu_milli", "qos", "creation_time", "deletion_time", "scheduled_time")

# Share of a GPU by compute slices: a size of k slices covers asks up to k/7, rounded down to thousandths.
MILLI_TO_SIZE = tuple((1000 * size // 7, size) for size in SLICE_SIZES)


@dataclass(frozen=True)
class OpenbPods:
    """The pods that ask for one GPU or a part of one, as jobs.

    Pods with no GPU or several, pods that never ran, and pods outside the window are counted and left out. Pods of
    every last phase count (a failed pod held its GPU too).
    """

    path: Path
    """the pod list, .csv or .csv.gz"""
    milli_to_size: tuple[tuple[int, int], ...] = MILLI_TO_SIZE
    """(largest gpu_milli, size) from small to large: the slice on which the pod's observed run time holds"""
    smaller_fits: bool = True
    """may a pod run, slower, on a smaller slice than the one it asked for; False: it does not fit there"""
    ls_curve: str | Curve = "bert-infer"
    """how latency-sensitive pods speed up (LS, and the few Burstable and Guaranteed): taken for services"""
    be_curve: str | Curve = "bert-train"
    """how best-effort pods speed up (BE): taken for training"""
    curve: str | Curve = ""
    """one curve for all pods instead of the two above"""
    deadline: tuple[float, float] = (2.0, 4.0)
    """deadline = creation + U(low, high) * run time on `deadline_size`; the trace has none"""
    deadline_size: int = 7
    """the slice size whose run time the deadline is counted in"""
    start_s: float = 0.0
    """first moment of the trace to use, on its own clock; nearly all pods come after day 115"""
    length_s: float = math.inf
    """how much of the trace to use"""
    time_scale: float = 1.0
    """arrivals come this many times as fast; run times stay"""
    max_run_s: float = 86400.0
    """longer observed runs are cut to this: services that ran for months would hold their slices for the whole run"""
    gpu_memory_gb: float = 0.0
    """memory of the GPU a pod shared; its need is its share of that. 0 = no need known"""

    def __post_init__(self) -> None:
        check_window(self.start_s, self.length_s)
        if not self.max_run_s > 0:
            raise InputError(f"max_run_s: got {self.max_run_s}, allowed is a number above 0")
        if not 0 <= self.gpu_memory_gb < math.inf:
            raise InputError(f"gpu_memory_gb: got {self.gpu_memory_gb}, allowed is a number from 0 up")
        require_positive("time_scale", self.time_scale)
        check_deadline(self.deadline, self.deadline_size)
        tops = [top for top, _ in self.milli_to_size]
        if tops != sorted(tops) or not tops or tops[-1] < 1000:
            raise InputError(f"milli_to_size: got {self.milli_to_size}, allowed are rising bounds up to 1000")
        if any(size not in SLICE_SIZES for _, size in self.milli_to_size):
            raise InputError(f"milli_to_size: sizes are {', '.join(map(str, SLICE_SIZES))}, got {self.milli_to_size}")

    def jobs(self, seed: int = 0) -> Jobs:
        """The jobs; `seed` draws the deadlines."""
        return self.read(seed)[0]

    def read(self, seed: int = 0) -> tuple[Jobs, TraceReport]:
        """The jobs and what happened to the rows. Raises `InputError` with file and line."""
        table = Table.read(Path(self.path), REQUIRED, optional=None)
        names = table.texts("name", allow_empty=False)
        n_gpu, milli = table.numbers("num_gpu"), table.numbers("gpu_milli", empty=0.0)
        created, deleted = table.numbers("creation_time"), table.numbers("deletion_time", empty=math.inf)
        scheduled = table.numbers("scheduled_time", empty=math.inf)
        table.refuse_where(
            (n_gpu < 0) | (n_gpu % 1 != 0), lambda row: f"num_gpu is {n_gpu[row]:g}; it is a whole number from 0 up"
        )
        table.refuse_where(
            (n_gpu == 1) & ~((milli > 0) & (milli <= 1000)),
            lambda row: f"gpu_milli is {milli[row]:g}; one GPU is shared in thousandths from 1 to 1000",
        )
        with np.errstate(invalid="ignore"):
            observed_s = deleted - scheduled

        rows = table.rows
        rows.drop(n_gpu == 0, "asked for no GPU")
        rows.drop(n_gpu > 1, "asked for more than one GPU")
        rows.drop(np.isinf(scheduled), "never ran")
        rows.drop(np.isinf(deleted), "still running at the end of the trace")
        rows.drop(~(observed_s > 0), "ran for no time")
        rows.drop((created < self.start_s) | (created >= self.start_s + self.length_s), "outside the time window")
        rows.require_some(str(self.path))
        table.refuse_repeated(names, "pod name")
        keep = rows.keep

        # One draw per row of the file, so that another window or filter leaves a pod's deadline alone.
        slack = np.random.Generator(np.random.PCG64(seed)).uniform(*self.deadline, table.n_rows)[keep]
        best_effort = (table.texts("qos") == "BE")[keep]
        speedups = np.array([curve_named(curve, "curve").speedup for curve in self._curves()])
        speedup = speedups[best_effort.astype(np.int64)]
        tops, sizes = zip(*self.milli_to_size, strict=True)
        size = np.array(sizes)[np.searchsorted(np.array(tops), milli[keep])]
        column = np.searchsorted(np.array(SLICE_SIZES), size)
        at_size = speedup[np.arange(column.size), column]
        if np.isnan(at_size).any():
            raise InputError("curve: it does not fit a size on which pods were observed")
        run_s = run_times(np.minimum(observed_s[keep], self.max_run_s) * at_size, speedup)
        if not self.smaller_fits:
            run_s[np.array(SLICE_SIZES)[None, :] < size[:, None]] = np.inf
        arrive_s = (created[keep] - self.start_s) / self.time_scale
        jobs = Jobs(
            job_id=names[keep],
            arrive_s=arrive_s,
            deadline_s=arrive_s + slack * size_run(run_s, self.deadline_size),
            run_s=run_s,
            kind=table.texts("qos")[keep],
            memory_gb=milli[keep] / 1000 * self.gpu_memory_gb,
        )
        n_cut = int((observed_s[keep] > self.max_run_s).sum())
        return in_order(jobs), table.report(self._assumptions(n_cut))

    def _curves(self) -> tuple[str | Curve, str | Curve]:
        """The curves of latency-sensitive and of best-effort pods."""
        return (self.curve, self.curve) if self.curve else (self.ls_curve, self.be_curve)

    def _assumptions(self, n_cut: int) -> dict[str, str]:
        service, batch = (curve_named(curve, "curve").name for curve in self._curves())
        bounds = ", ".join(f"up to {top}: {size}g" for top, size in self.milli_to_size)
        smaller = "slower there, along the curve" if self.smaller_fits else "do not fit"
        memory = f"share of {self.gpu_memory_gb:g} GB" if self.gpu_memory_gb else "unknown, taken as none"
        return {
            "milli_to_size": f"scheduled to deleted is the run time on the slice of the asked share ({bounds})",
            "smaller_fits": f"slices below the asked share: {smaller}",
            "curve": f"BE pods speed up like {batch}, all others like {service}",
            "deadline": f"U({self.deadline[0]:g}, {self.deadline[1]:g}) times the run time on {self.deadline_size}g",
            "max_run_s": f"{n_cut} runs cut to {self.max_run_s:g} s",
            "time_scale": f"arrivals {self.time_scale:g} times as fast",
            "memory_gb": memory,
        }
