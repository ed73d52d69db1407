"""GPU jobs of Slurm clusters of the Digital Research Alliance of Canada, 2021, with limits, waits and end states.

Source: github.com/mila-iqia/slurm-queue-time-pred, data/original_data. Licence: MIT. Not part of this package.

Not a complete log: it has the jobs that were still waiting at noon of some day, so waits are long by construction and
submissions are no arrival process. Good for GPUs per job, and requested against used time. The group is the account.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from smartmig.types import GangJobs
from smartmig.workload.gang.trace import AS_UTC, GangTrace, gang_jobs
from smartmig.workload.gang.tres import gpu_count, gpu_models
from smartmig.workload.trace_report import TraceReport


@dataclass(frozen=True)
class DracJobs(GangTrace):
    """The jobs that ran."""

    REQUIRED: ClassVar[tuple[str, ...]] = (
        "job_unique_id",
        "submit_time",
        "account_id",
        "req_tres",
        "submit_wait_sec",
        "run_time_sec",
        "time_limit_sec",
    )

    def read(self) -> tuple[GangJobs, TraceReport]:
        table = self._table()
        n_gpus = table.mapped("req_tres", gpu_count, "a list of resources with whole numbers of GPUs")
        limit_s = table.numbers("time_limit_sec", at_least=0, empty=math.inf)
        jobs = gang_jobs(
            table,
            job_id=table.texts("job_unique_id", allow_empty=False),
            submit_s=table.times("submit_time"),
            run_s=table.numbers("run_time_sec", at_least=0),
            n_gpus=n_gpus,
            limit_s=np.where(limit_s == 0, math.inf, limit_s),
            gpu_model=table.translated("req_tres", gpu_models),
            group=table.texts("account_id"),
            waited_s=table.numbers("submit_wait_sec", at_least=0, empty=math.nan),
        )
        sample = "jobs that waited at some noon, so their waits are longer than most"
        return jobs, table.report({"clock": AS_UTC, "sample": sample})
