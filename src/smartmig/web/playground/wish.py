"""What somebody wants to try, how much of it is allowed, and the scenario it stands for."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import yaml
from pydantic import BaseModel, ConfigDict, Field

from smartmig.adapters.simulated.feed import made_up_gangs
from smartmig.errors import InputError, UnknownName
from smartmig.gang_scenario import GangPolicySpec, GangScenario
from smartmig.hardware.cluster import parse_gpus
from smartmig.hardware.nodes import parse_nodes
from smartmig.registry import ALLOCATIONS, PLACEMENTS, REPARTITIONS, SELECTIONS
from smartmig.scenario import PAIRS, ClusterSpec, PolicySpec, Scenario
from smartmig.sim.gang.world import Backfill
from smartmig.types import GangJobs
from smartmig.workload.diurnal import HOURLY_RATE_PER_MIN
from smartmig.workload.gang.jobs_csv import write_gang_jobs

MOST_GPUS = 64
MOST_WHOLE_GPUS = 512
MOST_DAYS = 20
MOST_POLICIES = 6
MOST_JOBS = 500_000
"""Of all days and policies together: a minute or two of one core with the rules that do not look ahead."""

JOBS_PER_MULTIPLIER = 60.0 * sum(HOURLY_RATE_PER_MIN)
JOBS_PER_GPU = 22.0
"""Of a made-up whole-GPU day at load 1, when every job takes one GPU: the most there can be."""

REQUESTS = "menu-1h"
STRICT = ConfigDict(extra="forbid")

Id = Annotated[str, Field(max_length=60)]


class MigPolicyWish(BaseModel):
    """Which slice a job gets and how GPUs are cut, by their ids; or a pair that was trained together."""

    model_config = STRICT
    placement: Id = "categorical-edf"
    repartition: Id = "static"
    pair: Id | None = Field(default=None, description="in place of the two: joint")

    def spec(self, recut: Literal["paper", "drain"], preempt: bool) -> PolicySpec:
        # Ids only: a rule's knobs may name files of this machine.
        if self.pair is not None:
            if self.pair not in PAIRS:
                raise UnknownName("policy", self.pair, list(PAIRS), "policies")
            placement, repartition = PAIRS[self.pair]
            return PolicySpec(placement, repartition, self.pair, recut=recut, preempt=preempt)
        _known(PLACEMENTS, "placement", self.placement)
        _known(REPARTITIONS, "repartition", self.repartition)
        return PolicySpec(self.placement, self.repartition, recut=recut, preempt=preempt)


class MigWish(BaseModel):
    """Days of jobs on MIG GPUs."""

    model_config = STRICT
    world: Literal["mig"] = "mig"
    gpus: str = Field(default="8xa100-40gb", max_length=200, description="as in --gpus")
    multiplier: float = Field(default=20.0, gt=0, le=10_000, description="load of a day; 20 loads eight A100s")
    days: int = Field(default=3, ge=1, le=10**6)
    recut: Literal["paper", "drain"] = Field(
        default="paper", description="paper: a re-cut GPU is down 4 s; drain: idle instances only, beside running work"
    )
    preempt: bool = Field(default=True, description="every slice is decided anew at every event")
    policies: list[MigPolicyWish] = Field(min_length=1, max_length=50)

    def scenario(self) -> Scenario:
        """Raises `InputError` with one sentence for what is unknown or too much."""
        n_gpus = len(parse_gpus(self.gpus, "gpus"))
        n_jobs = JOBS_PER_MULTIPLIER * self.multiplier
        _at_most("gpus", n_gpus, MOST_GPUS, "GPUs")
        _bounded(self.days, len(self.policies), n_jobs)
        policies = tuple(one.spec(self.recut, self.preempt) for one in self.policies)
        _different([policy.title for policy in policies])
        return Scenario(
            version=1,
            title=f"Days of about {n_jobs:,.0f} jobs on {self.gpus}",
            cluster=ClusterSpec(self.gpus),
            workload={"id": "day", "multiplier": self.multiplier},
            policies=policies,
            seeds=self.days,
        )


class GangPolicyWish(BaseModel):
    """Which queued job is next, on which nodes, and what may pass one that does not fit."""

    model_config = STRICT
    selection: Id = "fcfs"
    allocation: Id = "best-fit"
    backfill: Backfill = Backfill.easy

    def spec(self) -> GangPolicySpec:
        _known(SELECTIONS, "selection", self.selection)
        _known(ALLOCATIONS, "allocation", self.allocation)
        return GangPolicySpec(self.selection, self.allocation, self.backfill)


class GangWish(BaseModel):
    """A made-up day of whole-GPU jobs on nodes, with made-up requested times for every seed."""

    model_config = STRICT
    world: Literal["gang"]
    nodes: str = Field(default="8x8", max_length=200, description="as in --nodes")
    load: float = Field(default=1.2, gt=0, le=10_000, description="1 keeps about 70 % of the GPUs busy")
    days: int = Field(default=3, ge=1, le=10**6, description="seeds of the requested times")
    policies: list[GangPolicyWish] = Field(min_length=1, max_length=50)

    def scenario(self) -> tuple[GangPolicySpec, ...]:
        """The policies; the jobs come with `trace`. Raises `InputError` for what is unknown or too much."""
        n_gpus = parse_nodes(self.nodes, None, "nodes").n_gpus
        _at_most("nodes", n_gpus, MOST_WHOLE_GPUS, "GPUs")
        _bounded(self.days, len(self.policies), JOBS_PER_GPU * self.load * n_gpus)
        policies = tuple(one.spec() for one in self.policies)
        _different([policy.title for policy in policies])
        return policies

    def trace(self, folder: Path) -> GangScenario:
        """The made-up day in a file, as `smartmig compare --world gang` reads it."""
        cluster = parse_nodes(self.nodes, None, "nodes")
        made = made_up_gangs(cluster.n_gpus, max(node.n_gpus for node in cluster.nodes), self.load, 0)
        jobs: GangJobs = replace(made, limit_s=np.full(len(made), math.inf))
        write_gang_jobs(jobs, folder / "made-up-day.csv")
        return GangScenario(folder / "made-up-day.csv", "csv", requests=REQUESTS, nodes=self.nodes)


Wish = Annotated[MigWish | GangWish, Field(discriminator="world")]


def scenario_text(scenario: Scenario) -> str:
    """The scenario as a file for `smartmig compare`."""
    plain: dict[str, Any] = {key: value for key, value in asdict(scenario).items() if value is not None}
    plain["cluster"] = {"gpus": scenario.cluster.gpus}
    usual = asdict(PolicySpec())
    plain["policies"] = [
        {"name": policy.title}
        | {key: value for key, value in asdict(policy).items() if key in ("placement", "repartition")}
        | {key: value for key, value in asdict(policy).items() if key != "name" and value != usual[key]}
        for policy in scenario.policies
    ]
    return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True)


def _known(table: Any, what: str, name: str) -> None:
    if name not in table:
        raise UnknownName(what, name, table, "policies")


def _different(titles: list[str]) -> None:
    if len(set(titles)) < len(titles):
        raise InputError(f"policies: two are the same: {next(t for t in titles if titles.count(t) > 1)}")


def _at_most(where: str, got: float, most: float, what: str) -> None:
    if got > most:
        raise InputError(f"{where}: got {got:,.0f} {what}, allowed here are {most:,}; `smartmig compare` has no limit")


def _bounded(n_days: int, n_policies: int, n_jobs: float) -> None:
    _at_most("days", n_days, MOST_DAYS, "days")
    _at_most("policies", n_policies, MOST_POLICIES, "policies")
    _at_most("days, policies and load", n_days * n_policies * n_jobs, MOST_JOBS, "jobs to simulate")
