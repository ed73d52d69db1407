"""How one talks to Slurm: what both ways (libslurm, scontrol) can do, and a time limit on every call."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from smartmig.adapters.slurm.records import JobRecord, NodeRecord, PartitionRecord, ReservationRecord
from smartmig.errors import AdapterError

Answer = TypeVar("Answer")

CLOSE_S = 0.1
"""A thread with nothing to do ends much sooner."""


class SlurmRefusal(AdapterError):
    """Slurm answered, and said no."""


class SlurmSilence(AdapterError):
    """Slurm did not answer in time, or cannot be reached."""


@dataclass(frozen=True)
class Release:
    """How a job is let go."""

    mark: str
    """its administrator's comment from then on"""
    nodes: tuple[str, ...] | None = None
    """pinned there; empty = anywhere, None = as it was"""
    partition: str = ""
    """of those it named, only this one; empty = as it was"""
    begin_s: int = 0
    """not before; 0 = as it was"""
    nice: int | None = None
    """None = as it was"""


@dataclass(frozen=True)
class Hold:
    """How a job is held; its administrator's comment is `marks.HELD` from then on."""

    nodes: tuple[str, ...] | None = None
    """pinned there; empty = anywhere, None = as it was"""
    nice: int | None = None
    """None = as it was"""


class SlurmReads(Protocol):
    """Where nothing has changed since the last call of the same reader, the answer is the very same tuple."""

    def jobs(self, partition: str, timeout_s: float) -> tuple[JobRecord, ...]: ...

    def nodes(self, timeout_s: float) -> tuple[NodeRecord, ...]: ...

    def partitions(self, timeout_s: float) -> tuple[PartitionRecord, ...]: ...

    def reservations(self, timeout_s: float) -> tuple[ReservationRecord, ...]: ...

    def boot_s(self, timeout_s: float) -> int:
        """When the controller started."""
        ...

    def close(self) -> bool:
        """Nothing more can be asked. Whether nothing is under way any more, which may be asked again."""
        ...


class SlurmWrites(Protocol):
    """Each raises `SlurmRefusal` or `SlurmSilence`. A job is named as Slurm does: `12`, or `12_3` for an array task."""

    def job(self, job_id: int, timeout_s: float) -> tuple[JobRecord, ...]:
        """The records of one id as they are now: several for an array."""
        ...

    def release(self, job: str, release: Release, timeout_s: float) -> None:
        """Let the job start."""
        ...

    def hold(self, job: str, hold: Hold, timeout_s: float) -> None: ...

    def requeue(self, job: str, timeout_s: float) -> None: ...

    def node(self, name: str, timeout_s: float) -> NodeRecord: ...

    def set_node(self, name: str, gres: str, comment: str, timeout_s: float) -> None: ...

    def owes(self) -> bool:
        """Whether a call that was late is still under way."""
        ...

    def close(self) -> bool:
        """As that of `SlurmReads`."""
        ...


class TimedThread:
    """Runs calls one after another on a thread of its own, so that none can hang its caller.

    A call that is late goes on in the background; until it returns, further calls are refused at once.
    """

    def __init__(self, name: str) -> None:
        self._work: Callable[[], object] | None = None
        self._answer: object = None
        self._error: BaseException | None = None
        self._begin, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self._late = self._closed = False
        self._sending = threading.Lock()
        self._last: Callable[[], object] | None = None
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def call(self, work: Callable[[], Answer], timeout_s: float, what: str) -> Answer:
        with self._sending:
            if self._closed:
                raise SlurmSilence(f"the connection to slurmctld is closed ({what} not sent)")
            if self._late and not self._done.acquire(blocking=False):
                raise SlurmSilence(f"slurmctld still owes an answer to an earlier call ({what} not sent)")
            self._late = False
            self._work = work
            self._begin.release()
        if not self._done.acquire(timeout=max(timeout_s, 0.001)):
            self._late = True
            raise SlurmSilence(f"slurmctld did not answer within {timeout_s:g} s ({what}); look at `scontrol ping`")
        if self._error is not None:
            raise self._error
        return self._answer  # type: ignore[return-value]

    def owes(self) -> bool:
        """Whether a late call still goes on."""
        with self._sending:
            if self._late and self._done.acquire(blocking=False):
                self._late = False
            return self._late

    def close(self, last: Callable[[], object]) -> bool:
        """No more calls. Whether none is under way any more; as soon as none is, `last` is called on the thread."""
        with self._sending:
            if not self._closed:
                self._closed, self._last = True, last
                self._begin.release()
        self._thread.join(CLOSE_S)
        return not self._thread.is_alive()

    def _serve(self) -> None:
        while True:
            self._begin.acquire()
            work, self._work = self._work, None
            if work is None:
                break
            self._answer, self._error = None, None
            try:
                self._answer = work()
            except BaseException as error:
                self._error = error
            self._done.release()
        assert self._last is not None
        self._last()
