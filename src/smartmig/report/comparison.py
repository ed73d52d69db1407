"""What a report shows: policies that ran the same seeds, and one day of one policy in full."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from smartmig.errors import InputError, UnknownName
from smartmig.metrics.summary import Summary
from smartmig.types import Floats, Jobs, Run


@dataclass(frozen=True)
class PolicyRuns:
    """One policy on every seed of a comparison."""

    name: str
    summaries: tuple[Summary, ...]
    """aligned with `Comparison.seeds`"""


@dataclass(frozen=True)
class Comparison:
    """Policies on the same seeds; the first one is the baseline of every relative change."""

    title: str
    seeds: tuple[int, ...]
    policies: tuple[PolicyRuns, ...]
    notes: tuple[str, ...] = ()
    bound_energy_j: tuple[float, ...] | None = None
    """per seed, energy that no schedule can go below"""
    bound_et: tuple[float, ...] | None = None
    """per seed, ET that no schedule can go below"""

    def __post_init__(self) -> None:
        if not self.seeds or not self.policies:
            raise InputError(f"{self.title}: a comparison needs at least one seed and one policy")
        names = [policy.name for policy in self.policies]
        if len(set(names)) != len(names):
            raise InputError(f"{self.title}: policy names must differ, got {', '.join(names)}")
        for policy in self.policies:
            if len(policy.summaries) != len(self.seeds):
                raise InputError(
                    f"{self.title}: {policy.name} has {len(policy.summaries)} runs for {len(self.seeds)} seeds"
                )
        for _, _, bounds in self.bounds():
            if len(bounds) != len(self.seeds):
                raise InputError(f"{self.title}: {len(bounds)} bounds for {len(self.seeds)} seeds")

    def bounds(self) -> list[tuple[str, str, tuple[float, ...]]]:
        """(heading, field of `Summary`, bound per seed) of every bound there is."""
        known = (("energy", "energy_j", self.bound_energy_j), ("ET", "et", self.bound_et))
        return [(heading, field, bound) for heading, field, bound in known if bound is not None]

    @property
    def baseline(self) -> str:
        return self.policies[0].name

    def values(self, policy: str, field: str) -> Floats:
        """(n_seeds,) one number of `Summary` for each seed. Raises `UnknownName` for a policy that did not run."""
        for runs in self.policies:
            if runs.name == policy:
                return np.array([getattr(summary, field) for summary in runs.summaries], dtype=float)
        raise UnknownName("policy", policy, [runs.name for runs in self.policies], self.title)


@dataclass(frozen=True, eq=False)
class SampleDay:
    """One run of one policy with everything it did, to be drawn."""

    policy: str
    jobs: Jobs
    run: Run
    """with `segments` recorded"""
    gpu_names: tuple[str, ...]
    watts: tuple[tuple[float, ...], ...]
    """per GPU, power by busy compute slices: `watts[gpu][busy]`"""
    memory_slices: tuple[int, ...]
    """per GPU, how many memory slices it has"""

    def __post_init__(self) -> None:
        if self.run.segments is None:
            raise InputError(f"{self.policy}: a sample day needs its segments; simulate it with recording on")
        if not len(self.gpu_names) == len(self.watts) == len(self.memory_slices):
            raise InputError(
                f"{self.policy}: {len(self.gpu_names)} GPU names, {len(self.watts)} power curves and "
                f"{len(self.memory_slices)} memory sizes; one of each per GPU is needed"
            )
