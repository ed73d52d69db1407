"""Pods of a production GPU cluster (Alibaba cluster-trace-gpu-v2023, "openb") as jobs of whole GPUs.

Source: github.com/alibaba/clusterdata, folder cluster-trace-gpu-v2023; Weng et al., USENIX ATC 2023.
Licence: none given; its authors allow use for research and study. The data is not part of this package.

`workload/traces/openb.py` reads the same file for slices of GPUs. The group is the class of service.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from smartmig.types import GangJobs
from smartmig.workload.gang.trace import NO_DATE, NO_LIMIT, GangTrace, gang_jobs
from smartmig.workload.trace_report import TraceReport
from smartmig.workload.traces import openb


@dataclass(frozen=True)
class OpenbGangs(GangTrace):
    """The pods that ran; one that asks for a part of a GPU takes a whole one."""

    REQUIRED: ClassVar[tuple[str, ...]] = openb.REQUIRED

    def read(self) -> tuple[GangJobs, TraceReport]:
        table = self._table()
        n_gpus = table.numbers("num_gpu", at_least=0, whole=True)
        milli = table.numbers("gpu_milli", at_least=0, empty=1000.0)
        created = table.numbers("creation_time", at_least=0)
        scheduled = table.numbers("scheduled_time", at_least=0, empty=math.nan)
        deleted = table.numbers("deletion_time", at_least=0, empty=math.nan)
        table.rows.drop(n_gpus == 0, "asked for no GPU")
        table.rows.drop(np.isnan(scheduled), "never ran")
        table.rows.drop(np.isnan(deleted), "still running at the end of the trace")
        table.refuse_where(deleted < scheduled, "deletion_time is before scheduled_time")
        table.refuse_where(scheduled < created, "scheduled_time is before creation_time")
        jobs = gang_jobs(
            table,
            job_id=table.texts("name", allow_empty=False),
            submit_s=created,
            run_s=deleted - scheduled,
            n_gpus=n_gpus,
            gpu_model=table.texts("gpu_spec") if "gpu_spec" in table.columns else None,
            group=table.texts("qos"),
            waited_s=scheduled - created,
        )
        n_parts = int(((n_gpus == 1) & (milli < 1000))[table.rows.keep].sum())
        parts = f"{n_parts} pods ask for a part of a GPU and take a whole one"
        return jobs, table.report({"clock": NO_DATE, "n_gpus": parts, "limit_s": NO_LIMIT})
