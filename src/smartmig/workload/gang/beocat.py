"""Jobs of a university's Slurm cluster, 2021, with requested and actual times (taken to be Kansas State's Beocat).

Source: github.com/shutchison/HPC_Scheduling_with_RL, data/all_jobs_*.csv. Licence: GPL-3.0. Not part of this package.

Most jobs ask for no GPU. There are no starts, so no waits, and no users.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from smartmig.types import GangJobs
from smartmig.workload.gang.trace import GangTrace, gang_jobs
from smartmig.workload.trace_report import TraceReport


@dataclass(frozen=True)
class BeocatJobs(GangTrace):
    """The jobs with GPUs."""

    REQUIRED: ClassVar[tuple[str, ...]] = ("JobName", "ReqGPUs", "ReqDuration", "ActualDuration", "Submit")

    def read(self) -> tuple[GangJobs, TraceReport]:
        table = self._table()
        limit_s = table.numbers("ReqDuration", at_least=0, empty=math.inf)
        jobs = gang_jobs(
            table,
            job_id=table.texts("JobName", allow_empty=False),
            submit_s=table.numbers("Submit", at_least=0),
            run_s=table.numbers("ActualDuration", at_least=0),
            n_gpus=table.numbers("ReqGPUs", at_least=0, whole=True),
            limit_s=np.where(limit_s == 0, math.inf, limit_s),
        )
        return jobs, table.report({})
