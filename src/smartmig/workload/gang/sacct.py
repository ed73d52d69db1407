"""Job dumps of Slurm's accounting: `sacct -a -X -P --format=JobID,User,Partition,State,Submit,Start,...`.

Needed are JobID, State, Submit, Start, one of AllocTRES and ReqTRES, and one of ElapsedRaw, Elapsed and End; of use are
also Timelimit (or TimelimitRaw), User, Partition (or Account); all others are passed over, in any order.

A job is a line that ran with GPUs. Steps are skipped. A task of an array is a job of its own; a line for several tasks
(`7_[2-5]`) is each of them when they ran, and skipped when they did not. An id that recurs with another submission,
after a requeue or a reset counter, gets `#2` behind it.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from smartmig.errors import InputError
from smartmig.types import Floats, GangJobs
from smartmig.workload.gang.trace import AS_UTC, GangTrace, gang_jobs
from smartmig.workload.gang.tres import gpu_count, gpu_models
from smartmig.workload.order import in_order, taken
from smartmig.workload.table import Table, Texts
from smartmig.workload.trace_report import TraceReport

# "JOB STATE CODES" of sacct(1), and the flags of squeue(1) that can stand in their place.
ENDED, RUNNING, WAITING, ELSEWHERE = range(4)
STATES = {
    "BOOT_FAIL": ENDED,
    "CANCELLED": ENDED,
    "COMPLETED": ENDED,
    "DEADLINE": ENDED,
    "FAILED": ENDED,
    "LAUNCH_FAILED": ENDED,
    "NODE_FAIL": ENDED,
    "OUT_OF_MEMORY": ENDED,
    "PREEMPTED": ENDED,
    "RECONFIG_FAIL": ENDED,
    "REQUEUED": ENDED,
    "TIMEOUT": ENDED,
    "COMPLETING": RUNNING,
    "RESIZING": RUNNING,
    "RUNNING": RUNNING,
    "SIGNALING": RUNNING,
    "STAGE_OUT": RUNNING,
    "STOPPED": RUNNING,
    "SUSPENDED": RUNNING,
    "CONFIGURING": WAITING,
    "PENDING": WAITING,
    "POWER_UP_NODE": WAITING,
    "REQUEUE_FED": WAITING,
    "REQUEUE_HOLD": WAITING,
    "RESV_DEL_HOLD": WAITING,
    "SPECIAL_EXIT": WAITING,
    "REVOKED": ELSEWHERE,
}
NO_TIME = ("Unknown", "None", "N/A", "")
NO_LIMIT = ("UNLIMITED", "Partition_Limit", "")

_DURATION = re.compile(r"(?:(?:([0-9]+)-)?([0-9]+):)?([0-9]+):([0-9]+(?:\.[0-9]+)?)")
_TASKS = re.compile(r"([0-9]+_)\[([0-9,:-]+)(?:%[0-9]+)?\]")
_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+)(?::([0-9]+))?)?")
_MOST_TASKS = 4_000_001
"""the largest MaxArraySize that slurm.conf(5) allows"""


@dataclass(frozen=True)
class SacctJobs(GangTrace):
    """The jobs that ran with GPUs, with their waits and time limits."""

    REQUIRED: ClassVar[tuple[str, ...]] = ("JobID", "State", "Submit", "Start")
    SEPARATOR: ClassVar[str] = "|"

    def read(self) -> tuple[GangJobs, TraceReport]:
        table = self._table()
        rows = table.rows
        job_id = table.texts("JobID", allow_empty=False)
        is_list = np.strings.find(job_id, "[") >= 0
        rows.drop((np.strings.find(job_id, ".") >= 0) & ~is_list, "a step of a job")
        state = table.mapped("State", _state, "a state of a Slurm job")
        rows.drop(state == ELSEWHERE, "ran on another cluster of the federation")
        rows.drop(state == RUNNING, "still running when the dump was made")
        start_s = table.times("Start", unknown=NO_TIME)
        rows.drop((state == WAITING) | np.isnan(start_s), "never started")
        submit_s = table.times("Submit")
        n_gpus, gpu_model = _gpus(table)
        run_s = _run_times(table, start_s)
        rows.drop(n_gpus == 0, "asked for no GPU")
        rows.drop(run_s == 0, "ran for no time")
        table.refuse_where(start_s < submit_s, "Start is before Submit")
        no_list = np.zeros(table.n_rows, dtype=bool)
        for row in np.flatnonzero(rows.keep & is_list).tolist():
            no_list[row] = not _tasks(str(job_id[row]))
        table.refuse_cells("JobID", no_list, "a job or a list of array tasks")
        group = next((name for name in ("Partition", "Account") if name in table.columns), None)
        jobs = gang_jobs(
            table,
            job_id=_told_apart(table, job_id),
            submit_s=submit_s,
            run_s=run_s,
            n_gpus=n_gpus,
            limit_s=_limits(table),
            gpu_model=gpu_model,
            user=table.texts("User") if "User" in table.columns else None,
            group=table.texts(group) if group else None,
            waited_s=start_s - submit_s,
        )
        asked = "ReqTRES" if "ReqTRES" in table.columns else "AllocTRES: the type it got"
        return _with_tasks(jobs), table.report({"clock": AS_UTC, "gpu_model": f"the GPU types in {asked}"})


def duration_s(text: str) -> float:
    """`1-02:03:04`, `02:03:04` or `03:04` in seconds; nan for anything else."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        return math.nan
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _state(text: str) -> float:
    """`CANCELLED by 1000` is CANCELLED."""
    word = text.split(" ")[0].removesuffix("+")
    return float(STATES.get(word, math.nan))


def _gpus(table: Table) -> tuple[Floats, Texts]:
    """How many GPUs a job was given (or asked for, where that is not said), and the types it asked for."""
    columns = [name for name in ("AllocTRES", "ReqTRES") if name in table.columns]
    if not columns:
        raise InputError(f"{table.path}:1: missing column AllocTRES or ReqTRES: without them no job has GPUs")
    counts = [table.mapped(name, gpu_count, "a list of resources with whole numbers of GPUs") for name in columns]
    given = np.where(counts[0] > 0, counts[0], counts[-1])
    return given, table.translated(columns[-1], gpu_models)


def _run_times(table: Table, start_s: Floats) -> Floats:
    if "ElapsedRaw" in table.columns:
        return table.numbers("ElapsedRaw", at_least=0)
    if "Elapsed" in table.columns:
        return table.mapped("Elapsed", duration_s, "a time like 1-02:03:04")
    if "End" not in table.columns:
        raise InputError(
            f"{table.path}:1: missing column ElapsedRaw, Elapsed or End: without them no job has a run time"
        )
    end_s = table.times("End")
    table.refuse_where(end_s < start_s, "End is before Start")
    return end_s - start_s


def _limits(table: Table) -> Floats:
    """Requested times; inf where a job asked for none."""

    def limit_s(text: str) -> float:
        seconds = math.inf if text.strip() in NO_LIMIT else duration_s(text)
        return seconds or math.inf

    def raw_limit_s(text: str) -> float:
        minutes = text.strip()
        if minutes in NO_LIMIT:
            return math.inf
        return (int(minutes) * 60 or math.inf) if minutes.isascii() and minutes.isdecimal() else math.nan

    if "Timelimit" in table.columns:
        return table.mapped("Timelimit", limit_s, "a time like 1-02:03:04, UNLIMITED or Partition_Limit")
    if "TimelimitRaw" in table.columns:
        return table.mapped("TimelimitRaw", raw_limit_s, "whole minutes, UNLIMITED or Partition_Limit")
    return np.full(table.n_rows, math.inf)


def _tasks(job_id: str) -> list[str]:
    """The ids of `7_[2-5,9%2]`; none when it is no such list, or one that was cut off."""
    found = _TASKS.fullmatch(job_id)
    ranges = [_RANGE.fullmatch(part) for part in found[2].split(",")] if found else []
    tasks: list[str] = []
    for part in ranges:
        if part is None:
            return []
        first, last, step = int(part[1]), int(part[2] or part[1]), int(part[3] or 1)
        if step == 0 or last - first + len(tasks) > _MOST_TASKS:
            return []
        tasks += [f"{found[1]}{task}" for task in range(first, last + 1, step)]  # type: ignore[index]
    return tasks


def _told_apart(table: Table, job_id: Texts) -> Texts:
    """The ids with `#2`, `#3` ... behind those that recur; with the same submission they are a mistake."""
    kept = job_id[table.rows.keep].tolist()
    if len(set(kept)) == len(kept):
        return job_id
    table.refuse_repeated(np.strings.add(np.strings.add(job_id, " submitted "), table.texts("Submit")), "JobID")
    seen: dict[str, int] = {}
    names = []
    for name, used in zip(job_id.tolist(), table.rows.keep.tolist(), strict=True):
        seen[name] = seen.get(name, 0) + used
        names.append(f"{name}#{seen[name]}" if seen[name] > 1 else name)
    return np.array(names)


def _with_tasks(jobs: GangJobs) -> GangJobs:
    """Lists of array tasks that ran, as one job a task."""
    lists = np.flatnonzero(np.strings.find(jobs.job_id, "[") >= 0)
    if lists.size == 0:
        return jobs
    tasks = {row: _tasks(str(jobs.job_id[row])) for row in lists.tolist()}
    n_tasks = np.ones(len(jobs), dtype=np.int64)
    n_tasks[lists] = [len(names) for names in tasks.values()]
    ids = [task for row, name in enumerate(jobs.job_id.tolist()) for task in tasks.get(row, [name])]
    return in_order(replace(taken(jobs, np.repeat(np.arange(len(jobs)), n_tasks)), job_id=np.array(ids)))
