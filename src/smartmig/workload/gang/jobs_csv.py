"""The project's own file of whole-GPU jobs: a CSV with one job a row.

    job_id,submit_s,run_s,n_gpus[,limit_s,gpu_model,user,group,waited_s,origin_s]

Columns and rows stand in any order. An empty `limit_s` means none was asked for, an empty `waited_s` that it is not
known. `origin_s` is time 0 in seconds since 1970 UTC, the same in every row; 0 when left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from smartmig.types import Floats, GangJobs
from smartmig.workload.gang.trace import GangTrace
from smartmig.workload.order import in_order
from smartmig.workload.table import LARGEST, Table, Texts, write_table
from smartmig.workload.trace_report import TraceReport

OPTIONAL = ("limit_s", "gpu_model", "user", "group", "waited_s", "origin_s")


@dataclass(frozen=True)
class CsvGangs(GangTrace):
    """The jobs exactly as they were written."""

    REQUIRED: ClassVar[tuple[str, ...]] = ("job_id", "submit_s", "run_s", "n_gpus")

    def read(self) -> tuple[GangJobs, TraceReport]:
        table = Table.read(Path(self.path), self.REQUIRED, OPTIONAL, strict=self.strict)
        job_id = table.texts("job_id", allow_empty=False)
        submit_s = table.numbers("submit_s", at_least=0)
        run_s = _above_zero(table, "run_s", None)
        n_gpus = table.numbers("n_gpus", at_least=1, whole=True)
        limit_s = _above_zero(table, "limit_s", math.inf)
        waited_s = _numbers(table, "waited_s", math.nan)
        origin_s = _numbers(table, "origin_s", 0.0, at_least=-LARGEST)
        gpu_model, user, group = (_texts(table, column) for column in ("gpu_model", "user", "group"))
        table.refuse_repeated(job_id, "job_id")
        table.rows.require_some(str(self.path))
        first_s = float(origin_s[table.rows.keep][0])
        table.refuse_where(
            origin_s != first_s,
            lambda row: f"origin_s is {origin_s[row]}, but {first_s} further up; a file has one time 0",
            "origin_s is not that of the first row",
        )
        keep = table.rows.keep
        jobs = GangJobs(
            job_id=job_id[keep],
            submit_s=submit_s[keep],
            run_s=run_s[keep],
            limit_s=limit_s[keep],
            n_gpus=n_gpus[keep].astype(np.int64),
            gpu_model=gpu_model[keep],
            user=user[keep],
            group=group[keep],
            waited_s=waited_s[keep],
            origin_s=first_s,
        )
        return in_order(jobs), table.report({})


def write_gang_jobs(jobs: GangJobs, path: Path) -> None:
    """Write a file that `CsvGangs` reads back exactly; on a file the change is all or nothing.

    Raises `InputError` for a text with a line break in it, and for a place that cannot be written.
    """
    texts = {"job_id": jobs.job_id, "gpu_model": jobs.gpu_model, "user": jobs.user, "group": jobs.group}
    columns: dict[str, Iterable[str]] = {
        "job_id": jobs.job_id.tolist(),
        "submit_s": map(repr, jobs.submit_s.tolist()),
        "run_s": map(repr, jobs.run_s.tolist()),
        "n_gpus": map(str, jobs.n_gpus.tolist()),
        "limit_s": _finite(jobs.limit_s),
        "gpu_model": jobs.gpu_model.tolist(),
        "user": jobs.user.tolist(),
        "group": jobs.group.tolist(),
        "waited_s": _finite(jobs.waited_s),
        "origin_s": [repr(jobs.origin_s)] * len(jobs),
    }
    write_table(Path(path), columns, texts)


def _finite(values: Floats) -> Iterable[str]:
    return (repr(value) if math.isfinite(value) else "" for value in values.tolist())


def _numbers(table: Table, column: str, empty: float, at_least: float = 0.0) -> Floats:
    if column not in table.columns:
        return np.full(table.n_rows, empty)
    return table.numbers(column, empty=empty, at_least=at_least)


def _above_zero(table: Table, column: str, empty: float | None) -> Floats:
    if column not in table.columns:
        return np.full(table.n_rows, empty, dtype=np.float64)
    values = table.numbers(column, empty=empty)
    table.refuse_cells(column, values <= 0, "a number above 0")
    return values


def _texts(table: Table, column: str) -> Texts:
    return table.texts(column) if column in table.columns else np.full(table.n_rows, "")
