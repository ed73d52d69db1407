"""Ours beside the published: the figures of `smartmig reproduce`."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from smartmig.metrics.statistics import Estimate
from smartmig.report.drawing import error, legend_below_on_phone, numbers, plain, sheet
from smartmig.report.theme import colour, marker, ramp


def share_stacks(
    labels: Sequence[str], parts: Sequence[str], stacks: Sequence[Sequence[float]], title: str
) -> go.Figure:
    """One stack of ordered parts per label, in per cent; lying, so that names of any length can be read."""
    figure = sheet(130 + 46 * len(labels), margin={"t": 48})
    for at, part in enumerate(parts):
        figure.add_bar(
            x=numbers([stack[at] for stack in stacks]),
            y=_in_lines(labels),
            orientation="h",
            name=part,
            marker={"color": ramp(at, len(parts)), "line": {"width": 0}},
            hovertemplate=f"<b>%{{y}}</b><br>{plain(part)}: %{{x:.1f}} %<extra></extra>",
        )
    figure.update_layout(barmode="stack", bargap=0.3, legend={"traceorder": "normal"})
    figure.update_xaxes(title_text=title, range=[0, 100], fixedrange=True)
    figure.update_yaxes(autorange="reversed", ticks="", fixedrange=True, automargin=True)
    return legend_below_on_phone(figure)


def published_bars(
    groups: Sequence[str],
    ours: Mapping[str, Sequence[Estimate]],
    published: Mapping[str, Sequence[float]],
    y_title: str,
) -> go.Figure:
    """Our means as full bars with intervals, published values as hatched ones of the same colour beside them."""
    figure = sheet(420, margin={"t": 48 if published else 16})
    for name in _series(ours, published):
        shade = colour(_series(ours, published).index(name))
        if name in ours:
            figure.add_bar(
                x=_in_lines(groups),
                y=numbers(value.mean for value in ours[name]),
                error_y=error(ours[name]),
                name=_whose(name, "ours"),
                marker={"color": shade},
                hovertemplate=f"{plain(_whose(name, 'ours'))}<br>%{{x}}: %{{y}}<extra></extra>",
            )
        if name in published:
            figure.add_bar(
                x=_in_lines(groups),
                y=numbers(published[name]),
                name=_whose(name, "published"),
                marker={
                    "color": "rgba(0,0,0,0)",
                    "line": {"color": shade, "width": 1.5},
                    "pattern": {"shape": "/", "fgcolor": shade, "bgcolor": "rgba(0,0,0,0)", "size": 6, "solidity": 0.2},
                },
                hovertemplate=f"{plain(_whose(name, 'published'))}<br>%{{x}}: %{{y}}<extra></extra>",
            )
    figure.update_xaxes(ticks="", showgrid=False)
    figure.update_yaxes(title_text=y_title, rangemode="tozero")
    figure.update_layout(barmode="group", bargap=0.28, bargroupgap=0.08)
    # On a phone the names below the bars are turned and take the room that a legend would have there.
    figure.update_layout(meta={"phone": {"layout": {"dragmode": False, "height": 500}}})
    return figure


def published_lines(
    x: Sequence[float],
    ours: Mapping[str, Sequence[Estimate]],
    published: Mapping[str, Sequence[float]],
    x_title: str,
    y_title: str,
) -> go.Figure:
    """Our curves with their intervals as bars, published ones (if any) dashed with open markers, same colours."""
    figure = sheet(420, margin={"t": 48})
    for index, name in enumerate(_series(ours, published)):
        look = {"color": colour(index), "size": 8}
        if name in ours:
            figure.add_scatter(
                x=list(x),
                y=numbers(value.mean for value in ours[name]),
                error_y=error(ours[name]),
                mode="lines+markers",
                name=_whose(name, "ours"),
                line={"color": colour(index), "width": 2},
                marker=look | {"symbol": marker(index)},
            )
        if name in published:
            figure.add_scatter(
                x=list(x),
                y=numbers(published[name]),
                mode="lines+markers",
                name=_whose(name, "published"),
                line={"color": colour(index), "width": 1.5, "dash": "dash"},
                marker=look | {"symbol": f"{marker(index)}-open"},
            )
    figure.update_xaxes(title_text=x_title, showline=True)
    figure.update_yaxes(title_text=y_title, showline=True)
    figure.update_layout(hovermode="x unified")
    return legend_below_on_phone(figure)


def _in_lines(labels: Sequence[str]) -> list[str]:
    """Long ones broken, so that they stand upright below their bars."""
    return ["<br>".join(textwrap.wrap(label, 22, break_on_hyphens=False)) for label in labels]


def _whose(series: str, owner: str) -> str:
    """Legend text; a figure with one unnamed series only says whose the numbers are."""
    if not series:
        return owner
    return series if owner == "ours" else f"{series}, {owner}"


def _series(ours: Mapping[str, Any], published: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys([*ours, *published]))
