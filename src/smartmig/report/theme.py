"""One look for every figure: a palette that colour-blind readers can tell apart, and a light and a dark template."""

from __future__ import annotations

from typing import Any

PALETTE = ("#2b7bba", "#d55e00", "#009e73", "#b0649a", "#b98900", "#8a6b4f", "#7a8088", "#3f9fd0")
"""Okabe and Ito's hues, moved to a middle lightness so that each is at least 3:1 on both page colours."""

MARKERS = ("circle", "diamond", "square", "triangle-up", "cross", "star", "triangle-down", "hexagon")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
HATCHES = ("", "/", ".", "x")

RAMP = ("#08306b", "#2b7bba", "#6fb7d6", "#c2dcc0", "#f0d27a", "#e69f00", "#d55e00", "#8c2d04")
"""From deep blue to brown, for things with an order: whole GPUs to seven slices."""

ON_TIME = "#5b9bcb"
LATE = "#d64500"

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


def colour(index: int) -> str:
    return PALETTE[index % len(PALETTE)]


def ramp(index: int, n: int) -> str:
    """The nth of n colours along RAMP."""
    place = index / max(1, n - 1) * (len(RAMP) - 1)
    low = min(int(place), len(RAMP) - 2)
    ends = [[int(RAMP[low + end][1 + 2 * part : 3 + 2 * part], 16) for part in range(3)] for end in (0, 1)]
    return "#" + "".join(f"{round(a + (b - a) * (place - low)):02x}" for a, b in zip(*ends, strict=True))


def marker(index: int) -> str:
    """Changes with the colour and once more when the colours start again, so no two of the first 64 series match."""
    return MARKERS[(index + index // len(PALETTE)) % len(MARKERS)]


def dash(index: int) -> str:
    """Solid until the colours start again: dashes of a busy line are hard to read."""
    return DASHES[index // len(PALETTE) % len(DASHES)]


def hatch(index: int) -> str:
    return HATCHES[index // len(PALETTE) % len(HATCHES)]


def template(dark: bool = False) -> dict[str, Any]:
    """The plotly template of every figure; the page swaps the two with the reader's colour scheme."""
    ink, quiet, grid, band, paper = (
        ("#e4e7eb", "#a3abb5", "#2c323a", "#1f242b", "#15181d")
        if dark
        else ("#1c2128", "#59626d", "#e3e7ec", "#f1f4f7", "#ffffff")
    )
    axis = {
        "gridcolor": grid,
        "linecolor": quiet,
        "zeroline": False,
        "ticks": "outside",
        "ticklen": 4,
        "ticklabelstandoff": 3,
        "tickcolor": grid,
        "tickfont": {"color": quiet, "size": 12},
        "title": {"font": {"color": quiet, "size": 12.5}, "standoff": 10},
        "automargin": True,
    }
    return {
        "layout": {
            "font": {"family": FONT, "size": 13, "color": ink},
            "title": {"font": {"size": 15, "color": ink}, "x": 0, "xref": "paper", "xanchor": "left"},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "colorway": list(PALETTE),
            "xaxis": axis,
            "yaxis": axis,
            "margin": {"l": 60, "r": 16, "t": 36, "b": 48},
            "hoverlabel": {
                "bgcolor": paper,
                "bordercolor": quiet,
                "align": "left",
                "font": {"family": FONT, "size": 12.5, "color": ink},
            },
            "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom", "title": {}},
            "annotationdefaults": {"font": {"color": quiet, "size": 12.5}, "showarrow": False},
            "shapedefaults": {"fillcolor": band, "line": {"width": 0}, "layer": "below"},
            "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": quiet, "activecolor": ink},
        },
        "data": {
            "bar": [{"marker": {"line": {"width": 0}}, "error_x": {"color": ink}, "error_y": {"color": ink}}],
            "scatter": [{"error_x": {"thickness": 1.5, "width": 4}, "error_y": {"thickness": 1.5, "width": 4}}],
        },
    }
