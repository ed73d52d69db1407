"""Slurm through its commands: slower, but needs nothing built. One process per call, each with a time limit.

`scontrol show -o` puts a record on a line of `Key=Value` words; values may hold blanks, so the known keys tell where
one ends. That is enough for nodes, partitions and reservations, which operators write; jobs are read as `squeue.py`
says. Starting takes two calls, because `scontrol update` refuses a priority for a held job.
"""

from __future__ import annotations

import logging
import os
import re
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from smartmig.adapters.slurm import marks
from smartmig.adapters.slurm.calls import Hold, Release, SlurmRefusal, SlurmSilence
from smartmig.adapters.slurm.records import JobRecord, NodeRecord, PartitionRecord, ReservationRecord
from smartmig.adapters.slurm.scales import minutes, seconds, text
from smartmig.adapters.slurm.squeue import COLUMNS, LIVE, WIDER, cut_off, read_job, read_table, split_records, wanted
from smartmig.adapters.slurm.states import PARTITION_DOWN, PARTITION_STARTS, PARTITION_UP, JobState
from smartmig.errors import AdapterError

_KEY = re.compile(r"(?:^| )([A-Z][A-Za-z]*(?:[:/][A-Za-z:/]+)?)=")
_UNREACHABLE = ("Unable to contact slurm controller", "Connection refused", "Socket timed out", "Zero Bytes were")
SCONTROL, SQUEUE = "scontrol", "squeue"
SHOW_JOB = ["show", "-a", "-d", "-o", "job"]
N_AT_ONCE = 500
"""jobs that are asked for by name in one call"""

Record = TypeVar("Record")

log = logging.getLogger(__name__)


class Scontrol:
    """Reads and writes; nothing is kept between calls, so nothing is ever "unchanged"."""

    def __init__(self, conf: Path | None, folder: Path | None = None) -> None:
        self._env = {name: value for name, value in os.environ.items() if not name.startswith("SQUEUE_")}
        self._env |= {"TZ": "UTC", "LC_ALL": "C", "SLURM_TIME_FORMAT": "standard", "SLURM_BITSTR_LEN": "0"}
        if conf is not None:
            self._env["SLURM_CONF"] = str(conf)
        self._folder = folder
        self._hosts: dict[str, tuple[str, ...]] = {"": (), "(null)": ()}
        self._left: set[int] = set()
        """jobs that cannot be read"""

    def jobs(self, partition: str, timeout_s: float) -> tuple[JobRecord, ...]:
        end_s = time.monotonic() + timeout_s
        rows = self._rows([], end_s)
        # After squeue: what it shows beyond that came later, while what somebody wrote for a job to come would be read
        # as its record the other way round.
        shown = split_records(self._run(SHOW_JOB, _left_s(end_s)), rows) if rows else {}
        self._left &= set(rows)
        live = {
            job_id: row
            for job_id, row in rows.items()
            if row["State"] in LIVE
            and (row["State"] != JobState.PENDING or partition in text(row["Partition"]).split(","))
        }
        return self._records(live, shown, end_s)

    def job(self, job_id: int, timeout_s: float) -> tuple[JobRecord, ...]:
        end_s = time.monotonic() + timeout_s
        rows = self._rows(["-j", str(job_id)], end_s)
        shown = split_records(self._run([*SHOW_JOB, str(job_id)], _left_s(end_s)), rows)
        return self._records(rows, shown, end_s)

    def nodes(self, timeout_s: float) -> tuple[NodeRecord, ...]:
        return self._show(["show", "-a", "-d", "-o", "node"], _node, timeout_s)

    def node(self, name: str, timeout_s: float) -> NodeRecord:
        for record in self._show(["show", "-d", "-o", "node", name], _node, timeout_s):
            return record
        raise SlurmRefusal(f"node {name} is not known to Slurm")

    def partitions(self, timeout_s: float) -> tuple[PartitionRecord, ...]:
        def read(row: Mapping[str, str]) -> PartitionRecord:
            nodes = self._names(row["Nodes"], timeout_s)
            state = PARTITION_UP if row["State"] in PARTITION_STARTS else PARTITION_DOWN
            return PartitionRecord(row["PartitionName"], state, nodes, minutes(row["MaxTime"]))

        return self._show(["show", "-a", "-o", "partition"], read, timeout_s)

    def reservations(self, timeout_s: float) -> tuple[ReservationRecord, ...]:
        def read(row: Mapping[str, str]) -> ReservationRecord:
            nodes = self._names(row["Nodes"], timeout_s)
            return ReservationRecord(row["ReservationName"], nodes, seconds(row["StartTime"]), seconds(row["EndTime"]))

        return self._show(["show", "-o", "reservation"], read, timeout_s)

    def boot_s(self, timeout_s: float) -> int:
        found = re.search(r"^BOOT_TIME\s*=\s*(\S+)", self._run(["show", "config"], timeout_s), re.MULTILINE)
        return seconds(found[1]) if found else 0

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

    def owes(self) -> bool:
        """A command that is late is ended."""
        return False

    def close(self) -> bool:
        """Nothing is open."""
        return True

    def _rows(self, words: list[str], end_s: float) -> dict[int, dict[str, str]]:
        """By job. What may have been cut off is asked for again, in wider columns."""
        rows = self._table(words, COLUMNS, end_s)
        cut = {job_id: names for job_id, row in rows.items() if (names := cut_off(row, COLUMNS))}
        columns = sorted(set[str]().union(*cut.values()))
        wider = {"JobID": COLUMNS["JobID"], **{name: COLUMNS[name] * WIDER for name in columns}}
        ids = list(cut)
        for at in range(0, len(ids), N_AT_ONCE):
            some = ids[at : at + N_AT_ONCE]
            found: dict[int, dict[str, str]] = {}
            with suppress(SlurmRefusal):  # they went meanwhile
                found = self._table(["-j", ",".join(map(str, some))], wider, end_s)
            for job_id in some:
                row = rows.pop(job_id)
                if cut_off(found.get(job_id, {}), wider):
                    self._leave(job_id, "its texts are too long")
                elif job_id in found:
                    rows[job_id] = row | found[job_id]
        return rows

    def _table(self, words: list[str], widths: Mapping[str, int], end_s: float) -> dict[int, dict[str, str]]:
        # Without `--array-unique` it shows tasks that somebody holds together with those that wait.
        options = ["-a", "-h", "-t", "all", "--array-unique", "--noconvert", *words, "-O", wanted(widths)]
        try:
            return {int(row["JobID"]): row for row in read_table(self._run(options, _left_s(end_s), SQUEUE), widths)}
        except ValueError as error:
            raise AdapterError(f"squeue: {error}") from None

    def _records(self, rows: dict[int, dict[str, str]], shown: dict[int, str], end_s: float) -> tuple[JobRecord, ...]:
        """Of these rows, as far as they can be read."""
        records = []
        for job_id, row in rows.items():
            try:
                one = shown[job_id] if job_id in shown else self._shown(job_id, rows, end_s)
                records.append(read_job(row, one, lambda ranges: self._names(ranges, _left_s(end_s))))
            except ValueError as error:
                self._leave(job_id, str(error))
            except SlurmRefusal:
                continue  # it went meanwhile
        return tuple(records)

    def _shown(self, job_id: int, rows: dict[int, dict[str, str]], end_s: float) -> str:
        """The record of one job, of which it was not sure where it begins and ends among the others."""
        shown = self._run([*SHOW_JOB, str(job_id)], _left_s(end_s))
        if rows[job_id]["ArrayTaskID"] == "N/A":
            return shown
        array = rows[job_id]["ArrayJobID"]
        return split_records(shown, {one for one, row in rows.items() if row["ArrayJobID"] == array}).get(job_id, "")

    def _leave(self, job_id: int, why: str) -> None:
        if job_id not in self._left:
            self._left.add(job_id)
            log.warning("job %d is left alone: %s", job_id, why)

    def _names(self, ranges: str, timeout_s: float) -> tuple[str, ...]:
        """`node[1-3]` as names; Slurm itself knows how."""
        if ranges not in self._hosts:
            listed = self._run(["show", "hostnames", ranges], timeout_s) if "[" in ranges else ranges.replace(",", "\n")
            self._hosts[ranges] = tuple(listed.split())
        return self._hosts[ranges]

    def _show(
        self, words: list[str], read: Callable[[Mapping[str, str]], Record], timeout_s: float
    ) -> tuple[Record, ...]:
        shown = self._run(words, timeout_s)
        try:
            return tuple(read(_row(line)) for line in shown.splitlines() if "=" in line)
        except (KeyError, ValueError) as error:
            raise AdapterError(f"{SCONTROL} {' '.join(words)}: cannot be read: {error}") from None

    def _run(self, words: list[str], timeout_s: float, name: str = SCONTROL) -> str:
        """What it printed, a character for each byte."""
        what = " ".join([name, *words[:2]])
        program = str(self._folder / name) if self._folder is not None else name
        try:
            done = subprocess.run(
                [program, *words],
                env=self._env,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise SlurmSilence(f"{what}: no answer within {timeout_s:g} s; look at `scontrol ping`") from None
        except OSError as error:
            raise AdapterError(f"{program}: cannot run: {error.strerror}; is slurm-client installed?") from None
        if done.returncode != 0:
            said = (done.stderr or done.stdout).decode(errors="replace").strip().replace("\n", " ")
            kind = SlurmSilence if any(words in said for words in _UNREACHABLE) else SlurmRefusal
            raise kind(f"{what}: {said}")
        return done.stdout.decode("latin-1")


def _row(line: str) -> dict[str, str]:
    """The first value of each key."""
    found = list(_KEY.finditer(line))
    row: dict[str, str] = {}
    for at, key in enumerate(found):
        end = found[at + 1].start() if at + 1 < len(found) else len(line)
        row.setdefault(key[1], line[key.end() : end].strip())
    return row


def _node(row: Mapping[str, str]) -> NodeRecord:
    return NodeRecord(
        name=row["NodeName"],
        state=row["State"],
        gres=text(row["Gres"]),
        gres_used=text(row.get("GresUsed", "")),
        n_cpus=int(row.get("CPUEfctv", row["CPUTot"])),
        n_cpus_used=int(row["CPUAlloc"]),
        memory_mb=int(row["RealMemory"]),
        memory_used_mb=int(row["AllocMem"]),
        features=text(row["ActiveFeatures"]),
        comment=text(row.get("Comment", "")),
    )


def _left_s(end_s: float) -> float:
    return max(end_s - time.monotonic(), 0.001)
