"""S4: whole GPUs on nodes, nine baselines against two agents that select and allocate.

The published trace is not public. Helios Venus, a Slurm cluster of its size, stands in; its requests are made up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from smartmig.compare import Progress
from smartmig.errors import InputError
from smartmig.gang_compare import compare_gangs
from smartmig.gang_scenario import GangPolicySpec, GangScenario
from smartmig.hardware.nodes import parse_nodes
from smartmig.metrics.gang import busy_windows, saturated, saturated_utilisation, summarise, utilisation
from smartmig.metrics.statistics import Estimate, estimate, relative_change
from smartmig.report.gang_fairness import fairness_json, fairness_rows, fairness_table
from smartmig.report.gang_page import gang_parts
from smartmig.report.gang_tables import (
    GangComparison,
    comparison_rows,
    gang_comparison_json,
    gang_comparison_table,
    table_of,
)
from smartmig.report.page import Section, write_page
from smartmig.report.tables import estimate_json
from smartmig.sim.gang.run import simulate
from smartmig.sim.gang.world import Backfill
from smartmig.types import Floats
from smartmig.workload.gang.filter import GangFilter

WHERE_TO_GET = (
    "Helios Venus comes from github.com/S-Lab-System-Group/HeliosData (CC-BY-4.0), Philly from "
    "github.com/msr-fiddle/philly-traces (CC-BY-4.0), Curie from the Parallel Workloads Archive; docs/traces.md tells "
    "which forms of them can be read"
)

NINE = tuple((s, a) for s in ("fcfs", "lcfs", "sjf") for a in ("first-available", "best-fit", "topology-aware"))
STRICT = tuple(GangPolicySpec(s, a, Backfill.none) for s, a in NINE)
WITH_EASY = tuple(GangPolicySpec(s, a, Backfill.easy) for s, a in NINE)
REST = (
    GangPolicySpec("fcfs", "best-fit", Backfill.conservative),
    GangPolicySpec("sjf", "best-fit", Backfill.conservative),
    GangPolicySpec("fcfs", "fragmentation-aware", Backfill.easy),
    GangPolicySpec("sjf", "fragmentation-aware", Backfill.easy),
    *(GangPolicySpec(s, "best-fit", Backfill.easy) for s in ("f1", "wfp", "unicep", "multifactor", "sjf-oracle")),
)


def learned(name: str) -> GangPolicySpec:
    rule = {"id": "learned", "policy_file": name}
    return GangPolicySpec(rule, rule, Backfill.easy)


SLOWDOWN, WAIT = learned("slowdown"), learned("wait")
FEW = tuple(GangPolicySpec(s, "best-fit", b) for b in (Backfill.none, Backfill.easy) for s in ("fcfs", "lcfs", "sjf"))


@dataclass(frozen=True)
class Part:
    """One trace on one cluster."""

    title: str
    pattern: str
    """of the trace's file name"""
    nodes: str
    policies: tuple[GangPolicySpec, ...]
    chosen: GangFilter = field(default_factory=GangFilter)
    requests: str | None = "menu-1h"
    knobs: tuple[tuple[str, Any], ...] = ()
    format: str | None = None

    def scenario(self, trace: Path) -> GangScenario:
        return GangScenario(trace, self.format, self.knobs, self.chosen, self.requests, self.nodes)


VENUS = Part(
    "Helios Venus, August 2020, jobs of up to 8 GPUs on 30 nodes of 8",
    "venus_gpu_jobs*",
    "30x8",
    (*STRICT, *WITH_EASY, *REST, SLOWDOWN, WAIT),
    GangFilter(max_gpus=8, since="2020-08-01", before="2020-09-01"),
    format="helios",
)
OTHERS = (
    Part(
        "Philly without its three largest virtual clusters, on 40 nodes of 8",
        "philly_jobs*",
        "40x8",
        (*FEW, SLOWDOWN, WAIT),
        GangFilter(without_group=("ee9e8c", "7f04ca", "2869ce")),
        format="philly",
    ),
    Part(
        "CEA Curie's GPU partition, 2012, its own requests, 144 nodes of 2",
        "*Curie*gpu.swf*",
        "144x2",
        (*FEW, SLOWDOWN, WAIT),
        requests=None,
        knobs=(("procs_per_gpu", 4),),
        format="swf",
    ),
)


@dataclass(frozen=True)
class GangReproduction:
    """The published comparison of whole-GPU schedulers, on public traces."""

    id: str = "s4-table"
    title: str = "Whole GPUs: nine baselines, strict and with EASY, and two learned agents"
    source: str = "S4: utilisation +11.8 %, bounded slowdown about -7 %, 1 ms a decision"
    days: int = 8
    """seeds of made-up requests"""
    differs: str = (
        "S4's trace (Spartan) is not public: Helios Venus stands in, with requested times that are made up (menu-1h). "
        "S4 compares with strict baselines only; EASY is what sites run."
    )


@dataclass(frozen=True)
class GangResult:
    """Our numbers, part by part; the first part is Venus."""

    parts: tuple[GangComparison, ...]
    ceiling: GangComparison
    """one node with all the GPUs: what no placement can beat"""
    missing: tuple[str, ...]


def table() -> GangReproduction:
    return GangReproduction()


def find_traces(trace: Path | None, folder: Path | None) -> dict[str, Path]:
    """Pattern -> file. Raises `InputError` where Venus is missing."""
    found: dict[str, Path] = {}
    if folder is not None:
        if not folder.is_dir():
            raise InputError(f"--traces: {folder} is no folder")
        for part in (VENUS, *OTHERS):
            files = sorted(folder.rglob(part.pattern))
            if files:
                found[part.pattern] = files[0]
    if trace is not None:
        found[VENUS.pattern] = trace
    if VENUS.pattern not in found:
        raise InputError(
            "s4-table needs the Helios Venus trace: give its file with --trace, or a folder that holds "
            f"{VENUS.pattern} (and {', '.join(part.pattern for part in OTHERS)}) with --traces. {WHERE_TO_GET}"
        )
    return found


def reproduce_gangs(
    trace: Path | None, folder: Path | None, n_seeds: int, first_seed: int, progress: Progress
) -> GangResult:
    """Run all parts whose traces are there."""
    found = find_traces(trace, folder)
    seeds = tuple(range(first_seed, first_seed + n_seeds))
    venus = VENUS.scenario(found[VENUS.pattern])
    ceiling = giant_node(venus, seeds)
    # A saturated queue takes the rules of the rest minutes, and nothing is said of them there.
    measured = (*STRICT, *WITH_EASY, SLOWDOWN, WAIT)
    parts = [compare_gangs(venus, VENUS.policies, seeds, progress, all_utilisations=measured, drawn=True)]
    missing = []
    for part in OTHERS:
        if part.pattern in found:
            own = seeds if part.requests else seeds[:1]
            parts.append(compare_gangs(part.scenario(found[part.pattern]), part.policies, own, progress, drawn=True))
        else:
            missing.append(f"{part.title}: no file {part.pattern}")
    return GangResult(tuple(parts), ceiling, tuple(missing))


def giant_node(scenario: GangScenario, seeds: tuple[int, ...]) -> GangComparison:
    """FCFS with EASY on one node with all the GPUs, in the same busy windows as everyone."""
    cluster = scenario.cluster()
    giant = parse_nodes(f"1x{cluster.n_gpus}")
    policy = GangPolicySpec("fcfs", "best-fit", Backfill.easy)
    found = []
    for seed in seeds:
        jobs = scenario.jobs(seed)
        run = simulate(jobs, giant, policy.policy())
        windows = busy_windows(jobs, simulate(jobs, cluster, GangPolicySpec().policy()))
        full = saturated_utilisation(simulate(saturated(jobs), giant, policy.policy()), giant)
        costs = summarise(jobs, run, giant)
        found.append(
            replace(costs, busy_gpu_utilisation=utilisation(run, giant, windows), saturated_gpu_utilisation=full)
        )
    return GangComparison(f"{scenario.trace.name} on one node", seeds, ((policy.title, tuple(found)),))


def places(comparison: GangComparison, policies: Sequence[GangPolicySpec]) -> list[int]:
    titles = [name for name, _ in comparison.policies]
    return [titles.index(policy.title) for policy in policies]


def best_of(comparison: GangComparison, policies: Sequence[GangPolicySpec], metric: str) -> int:
    """The policy with the least mean."""
    return min(places(comparison, policies), key=lambda at: float(comparison.values(at, metric).mean()))


@dataclass(frozen=True)
class Target:
    """One line of what was to be reached."""

    what: str
    published: str
    asked: str
    ours: Estimate
    unit: str


def targets(result: GangResult) -> list[Target]:
    """The published claims and ours, against the best of the nine."""
    venus = result.parts[0]
    slowdown, wait = places(venus, (SLOWDOWN, WAIT))

    def against(at: int, metric: str, base: Floats) -> Estimate:
        change = relative_change(venus.values(at, metric), base)
        return Estimate(100 * change.mean, 100 * change.half_width, change.n)

    def best(policies: Sequence[GangPolicySpec], metric: str) -> Floats:
        return venus.values(best_of(venus, policies, metric), metric)

    b, w = "mean_bounded_slowdown", "mean_wait_s"
    fcfs = places(venus, (GangPolicySpec("fcfs", "best-fit", Backfill.easy),))[0]
    saturated = np.mean([venus.values(at, "saturated_gpu_utilisation") for at in places(venus, STRICT)], axis=0)
    rows = [
        Target(
            "slowdown against the best strict of the nine",
            "about -7",
            "-60",
            against(slowdown, b, best(STRICT, b)),
            "%",
        ),
        Target(
            "slowdown against the best of the nine with EASY", "", "-35", against(slowdown, b, best(WITH_EASY, b)), "%"
        ),
        Target(
            "its waiting against the best with EASY", "", "at most +10", against(slowdown, w, best(WITH_EASY, w)), "%"
        ),
        Target("waiting (goal wait) against the best strict", "lower", "-50", against(wait, w, best(STRICT, w)), "%"),
        Target(
            "waiting (goal wait) against the best with EASY",
            "lower",
            "at most 0",
            against(wait, w, best(WITH_EASY, w)),
            "%",
        ),
        Target(
            "utilisation, saturated queue, against the mean of the nine strict",
            "+11.8",
            "+11.8",
            against(wait, "saturated_gpu_utilisation", saturated),
            "%",
        ),
    ]
    for name, at in (("slowdown", slowdown), ("wait", wait)):
        rows.append(
            Target(
                f"p99 waiting (goal {name}) against EASY-FCFS",
                "",
                "at most 0",
                against(at, "p99_wait_s", venus.values(fcfs, "p99_wait_s")),
                "%",
            )
        )
        more = estimate(venus.values(at, "n_starved") - venus.values(fcfs, "n_starved"))
        rows.append(Target(f"jobs over 7 days (goal {name}), more than EASY-FCFS", "", "at most 0", more, "jobs"))
    return rows


def utilisation_rows(result: GangResult) -> list[list[str]]:
    """The three readings of utilisation, with what one giant node would reach."""
    venus = result.parts[0]
    readings = ("gpu_utilisation", "busy_gpu_utilisation", "saturated_gpu_utilisation")
    rows = [["policy", "from first to last submission (%)", "while strict FCFS is busy (%)", "saturated queue (%)"]]

    def row(name: str, values: list[Floats]) -> list[str]:
        return [name, *(f"{100 * value.mean():.1f}" for value in values)]

    for name, group in (("mean of the nine, strict", STRICT), ("mean of the nine, EASY", WITH_EASY)):
        rows.append(row(name, [np.array([venus.values(at, r) for at in places(venus, group)]) for r in readings]))
    for policy in (SLOWDOWN, WAIT):
        rows.append(row(policy.title, [venus.values(places(venus, (policy,))[0], r) for r in readings]))
    rows.append(row("one giant node, FCFS, EASY", [result.ceiling.values(0, r) for r in readings]))
    return rows


def target_rows(result: GangResult) -> list[list[str]]:
    rows = [["what", "published", "asked", "ours"]]
    for t in targets(result):
        interval = f" ± {t.ours.half_width:.1f}" if np.isfinite(t.ours.half_width) else ""
        rows.append([f"{t.what} ({t.unit})", t.published, t.asked, f"{t.ours.mean:+.1f}{interval}"])
    return rows


def result_tables(what: GangReproduction, result: GangResult) -> list[Table]:
    tables = []
    for comparison in result.parts:
        tables += [gang_comparison_table(comparison), fairness_table(comparison)]
    for title, rows in (("Utilisation, Venus", utilisation_rows(result)), (what.title, target_rows(result))):
        table = table_of(title, what.differs if title == what.title else "")
        for heading in rows[0]:
            table.add_column(heading, justify="left" if heading == rows[0][0] else "right")
        for row in rows[1:]:
            table.add_row(*row)
        tables.append(table)
    return tables


def result_json(what: GangReproduction, result: GangResult) -> dict[str, Any]:
    return {
        "id": what.id,
        "title": what.title,
        "source": what.source,
        "differs": what.differs,
        "targets": [
            {"what": t.what, "published": t.published, "asked": t.asked, "unit": t.unit, "ours": estimate_json(t.ours)}
            for t in targets(result)
        ],
        "parts": [{**gang_comparison_json(part), "fairness": fairness_json(part)} for part in result.parts],
        "ceiling": gang_comparison_json(result.ceiling),
        "missing": list(result.missing),
    }


def write_s4_page(path: Path, what: GangReproduction, result: GangResult) -> None:
    """One page: what was asked and reached, Venus with the picture of waiting over time, then the other traces."""
    main, *others = result.parts
    intro, numbers = gang_parts(main)
    sections = [
        Section("Published, asked, reached", what.differs, None, target_rows(result)),
        Section(
            "Utilisation",
            "Three readings, and what one node with all GPUs would reach.",
            None,
            utilisation_rows(result),
        ),
        *numbers,
    ]
    for part in others:
        sections.append(Section(part.title, " ".join(part.notes), None, comparison_rows(part)))
        sections.append(Section(f"{part.title}: who waits", "", None, fairness_rows(part)))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_page(path, what.title, f"{main.title}: {intro}", sections)
