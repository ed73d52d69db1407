"""A reproduction as a page with its figure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from smartmig.compare import sample_day
from smartmig.hardware.cluster import parse_gpus
from smartmig.report.comparison import SampleDay
from smartmig.report.page import Section, day_sections, write_page
from smartmig.report.published import published_bars, published_lines, share_stacks
from smartmig.reproduce.reproduction import ET, Metric, Result, result_cells

DRAWN_GPUS = 64
"""Of a cluster whose day is drawn in full."""


def drawn_days(result: Result, first_seed: int) -> list[SampleDay]:
    """The first day of the first row and of the one with the least ET (or the last), where rows are simulated."""
    rows = result.reproduction.rows
    simulated = [at for at, row in enumerate(rows) if row.measure is None and n_gpus(row.gpus) <= DRAWN_GPUS]
    if not simulated:
        return []
    known = [at for at in simulated if ET.id in result.values[at]]
    best = min(known, key=lambda at: float(result.values[at][ET.id].mean())) if known else simulated[-1]
    chosen = dict.fromkeys((simulated[0], best))
    return [replace(sample_day(rows[at].scenario(first_seed), rows[at].policy), policy=rows[at].label) for at in chosen]


def n_gpus(gpus: str) -> int:
    return len(parse_gpus(gpus, "gpus"))


def write_figure(path: Path, result: Result, days: Sequence[SampleDay] = ()) -> None:
    """`days` are drawn below the numbers."""
    what = result.reproduction
    if what.parts_of_whole:
        sections = [Section(what.title, "", _stacks(result), None)]
    else:
        sections = [Section(metric.title, "", _figure(result, metric), None) for metric in what.metrics]
    sections.append(Section("Numbers", what.differs, None, result_cells(result)))
    sections += day_sections(days)
    intro = f"{what.source}. {result.days} days per row, the same for all; means, with 95 % intervals as whiskers."
    path.parent.mkdir(parents=True, exist_ok=True)
    write_page(path, what.title, intro, sections)


def _figure(result: Result, metric: Metric) -> object:
    what = result.reproduction
    rows = [index for index in range(len(what.rows)) if result.estimate(index, metric) is not None]
    ours = [value for index in rows if (value := result.estimate(index, metric)) is not None]
    published = [_number(what.rows[index].published.get(metric.id, "")) for index in rows]
    theirs = {"": published} if any(value == value for value in published) else {}
    if what.x:
        return published_lines(list(what.x), {"": ours}, theirs, what.x_title, metric.title)
    labels = [what.rows[index].label for index in rows]
    return published_bars(labels, {"": ours}, theirs, metric.title)


def _stacks(result: Result) -> object:
    """One stack per row and one more for what was published of it."""
    what = result.reproduction
    parts = what.metrics[1:]
    labels, stacks = [], []
    for index, row in enumerate(what.rows):
        labels.append(row.label)
        stacks.append([value.mean if (value := result.estimate(index, part)) else 0.0 for part in parts])
        if row.published:
            labels.append(f"{row.label}, published")
            stacks.append([_number(row.published.get(part.id, "")) for part in parts])
    return share_stacks(labels, [part.title.removesuffix(" (%)") for part in parts], stacks, "share of GPU time (%)")


def _number(text: str) -> float:
    found = re.match(r"\s*([0-9]*\.?[0-9]+)", text)
    return float(found.group(1)) if found else float("nan")
