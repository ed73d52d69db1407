"""The project's own job file: a CSV with one job a row.

    job_id,arrive_s,deadline_s,run_1g_s,run_2g_s,run_3g_s,run_4g_s,run_7g_s[,kind,memory_gb]

Columns and rows stand in any order; an empty run time means the job does not fit that size. Gzip is read by its
content and written when the name ends in `.gz`; `-` is standard input or output.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from smartmig.types import SLICE_SIZES, Floats, Jobs
from smartmig.workload.lines import read_bytes
from smartmig.workload.order import in_order
from smartmig.workload.table import Table, write_table
from smartmig.workload.trace_report import TraceReport

RUN_COLUMNS = tuple(f"run_{size}g_s" for size in SLICE_SIZES)
REQUIRED = ("job_id", "arrive_s", "deadline_s", *RUN_COLUMNS)
OPTIONAL = ("kind", "memory_gb")
_SHORTEST_S = 1e-12
"""What is shorter counts as 0: the ratio of two run times must stay a number."""


@dataclass(frozen=True)
class CsvJobs:
    """A job file as a trace."""

    path: Path
    """the file; `-` is standard input"""

    def jobs(self, seed: int = 0) -> Jobs:
        """The jobs of the file; nothing in it is left to chance, so `seed` changes nothing."""
        return self.read(seed)[0]

    def read(self, seed: int = 0) -> tuple[Jobs, TraceReport]:
        """The jobs, and a report that every row was used."""
        del seed
        jobs = read_jobs(self.path)
        return jobs, TraceReport(rows=len(jobs), used=len(jobs), skipped={}, assumptions={})


def read_jobs(path: Path) -> Jobs:
    """Read a job file, sorted by (arrival, job id). Raises `InputError` with file and line for any mistake in it."""
    table = Table.read(Path(path), REQUIRED, OPTIONAL)
    ids = table.texts("job_id", allow_empty=False)
    table.refuse_repeated(ids, "job_id")
    arrive_s = _times(table, "arrive_s")
    deadline_s = _times(table, "deadline_s")
    table.refuse_where(
        deadline_s < arrive_s,
        lambda row: f"deadline_s {deadline_s[row]} is before arrive_s {arrive_s[row]}",
    )
    run_s: Floats = np.stack([_run_times(table, column) for column in RUN_COLUMNS], axis=1)
    nowhere = np.asarray(np.isinf(run_s).all(axis=1))
    table.refuse_where(nowhere, lambda row: f"job '{ids[row]}' has no run time on any size")
    kind = table.texts("kind") if "kind" in table.columns else np.full(len(ids), "")
    if "memory_gb" in table.columns:
        memory_gb = table.numbers("memory_gb", empty=0.0)
        table.refuse_where(memory_gb < 0, lambda row: f"memory_gb is {memory_gb[row]}, below 0")
    else:
        memory_gb = np.zeros(len(ids))
    return in_order(Jobs(ids, arrive_s, deadline_s, run_s, kind, memory_gb))


def place_of_job(path: Path, job_id: str) -> str:
    """`<file>:<line>` of a job, for messages about it; the file alone when it was standard input."""
    if str(path) == "-":
        return "standard input"
    reader = csv.reader(read_bytes(Path(path)).decode().split("\n"))
    column = next(reader).index("job_id")
    for row in reader:
        if len(row) > column and row[column] == job_id:
            return f"{path}:{reader.line_num}"
    return str(path)


def write_jobs(jobs: Jobs, path: Path) -> None:
    """Write a job file that `read_jobs` gives back exactly; on a file the change is all or nothing.

    Raises `InputError` for a job id or kind with a line break in it, and for a place that cannot be written.
    """
    columns: dict[str, Iterable[str]] = {
        "job_id": jobs.job_id.tolist(),
        "arrive_s": map(repr, jobs.arrive_s.tolist()),
        "deadline_s": map(repr, jobs.deadline_s.tolist()),
        **{
            column: ("" if value == math.inf else repr(value) for value in jobs.run_s[:, at].tolist())
            for at, column in enumerate(RUN_COLUMNS)
        },
        "kind": jobs.kind.tolist(),
        "memory_gb": map(repr, jobs.memory_gb.tolist()),
    }
    write_table(Path(path), columns, {"job_id": jobs.job_id, "kind": jobs.kind})


def _times(table: Table, column: str) -> Floats:
    values = table.numbers(column)
    table.refuse_where(values < 0, lambda row: f"{column} is {values[row]}, below 0")
    return values


def _run_times(table: Table, column: str) -> Floats:
    values = table.numbers(column, empty=math.inf)
    table.refuse_where(
        values < _SHORTEST_S,
        lambda row: f"{column} is {values[row]}; a run time is above 0, or empty when the job does not fit",
    )
    return values
