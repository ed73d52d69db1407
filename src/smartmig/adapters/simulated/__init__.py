"""The embedded default: a simulated cluster behind the same two ports as a real one.

It cannot do: dependencies, job arrays, limits, reservations, jobs on nodes by name. All else is as on a real one,
only faster: `speedup` simulated seconds pass in one real second.
"""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass

from smartmig.adapters.simulated.cluster import Arrival, Edge, SimulatedCluster
from smartmig.adapters.simulated.feed import feed, gang_arrivals, mig_arrivals, mig_nodes, whole_nodes
from smartmig.errors import InputError
from smartmig.ports import Connection
from smartmig.types import ClusterState, Outcome, Plan

__all__ = [
    "Arrival",
    "Edge",
    "Simulated",
    "SimulatedCluster",
    "connect",
    "gang_arrivals",
    "mig_arrivals",
    "mig_nodes",
    "whole_nodes",
]

NO_SPEED_LIMIT = 0.0
MOST_LOAD = 10_000
"""A day of more jobs takes longer to make up than to live through."""


@dataclass(frozen=True)
class Simulated:
    """A cluster fed by a made-up or recorded workload."""

    gpus: str = ""
    """MIG cards, as in `--gpus`; empty, and no nodes either: 8xa100-40gb"""
    layouts: str = "1,1,2,3,3,5,5,10"
    """how they are cut at first, as in `--layouts`"""
    nodes: str = ""
    """instead of MIG cards: nodes of whole GPUs, as in `--nodes`, e.g. `4x8:a100`"""
    jobs: str = ""
    """file of jobs (MIG jobs or whole-GPU jobs, by what the cluster is made of); empty: made up, day after day"""
    load: float = 1.0
    """how many times the usual made-up jobs come"""
    seed: int = 0
    speedup: float = 60.0
    """simulated seconds per second; 0 = as fast as it goes: time jumps from event to event"""
    start_h: float = 8.0
    """hour of the day at which it begins"""

    def open(self) -> Connection:
        if not 0 <= self.speedup < math.inf or not 0 < self.load < math.inf:
            got = f"got speedup {self.speedup:g} and load {self.load:g}"
            raise InputError(f"simulated: {got}; speedup is a number from 0 up, load one above 0")
        if not 0 <= self.seed < 2**63:
            raise InputError(f"simulated: seed: got {self.seed}, allowed are 0 to {2**63 - 1}")
        if not 0 <= self.start_h <= 24 or self.load > MOST_LOAD:
            got = f"got start_h {self.start_h:g} and load {self.load:g}"
            raise InputError(f"simulated: {got}; start_h is an hour from 0 to 24, load at most {MOST_LOAD:,}")
        if self.gpus and self.nodes:
            raise InputError("simulated: give either gpus (MIG cards) or nodes (whole GPUs), not both")
        nodes = whole_nodes(self.nodes) if self.nodes else mig_nodes(self.gpus or "8xa100-40gb", self.layouts or None)
        start_s = self.start_h * 3600.0
        arrivals = feed(nodes, bool(self.nodes), self.jobs, self.load, self.seed, start_s)
        return connect(SimulatedCluster(nodes, arrivals, start_s=start_s), self.speedup)


def connect(cluster: SimulatedCluster, speedup: float) -> Connection:
    """Ports onto a cluster of one's own."""
    shared = _Shared(cluster, speedup)
    return Connection(SimulatedSource(shared), SimulatedActuator(shared), shared)


class _Shared:
    """The cluster, its lock and its clock."""

    def __init__(self, cluster: SimulatedCluster, speedup: float) -> None:
        self.cluster = cluster
        self.speedup = speedup
        self.lock = threading.Lock()
        self.changed = threading.Event()
        self.zero_s = cluster.time_s
        self.began_s: float | None = None
        """on our own clock: time stands still until somebody waits for it to pass; a first start compiles for long"""

    def now_s(self) -> float:
        if self.speedup == NO_SPEED_LIMIT:
            return self.cluster.time_s
        passed_s = 0.0 if self.began_s is None else time.monotonic() - self.began_s
        return self.zero_s + passed_s * self.speedup


class SimulatedSource:
    """Reads; and lets time pass, up to what the clock shows."""

    def __init__(self, shared: _Shared) -> None:
        self.shared = shared

    def observe(self, timeout_s: float) -> ClusterState:  # noqa: ARG002
        with self.shared.lock:
            if self.shared.speedup != NO_SPEED_LIMIT:
                self.shared.cluster.advance_to(self.shared.now_s())
            return self.shared.cluster.observe()

    def wait(self, timeout_s: float) -> bool:
        """`timeout_s` in seconds of the cluster."""
        shared = self.shared
        with shared.lock:
            if shared.began_s is None:
                shared.began_s = time.monotonic()
            now_s = shared.now_s()
            next_s = min(shared.cluster.next_event_s, now_s + timeout_s)
            if shared.speedup == NO_SPEED_LIMIT:
                if next_s == math.inf:
                    return False
                return shared.cluster.advance_to(next_s) > 0
        pause_s = max(0.0, (next_s - now_s) / shared.speedup) if next_s < math.inf else 3600.0
        shared.changed.wait(pause_s)
        shared.changed.clear()
        return next_s < now_s + timeout_s

    def close(self) -> None:
        self.shared.changed.set()


class SimulatedActuator:
    """Acts."""

    def __init__(self, shared: _Shared) -> None:
        self.shared = shared

    def apply(self, plan: Plan, timeout_s: float) -> tuple[Outcome, ...]:  # noqa: ARG002
        with self.shared.lock:
            outcomes = self.shared.cluster.apply(plan)
        self.shared.changed.set()
        return outcomes

    def let_go(self, timeout_s: float) -> int:  # noqa: ARG002
        with self.shared.lock:
            return self.shared.cluster.let_go()

    def take_over(self, timeout_s: float) -> int:  # noqa: ARG002
        with self.shared.lock:
            return self.shared.cluster.take_over()

    def close(self) -> None:
        return
