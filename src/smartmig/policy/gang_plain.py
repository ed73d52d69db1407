"""What the plain twins of the whole-GPU rules see: ordinary objects, looked at one by one."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from smartmig.policy.gang_view import BRIEF_S, RUSH_S
from smartmig.policy.selection.known import KnownJobs


@dataclass
class PlainNode:
    """A machine."""

    index: int
    n_gpus: int
    model: int
    switch: int
    speed: float
    free: int
    n_away: int = 0
    """outages it is in"""
    until_s: dict[int, float] = field(default_factory=dict)
    """when each of its jobs will be ended by its limit"""


@dataclass
class PlainUser:
    """What a user has taken."""

    n_gpus: int = 0
    """held now"""
    used_gpu_s: float = 0.0
    """decayed, as of `since_s`"""
    since_s: float = 0.0

    def usage(self, now_s: float, half_life_s: float) -> float:
        """Decayed GPU-seconds up to now."""
        if now_s == self.since_s:
            return self.used_gpu_s
        rate = math.log(2.0) / half_life_s
        kept = math.exp(-rate * (now_s - self.since_s))
        return self.used_gpu_s * kept + self.n_gpus * (1.0 - kept) / rate


@dataclass
class PlainGang:
    """The cluster at one moment, as a rule may see it."""

    now_s: float
    nodes: list[PlainNode]
    jobs: KnownJobs
    queue: list[int]
    """jobs submitted and not started"""
    users: list[PlainUser]
    everyone: PlainUser
    mix: list[float]
    """decayed count of submitted jobs by size"""
    offered: list[int] = field(default_factory=list)
    """what the job being placed may have of each node"""
    place_s: float = 0.0
    """when it would start"""
    can_start: Callable[[int], bool] = bool
    """whether a queued job fits now without delaying the reserved one"""
    accepts: Callable[[int, int], bool] = lambda job, node: True  # noqa: ARG005
    """whether the job may run on the node's GPU model"""
    reserved: int | None = None
    """the job for which EASY keeps GPUs, within the present decision pass"""
    reserved_s: float = math.inf
    """when it can start"""
    guarded_s: float = -math.inf
    """when a learned rule's guard last started a job"""
    urgent: tuple[float, float] = (0.0, 0.0)
    """decayed count of urgent submissions, as of when"""

    def count_urgent(self, job: int) -> None:
        widest = max(node.n_gpus for node in self.nodes)
        if self.jobs.limit_s[job] <= BRIEF_S and 2 * self.jobs.n_gpus[job] > widest:
            self.urgent = self.rush() + 1.0, self.now_s

    def rush(self) -> float:
        count, since_s = self.urgent
        return count * math.exp((since_s - self.now_s) / RUSH_S)

    @property
    def n_gpus(self) -> int:
        return sum(node.n_gpus for node in self.nodes)
