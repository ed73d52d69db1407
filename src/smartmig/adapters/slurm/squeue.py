"""Jobs as Slurm's commands print them, read so that nothing a user wrote is taken for anything else.

Names and comments of jobs may hold anything, line feeds and whole records too. `squeue` therefore prints every field in
a column of fixed width, which no text can leave. Two things only `scontrol show job` tells: those are read where they
stand exactly once, since Slurm prints them of every job.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping

from smartmig.adapters.slurm.records import JobRecord
from smartmig.adapters.slurm.scales import count, megabytes, minutes, seconds, text
from smartmig.adapters.slurm.states import COMPLETING, JobState

COLUMNS: dict[str, int] = {
    "JobID": 12,
    "ArrayJobID": 12,
    "ArrayTaskID": 512,
    "State": 24,
    "Reason": 64,
    "Partition": 64,
    "PriorityLong": 16,
    "Nice": 16,
    "SubmitTime": 24,
    "EligibleTime": 24,
    "StartTime": 24,
    "EndTime": 24,
    "TimeLimit": 24,
    "UserID": 12,
    "Account": 64,
    "NodeList": 128,
    "NumCPUs": 12,
    "NumTasks": 12,
    "tres-per-node": 64,
    "tres-per-job": 64,
    "tres-per-socket": 64,
    "tres-per-task": 64,
    "cpus-per-tres": 64,
    "mem-per-tres": 64,
    "Dependency": 128,
    "HetJobID": 12,
    "Feature": 64,
    "ReqNodes": 128,
    "Reservation": 64,
    "OverSubscribe": 12,
    "Comment": 128,
    "admin_comment": 192,
}
"""of `squeue -O`, and how wide"""
WIDER = 64
"""times as wide is a column in which something may have been cut off"""
MAY_BE_CUT = frozenset({"Reason"})

_RUNNING = frozenset({"CONFIGURING", "RESIZING", "SIGNALING", "STOPPED"})
"""flags of a running job: of a state and its flags squeue says one word"""
LIVE = frozenset({*JobState, COMPLETING, *_RUNNING})
"""states of jobs that wait or hold something"""

_START = re.compile(r"^JobId=(\d+) ", re.MULTILINE)
_ONCE = (" ExcNodeList=", " NumNodes=", " MinCPUsNode=", " MinMemory")
"""keys of `scontrol show job` that are read here; each is printed of every job"""
_EXCLUDED = re.compile(r" ExcNodeList=(\S*) ")
_N_NODES = re.compile(r" NumNodes=(\d+)(?:-(\d+))? ")
_MEMORY = re.compile(r" MinMemory(CPU|Node)=(\S+) ")
_DETAIL = re.compile(r" +Nodes=(\S+) CPU_IDs=\S* Mem=\d+ GRES=(\S*)")
_DETAILS = re.compile(rf"((?:{_DETAIL.pattern.replace('(', '(?:')})+) +MinCPUsNode=")


def wanted(widths: Mapping[str, int]) -> str:
    """For `squeue -O`."""
    return ",".join(f"{name}:{width}" for name, width in widths.items())


def read_table(table: str, widths: Mapping[str, int]) -> list[dict[str, str]]:
    """What `squeue -h -O` printed, a character for each byte. `ValueError` if the columns are not as wide as asked."""
    length = sum(widths.values()) + 1
    if len(table) % length or any(table[at] != "\n" for at in range(length - 1, len(table), length)):
        raise ValueError("squeue did not print the columns that were asked for")
    rows = []
    for begin in range(0, len(table), length):
        row, at = {}, begin
        for name, width in widths.items():
            row[name] = table[at : at + width].rstrip(" ")
            at += width
        rows.append(row)
    return rows


def cut_off(row: Mapping[str, str], widths: Mapping[str, int]) -> set[str]:
    """Columns in which there may have been more."""
    return {name for name, width in widths.items() if len(row.get(name, "")) == width and name not in MAY_BE_CUT}


def split_records(shown: str, job_ids: Collection[int]) -> dict[int, str]:
    """By job, its record in what `scontrol show -o job` printed of all these jobs. Left out are those that are not
    there, and those of which it is not sure where they begin and end, because somebody's text looks like a record."""
    starts = [(int(found[1]), found.start()) for found in _START.finditer(shown)]
    ids = [job_id for job_id, _ in starts]
    once = {job_id for job_id in ids if job_id in job_ids}
    seen: set[int] = set()
    for job_id in ids:
        if job_id in seen:
            once.discard(job_id)
        seen.add(job_id)
    found = {}
    for at, (job_id, begin) in enumerate(starts):
        next_id, end = starts[at + 1] if at + 1 < len(starts) else (None, len(shown))
        if job_id in once and (next_id is None or next_id in once):
            found[job_id] = shown[begin:end]
    return found


def read_job(row: Mapping[str, str], shown: str, names: Callable[[str], tuple[str, ...]]) -> JobRecord:
    """From the row of `squeue` and the record of `scontrol`; `names` expands `node[1-3]`. `ValueError` if that cannot
    be read."""
    excluded, n_nodes, memory = _EXCLUDED.search(shown), _N_NODES.search(shown), _MEMORY.search(shown)
    if excluded is None or n_nodes is None or memory is None or any(shown.count(key) != 1 for key in _ONCE):
        raise ValueError("its name or another text of its owner looks like a part of Slurm's record")
    task = row["ArrayTaskID"] if row["ArrayTaskID"] != "N/A" else ""
    tasks, _, at_a_time = task.partition("%")
    nodes = names(row["NodeList"])
    return JobRecord(
        job_id=int(row["JobID"]),
        array_job_id=int(row["ArrayJobID"]) if task else 0,
        array_task_id=int(task) if task.isdigit() else None,
        array_tasks="" if task.isdigit() else tasks,
        array_max_tasks=count(at_a_time),
        state=f"{JobState.RUNNING}+{row['State']}" if row["State"] in _RUNNING else row["State"],
        reason=row["Reason"].partition(",")[0],
        partition=row["Partition"],
        priority=int(row["PriorityLong"]),
        nice=int(row["Nice"]),
        submit_s=seconds(row["SubmitTime"]),
        eligible_s=seconds(row["EligibleTime"]),
        start_s=seconds(row["StartTime"]),
        end_s=seconds(row["EndTime"]),
        limit_min=minutes(row["TimeLimit"]),
        user_id=int(row["UserID"]),
        account=text(row["Account"]),
        nodes=nodes,
        n_nodes=int(n_nodes[1]),
        max_nodes=int(n_nodes[2] or 0),
        n_cpus=count(row["NumCPUs"]),
        n_tasks=count(row["NumTasks"]),
        memory_mb=megabytes(memory[2]),
        memory_per_cpu=memory[1] == "CPU",
        tres_per_node=text(row["tres-per-node"]),
        tres_per_job=text(row["tres-per-job"]),
        tres_per_socket=text(row["tres-per-socket"]),
        tres_per_task=text(row["tres-per-task"]),
        gres_detail=_gres_detail(shown, nodes, names),
        dependency=text(row["Dependency"]),
        het_job_id=count(row["HetJobID"]),
        features=text(row["Feature"]),
        excluded_nodes=names(excluded[1]),
        required_nodes=names(row["ReqNodes"]),
        reservation=text(row["Reservation"]),
        shared=0 if row["OverSubscribe"] == "NO" else 1,
        comment=text(row["Comment"]),
        admin_comment=text(row["admin_comment"]),
        cpus_per_tres=text(row["cpus-per-tres"]),
        mem_per_tres=text(row["mem-per-tres"]),
    )


def _gres_detail(shown: str, nodes: tuple[str, ...], names: Callable[[str], tuple[str, ...]]) -> str:
    """Of each node in turn. Nodes with equal shares stand together in one word, the last before `MinCPUsNode`."""
    block = _DETAILS.search(shown)
    by_node: dict[str, str] = {}
    for hosts, gres in _DETAIL.findall(block[1]) if block is not None else ():
        by_node |= dict.fromkeys(names(hosts), gres)
    return ";".join(by_node.get(node, "") for node in nodes) if by_node else ""
