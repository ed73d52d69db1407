"""Slurm through its commands: slower, but needs nothing built. One process per call, each with a time limit.

`scontrol show -o` puts a record on a line of `Key=Value` words; values may hold blanks, so the known keys tell where
one ends. Starting takes two calls, because `scontrol update` refuses a priority for a held job.
"""

from __future__ import annotations

import os
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from smartmig.adapters.slurm import marks
from smartmig.adapters.slurm.calls import Hold, Release, SlurmRefusal, SlurmSilence
from smartmig.adapters.slurm.records import JobRecord, NodeRecord, PartitionRecord, ReservationRecord
from smartmig.adapters.slurm.states import JobState
from smartmig.errors import AdapterError

_KEY = re.compile(r"(?:^| )([A-Z][A-Za-z]*(?:[:/][A-Za-z:/]+)?)=")
_UNREACHABLE = ("Unable to contact slurm controller", "Connection refused", "Socket timed out", "Zero Bytes were")
_HELD = re.compile(r"\(([0-9]+)\)")
_MEGABYTES = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2}


class Scontrol:
    """Reads and writes; nothing is kept between calls, so nothing is ever "unchanged"."""

    def __init__(self, conf: Path | None, folder: Path | None = None) -> None:
        self._env = {**os.environ, "TZ": "UTC", "SLURM_TIME_FORMAT": "standard", "SLURM_BITSTR_LEN": "0"}
        if conf is not None:
            self._env["SLURM_CONF"] = str(conf)
        self._program = str(folder / "scontrol") if folder is not None else "scontrol"
        self._hosts: dict[str, tuple[str, ...]] = {"": (), "(null)": ()}

    def jobs(self, partition: str, timeout_s: float) -> tuple[JobRecord, ...]:
        records = self._job_records(["show", "-a", "-d", "-o", "job"], timeout_s)
        return tuple(
            record
            for record in records
            if record.holds or (record.base_state == JobState.PENDING and partition in record.partitions)
        )

    def job(self, job_id: int, timeout_s: float) -> tuple[JobRecord, ...]:
        return self._job_records(["show", "-a", "-d", "-o", "job", str(job_id)], timeout_s)

    def nodes(self, timeout_s: float) -> tuple[NodeRecord, ...]:
        return tuple(map(_node, self._show(["show", "-a", "-d", "-o", "node"], timeout_s)))

    def node(self, name: str, timeout_s: float) -> NodeRecord:
        return _node(self._show(["show", "-d", "-o", "node", name], timeout_s)[0])

    def partitions(self, timeout_s: float) -> tuple[PartitionRecord, ...]:
        rows = self._show(["show", "-a", "-o", "partition"], timeout_s)
        return tuple(
            PartitionRecord(
                row["PartitionName"], row["State"], self._names(row["Nodes"], timeout_s), _minutes(row["MaxTime"])
            )
            for row in rows
        )

    def reservations(self, timeout_s: float) -> tuple[ReservationRecord, ...]:
        rows = self._show(["show", "-o", "reservation"], timeout_s)
        return tuple(
            ReservationRecord(
                row["ReservationName"],
                self._names(row["Nodes"], timeout_s),
                _seconds(row["StartTime"]),
                _seconds(row["EndTime"]),
            )
            for row in rows
            if "ReservationName" in row
        )

    def boot_s(self, timeout_s: float) -> int:
        found = re.search(r"^BOOT_TIME\s*=\s*(\S+)", self._run(["show", "config"], timeout_s), re.MULTILINE)
        return _seconds(found[1]) if found else 0

    def release(self, job: str, release: Release, timeout_s: float) -> None:
        first, last = list[str](), list[str]()
        # A mark that says that we do not hold the job must not stand there if it cannot be released.
        (first if marks.may_come_first(release.mark) else last).append(f"AdminComment={release.mark}")
        # Refused for the tasks of an array that wait together, which never have a pin of ours.
        if release.nodes is not None:
            first.append(f"ReqNodeList={','.join(release.nodes)}")
        if release.partition:
            first.append(f"Partition={release.partition}")
        if release.begin_s:
            first.append(f"StartTime={datetime.fromtimestamp(release.begin_s, UTC):%Y-%m-%dT%H:%M:%S}")
        if release.nice is not None:
            last.append(f"Nice={release.nice}")
        if first:
            self._run(["update", f"JobId={job}", *first], timeout_s)
        self._run(["release", job], timeout_s)
        if last:
            self._run(["update", f"JobId={job}", *last], timeout_s)

    def hold(self, job: str, hold: Hold, timeout_s: float) -> None:
        # The mark tells the submit script whose hold comes now. A new niceness would end it, so that is set before.
        words = [] if hold.nice is None else [f"Nice={hold.nice}"]
        self._run(["update", f"JobId={job}", f"AdminComment={marks.HOLDING}", *words], timeout_s)
        self._run(["uhold", job], timeout_s)
        if hold.nodes is not None:
            # Not before it is held, or Slurm might start it anywhere.
            self._run(["update", f"JobId={job}", f"ReqNodeList={','.join(hold.nodes)}"], timeout_s)

    def requeue(self, job: str, timeout_s: float) -> None:
        self._run(["requeue", job], timeout_s)

    def set_node(self, name: str, gres: str, comment: str, timeout_s: float) -> None:
        self._run(["update", f"NodeName={name}", f"Gres={gres}", f"Comment={comment}"], timeout_s)

    def close(self) -> bool:
        """Nothing is open."""
        return True

    def _job_records(self, words: list[str], timeout_s: float) -> tuple[JobRecord, ...]:
        rows = self._show(words, timeout_s)
        return tuple(self._job(row, timeout_s) for row in rows if "JobState" in row)

    def _job(self, row: dict[str, str], timeout_s: float) -> JobRecord:
        task = row.get("ArrayTaskId", "")
        memory = row.get("MinMemoryCPU") or row.get("MinMemoryNode") or "0"
        details = [word.removeprefix("GRES=") for word in re.findall(r"GRES=\S*", row.get("Nodes", ""))]
        owner = _HELD.search(row["UserId"])
        return JobRecord(
            job_id=int(row["JobId"]),
            array_job_id=int(row.get("ArrayJobId", 0)),
            array_task_id=int(task) if task.isdigit() else None,
            array_tasks="" if task.isdigit() else task.partition("%")[0],
            array_max_tasks=int(row.get("ArrayTaskThrottle", 0)),
            state=row["JobState"],
            reason=row["Reason"].partition(",")[0],
            partition=row["Partition"],
            priority=int(row["Priority"]),
            nice=int(row["Nice"]),
            submit_s=_seconds(row["SubmitTime"]),
            eligible_s=_seconds(row["EligibleTime"]),
            start_s=_seconds(row["StartTime"]),
            end_s=_seconds(row["EndTime"]),
            limit_min=_minutes(row["TimeLimit"]),
            user_id=int(owner[1]) if owner else -1,
            account=_text(row["Account"]),
            nodes=self._names(row["NodeList"], timeout_s),
            n_nodes=_count(row["NumNodes"].partition("-")[0]),
            max_nodes=_count(row["NumNodes"].partition("-")[2]),
            n_cpus=_count(row["NumCPUs"].partition("-")[0]),
            n_tasks=_count(row.get("NumTasks", "1")),
            memory_mb=_megabytes(memory),
            memory_per_cpu="MinMemoryCPU" in row,
            tres_per_node=_text(row.get("TresPerNode", "")),
            tres_per_job=_text(row.get("TresPerJob", "")),
            tres_per_socket=_text(row.get("TresPerSocket", "")),
            tres_per_task=_text(row.get("TresPerTask", "")),
            gres_detail=";".join(details),
            dependency=_text(row["Dependency"]),
            het_job_id=int(row.get("HetJobId", 0)),
            features=_text(row["Features"]),
            excluded_nodes=self._names(row["ExcNodeList"], timeout_s),
            required_nodes=self._names(row["ReqNodeList"], timeout_s),
            reservation=_text(row.get("Reservation", "")),
            shared=0 if row["OverSubscribe"] == "NO" else 1,
            comment=_text(row.get("Comment", "")),
            admin_comment=_text(row.get("AdminComment", "")),
        )

    def _names(self, ranges: str, timeout_s: float) -> tuple[str, ...]:
        """`node[1-3]` as names; Slurm itself knows how."""
        if ranges not in self._hosts:
            listed = self._run(["show", "hostnames", ranges], timeout_s) if "[" in ranges else ranges.replace(",", "\n")
            self._hosts[ranges] = tuple(listed.split())
        return self._hosts[ranges]

    def _show(self, words: list[str], timeout_s: float) -> list[dict[str, str]]:
        return [_row(line) for line in self._run(words, timeout_s).splitlines() if "=" in line]

    def _run(self, words: list[str], timeout_s: float) -> str:
        what = " ".join(["scontrol", *words[:2]])
        try:
            done = subprocess.run(
                [self._program, *words],
                env=self._env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise SlurmSilence(f"{what}: no answer within {timeout_s:g} s; look at `scontrol ping`") from None
        except OSError as error:
            raise AdapterError(f"{self._program}: cannot run: {error.strerror}; is slurm-client installed?") from None
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip().replace("\n", " ")
            kind = SlurmSilence if any(words in said for words in _UNREACHABLE) else SlurmRefusal
            raise kind(f"{what}: {said}")
        return done.stdout


def _row(line: str) -> dict[str, str]:
    """The first value of each key, but for the nodes of an allocation, whose words are kept together."""
    marks = list(_KEY.finditer(line))
    row: dict[str, str] = {}
    for at, mark in enumerate(marks):
        end = marks[at + 1].start() if at + 1 < len(marks) else len(line)
        value = line[mark.end() : end].strip()
        if mark[1] == "GRES":
            row["Nodes"] = f"{row.get('Nodes', '')} GRES={value}"
        else:
            row.setdefault(mark[1], value)
    return row


def _node(row: dict[str, str]) -> NodeRecord:
    return NodeRecord(
        name=row["NodeName"],
        state=row["State"],
        gres=_text(row["Gres"]),
        gres_used=_text(row.get("GresUsed", "")),
        n_cpus=int(row.get("CPUEfctv", row["CPUTot"])),
        n_cpus_used=int(row["CPUAlloc"]),
        memory_mb=int(row["RealMemory"]),
        memory_used_mb=int(row["AllocMem"]),
        features=_text(row["ActiveFeatures"]),
        comment=_text(row.get("Comment", "")),
    )


def _count(value: str) -> int:
    """`N/A` for what Slurm does not know any more."""
    return int(value) if value.isdigit() else 0


def _text(value: str) -> str:
    return "" if value == "(null)" else value


def _seconds(value: str) -> int:
    try:
        return int(datetime.fromisoformat(f"{value}+00:00").timestamp())
    except ValueError:
        return 0


def _minutes(value: str) -> int | None:
    """`2-03:04:05`, `UNLIMITED`."""
    found = re.fullmatch(r"(?:(\d+)-)?(\d+):(\d+):(\d+)", value)
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return days * 1440 + hours * 60 + minutes + (seconds > 0)


def _megabytes(value: str) -> int:
    found = re.fullmatch(r"([0-9.]+)([KMGT]?)", value)
    return int(float(found[1]) * _MEGABYTES[found[2] or "M"]) if found else 0
