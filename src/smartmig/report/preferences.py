"""What a learned policy prefers: how it cuts by hour of the day and by crowding, as numbers and as a picture."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from smartmig.hardware.cuts import CutTable
from smartmig.policy.encoding import AT_EDGE
from smartmig.report.theme import ramp, template
from smartmig.sim.mig.batch import Played
from smartmig.types import Floats, Ints

CROWDING = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""Edges of the crowding bins, in jobs in the system per GPU."""
HOURS = 24


@dataclass(frozen=True, eq=False)
class Preferences:
    """Shares of GPU time by configuration; a row sums to 1, or to 0 where nothing was seen."""

    configs: tuple[str, ...]
    """from whole to finely cut"""
    n_slices: tuple[int, ...]
    by_hour: Floats
    """(24, n_configs)"""
    by_crowding: Floats
    """(len(CROWDING) + 1, n_configs)"""
    crowding_frac: Floats
    """(len(CROWDING) + 1,) how much of the time it is that crowded"""


def preferences(played: Played, cuts: CutTable) -> Preferences:
    """Every decision's cuts, weighted with the time until the next."""
    last = np.append(played.day[1:] != played.day[:-1], True)
    lasts_s = np.where(last, 0.0, np.append(np.diff(played.time_s), 0.0))
    n_gpus = played.gpus[:, 0, :]
    order = sorted(range(n_gpus.shape[1]), key=lambda at: (cuts.configs[at].n_slices, at))
    order = [at for at in order if n_gpus[:, at].any()]
    spent = n_gpus[:, order] * lasts_s[:, None]
    hour = (played.time_s // 3600).astype(np.int64) % HOURS
    crowding = np.digitize(np.expm1(played.features[:, AT_EDGE]), CROWDING)
    crowded_s = np.bincount(crowding, lasts_s, len(CROWDING) + 1)
    return Preferences(
        tuple(cuts.configs[at].text for at in order),
        tuple(cuts.configs[at].n_slices for at in order),
        _shares(hour, spent, HOURS),
        _shares(crowding, spent, len(CROWDING) + 1),
        crowded_s / crowded_s.sum(),
    )


def _shares(bins: Ints, spent: Any, n_bins: int) -> Floats:
    total = np.stack([np.bincount(bins, column, n_bins) for column in spent.T], axis=1)
    shares: Floats = total / np.maximum(total.sum(axis=1, keepdims=True), 1e-12)
    return shares


def crowding_labels() -> list[str]:
    edges = [f"{edge:g}" for edge in CROWDING]
    return [f"< {edges[0]}", *(f"{low}-{high}" for low, high in pairwise(edges)), f"> {edges[-1]}"]


def preference_bars(found: Preferences) -> go.Figure:
    """Two panels of stacked bars, whole GPUs below and finely cut ones above."""
    figure = make_subplots(
        1,
        2,
        column_widths=[0.62, 0.38],
        shared_yaxes=True,
        horizontal_spacing=0.04,
    )
    seen = np.flatnonzero(found.crowding_frac > 0)
    labels = [crowding_labels()[at] for at in seen]
    for at, config in enumerate(found.configs):
        look = {
            "name": config,
            "legendgroup": config,
            "marker": {"color": ramp(at, len(found.configs)), "line": {"width": 0}},
            "hovertemplate": f"<b>{config}</b> %{{y:.1f}} % of the GPUs<br>%{{x}}<extra></extra>",
        }
        figure.add_bar(x=list(range(HOURS)), y=_percent(found.by_hour[:, at]), row=1, col=1, **look)
        figure.add_bar(x=labels, y=_percent(found.by_crowding[seen, at]), row=1, col=2, showlegend=False, **look)
    figure.update_layout(
        template=template(),
        height=440,
        barmode="stack",
        bargap=0.06,
        margin={"t": 16},
        legend={"y": -0.2, "yanchor": "top", "traceorder": "normal"},
        meta={"phone": {"layout": {"height": 520, "legend.y": -0.22, "xaxis.nticks": 5}}},
    )
    figure.update_yaxes(range=[0, 100], fixedrange=True)
    figure.update_yaxes(title_text="share of GPUs (%)", col=1)
    figure.update_xaxes(title_text="hour of the day", nticks=13, fixedrange=True, col=1)
    figure.update_xaxes(title_text="jobs there per GPU", fixedrange=True, type="category", col=2)
    return figure


def _percent(shares: Floats) -> list[float]:
    return [round(100 * float(share), 2) for share in shares]
