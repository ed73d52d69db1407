"""Planner: try cuts in the simulator, take the best.

Whenever its base rule would be asked, the planner asks the base rule too, and then whether another cut is better: the
engine rolls every candidate forward against sampled arrivals, with the base rule re-cutting from then on
(`sim.mig.rollout`). Here are its knobs and what it tries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from smartmig.errors import InputError
from smartmig.hardware.cuts import CutTable
from smartmig.hardware.model import GpuModel
from smartmig.policy.plain import PlainView
from smartmig.policy.repartition.rule import RepartitionRule
from smartmig.policy.view import JobArrays, Kernel, State, World
from smartmig.registry import REPARTITIONS, load
from smartmig.types import Floats, Ints, Layout

NO_TWIN = "the planner has neither kernel nor plain twin: it searches with the engine itself, in `run.simulate` only"


def candidates(cuts: CutTable, state: State, proposal: Ints, reach: int, n_most: int) -> Ints:
    """(n, n_gpus) wanted configuration of each GPU, -1 = keep: what the base rule proposes, nothing at all, then one
    GPU to another configuration, small changes first.

    GPUs with the same cut differ in who runs on them: the one with least to lose stands for the others.
    """
    gpus = state.gpu
    keep = np.full(len(gpus), -1, dtype=np.int64)
    unsettled = (gpus["draining"] != 0) | (gpus["usable"] == 0)
    one_of: dict[int, int] = {}
    for gpu in np.lexsort((gpus["busy"], unsettled)):
        one_of.setdefault(int(gpus["config"][gpu]), int(gpu))
    moves = []
    for present, gpu in one_of.items():
        for other, config in enumerate(cuts.configs):
            more = abs(config.n_slices - cuts.configs[present].n_slices)
            if other != present and config.model == gpus["model"][gpu] and config.number is not None and more <= reach:
                moves.append((more, gpu, other))
    rows = [proposal, keep]
    for _, gpu, other in sorted(moves):
        row = keep.copy()
        row[gpu] = other
        rows.append(row)
    tried = list(dict.fromkeys(tuple(row.tolist()) for row in rows))
    return np.array(tried[:n_most], dtype=np.int64)


def searched(world: World, jobs: JobArrays, state: State, knobs: Floats) -> None:
    """In place of a kernel: the planner re-cuts, but what it decides it finds by running kernels."""
    raise NotImplementedError(NO_TWIN)


@dataclass(frozen=True)
class Planner:
    """Rolls cuts forward in the simulator against sampled arrivals and takes the best (ours)."""

    base: str = "slice-count"
    """the rule to improve on, by id: says when to look, what to do by default, and re-cuts within the look ahead"""
    every: int = 4
    """plan at every so many-th look; in between the base rule decides alone"""
    horizon_s: float = 3600.0
    """how far to look ahead; too short is worse than not at all, because a backlog is paid for later"""
    n_samples: int = 8
    """futures the best candidates are tried on; every candidate sees the same ones"""
    n_first: int = 2
    """futures after which the worse half of the candidates drops out; the next half after twice as many"""
    reach: int = 2
    """try configurations with at most so many slices more or fewer"""
    n_candidates: int = 60
    """at most so many are tried, small changes first"""
    sureness: float = 1.0
    """standard errors by which a cut must beat the base rule's to be taken"""
    energy_weight: float = 8.3e-4
    """what a watt-minute is worth in minutes of tardiness, as in `marginal-et`"""
    rate_window_s: float = 1800.0
    """the arrival rate is that of the last so many seconds"""
    n_history: int = 2000
    """sampled jobs are drawn from so many latest arrivals"""
    min_history: int = 30
    """the base rule decides alone until so many jobs have arrived"""
    budget_s: float = 0.0
    """wall time for one decision, for live use; 0 = as long as it takes, so that a run can be repeated exactly"""

    control: ClassVar[Kernel | None] = searched
    counted: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if load(REPARTITIONS, "repartition", self.base, "planner.base").control in (None, searched):
            raise InputError(f"planner.base: '{self.base}' has no kernel to look ahead with; slice-count has")
        for name in ("every", "n_first", "n_samples", "n_candidates", "n_history", "min_history"):
            least = 2 if name == "n_samples" else 1  # one sample says nothing about chance
            if getattr(self, name) < least:
                raise InputError(f"planner.{name} must be at least {least}, got {getattr(self, name)}")
        for name in ("horizon_s", "rate_window_s"):
            if not getattr(self, name) > 0:
                raise InputError(f"planner.{name} must be above 0, got {getattr(self, name):g}")
        for name in ("reach", "sureness", "energy_weight", "budget_s"):
            if not getattr(self, name) >= 0:
                raise InputError(f"planner.{name} must be 0 or more, got {getattr(self, name):g}")

    @property
    def base_rule(self) -> RepartitionRule:
        """The base rule with its own defaults."""
        rule: RepartitionRule = load(REPARTITIONS, "repartition", self.base)()
        return rule

    def period_s(self) -> float:
        return self.base_rule.period_s()

    def every_events(self, n_gpus: int) -> int:
        return self.base_rule.every_events(n_gpus)

    def start(self, gpus: Sequence[GpuModel]) -> tuple[Layout, ...]:
        return self.base_rule.start(gpus)

    def knobs(self, cuts: CutTable, world: World) -> Floats:
        return self.base_rule.knobs(cuts, world)

    def reachable(self, cuts: CutTable) -> tuple[int, ...]:
        return self.base_rule.reachable(cuts)  # other cuts are tried, but only these are sure to come

    def plain_control(self, view: PlainView, cuts: CutTable, config: list[int]) -> list[int]:
        raise NotImplementedError(NO_TWIN)
