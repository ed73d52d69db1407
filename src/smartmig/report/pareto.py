"""The Pareto bound as a page: the area out of reach for every schedule, and where policies end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import plotly.graph_objects as go

from smartmig.bounds import ParetoBound
from smartmig.metrics.objective import minutes, watt_minutes
from smartmig.metrics.summary import JOULES_PER_KWH
from smartmig.report.page import Section, write_page
from smartmig.report.theme import colour, marker


@dataclass(frozen=True)
class Reached:
    """What one policy makes of the same jobs."""

    policy: str
    energy_j: float
    mean_tardiness_s: float
    et: float


def write_pareto_page(path: Path, title: str, curve: ParetoBound, reached: Sequence[Reached]) -> None:
    """The energy-tardiness curve nobody gets below, with the policies that ran beside it."""
    intro = (
        "No schedule of these jobs on these GPUs, whatever its policy, lies below the line: for each mean tardiness, "
        "it says the least energy."
    )
    tardiness_s, energy_j = curve.corners()
    rows = [["mean tardiness (min)", "energy at least (kWh)", "W·min"]]
    rows += [
        [f"{minutes(t):.3f}", f"{e / JOULES_PER_KWH:.3f}", f"{watt_minutes(e):,.0f}"]
        for t, e in zip(tardiness_s.tolist(), energy_j.tolist(), strict=True)
    ]
    said = "Shaded: out of reach for everybody. The curve is the upper envelope of straight lines, one per weight."
    if reached:
        said += " Markers are policies on the same jobs."
    sections = [
        Section("What nobody can beat", said, pareto_figure(curve, reached)),
        Section("Corners of the curve", f"From {len(curve.lines)} weights, {curve.solve_s:.0f} s in all.", None, rows),
    ]
    write_page(path, f"Energy and tardiness bound: {title}", intro, sections)


def pareto_figure(curve: ParetoBound, reached: Sequence[Reached]) -> go.Figure:
    tardiness_s, energy_j = curve.corners()
    late = [minutes(value) for value in tardiness_s.tolist()]
    energy = [value / JOULES_PER_KWH for value in energy_j.tolist()]
    shown = [run.energy_j / JOULES_PER_KWH for run in reached]
    right = 1.08 * max([late[-1], *(minutes(run.mean_tardiness_s) for run in reached)])
    top = max([*energy, *shown]) + 0.12 * (max([*energy, *shown]) - min(energy) or 1.0)
    low = min(energy) - 0.1 * (top - min(energy) or 1.0)
    figure = go.Figure(layout={"height": 500, "margin": {"t": 24}})
    line_x, line_y = [late[0], *late, right], [top, *energy, energy[-1]]
    figure.add_scatter(
        x=[0.0, 0.0, *line_x, right],
        y=[low, top, *line_y, low],
        mode="lines",
        fill="toself",
        fillcolor="rgba(122,128,136,.18)",
        line={"width": 0},
        hoverinfo="skip",
        showlegend=False,
    )
    figure.add_scatter(
        x=line_x,
        y=line_y,
        mode="lines",
        line={"color": colour(0), "width": 3},
        name="bound",
        hovertemplate="mean tardiness %{x:.2f} min<br>at least %{y:.2f} kWh<extra></extra>",
    )
    for index, run in enumerate(reached, start=1):
        figure.add_scatter(
            x=[minutes(run.mean_tardiness_s)],
            y=[run.energy_j / JOULES_PER_KWH],
            mode="markers",
            marker={"color": colour(index), "symbol": marker(index), "size": 12},
            name=run.policy,
            hovertemplate="%{x:.2f} min, %{y:.2f} kWh",
        )
    figure.update_xaxes(title_text="mean tardiness (min)", range=[0, right])
    figure.update_yaxes(title_text="energy (kWh)", range=[low, top])
    return figure
