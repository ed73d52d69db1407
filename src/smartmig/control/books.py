"""What it cost so far, kept from one observation to the next: energy, waiting, lateness, and which jobs are done.

Energy is the cards' power curve at the observed load, summed over time: attributed, not measured. Whole GPUs of a model
without a curve count none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from smartmig.errors import SmartmigError
from smartmig.hardware.model import GpuModel, gpu_model
from smartmig.types import Action, ClusterState, JobKey, JobRequest, NodeState, RunningJob, Start

KEPT = 20_000
"""Finished jobs that are remembered for estimates."""


@dataclass(frozen=True)
class Finished:
    request: JobRequest
    start_s: float
    end_s: float
    """when it was first seen gone"""

    @property
    def late_s(self) -> float:
        return max(0.0, self.end_s - self.request.deadline_s)


@dataclass
class Books:
    """Sums since the first observation."""

    began_s: float = 0.0
    last_s: float = 0.0
    energy_j: float = 0.0
    busy_gpu_s: float = 0.0
    """whole GPUs held, and MIG compute slices in parts of a card, times seconds"""
    gpu_s: float = 0.0
    """those there were"""
    n_submitted: int = 0
    n_started: int = 0
    n_finished: int = 0
    waited_s: float = 0.0
    """of jobs that have started, together"""
    late_s: float = 0.0
    n_late: int = 0
    finished: deque[Finished] = field(default_factory=lambda: deque(maxlen=KEPT))
    _load: tuple[float, float, float] = (0.0, 0.0, 0.0)  # watts, busy GPUs, GPUs as of the last observation
    _seen: set[JobKey] = field(default_factory=set)
    _running: dict[JobKey, RunningJob] = field(default_factory=dict)
    _began: dict[JobKey, RunningJob] = field(default_factory=dict)
    _away: bool = False

    def began(self, jobs: Iterable[RunningJob]) -> None:
        """Starts that the cluster accepted; a short job may be gone before anyone looks."""
        self._began |= {job.request.key: job for job in jobs}

    def look_away(self) -> None:
        """Nobody looks until the next observation: who is gone by then ended nobody knows when, and is not counted as
        finished; what the time between has cost is not known either."""
        self._away = True

    def look(self, state: ClusterState) -> list[Finished]:
        """Add one observation; who has finished since the last one."""
        if self._away:
            self._come_back(state)
        if not self._seen and not self.last_s:
            self.began_s = self.last_s = state.time_s
        passed_s = max(0.0, state.time_s - self.last_s)
        self.energy_j += self._load[0] * passed_s
        self.busy_gpu_s += self._load[1] * passed_s
        self.gpu_s += self._load[2] * passed_s
        self.last_s = max(self.last_s, state.time_s)
        self._load = load_of(state)
        running = {job.request.key: job for job in state.running if job.managed}
        seen = {request.key for request in state.queued} | set(running)
        self.n_submitted += len(seen - self._seen)
        for key in list(self._began):
            if key in running:
                del self._began[key]
            elif key not in seen:
                running[key] = self._began.pop(key)
        for key, job in running.items():
            if key not in self._running:
                self.n_started += 1
                self.waited_s += max(0.0, job.start_s - key.submit_s)
        done = []
        for key, job in (self._running | running).items():
            if key not in seen:
                done.append(Finished(job.request, job.start_s, state.time_s))
        self.n_finished += len(done)
        for one in done:
            self.late_s += one.late_s
            self.n_late += one.late_s > 0
        self.finished.extend(done)
        self._seen, self._running = seen, {key: job for key, job in running.items() if key in seen}
        return done

    def _come_back(self, state: ClusterState) -> None:
        still = {job.request.key for job in state.running}
        self._running = {key: job for key, job in self._running.items() if key in still}
        self._began = {}  # who was started and runs is seen
        self._load = (0.0, 0.0, 0.0)
        self._away = False

    @property
    def mean_wait_s(self) -> float:
        return self.waited_s / self.n_started if self.n_started else 0.0

    @property
    def mean_late_s(self) -> float:
        return self.late_s / self.n_finished if self.n_finished else 0.0

    @property
    def busy_frac(self) -> float:
        return self.busy_gpu_s / self.gpu_s if self.gpu_s else 0.0


def load_of(state: ClusterState) -> tuple[float, float, float]:
    """Watts, GPUs in use, GPUs there are."""
    slices: dict[tuple[str, int], int] = {}
    held: dict[str, int] = {}
    profile = {
        (node.name, gpu, one.start): gpu_model(card.model).profile(one.profile).compute
        for node in state.nodes
        for gpu, card in enumerate(node.gpus)
        for one in card.instances
    }
    for job in state.running:
        for share in job.shares:
            held[share.node] = held.get(share.node, 0) + share.n_gpus
            if share.n_gpus == 0:
                at = (share.node, share.gpu)
                slices[at] = slices.get(at, 0) + profile.get((share.node, share.gpu, share.start), 0)
    watts, busy, there = 0.0, 0.0, 0.0
    for node in state.nodes:
        if node.state is NodeState.down:
            continue
        whole = known_card(node.gpu_model)
        n_held = min(held.get(node.name, 0), node.n_gpus)
        if whole is not None:
            curve = whole.power.watts
            watts += n_held * curve[-1] + (node.n_gpus - n_held) * curve[0]
        busy += n_held
        there += node.n_gpus
        for gpu, card in enumerate(node.gpus):
            model = gpu_model(card.model)
            n_busy = min(slices.get((node.name, gpu), 0), model.n_compute)
            watts += model.power.watts[n_busy]
            busy += n_busy / model.n_compute
            there += 1
    return watts, busy, there


def known_card(name: str) -> GpuModel | None:
    """The card of that name, if we have data for it."""
    try:
        return gpu_model(name) if name else None
    except SmartmigError:
        return None


def begun_jobs(state: ClusterState, actions: Iterable[Action]) -> list[RunningJob]:
    """The starts among these actions, decided about that state, as running jobs."""
    starts = {action.key: action for action in actions if isinstance(action, Start)}
    return [
        RunningJob(request, state.time_s, starts[request.key].shares)
        for request in state.queued
        if request.key in starts
    ]
