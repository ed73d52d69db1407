"""What a reproduction is, and how it is run and shown."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from rich.table import Table
from rich.text import Text

from smartmig.compare import Progress, Shard, bound_shard, gather, n_workers, run_shard, worker_pool
from smartmig.metrics.objective import energy_tardiness, minutes, watt_minutes
from smartmig.metrics.statistics import Estimate, estimate, relative_change
from smartmig.metrics.summary import Summary
from smartmig.scenario import PolicySpec, RuleSpec, Scenario


@dataclass(frozen=True)
class Metric:
    """A column: what the papers report, in their units."""

    id: str
    title: str
    of: Callable[[Summary], float]
    digits: int = 2


ENERGY = Metric("energy_1e6_wmin", "energy (1e6 W·min)", lambda s: watt_minutes(s.energy_j) / 1e6, 3)
TARDINESS = Metric("mean_tardiness_min", "mean tardiness (min)", lambda s: minutes(s.mean_tardiness_s), 3)
LATE = Metric("late_pct", "late (%)", lambda s: 100 * s.late_frac, 1)
ET = Metric("et", "ET", lambda s: s.et, 3)
GAIN = Metric("gain_pct", "ET gain (%)", lambda _: math.nan, 1)
"""by how much the ET of the reproduction's `gainer` lies below the row's"""


@dataclass(frozen=True)
class Row:
    """One line of a table or one bar of a figure."""

    label: str
    policy: PolicySpec
    published: Mapping[str, str]
    """metric id -> the published number as printed, with its spread where given"""
    gpus: str = "8xa100-40gb"
    workload: RuleSpec = "day"
    measure: Callable[[Shard], Mapping[str, float]] | None = None
    """what to do with a day, metric id -> value, where simulating the policy is not all of it"""

    def scenario(self, first_seed: int) -> Scenario:
        """What the row runs."""
        plan = Scenario(version=1, workload=self.workload, policies=(self.policy,), first_seed=first_seed)
        return replace(plan, cluster=replace(plan.cluster, gpus=self.gpus))


@dataclass(frozen=True)
class Reproduction:
    """A published table or figure."""

    id: str
    title: str
    source: str
    metrics: tuple[Metric, ...]
    rows: tuple[Row, ...]
    differs: str
    """one line: where and why ours differ from theirs"""
    days: int = 60
    x: tuple[float, ...] = ()
    """for a figure over a number (GPUs): the rows' positions"""
    x_title: str = ""
    gainer: int | None = None
    """the row whose ET is set against every other row's, for GAIN"""
    parts_of_whole: bool = False
    """the metrics but the first are shares that add up to 100 %: a line each, drawn as one stack per row"""


@dataclass(frozen=True)
class Result:
    """Our numbers for every row: metric id -> one value per day."""

    reproduction: Reproduction
    values: tuple[Mapping[str, np.ndarray], ...]
    days: int

    def estimate(self, row: int, metric: Metric) -> Estimate | None:
        if metric is GAIN:
            return self._gain_pct(row)
        values = self.values[row].get(metric.id)
        return None if values is None else estimate(values)

    def _gain_pct(self, row: int) -> Estimate | None:
        gainer = self.reproduction.gainer
        if gainer is None or row == gainer:
            return None
        change = relative_change(self.values[gainer][ET.id], self.values[row][ET.id])
        return Estimate(-100 * change.mean, 100 * change.half_width, change.n)

    def median(self, row: int, metric: Metric) -> float | None:
        values = self.values[row].get(metric.id)
        return None if values is None else float(np.median(values))


def reproduce(what: Reproduction, days: int, first_seed: int, progress: Progress) -> Result:
    """Run every row on the same days."""
    seeds = range(first_seed, first_seed + days)
    done = 0
    total = len(what.rows) * days
    shards: list[list[Shard]] = []
    for row in what.rows:
        shards.append([Shard(row.scenario(first_seed), row.policy, seed) for seed in seeds])

    def step() -> None:
        nonlocal done
        done += 1
        progress("days", done, total)

    progress("days (the first use of a rule compiles it)", 0, total)
    values: list[Mapping[str, np.ndarray]] = []
    with worker_pool(n_workers()) as pool:
        # The first day of every row first, so that each rule is compiled once.
        firsts = [_work(pool, row, [own[0]], step) for row, own in zip(what.rows, shards, strict=True)]
        for row, own, first in zip(what.rows, shards, firsts, strict=True):
            results = first + _work(pool, row, own[1:], step)
            if row.measure is not None:
                values.append({name: np.array([found[name] for found in results]) for name in results[0]})
            else:
                simulated = [metric for metric in what.metrics if metric is not GAIN]
                values.append({m.id: np.array([m.of(summary) for summary in results]) for m in simulated})
    return Result(what, tuple(values), days)


def _work(pool: Any, row: Row, shards: Sequence[Shard], step: Callable[[], None]) -> list[Any]:
    return gather(pool, row.measure or run_shard, shards, step)


def energy_bound(shard: Shard) -> Mapping[str, float]:
    """S3's energy bound of a day, as a row's `measure`."""
    return {ENERGY.id: watt_minutes(bound_shard(shard)) / 1e6}


def result_cells(result: Result) -> list[list[str]]:
    """The table as text, headings first: a line per row, or per metric where those are the parts of a whole."""
    what = result.reproduction

    def ours(index: int, metric: Metric) -> str:
        value, median = result.estimate(index, metric), result.median(index, metric)
        if value is None:
            return ""
        beside = f" (median {median:.{metric.digits}f})" if metric is TARDINESS else ""
        return f"{value.mean:.{metric.digits}f} ± {value.half_width:.{metric.digits}f}{beside}"

    if what.parts_of_whole:
        table = [["", *(text for row in what.rows for text in (row.label, *_if(row.published, "published")))]]
        for metric in what.metrics:
            cells = [metric.title]
            for index, row in enumerate(what.rows):
                cells += [ours(index, metric), *_if(row.published, row.published.get(metric.id, ""))]
            table.append(cells)
        return table
    known = {metric.id for metric in what.metrics if any(metric.id in row.published for row in what.rows)}
    table = [["", *(text for metric in what.metrics for text in (metric.title, *_if(metric.id in known, "published")))]]
    for index, row in enumerate(what.rows):
        cells = [row.label]
        for metric in what.metrics:
            cells += [ours(index, metric), *_if(metric.id in known, row.published.get(metric.id, ""))]
        table.append(cells)
    return table


def _if(condition: object, text: str) -> list[str]:
    return [text] if condition else []


def result_table(result: Result) -> Table:
    what = result.reproduction
    table = Table(title=Text.assemble((what.title, "table.title"), (f"  ({what.source})", "dim")), title_justify="left")
    headings, *rows = result_cells(result)
    for heading in headings:
        theirs = heading == "published"
        side: Literal["left", "right"] = "right" if heading else "left"
        table.add_column(heading, justify=side, style="cyan" if theirs else None)
    for row in rows:
        table.add_row(*map(_quiet_median, row))
    table.caption = f"{result.days} days per row, the same for all; mean ± 95 % interval.\n{what.differs}"
    table.caption_justify = "left"
    return table


def _quiet_median(cell: str) -> Text:
    text = Text(cell)
    text.highlight_regex(r"\(median[^)]*\)", "dim")
    return text


def result_json(result: Result) -> dict[str, Any]:
    what = result.reproduction
    rows = []
    for index, row in enumerate(what.rows):
        ours: dict[str, Any] = {}
        for metric in what.metrics:
            value = result.estimate(index, metric)
            if value is not None:
                median = result.median(index, metric)
                ours[metric.id] = {"mean": value.mean, "half_width": value.half_width, "median_day": median}
        rows.append({"label": row.label, "ours": ours, "published": dict(row.published)})
    return {
        "id": what.id,
        "title": what.title,
        "source": what.source,
        "days": result.days,
        "rows": rows,
        "differs": what.differs,
    }


def published_et(energy_1e6_wmin: float, tardiness_min: float) -> str:
    """ET of a published pair with our a."""
    return f"{energy_tardiness(energy_1e6_wmin * 60e6, tardiness_min * 60):.2f}"
