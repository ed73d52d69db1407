"""Who waits, and who waits too long: the fairness and safety report of a whole-GPU comparison."""

from __future__ import annotations

from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from smartmig.metrics.gang import GangCosts
from smartmig.metrics.statistics import estimate
from smartmig.report.gang_tables import HOUR_S, GangComparison, table_of
from smartmig.report.tables import cell, estimate_json, scaled
from smartmig.types import Floats

NOTE = (
    "Waiting in hours, means over seeds. Worst 1 %: mean of the jobs that waited longest. Users: mean waits, of the "
    "middle one of the worst. Jain's index of mean slowdowns: 1 = all sizes (users) are slowed down alike."
)
USERS_SHOWN = 12
SAFETY = (
    ("worst 1 %", "worst_wait_s", 1 / HOUR_S, 1),
    ("longest", "longest_wait_s", 1 / HOUR_S, 1),
    ("over 7 d", "n_starved", 1.0, 1),
    ("Jain, sizes", "size_fairness", 1.0, 2),
)


def size_names(comparison: GangComparison) -> list[str]:
    """Size classes of the jobs, smallest first."""
    return list(comparison.policies[0][1][0].wait_by_size_s)


def by_size(runs: tuple[GangCosts, ...], field: str, size: str) -> Floats:
    """(n_seeds,) one size class's mean wait or slowdown."""
    return np.array([getattr(costs, field)[size] for costs in runs])


def user_waits(runs: tuple[GangCosts, ...]) -> tuple[Floats, Floats] | None:
    """(n_seeds,) mean wait of the middle user and of the worst one; None where jobs have no users."""
    if not runs[0].wait_by_user_s:
        return None
    waits = [np.array(list(costs.wait_by_user_s.values())) for costs in runs]
    return np.array([np.median(w) for w in waits]), np.array([w.max() for w in waits])


def wait_by_user(runs: tuple[GangCosts, ...]) -> dict[str, float]:
    """Each user's mean wait, over seeds, the longest first."""
    users = runs[0].wait_by_user_s
    means = {user: float(np.mean([costs.wait_by_user_s[user] for costs in runs])) for user in users}
    return dict(sorted(means.items(), key=lambda pair: -pair[1]))


def user_rows(comparison: GangComparison) -> list[list[str]]:
    """Users who wait longest under the first policy, and how long under each; empty where jobs have no users."""
    waits = [wait_by_user(runs) for _, runs in comparison.policies]
    if not waits[0]:
        return []
    rows = [["user", *(name for name, _ in comparison.policies)]]
    return rows + [[user, *(f"{one[user] / HOUR_S:.2f}" for one in waits)] for user in list(waits[0])[:USERS_SHOWN]]


def fairness_rows(comparison: GangComparison) -> list[list[str]]:
    """Headings, then a row per policy."""
    sizes = size_names(comparison)
    users = user_waits(comparison.policies[0][1]) is not None
    headings = ["policy", *(f"{size} GPU{'s' if size != '1' else ''}" for size in sizes)]
    headings += [title for title, *_ in SAFETY] + (["middle user", "worst user", "Jain, users"] if users else [])
    rows = [headings]
    for at, (name, runs) in enumerate(comparison.policies):
        shown = [scaled(estimate(by_size(runs, "wait_by_size_s", size)), 1 / HOUR_S) for size in sizes]
        cells = [cell(value, 2)[0] for value in shown]
        for _, field, factor, decimals in SAFETY:
            cells.append(cell(scaled(estimate(comparison.values(at, field)), factor), decimals)[0])
        if (waits := user_waits(runs)) is not None:
            cells += [cell(scaled(estimate(wait), 1 / HOUR_S), 1)[0] for wait in waits]
            cells.append(cell(estimate(comparison.values(at, "user_fairness")), 2)[0])
        rows.append([name, *cells])
    return rows


def fairness_table(comparison: GangComparison) -> Table:
    headings, *rows = fairness_rows(comparison)
    table = table_of("Who waits: by size, the worst, the starved", NOTE)
    table.add_column("policy", overflow="fold", min_width=8, vertical="top")
    for heading in headings[1:]:
        table.add_column(Text(heading, justify="right"), justify="right")
    for row in rows:
        table.add_row(*row)
    return table


def fairness_json(comparison: GangComparison) -> list[dict[str, Any]]:
    """The same numbers, in SI units."""
    answer = []
    for at, (name, runs) in enumerate(comparison.policies):
        entry: dict[str, Any] = {"name": name}
        for field in ("wait_by_size_s", "slowdown_by_size"):
            entry[field] = {
                size: estimate_json(estimate(by_size(runs, field, size))) for size in size_names(comparison)
            }
        for _, field, _, _ in SAFETY:
            entry[field] = estimate_json(estimate(comparison.values(at, field)))
        if (waits := user_waits(runs)) is not None:
            entry["median_user_wait_s"], entry["worst_user_wait_s"] = (estimate_json(estimate(w)) for w in waits)
            entry["wait_by_user_s"] = wait_by_user(runs)
            entry["user_fairness"] = estimate_json(estimate(comparison.values(at, "user_fairness")))
        answer.append(entry)
    return answer
