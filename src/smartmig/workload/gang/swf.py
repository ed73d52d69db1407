"""Logs in the Standard Workload Format of the Parallel Workloads Archive: 18 numbers a line, `;` before the header.

Source: Feitelson et al., "Experience with using the Parallel Workloads Archive", JPDC 2014; the logs are free to use
with acknowledgement. Not part of this package.

Such logs count processors. Where the machine has GPUs, `procs_per_gpu` makes GPUs of them, e.g. 4 for the partition
"hybrid" of CEA Curie (nodes of 8 cores and 2 GPUs). The group is the partition, with its name from the header, else
the queue, else the group of users, whichever the log has.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from smartmig.errors import InputError
from smartmig.types import Floats, GangJobs
from smartmig.workload.gang.trace import NO_DATE, GangTrace, gang_jobs
from smartmig.workload.table import LARGEST, Table, Texts
from smartmig.workload.trace_report import TraceReport

FIELDS = (
    "job", "submit", "wait", "run", "procs used", "cpu time", "memory used", "procs", "time", "memory", "status",
    "user", "group", "executable", "queue", "partition", "preceding job", "think time",
)  # fmt: skip
UNKNOWN = -1
_PARTS = (2, 3, 4)
"""status of the stretches of a job that was swapped out; one more line sums them up"""

_START = re.compile(r";\s*UnixStartTime:\s*(\d+)\s*")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]*)?")
_NAME = re.compile(r";\s*(Partition|Queue):\s*(\d+)\s+(\S.*?)\s*")


@dataclass(frozen=True)
class SwfJobs(GangTrace):
    """The jobs that ran, with the waits and requested times of the log."""

    REQUIRED: ClassVar[tuple[str, ...]] = FIELDS

    procs_per_gpu: int = 1
    """processors that come with one GPU; a job gets GPUs for all its processors, rounded up"""

    def __post_init__(self) -> None:
        if self.procs_per_gpu < 1:
            raise InputError(f"procs_per_gpu: got {self.procs_per_gpu}, allowed is a whole number from 1 up")

    @classmethod
    def missing(cls, start: str) -> list[str]:
        for line in start.splitlines():
            if line.strip() and not line.lstrip().startswith(";"):
                cells = line.split()
                fits = len(cells) == len(FIELDS) and all(map(_NUMBER.fullmatch, cells))
                return [] if fits else list(FIELDS)
        return [] if start.lstrip().startswith(";") else list(FIELDS)

    def read(self) -> tuple[GangJobs, TraceReport]:
        table = Table.read_plain(Path(self.path), FIELDS, ";", strict=self.strict)
        start_s = [int(found[1]) for line in table.comments if (found := _START.fullmatch(line))]
        submit_s, wait_s, run_s, used, procs, time_s, status = (
            table.numbers(field, at_least=UNKNOWN)
            for field in ("submit", "wait", "run", "procs used", "procs", "time", "status")
        )
        procs = np.where(procs > 0, procs, used)
        table.refuse_cells("status", ~np.isin(status, (UNKNOWN, 0, 1, *_PARTS, 5)), "a whole number from -1 to 5")
        table.refuse_cells("submit", submit_s < 0, f"a number from 0 to {LARGEST:g}")
        table.rows.drop(np.isin(status, _PARTS), "a stretch of a job that another line sums up")
        table.rows.drop(run_s < 0, "run time unknown")
        table.rows.drop(run_s == 0, "ran for no time")
        table.rows.drop(procs < 0, "processors unknown")
        group, field = _groups(table)
        jobs = gang_jobs(
            table,
            job_id=np.strings.strip(table.texts("job")),
            submit_s=submit_s + (start_s[0] if start_s else 0),
            run_s=run_s,
            n_gpus=np.ceil(procs / self.procs_per_gpu),
            limit_s=np.where(time_s > 0, time_s, math.inf),
            user=_named(table.numbers("user", at_least=UNKNOWN), {}),
            group=group,
            waited_s=np.where(wait_s >= 0, wait_s, math.nan),
        )
        each = "one processor each" if self.procs_per_gpu == 1 else f"{self.procs_per_gpu} processors each, rounded up"
        clock = "from the header" if start_s else NO_DATE
        return jobs, table.report({"clock": clock, "n_gpus": each, "group": f"the {field} of the log"})


def _groups(table: Table) -> tuple[Texts, str]:
    """The first of partition, queue and group that the log fills, and which it was."""
    for field in ("partition", "queue", "group"):
        numbers = table.numbers(field, at_least=UNKNOWN)
        if (numbers[table.rows.keep] > UNKNOWN).any() or field == "group":
            break
    found = [match for line in table.comments if (match := _NAME.fullmatch(line)) and match[1].lower() == field]
    uses = Counter(match[3] for match in found)
    # Some logs have several partitions of one name, or with the name of another's number: those keep their number.
    names = {int(match[2]): match[3] for match in found if uses[match[3]] == 1 and not match[3].isdecimal()}
    return _named(numbers, names), field


def _named(numbers: Floats, names: dict[int, str]) -> Texts:
    """Numbers as text, with names where there are any; empty for unknown."""
    values, at = np.unique(np.nan_to_num(numbers, nan=UNKNOWN), return_inverse=True)
    texts = ["" if value == UNKNOWN else names.get(int(value), str(int(value))) for value in values.tolist()]
    return np.array(texts, dtype=np.str_)[at]
