"""A reproduction as a page with its figure."""

from __future__ import annotations

import re
from pathlib import Path

from smartmig.metrics.statistics import Estimate
from smartmig.report.figures import published_bars, published_lines
from smartmig.report.page import Section, write_page
from smartmig.reproduce.reproduction import Metric, Result


def write_figure(path: Path, result: Result) -> None:
    what = result.reproduction
    sections = [Section(metric.title, "", _figure(result, metric), None) for metric in what.metrics]
    sections.append(Section("Numbers", what.differs, None, _rows(result)))
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
        return published_lines("", list(what.x), {"": ours}, theirs, what.x_title, metric.title)
    labels = [what.rows[index].label for index in rows]
    return published_bars("", labels, {"": ours}, theirs, metric.title)


def _number(text: str) -> float:
    found = re.match(r"\s*([0-9]*\.?[0-9]+)", text)
    return float(found.group(1)) if found else float("nan")


def _rows(result: Result) -> list[list[str]]:
    what = result.reproduction
    known = {metric.id for metric in what.metrics for row in what.rows if metric.id in row.published}
    heading = [""]
    for metric in what.metrics:
        heading += [metric.title, *(["published"] if metric.id in known else [])]
    rows = [heading]
    for index, row in enumerate(what.rows):
        cells = [row.label]
        for metric in what.metrics:
            value: Estimate | None = result.estimate(index, metric)
            digits = metric.digits
            cells.append("" if value is None else f"{value.mean:.{digits}f} ± {value.half_width:.{digits}f}")
            if metric.id in known:
                cells.append(row.published.get(metric.id, ""))
        rows.append(cells)
    return rows
