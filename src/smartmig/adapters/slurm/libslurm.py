"""Slurm through its own library: ctypes over the shim that `smartmig slurm install` builds on the machine."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path

from smartmig.adapters.slurm import marks
from smartmig.adapters.slurm.calls import Hold, Release, SlurmRefusal, SlurmSilence, TimedThread
from smartmig.adapters.slurm.records import (
    JobRecord,
    NodeRecord,
    PartitionRecord,
    Record,
    RecordReader,
    ReservationRecord,
)
from smartmig.errors import AdapterError

LIBRARY = "libslurm.so"
NO_CHANGE = -1
SAME_NICE = -(2**31)
UNREACHABLE = frozenset((*range(1800, 1804), *range(5000, 5006)))
"""Errors of slurm_errno.h that mean the controller was not reached: "SLURMCTLD_COMMUNICATIONS" and "SOCKET"."""


def load_shim(path: Path, conf: Path | None) -> ctypes.CDLL:
    """The shim, ready for calls. `AdapterError` says what is missing."""
    if not path.exists():
        raise AdapterError(f"{path}: the shim is not there; build it with `smartmig slurm install`")
    try:
        # Slurm's own plug-ins look for its symbols in the global table.
        ctypes.CDLL(LIBRARY, mode=os.RTLD_GLOBAL | os.RTLD_NOW)
        shim = ctypes.CDLL(str(path))
    except OSError as error:
        raise AdapterError(f"{path}: cannot be loaded: {error}; build it again with `smartmig slurm install`") from None
    try:
        shim.smartmig_open.restype = ctypes.c_void_p
        shim.smartmig_forget.restype = None
        shim.smartmig_error.restype = ctypes.c_char_p
        shim.smartmig_length.restype = ctypes.c_long
        shim.smartmig_text.restype = ctypes.c_void_p
        shim.smartmig_close.restype = None
    except AttributeError:
        raise AdapterError(f"{path}: is of another release; build it again with `smartmig slurm install`") from None
    shim.smartmig_init(os.fsencode(conf) if conf is not None else None)
    return shim


class LibSlurm:
    """Reads and writes through one handle, on one thread. Open one for each part of the program that calls."""

    def __init__(self, shim: ctypes.CDLL, name: str) -> None:
        self._shim = shim
        self._handle = ctypes.c_void_p(shim.smartmig_open())
        self._thread = TimedThread(f"slurm-{name}")
        self._jobs, self._nodes = RecordReader(JobRecord), RecordReader(NodeRecord)
        self._partitions, self._reservations = RecordReader(PartitionRecord), RecordReader(ReservationRecord)

    def jobs(self, partition: str, timeout_s: float) -> tuple[JobRecord, ...]:
        name = partition.encode()
        return self._read("jobs", lambda: self._shim.smartmig_jobs(self._handle, name), self._jobs, timeout_s)

    def nodes(self, timeout_s: float) -> tuple[NodeRecord, ...]:
        return self._read("nodes", lambda: self._shim.smartmig_nodes(self._handle), self._nodes, timeout_s)

    def partitions(self, timeout_s: float) -> tuple[PartitionRecord, ...]:
        call = self._shim.smartmig_partitions
        return self._read("partitions", lambda: call(self._handle), self._partitions, timeout_s)

    def reservations(self, timeout_s: float) -> tuple[ReservationRecord, ...]:
        call = self._shim.smartmig_reservations
        return self._read("reservations", lambda: call(self._handle), self._reservations, timeout_s)

    def boot_s(self, timeout_s: float) -> int:
        boot = ctypes.c_long(0)
        self._write("the controller's start", lambda: self._shim.smartmig_boot(ctypes.byref(boot)), timeout_s)
        return boot.value

    def job(self, job_id: int, timeout_s: float) -> tuple[JobRecord, ...]:
        reader = RecordReader(JobRecord)
        call = self._shim.smartmig_job
        return self._read(f"job {job_id}", lambda: call(self._handle, ctypes.c_uint(job_id)), reader, timeout_s)

    def release(self, job: str, release: Release, timeout_s: float) -> None:
        words = job.encode(), _nodes(release.nodes), release.partition.encode(), release.mark.encode()
        numbers = ctypes.c_long(release.begin_s), _nice(release.nice)
        call = self._shim.smartmig_release
        self._write(f"release of job {job}", lambda: call(*words, *numbers), timeout_s)

    def hold(self, job: str, hold: Hold, timeout_s: float) -> None:
        words = job.encode(), marks.HELD.encode(), _nodes(hold.nodes), _nice(hold.nice)
        self._write(f"hold of job {job}", lambda: self._shim.smartmig_hold(*words), timeout_s)

    def requeue(self, job: str, timeout_s: float) -> None:
        self._write(f"requeue of job {job}", lambda: self._shim.smartmig_requeue(job.encode()), timeout_s)

    def node(self, name: str, timeout_s: float) -> NodeRecord:
        for record in self.nodes(timeout_s):
            if record.name == name:
                return record
        raise SlurmRefusal(f"node {name} is not known to Slurm")

    def set_node(self, name: str, gres: str, comment: str, timeout_s: float) -> None:
        words = [text.encode() for text in (name, gres, comment)]
        self._write(f"update of node {name}", lambda: self._shim.smartmig_set_node(*words), timeout_s)

    def owes(self) -> bool:
        return self._thread.owes()

    def close(self) -> bool:
        return self._thread.close(lambda: self._shim.smartmig_close(self._handle))

    def _read(
        self, what: str, call: Callable[[], int], reader: RecordReader[Record], timeout_s: float
    ) -> tuple[Record, ...]:
        def work() -> tuple[Record, ...]:
            # Kept where Slurm's time of it is kept, so that an answer for which nobody waits any more is not lost.
            try:
                code = call()
                if code == NO_CHANGE and reader.last is not None:
                    return reader.last
                if code == NO_CHANGE:
                    self._shim.smartmig_forget(self._handle)
                    code = call()
                self._check(code, what)
                length = self._shim.smartmig_length(self._handle)
                text = ctypes.string_at(self._shim.smartmig_text(self._handle), length)
                return reader.read(text.decode(errors="replace"))
            except BaseException:
                # Perhaps it was half read, or another controller answers next.
                self._shim.smartmig_forget(self._handle)
                raise

        return self._thread.call(work, timeout_s, what)

    def _write(self, what: str, call: Callable[[], int], timeout_s: float) -> None:
        self._thread.call(lambda: self._check(call(), what), timeout_s, what)

    def _check(self, code: int, what: str) -> None:
        if code != 0:
            text = (self._shim.smartmig_error(code) or b"").decode(errors="replace")
            kind = SlurmSilence if code in UNREACHABLE else SlurmRefusal
            raise kind(f"{what}: {text} ({code})")


def _nodes(nodes: tuple[str, ...] | None) -> bytes | None:
    return None if nodes is None else ",".join(nodes).encode()


def _nice(nice: int | None) -> ctypes.c_int:
    return ctypes.c_int(SAME_NICE if nice is None else nice)
