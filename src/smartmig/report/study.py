"""The page of `smartmig study`: what each variant came to, and what that took."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import plotly.graph_objects as go

from smartmig.metrics.study import Row
from smartmig.report.drawing import error, legend_below_on_phone, numbers, plain, said, sheet
from smartmig.report.page import Section, write_page
from smartmig.report.theme import colour, marker

HEADINGS = ("variant", "placings", "trained (s)", "return", "late (%)", "tardiness (min)", "energy (kWh)", "ET")
MEASURES = (("late (%)", "late_frac", 100.0), ("ET", "et", 1.0))


def write_study(path: Path, title: str, rows: Sequence[Row], n_days: int, n_trainings: int) -> None:
    sections = [Section(name, "", _dots(rows, field, scale, name)) for name, field, scale in MEASURES]
    if len({row.steps for row in rows if row.label == rows[-1].label}) > 1:
        sections.append(Section("Return against wall time", "Rewards per test day.", _returns(rows)))
    sections.append(Section("Numbers", "", None, study_cells(rows)))
    intro = said_over(n_days, n_trainings)
    write_page(path, title, f"{intro[0].upper()}{intro[1:]}.", sections)


def said_over(n_days: int, n_trainings: int) -> str:
    """What the means and intervals are of."""
    if n_trainings == 1:
        return f"one training each, mean ± 95 % interval over {n_days} test days"
    return f"mean ± 95 % interval over {n_trainings} trainings, the same {n_days} test days for all; rules: over days"


def study_cells(rows: Sequence[Row]) -> list[list[str]]:
    return [list(HEADINGS), *(_cells(row) for row in rows)]


def _cells(row: Row) -> list[str]:
    learned = row.steps > 0
    return [
        _name(row),
        f"{row.steps:,}" if learned else "",
        f"{row.train_s:.0f}" if learned else "",
        f"{row.earned:.4g}" if row.earned is not None else "",
        said(row.of("late_frac", 100.0), "", 1),
        said(row.of("mean_tardiness_s", 1 / 60), ""),
        said(row.of("energy_kwh"), ""),
        said(row.of("et"), "", 3),
    ]


def _name(row: Row) -> str:
    plain_enough = row.steps == 0 or row.group in ("algorithm", "as S1")
    return row.label if plain_enough else f"{row.group}: {row.label}"


def _dots(rows: Sequence[Row], field: str, scale: float, title: str) -> go.Figure:
    """A dot and its interval per variant, one below the other: names of any length can be read, on a phone too."""
    names = [f"{_name(row)}, {row.steps:,}" if _is_repeated(rows, row) else _name(row) for row in rows]
    names = [name.replace(": ", ":<br>") for name in names]
    figure = sheet(80 + 34 * len(rows), margin={"t": 16})
    longest = 0.0
    for shade, learned in enumerate((True, False)):
        own = [at for at, row in enumerate(rows) if (row.steps > 0) is learned]
        values = [rows[at].of(field, scale) for at in own]
        figure.add_scatter(
            x=numbers(value.mean for value in values),
            y=[names[at] for at in own],
            error_x=error(values),
            mode="markers",
            marker={"color": colour(shade), "size": 9},
            customdata=[said(value, "") for value in values],
            hovertemplate=f"<b>%{{y}}</b><br>{plain(title)} %{{customdata}}<extra></extra>",
            showlegend=False,
        )
        ends = [value.mean + (value.half_width if math.isfinite(value.half_width) else 0.0) for value in values]
        longest = max(longest, *ends)
    figure.update_xaxes(title_text=title, range=[0, 1.05 * longest], fixedrange=True)
    figure.update_yaxes(categoryorder="array", categoryarray=names[::-1], ticks="", fixedrange=True, automargin=True)
    return figure


def _is_repeated(rows: Sequence[Row], row: Row) -> bool:
    return sum(_name(other) == _name(row) for other in rows) > 1


def _returns(rows: Sequence[Row]) -> go.Figure:
    figure = sheet(400, margin={"t": 48})
    learned = [row for row in rows if row.earned is not None]
    for index, name in enumerate(dict.fromkeys(_name(row) for row in learned)):
        own = [row for row in learned if _name(row) == name]
        figure.add_scatter(
            x=numbers(row.train_s for row in own),
            y=numbers(row.earned for row in own),
            mode="lines+markers",
            name=name,
            line={"color": colour(index), "width": 2},
            marker={"symbol": marker(index), "size": 8},
        )
    figure.update_xaxes(title_text="trained (s)", rangemode="tozero", showline=True)
    figure.update_yaxes(title_text="return per day", showline=True)
    return legend_below_on_phone(figure)
