"""What the Slurm benchmarks share: a measured row, slurmctld's log, smartmig's journal, jobs to submit."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
from slurm_rig import PARTITION, SlurmRig
from slurm_site import Site

_LINE = re.compile(r"\[([^\]]+)\] (.*)")
_ALLOCATED = re.compile(
    r"sched: Allocate JobId=(\d+)\S* NodeList=(\S+)|_start_job: Started JobId=(\d+)\S* in \S+ on (\S+)"
)
_QUEUED_AGAIN = re.compile(r"^Requeuing JobId=(\d+)")
_SUBMITTED = re.compile(r"_slurm_rpc_submit_batch_job: JobId=(\d+) ")


@dataclass(frozen=True)
class Row:
    """One measured number and what it should be."""

    name: str
    value: float
    unit: str
    target: str
    ok: bool
    detail: str


def written(rig: SlurmRig) -> Iterator[tuple[float, str]]:
    """When slurmctld wrote a line into its log, and the line."""
    for line in (rig.log / "slurmctld.log").read_text(errors="replace").splitlines():
        if (found := _LINE.match(line)) is not None:
            yield datetime.fromisoformat(found[1]).timestamp(), found[2]


def controller_log(rig: SlurmRig) -> tuple[dict[str, float], list[tuple[str, str, float]]]:
    """(when each job was submitted; job, node and time of each start), as slurmctld wrote them."""
    submitted: dict[str, float] = {}
    started = []
    for at_s, line in written(rig):
        if (start := _ALLOCATED.search(line)) is not None:
            started.append((start[1] or start[3], start[2] or start[4], at_s))
        elif (submit := _SUBMITTED.search(line)) is not None:
            submitted[submit[1]] = at_s
    return submitted, started


def queued_again(rig: SlurmRig) -> dict[str, list[float]]:
    """When slurmctld put each job back into the queue. A plan of smartmig's that stops a job does that, too; its guard
    lets none pass here."""
    times: dict[str, list[float]] = {}
    for at_s, line in written(rig):
        if (job := _QUEUED_AGAIN.match(line)) is not None:
            times.setdefault(job[1], []).append(at_s)
    return times


def journal(site: Site, kind: str) -> list[dict[str, Any]]:
    with sqlite3.connect(site.home / "journal.db") as file:
        query = "select body from smartmig_journal where kind = ? order by seq"
        return [json.loads(body) for (body,) in file.execute(query, (kind,))]


def decision_row(site: Site, queued: str) -> Row:
    """A decision starts several jobs; what it took for one of them is told beside it.

    Processor time, because other people's work on this machine is not ours; the clock's time beside it.
    """
    bodies = [body for body in journal(site, "decision") if "cpu_s" in body]
    cpu, wall = (1e3 * np.array([body[name] for body in bodies]) for name in ("cpu_s", "took_s"))
    n_starts = np.array([max(1, len(body["plan"])) for body in bodies])
    each = cpu / n_starts
    p99 = float(np.quantile(cpu, 0.99))
    detail = f"processor time of {cpu.size} passes with {n_starts.mean():.0f} starts each, {queued}, p50 "
    detail += f"{np.median(cpu):.2f} ms; for one start p50 {np.median(each):.2f}, p99 {np.quantile(each, 0.99):.2f}"
    detail += f" ms; by the clock p50 {np.median(wall):.2f}, p99 {np.quantile(wall, 0.99):.2f} ms"
    return Row(f"decision, p99, {queued}", p99, "ms", "<= 1", p99 <= 1.0, detail)


def clock_row(took_ms: np.ndarray, queued: str) -> Row:
    """The same by the clock."""
    p99 = float(np.quantile(took_ms, 0.99))
    detail = (
        f"by the clock, {took_ms.size} passes, {queued}, p50 {np.median(took_ms):.2f} ms, max {took_ms.max():.2f} ms"
    )
    return Row(f"decision by the clock, p99, {queued}", p99, "ms", "<= 1", p99 <= 1.0, detail)


def submit(rig: SlurmRig, options: list[str], script: str) -> list[int]:
    """One job for each line of options, as fast as sbatch goes."""
    path = rig.jobs / f"job-{abs(hash(script))}.sh"
    path.write_text(script)
    path.chmod(0o755)
    batch = rig.jobs / "submit.sh"
    lines = [f"sbatch --parsable -o /dev/null -p {PARTITION} {words.replace('@', str(path))}" for words in options]
    batch.write_text("\n".join(lines) + "\n")
    return [int(line) for line in rig.call(["sh", str(batch)], timeout_s=600).split()]


def warm(site: Site) -> None:
    """The first dispatch after a controller starts takes Slurm some seconds."""
    (job,) = submit(site.rig, ["--gres=gpu:1 @"], "#!/bin/true\n")
    site.rig.wait(lambda: any(start[0] == str(job) for start in controller_log(site.rig)[1]))
