"""Whole-GPU runs as tables for the terminal and as JSON."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich import box
from rich.table import Table
from rich.text import Text

from smartmig.metrics.gang import GangCosts
from smartmig.metrics.gang_series import GangSeries
from smartmig.metrics.statistics import estimate, relative_change
from smartmig.report.tables import Column, cell, change, estimate_json, scaled
from smartmig.types import Floats

HOUR_S = 3600.0

COLUMNS = (
    Column("mean wait (h)", "wait\nh", "mean_wait_s", 1 / HOUR_S, 2),
    Column("p99 wait (h)", "p99\nwait\nh", "p99_wait_s", 1 / HOUR_S, 1),
    Column("bounded slowdown", "bounded\nslow-\ndown", "mean_bounded_slowdown", 1.0, 2),
    Column("p95 bounded slowdown", "p95\nslow-\ndown", "p95_bounded_slowdown", 1.0, 1),
    Column("utilisation (%)", "util.\n%", "gpu_utilisation", 100.0, 1),
    Column("utilisation, busy (%)", "busy\nutil.\n%", "busy_gpu_utilisation", 100.0, 1),
    Column("utilisation, saturated (%)", "satur.\nutil.\n%", "saturated_gpu_utilisation", 100.0, 1),
    Column("stranded (%)", "stran-\nded\n%", "stranded_frac", 100.0, 1),
    Column("waited over 7 d", "over\n7 d", "n_starved", 1.0, 0),
)
COMPARED = (("wait vs\nbase %", "mean_wait_s"), ("slowdown\nvs base\n%", "mean_bounded_slowdown"))

NOTE = (
    "Bounded slowdown: max(1, (wait + run) / max(run, 10 s)), mean over jobs. Utilisation: from the first to the last "
    "submission. Stranded: GPUs free while jobs wait."
)


@dataclass(frozen=True)
class GangComparison:
    """Policies on the same seeds; the first one is the baseline of every relative change."""

    title: str
    seeds: tuple[int, ...]
    policies: tuple[tuple[str, tuple[GangCosts, ...]], ...]
    """name, costs of each seed"""
    notes: tuple[str, ...] = ()
    series: tuple[GangSeries, ...] = ()
    """of the first seed, policy by policy; empty where nothing is to be drawn"""

    def values(self, at: int, field: str) -> Floats:
        """(n_seeds,) one number of the policy at that place; nan where it was not measured."""
        return np.array([getattr(costs, field) for costs in self.policies[at][1]], dtype=float)


def gang_comparison_table(comparison: GangComparison) -> Table:
    """One row per policy, the least mean slowdown in bold."""
    places = range(len(comparison.policies))
    shown = shown_columns(comparison)
    n = len(comparison.seeds)
    runs = f"{n} seeds, 95 % intervals, paired seeds" if n > 1 else "1 seed, so no intervals"
    table = table_of(comparison.title, f"{runs}; changes are against {comparison.policies[0][0]}. {NOTE}")
    table.add_column("policy", overflow="fold", min_width=8, vertical="top")
    for heading in (*(column.short for column in shown), *(heading for heading, _ in COMPARED)):
        table.add_column(Text(heading, justify="right"), justify="right", no_wrap=True)
    best = min(places, key=lambda at: float(comparison.values(at, "mean_bounded_slowdown").mean()))
    for at in places:
        cells = [cell(scaled(estimate(comparison.values(at, c.field)), c.scale), c.decimals) for c in shown]
        for _, field in COMPARED:
            cells.append(("base", "") if at == 0 else change(comparison.values(at, field), comparison.values(0, field)))
        texts = [Text.assemble(value, (f"\n{beside}" if beside else "", "not bold dim")) for value, beside in cells]
        table.add_row(comparison.policies[at][0], *texts, style="bold" if at == best else "")
    return table


def shown_columns(comparison: GangComparison) -> list[Column]:
    """Those that were measured for all."""
    places = range(len(comparison.policies))
    return [c for c in COLUMNS if all(np.isfinite(comparison.values(at, c.field)).all() for at in places)]


def comparison_rows(comparison: GangComparison) -> list[list[str]]:
    """The table as text, headings first."""
    shown = shown_columns(comparison)
    rows = [["policy", *(column.title for column in shown), *(heading.replace("\n", " ") for heading, _ in COMPARED)]]
    for at, (name, _) in enumerate(comparison.policies):
        cells = [cell(scaled(estimate(comparison.values(at, c.field)), c.scale), c.decimals) for c in shown]
        for _, field in COMPARED:
            cells.append(("base", "") if at == 0 else change(comparison.values(at, field), comparison.values(0, field)))
        rows.append([name, *(f"{value} {beside}".strip() for value, beside in cells)])
    return rows


def gang_comparison_json(comparison: GangComparison) -> dict[str, Any]:
    """Everything the table shows and the numbers of every seed, in SI units."""
    numbers = [field.name for field in dataclasses.fields(GangCosts) if "_by_" not in field.name]
    policies = []
    for at, (name, runs) in enumerate(comparison.policies):
        changes = {
            f"{field.removesuffix('_s')}_change_frac": estimate_json(
                relative_change(comparison.values(at, field), comparison.values(0, field))
            )
            for _, field in COMPARED
        }
        kept = [{key: value for key, value in dataclasses.asdict(c).items() if key != "wait_by_user_s"} for c in runs]
        policies.append(
            {
                "name": name,
                "estimates": {field: estimate_json(estimate(comparison.values(at, field))) for field in numbers},
                **changes,
                "runs": [{"seed": seed, **costs} for seed, costs in zip(comparison.seeds, kept, strict=True)],
            }
        )
    return {
        "title": comparison.title,
        "seeds": list(comparison.seeds),
        "baseline": comparison.policies[0][0],
        "notes": list(comparison.notes),
        "policies": policies,
    }


def gang_table(name: str, costs: GangCosts) -> Table:
    """One run, a line per number."""
    table = table_of(name, NOTE)
    table.add_column("what")
    table.add_column("value", justify="right")
    table.add_column("unit", style="dim")
    table.add_row("jobs", f"{costs.n_jobs:,}", "")
    for column in COLUMNS:
        value = getattr(costs, column.field)
        if value is not None:
            what, _, unit = column.title.partition(" (")
            table.add_row(what, f"{value * column.scale:,.{column.decimals}f}", unit.rstrip(")"))
    for size, wait_s in costs.wait_by_size_s.items():
        table.add_row(f"mean wait, {size} GPUs" if size != "1" else "mean wait, 1 GPU", f"{wait_s / HOUR_S:,.2f}", "h")
    table.add_row("worst 1 % waited", f"{costs.worst_wait_s / HOUR_S:,.1f}", "h")
    table.add_row("makespan", f"{costs.makespan_s / HOUR_S:,.1f}", "h")
    for what, count in (("ended by their limit", costs.n_killed), ("runs lost to failures", costs.n_restarts)):
        if count:
            table.add_row(what, f"{count:,}", "")
    return table


def table_of(title: str, caption: str) -> Table:
    return Table(
        title=Text(title),
        caption=Text(caption),
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        show_edge=False,
        title_justify="left",
        caption_justify="left",
    )
