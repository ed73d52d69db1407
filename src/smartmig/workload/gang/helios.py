"""Jobs of Venus, a Slurm cluster of 8-GPU nodes (Helios, 2020), in a reduced form.

Source: github.com/S-Lab-System-Group/HeliosData (CC-BY-4.0; Hu et al., SC 2021), reduced in
github.com/mystous/gpu_scheduler, sim/helios_trace.csv. Not part of this package.

The file has jobs with GPUs only, runs cut to 48 h, and a submission time derived from the publishers' own counters. It
has no waits, users, virtual clusters or requested times.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from smartmig.types import GangJobs
from smartmig.workload.gang.trace import AS_UTC, NO_LIMIT, GangTrace, gang_jobs
from smartmig.workload.trace_report import TraceReport

_LONGEST_S = 48 * 3600


@dataclass(frozen=True)
class HeliosJobs(GangTrace):
    """The jobs as they were submitted."""

    REQUIRED: ClassVar[tuple[str, ...]] = ("job_id", "service_sec", "gpu_count", "submit_time_derived")

    def read(self) -> tuple[GangJobs, TraceReport]:
        table = self._table()
        jobs = gang_jobs(
            table,
            job_id=table.texts("job_id", allow_empty=False),
            submit_s=table.times("submit_time_derived"),
            run_s=table.numbers("service_sec", at_least=0),
            n_gpus=table.numbers("gpu_count", at_least=0, whole=True),
        )
        n_cut = int(np.count_nonzero(jobs.run_s == _LONGEST_S))
        cut = f"{n_cut} of them are 48 h, where the distributor cut them"
        return jobs, table.report({"clock": AS_UTC, "run_s": cut, "limit_s": NO_LIMIT})
