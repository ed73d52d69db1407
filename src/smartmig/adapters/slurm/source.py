"""Reads a Slurm cluster: polls, and says when something has changed."""

from __future__ import annotations

import logging
import threading
import time

from smartmig.adapters.slurm.calls import SlurmReads
from smartmig.adapters.slurm.records import JobRecord, NodeRecord, PartitionRecord
from smartmig.adapters.slurm.translate import Snapshot, Translator
from smartmig.errors import AdapterError
from smartmig.types import ClusterState, JobKey

STATIC_S = 0.5
"""How often partitions, reservations and the controller's start are looked at."""

log = logging.getLogger(__name__)


class Cooling:
    """Jobs that could not start, to be left alone for a while; shared by those who act and those who look."""

    def __init__(self) -> None:
        self._until: dict[JobKey, tuple[float, int]] = {}
        self._lock = threading.Lock()

    def leave(self, key: JobKey, now_s: float, first_s: float, longest_s: float) -> float:
        """For a while, that doubles each time; how long."""
        with self._lock:
            _, times = self._until.get(key, (0.0, 0))
            patience_s = min(first_s * 2.0**times, longest_s)
            self._until[key] = (now_s + patience_s, times + 1)
        return patience_s

    def forget(self, present: set[JobKey]) -> None:
        with self._lock:
            self._until = {key: value for key, value in self._until.items() if key in present}

    def untils(self) -> dict[JobKey, float]:
        with self._lock:
            return {key: until for key, (until, _) in self._until.items()}


class SlurmSource:
    """`ports.Source` over either way of asking."""

    def __init__(self, reads: SlurmReads, translator: Translator, cooling: Cooling, poll_s: float) -> None:
        self._reads, self._translator, self._cooling, self._poll_s = reads, translator, cooling, poll_s
        self._seen = Snapshot()
        self._fresh = False
        self._static_s = 0.0
        self._load_s = 0.0
        self._closed = threading.Event()
        self._rests = False
        self._said: frozenset[str] = frozenset()

    def observe(self, timeout_s: float) -> ClusterState:
        if not self._fresh:
            self._look(timeout_s)
        self._fresh = False
        now_s = time.time()
        state, said = self._translator.state(self._seen, now_s, self._cooling.untils())
        for sentence in said:
            if sentence not in self._said:
                log.warning(sentence)
        self._said = frozenset(said)
        return state

    def wait(self, timeout_s: float) -> bool:
        end_s = time.monotonic() + timeout_s
        while not self._closed.is_set():
            begun_s = time.monotonic()
            try:
                if self._look(max(end_s - begun_s, 1.0)):
                    self._fresh = True
                    return True
            except AdapterError:
                # `observe` finds out; meanwhile we do not knock faster than that.
                self._closed.wait(min(0.2, max(end_s - time.monotonic(), 0.0)))
            if self._rested():
                self._fresh = True
                return True
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                break
            # A controller with thousands of jobs is left alone for most of the time.
            self._closed.wait(min(left_s, max(self._poll_s, 2.0 * self._load_s)))
        return False

    def _rested(self) -> bool:
        """Whether the rest after the controller's start has just ended."""
        rests = time.time() < self._seen.boot_s + self._translator.reboot_s
        ended, self._rests = self._rests and not rests, rests
        return ended

    def nodes(self) -> dict[str, NodeRecord]:
        """As last seen, for those who act."""
        return {node.name: node for node in self._seen.nodes}

    def jobs(self) -> dict[int, JobRecord]:
        """As last seen."""
        return {record.job_id: record for record in self._seen.jobs}

    def close(self) -> None:
        """Also ends a `wait` on another thread."""
        self._closed.set()
        self._reads.close()

    def _look(self, timeout_s: float) -> bool:
        """Ask Slurm; whether anything differs from what we knew."""
        try:
            return self._ask(timeout_s)
        except AdapterError:
            # It may be another controller that answers next.
            self._static_s = 0.0
            raise

    def _ask(self, timeout_s: float) -> bool:
        begun_s = time.monotonic()
        end_s = begun_s + timeout_s
        before = self._seen
        jobs = self._reads.jobs(self._translator.partition, timeout_s)
        # Nodes after jobs: a node then never looks freer than the jobs we know make it.
        nodes = self._reads.nodes(end_s - time.monotonic())
        partition, reservations, boot_s = before.partition, before.reservations, before.boot_s
        if begun_s - self._static_s >= STATIC_S or partition is None:
            self._static_s = begun_s
            partition = self._partition(end_s)
            reservations = self._reads.reservations(end_s - time.monotonic())
            boot_s = self._reads.boot_s(end_s - time.monotonic())
        self._load_s = 0.0 if jobs is before.jobs else time.monotonic() - begun_s
        after = Snapshot(jobs, nodes, partition, reservations, boot_s)
        self._seen = after
        return not (
            _same(after.jobs, before.jobs)
            and _same(after.nodes, before.nodes)
            and after.partition == before.partition
            and after.reservations == before.reservations
        )

    def _partition(self, end_s: float) -> PartitionRecord:
        found = self._reads.partitions(end_s - time.monotonic())
        name = self._translator.partition
        ours = next((part for part in found if part.name == name), None)
        if ours is None:
            known = ", ".join(part.name for part in found)
            raise AdapterError(f"--partition: Slurm has no partition '{name}'. Known: {known}.")
        return ours


def _same(after: tuple[object, ...], before: tuple[object, ...]) -> bool:
    """Unchanged records are the same objects, so this is quick; scontrol makes new ones that compare equal."""
    if after is before:
        return True
    return len(after) == len(before) and all(new is old or new == old for new, old in zip(after, before, strict=True))
