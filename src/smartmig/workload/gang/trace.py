"""What the readers of whole-GPU traces share: a file goes in, jobs and a report of its rows come out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from smartmig.types import Floats, GangJobs
from smartmig.workload.order import in_order
from smartmig.workload.table import Table, Texts, header_of
from smartmig.workload.trace_report import TraceReport

DAY_S = 86400.0
NO_LIMIT = "not in the trace, taken as none"
AS_UTC = "local time of the cluster, read as UTC"
NO_DATE = "counts from an unknown moment, written as 1970-01-01"


@dataclass(frozen=True)
class GangTrace(ABC):
    """A file in one format; the fields are the reader's knobs."""

    REQUIRED: ClassVar[tuple[str, ...]]
    """columns by which the format is told"""
    SEPARATOR: ClassVar[str] = ","

    path: Path
    """the file; .gz is unpacked, `-` is standard input"""
    strict: bool = False
    """refuse the file at a broken row instead of leaving it out and reporting its line"""

    @abstractmethod
    def read(self) -> tuple[GangJobs, TraceReport]:
        """The jobs and what happened to the rows. Raises `InputError` with file and line."""

    def jobs(self) -> GangJobs:
        """The jobs; as there is no report to put broken rows into, they are refused."""
        return replace(self, strict=True).read()[0]

    @classmethod
    def missing(cls, start: str) -> list[str]:
        """What a file that begins with `start` lacks to be in this format; nothing when it may be."""
        header = header_of(start, cls.SEPARATOR)
        return [column for column in cls.REQUIRED if column not in header]

    def _table(self) -> Table:
        return Table.read(Path(self.path), self.REQUIRED, None, separator=self.SEPARATOR, strict=self.strict)


def gang_jobs(
    table: Table,
    *,
    job_id: Texts,
    submit_s: Floats,
    run_s: Floats,
    n_gpus: Floats,
    limit_s: Floats | None = None,
    gpu_model: Texts | None = None,
    user: Texts | None = None,
    group: Texts | None = None,
    waited_s: Floats | None = None,
) -> GangJobs:
    """The rows of a table that are still in, as jobs; columns as long as the table, `submit_s` since 1970.

    Rows that ask for no GPU or ran for no time are skipped, a job id that stands twice is a mistake. Time 0 is the
    midnight (UTC) before the first job.
    """
    rows = table.rows
    rows.drop(n_gpus == 0, "asked for no GPU")
    rows.drop(run_s == 0, "ran for no time")
    table.refuse_repeated(job_id, "job id")
    rows.require_some(str(table.path))
    keep = rows.keep
    n = int(keep.sum())
    origin_s = float(submit_s[keep].min() // DAY_S * DAY_S)
    nobody = np.full(n, "")
    jobs = GangJobs(
        job_id=job_id[keep],
        submit_s=submit_s[keep] - origin_s,
        run_s=run_s[keep],
        limit_s=np.full(n, np.inf) if limit_s is None else limit_s[keep],
        n_gpus=n_gpus[keep].astype(np.int64),
        gpu_model=nobody if gpu_model is None else gpu_model[keep],
        user=nobody if user is None else user[keep],
        group=nobody if group is None else group[keep],
        waited_s=np.full(n, np.nan) if waited_s is None else waited_s[keep],
        origin_s=origin_s,
    )
    return in_order(jobs)
