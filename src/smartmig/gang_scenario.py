"""A whole-GPU scenario: which jobs, on which nodes, under which policy."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from smartmig.hardware.nodes import NodeCluster, parse_nodes, read_outages
from smartmig.registry import REQUESTS, load
from smartmig.scenario import RuleSpec, allocation_rule, rule_id, selection_rule
from smartmig.sim.gang.run import check_backfill
from smartmig.sim.gang.world import Backfill, GangPolicy
from smartmig.types import GangJobs
from smartmig.workload.gang.filter import GangFilter
from smartmig.workload.gang.open import gang_trace
from smartmig.workload.gang.requests import with_requests
from smartmig.workload.trace_report import TraceReport


@dataclass(frozen=True)
class GangPolicySpec:
    """Who decides, by name."""

    selection: RuleSpec = "fcfs"
    allocation: RuleSpec = "best-fit"
    backfill: Backfill = Backfill.none

    @property
    def title(self) -> str:
        backfill = "strict" if self.backfill is Backfill.none else self.backfill.value
        return f"{_shown(self.selection)}, {_shown(self.allocation)}, {backfill}"

    def policy(self, where: str = "") -> GangPolicy:
        rules = selection_rule(self.selection, where), allocation_rule(self.allocation, where)
        policy = GangPolicy(*rules, self.backfill)
        check_backfill(policy)
        return policy


def _shown(rule: RuleSpec) -> str:
    """`id` or `id:knob=value`, as one writes it."""
    knobs = {} if isinstance(rule, str) else {knob: value for knob, value in rule.items() if knob != "id"}
    if "policy_file" in knobs:
        knobs["policy_file"] = Path(str(knobs["policy_file"])).name
    return ":".join([rule_id(rule), *([",".join(f"{knob}={value}" for knob, value in knobs.items())] if knobs else [])])


@dataclass(frozen=True)
class GangScenario:
    """Jobs and nodes."""

    trace: Path
    format: str | None = None
    """of the trace; None = as the file tells"""
    knobs: tuple[tuple[str, Any], ...] = ()
    """of the trace's reader"""
    chosen: GangFilter = field(default_factory=GangFilter)
    requests: str | None = None
    """model of requested times for jobs that have none; None = they have no limit"""
    nodes: str = "30x8"
    nodes_per_switch: int | None = None
    outages: Path | None = None

    @property
    def title(self) -> str:
        return f"{self.trace.name} on {self.nodes}"

    def cluster(self) -> NodeCluster:
        cluster = parse_nodes(self.nodes, self.nodes_per_switch)
        return replace(cluster, outages=read_outages(self.outages)) if self.outages is not None else cluster

    def jobs(self, seed: int) -> GangJobs:
        """The jobs; the seed is that of made-up requests."""
        return read_gang_jobs(self, seed)

    def rows(self) -> list[str]:
        """What became of the trace's rows, one fact a line."""
        jobs, report = _read(self.trace, self.format, self.knobs)
        left_out = self.chosen.apply(jobs)[1]
        return [*report.lines(), *(f"  left out {count}: {reason}" for reason, count in left_out.items())]

    def notes(self, jobs: GangJobs) -> tuple[str, ...]:
        """What a reader must know about the numbers."""
        if self.requests is not None:
            return (f"requested times that the trace lacks are made up: {self.requests}",)
        if (jobs.limit_s == float("inf")).any():
            return ("jobs without a requested time have no limit; nothing can be promised behind them (--requests)",)
        return ()


def read_gang_jobs(scenario: GangScenario, seed: int) -> GangJobs:
    """Read, give requests, filter: in this order, so that a job's request does not depend on the filter."""
    if scenario.requests is not None:
        load(REQUESTS, "request model", scenario.requests, "--requests")
    jobs, _ = _read(scenario.trace, scenario.format, scenario.knobs)
    if scenario.requests is not None:
        jobs = with_requests(jobs, scenario.requests, seed)
    return scenario.chosen.apply(jobs)[0]


@functools.lru_cache(maxsize=1)
def _read(trace: Path, name: str | None, knobs: tuple[tuple[str, Any], ...]) -> tuple[GangJobs, TraceReport]:
    """A comparison runs one trace many times."""
    return gang_trace(trace, name, **dict(knobs)).read()
