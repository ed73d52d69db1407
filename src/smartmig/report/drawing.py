"""What all figures share: the empty sheet, what a phone changes, whiskers and words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from smartmig.metrics.statistics import Estimate
from smartmig.report.theme import template


def sheet(height: int, margin: Mapping[str, int] | None = None) -> go.Figure:
    return go.Figure(layout={"template": template(), "height": height, "margin": dict(margin or {})})


def legend_below_on_phone(figure: go.Figure) -> go.Figure:
    layout = {"legend.y": -0.28, "legend.yanchor": "top", "height": (figure.layout.height or 400) + 80, "margin.t": 48}
    figure.update_layout(meta={"phone": {"layout": layout | {"dragmode": False, "xaxis.nticks": 6}}})
    return figure


def log_ticks() -> dict[str, Any]:
    """Plotly writes 20 and 0.2 both as "2" between powers of ten."""
    ticks = [digit * 10.0**power for power in range(-4, 7) for digit in (1, 2, 5)]
    return {"tickvals": ticks, "ticktext": [f"{tick:g}" for tick in ticks]}


def plain(text: str) -> str:
    """Text inside a hover: plotly reads `<` and `%{` there."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("%{", "% {")


def said(value: Estimate, unit: str, decimals: int = 2) -> str:
    half = f" ± {value.half_width:.{decimals}f}" if math.isfinite(value.half_width) else ""
    return f"{value.mean:.{decimals}f}{half} {unit}".strip()


def error(values: Sequence[Estimate]) -> dict[str, Any] | None:
    """Plotly's error bars, or None when no value has an interval."""
    halves = numbers(value.half_width for value in values)
    if all(half is None for half in halves):
        return None
    return {"type": "data", "array": halves, "thickness": 1.5, "width": 4}


def numbers(values: Any) -> list[float | None]:
    """Short enough for the file, and None (a gap) where there is no number."""
    return [float(f"{value:.5g}") if math.isfinite(value) else None for value in values]
