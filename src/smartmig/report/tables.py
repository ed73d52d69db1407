"""Tables for the terminal, and the same numbers as text rows and JSON."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich import box
from rich.table import Table
from rich.text import Text

from smartmig.metrics.objective import ENERGY_WEIGHT
from smartmig.metrics.statistics import Estimate, estimate, relative_change
from smartmig.metrics.summary import Summary
from smartmig.report.comparison import Comparison


@dataclass(frozen=True)
class Column:
    """One number of `Summary` as people read it."""

    title: str
    short: str
    """the title where columns are narrow"""
    field: str
    scale: float
    """from the field's unit to the title's"""
    decimals: int


COLUMNS = (
    Column("energy (kWh)", "energy\nkWh", "energy_kwh", 1.0, 2),
    Column("mean tardiness (min)", "tardy\nmin", "mean_tardiness_s", 1 / 60, 2),
    Column("p95 tardiness (min)", "p95\ntardy\nmin", "p95_tardiness_s", 1 / 60, 1),
    Column("late (%)", "late\n%", "late_frac", 100.0, 1),
    Column("ET", "ET", "et", 1.0, 3),
    Column("utilisation (%)", "util.\n%", "utilisation_frac", 100.0, 1),
    Column("re-cuts", "re-\ncuts", "n_repartitions", 1.0, 0),
)

ET_NOTE = (
    "ET = (a·energy + mean tardiness) / (a + 1) in the papers' units (W·min, min), "
    f"a = {ENERGY_WEIGHT:.1e} per W·min".replace("e-0", "e-")
)

Cell = tuple[str, str]
"""A number and what is said more quietly beside it: its interval, or nothing."""


def scaled(values: Estimate, factor: float) -> Estimate:
    return Estimate(values.mean * factor, values.half_width * factor, values.n)


def caption(comparison: Comparison) -> str:
    n = len(comparison.seeds)
    runs = f"{n} seeds, 95 % intervals, paired seeds" if n > 1 else "1 seed, so no intervals"
    return f"{runs}. Lower ET is better; its change is against {comparison.baseline}. {ET_NOTE}."


def comparison_cells(comparison: Comparison) -> tuple[list[str], list[list[Cell]], int]:
    """Headings, one row of cells per policy (its name first), and which row has the least ET."""
    names = [runs.name for runs in comparison.policies]
    headings = ["policy", *(column.title for column in COLUMNS), "ET change (%)"]
    base = comparison.values(comparison.baseline, "et")
    rows: list[list[Cell]] = []
    for name in names:
        row: list[Cell] = [(name, "")]
        for column in COLUMNS:
            row.append(cell(scaled(estimate(comparison.values(name, column.field)), column.scale), column.decimals))
        row.append(("base", "") if name == comparison.baseline else change(comparison.values(name, "et"), base))
        row += [change(comparison.values(name, field), np.array(bound)) for _, field, bound in comparison.bounds()]
        rows.append(row)
    headings += [f"{heading} above bound (%)" for heading, _, _ in comparison.bounds()]
    best = int(np.argmin([comparison.values(name, "et").mean() for name in names]))
    return headings, rows, best


NARROW = 100
"""Columns of a terminal below which the table leaves out what matters least."""

LEFT_OUT_WHEN_NARROW = ("p95 tardiness (min)", "utilisation (%)")


def comparison_table(comparison: Comparison, width: int = 140) -> Table:
    """One row per policy, the least ET in bold; intervals stand below their means to keep it narrow."""
    titles, rows, best = comparison_cells(comparison)
    kept = [at for at, title in enumerate(titles) if width >= NARROW or title not in LEFT_OUT_WHEN_NARROW]
    headings = [*(column.short for column in COLUMNS), "ET vs\nbase %"]
    headings += [f"{heading}\nabove\nbound %" for heading, _, _ in comparison.bounds()]
    table = Table(
        title=Text(comparison.title),
        caption=Text(f"{caption(comparison)} Tardy: minutes past the deadline."),
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        show_edge=False,
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("policy", overflow="fold", min_width=8, vertical="top")
    for at in kept[1:]:
        table.add_column(Text(headings[at - 1], justify="right"), justify="right", no_wrap=True)
    for index, row in enumerate(rows):
        shown = [row[at] for at in kept]
        cells = [Text.assemble(value, (f"\n{beside}" if beside else "", "not bold dim")) for value, beside in shown]
        table.add_row(*cells, style="bold" if index == best else "")
    return table


def summary_table(name: str, summary: Summary) -> Table:
    """One run, a line per number."""
    table = Table(
        title=Text(name),
        caption=Text(ET_NOTE),
        box=box.SIMPLE_HEAD,
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("what")
    table.add_column("value", justify="right")
    table.add_column("unit", style="dim")
    for what, value, unit in summary_lines(summary):
        table.add_row(what, value, unit)
    return table


def summary_lines(summary: Summary) -> list[tuple[str, str, str]]:
    """What, how much, in which unit."""
    return [
        ("jobs", f"{summary.n_jobs:,}", ""),
        ("energy", f"{summary.energy_kwh:.2f}", "kWh"),
        ("energy per job", f"{summary.energy_per_job_j / 1000:.2f}", "kJ"),
        ("mean tardiness", f"{summary.mean_tardiness_s / 60:.2f}", "min"),
        ("p95 tardiness", f"{summary.p95_tardiness_s / 60:.2f}", "min"),
        ("max tardiness", f"{summary.max_tardiness_s / 60:.2f}", "min"),
        ("late jobs", f"{summary.late_frac * 100:.1f}", "%"),
        ("ET", f"{summary.et:.4f}", ""),
        ("utilisation", f"{summary.utilisation_frac * 100:.1f}", "%"),
        ("makespan", f"{summary.makespan_s / 3600:.2f}", "h"),
        ("re-cuts", f"{summary.n_repartitions:,}", ""),
        ("preemptions", f"{summary.n_preemptions:,}", ""),
        ("events", f"{summary.n_events:,}", ""),
    ]


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """Everything the table shows and the numbers of every seed, in SI units; None where there is no interval."""
    base = comparison.values(comparison.baseline, "et")
    fields = [field.name for field in dataclasses.fields(Summary) if field.name != "config_frac"]
    policies = []
    for runs in comparison.policies:
        entry: dict[str, Any] = {
            "name": runs.name,
            "estimates": {name: estimate_json(estimate(comparison.values(runs.name, name))) for name in fields},
            "et_change_frac": estimate_json(relative_change(comparison.values(runs.name, "et"), base)),
            "runs": [
                {"seed": seed, **dataclasses.asdict(summary)}
                for seed, summary in zip(comparison.seeds, runs.summaries, strict=True)
            ],
        }
        for heading, field, bound in comparison.bounds():
            above = relative_change(comparison.values(runs.name, field), np.array(bound))
            entry[f"{heading.lower()}_above_bound_frac"] = estimate_json(above)
        policies.append(entry)
    return {
        "title": comparison.title,
        "seeds": list(comparison.seeds),
        "baseline": comparison.baseline,
        "energy_weight": ENERGY_WEIGHT,
        "bound_energy_j": None if comparison.bound_energy_j is None else list(comparison.bound_energy_j),
        "bound_et": None if comparison.bound_et is None else list(comparison.bound_et),
        "notes": list(comparison.notes),
        "policies": policies,
    }


def cell(value: Estimate, decimals: int, sign: str = "") -> Cell:
    if not math.isfinite(value.mean):
        return "–", ""
    shown = f"{value.mean:{sign}z.{decimals}f}"
    return shown, f"± {value.half_width:.{decimals}f}" if math.isfinite(value.half_width) else ""


def change(values: Any, base: Any) -> Cell:
    return cell(scaled(relative_change(values, base), 100.0), 1, "+")


def estimate_json(value: Estimate) -> dict[str, float | int | None]:
    def number(x: float) -> float | None:
        return x if math.isfinite(x) else None

    return {"mean": number(value.mean), "half_width": number(value.half_width), "n": value.n}
