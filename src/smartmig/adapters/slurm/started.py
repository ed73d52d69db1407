"""Which nodes a job was sent to, beyond what Slurm remembers.

A slurmctld that crashes forgets starts of its last seconds, and the jobs look held again; but a node does not forget
that it was given a job, and Slurm drains a node that gets a job of the same id a second time ("Duplicate jobid"). That
may be another job: a controller that lost its state counts anew. Such a job starts elsewhere, until the nodes have told
the controller what they have. Noted in a file before the start, so that it outlives us; the newest notes are enough.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from smartmig.atomic import atomic_write
from smartmig.types import JobKey

MAX_NOTES = 20_000
FORGOTTEN_S = 600.0
"""A controller that starts asks every node which jobs it has, and ends those that it does not know. A node that says
nothing for half as long (the default of SlurmdTimeout) is down."""


class Started:
    """Shared by those who start jobs and those who look."""

    def __init__(self, path: Path | None) -> None:
        self._path, self._lock = path, threading.Lock()
        self._nodes: dict[str, dict[str, float]] = {}
        """by job id, which is all that nodes know: when the job was last sent there"""
        if path is not None and path.exists():
            text = path.read_text(encoding="utf-8", errors="replace")
            if text and not text.endswith("\n"):
                # Whoever wrote the last line was killed; the next one must not stand in it.
                with suppress(OSError), path.open("a", encoding="utf-8") as file:
                    file.write("\n")
            lines = text.splitlines()
            for line in lines[-MAX_NOTES:]:
                with suppress(ValueError):
                    job_id, _, nodes, at_s = line.split(" ")
                    self._add(job_id, nodes.split(","), float(at_s))
            if len(lines) > MAX_NOTES:
                with suppress(OSError), atomic_write(path) as file:
                    file.write("\n".join(lines[-MAX_NOTES // 2 :]) + "\n")

    def note(self, key: JobKey, nodes: tuple[str, ...]) -> None:
        at_s = time.time()
        with self._lock:
            self._add(key.job_id, nodes, at_s)
            if self._path is not None:
                # Without the file a crash of both costs a drained node; that must not stop the start.
                with suppress(OSError), self._path.open("a", encoding="utf-8") as file:
                    file.write(f"{key.job_id} {key.submit_s:.0f} {','.join(nodes)} {at_s:.3f}\n")

    def forgotten(self, key: JobKey, boot_s: float, now_s: float) -> frozenset[str]:
        """Nodes that may have a job of that id though a controller that started then does not know it."""
        if now_s >= boot_s + FORGOTTEN_S or key.job_id not in self._nodes:
            return frozenset()
        # Slurm says when it started in whole seconds.
        return frozenset(node for node, at_s in self._nodes[key.job_id].items() if at_s < boot_s + 1.0)

    def _add(self, job_id: str, nodes: Iterable[str], at_s: float) -> None:
        self._nodes[job_id] = {**self._nodes.get(job_id, {}), **dict.fromkeys(nodes, at_s)}
        while len(self._nodes) > MAX_NOTES:
            del self._nodes[next(iter(self._nodes))]
