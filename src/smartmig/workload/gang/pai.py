"""A sample of GPU tasks of Alibaba's PAI, 2020, in a reduced form.

Source: github.com/alibaba/clusterdata, cluster-trace-gpu-v2020 (Weng et al., NSDI 2022), reduced in
github.com/mystous/gpu_scheduler, sim/alibaba_trace_sub.csv. Licence: none given; its authors allow use for research
and study. Not part of this package.

Only tasks that ended well are in it; parts of a GPU were rounded up to a whole one and runs cut to 48 h. It is about
8 % of the tasks: good for the shape of run times and gangs, not for the load.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from smartmig.types import GangJobs
from smartmig.workload.gang.trace import NO_DATE, NO_LIMIT, GangTrace, gang_jobs
from smartmig.workload.trace_report import TraceReport


@dataclass(frozen=True)
class PaiTasks(GangTrace):
    """The tasks, each as one job of all its instances."""

    REQUIRED: ClassVar[tuple[str, ...]] = ("job_id", "arrival_s", "service_sec", "gpu_count")

    def read(self) -> tuple[GangJobs, TraceReport]:
        table = self._table()
        jobs = gang_jobs(
            table,
            job_id=table.texts("job_id", allow_empty=False),
            submit_s=table.numbers("arrival_s", at_least=0),
            run_s=table.numbers("service_sec", at_least=0),
            n_gpus=table.numbers("gpu_count", at_least=0, whole=True),
        )
        submission = "the start of the task: the table has no submission"
        return jobs, table.report({"clock": NO_DATE, "submit_s": submission, "limit_s": NO_LIMIT})
