"""Deep-learning training jobs of Microsoft's Philly cluster, 2017, in the condensed form of the Pollux authors.

Source: github.com/msr-fiddle/philly-traces (CC-BY-4.0; Jeon et al., ATC 2019), condensed in github.com/petuum/adaptdl,
simulator/traces/philly.csv. Not part of this package.

The group is the virtual cluster. There are no job ids: a job is named after its row, from 0. There are no waits, users
or requested times.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from smartmig.types import GangJobs
from smartmig.workload.gang.trace import AS_UTC, NO_LIMIT, GangTrace, gang_jobs
from smartmig.workload.trace_report import TraceReport


@dataclass(frozen=True)
class PhillyJobs(GangTrace):
    """The jobs as they were submitted, repeated rows included."""

    REQUIRED: ClassVar[tuple[str, ...]] = ("timestamp", "duration", "num_gpus", "gpu_time", "cluster")

    def read(self) -> tuple[GangJobs, TraceReport]:
        table = self._table()
        jobs = gang_jobs(
            table,
            job_id=np.arange(table.n_rows).astype(np.str_),
            submit_s=table.times("timestamp"),
            run_s=table.numbers("duration", at_least=0),
            n_gpus=table.numbers("num_gpus", at_least=0, whole=True),
            group=table.texts("cluster"),
        )
        return jobs, table.report({"clock": AS_UTC, "limit_s": NO_LIMIT})
