"""The figures, as plotly objects: comparisons over seeds, and one day in pictures.

Each figure carries in `layout.meta["phone"]` what a narrow screen changes; the page applies it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from smartmig.metrics.statistics import Estimate, estimate
from smartmig.metrics.summary import JOULES_PER_KWH
from smartmig.report.comparison import Comparison, SampleDay
from smartmig.report.day import hour_grid, mean_power_w, mean_waiting, time_grid, time_in_cuts
from smartmig.report.drawing import error, legend_below_on_phone, log_ticks, plain, said, sheet
from smartmig.report.tables import scaled
from smartmig.report.theme import colour, dash, hatch, marker, ramp
from smartmig.types import Floats

TOP_CONFIGS = 12

N_TICKS = 14
"""Of a time axis: a whole day gets a tick every two hours, and zooming in finer ones."""

PANELS = (
    ("energy (kWh)", "energy_kwh", 1.0, 2),
    ("mean tardiness (min)", "mean_tardiness_s", 1 / 60, 2),
    ("late jobs (%)", "late_frac", 100.0, 1),
    ("ET (papers' units)", "et", 1.0, 2),
)


def energy_tardiness_scatter(comparison: Comparison) -> go.Figure:
    """Energy against mean tardiness, one marker per policy; the lower left corner is best.

    The dotted line joins the policies that no other one beats in both; left of the grey line no schedule can be.
    """
    names = [runs.name for runs in comparison.policies]
    energy = [estimate(comparison.values(name, "energy_kwh")) for name in names]
    late = [scaled(estimate(comparison.values(name, "mean_tardiness_s")), 1 / 60) for name in names]
    means = [value.mean for value in late]
    # Policies often differ tenfold in tardiness; on a linear axis the good ones would sit on top of each other.
    log = min(means) > 0 and max(means) / min(means) > 8
    heights = [math.log10(mean) if log else mean for mean in means]
    reach = [value.half_width if math.isfinite(value.half_width) else 0.0 for value in energy]
    low = min(value.mean - half for value, half in zip(energy, reach, strict=True))
    bound_kwh = (
        None if comparison.bound_energy_j is None else float(np.mean(comparison.bound_energy_j)) / JOULES_PER_KWH
    )
    low = low if bound_kwh is None else min(low, bound_kwh)
    high = max(value.mean + half for value, half in zip(energy, reach, strict=True))
    room = (high - low or 1.0) * 0.28
    sides = _label_corners(names, energy, late, (low - room, high + room), log)
    figure = sheet(460)
    if bound_kwh is not None:
        figure.add_vrect(x0=low - room, x1=bound_kwh, fillcolor="rgba(122,128,136,.16)", line_width=0, layer="below")
        figure.add_annotation(
            **{"x": bound_kwh, "xref": "x", "y": 0, "yref": "paper", "xanchor": "right", "yanchor": "bottom"},
            text="no schedule needs less ",
        )
    front = pareto_front([value.mean for value in energy], means)
    if len(front) > 1:
        figure.add_scatter(
            x=[round(energy[at].mean, 4) for at in front],
            y=[round(means[at], 4) for at in front],
            mode="lines",
            line={"color": "#7a8088", "dash": "dot", "width": 1.6, "shape": "hv"},
            hoverinfo="skip",
            name="Pareto front",
        )
    for index, name in enumerate(names):
        figure.add_scatter(
            x=[round(energy[index].mean, 4)],
            y=[round(late[index].mean, 4)],
            error_x=error([energy[index]]),
            error_y=error([late[index]]),
            mode="markers+text",
            marker={"color": colour(index), "symbol": marker(index), "size": 12},
            text=[name],
            textposition=sides[index],
            textfont={"size": 12.5},
            cliponaxis=False,
            name=name,
            hovertemplate=f"<b>{plain(name)}</b><br>energy {said(energy[index], 'kWh')}<br>"
            f"mean tardiness {said(late[index], 'min')}<extra></extra>",
        )
    figure.update_xaxes(title_text="energy (kWh)", range=[low - room, high + room], showline=True)
    if log:
        figure.update_yaxes(type="log", range=[min(heights) - 0.35, max(heights) + 0.3], **log_ticks())
    else:
        figure.update_yaxes(rangemode="tozero")
    figure.update_yaxes(title_text=f"mean tardiness (min{', log scale' if log else ''})", showline=True)
    phone: dict[str, Any] = {"showlegend": True, "legend.y": -0.22, "legend.yanchor": "top", "height": 520}
    if bound_kwh is not None:
        phone["annotations.0.text"] = ""
    hidden = {"textfont.color": "rgba(0,0,0,0)"}
    figure.update_layout(showlegend=False, meta={"phone": {"layout": phone, "data": hidden}})
    return figure


def pareto_front(energy: Sequence[float], tardiness: Sequence[float]) -> list[int]:
    """Which points no other one beats in both, by rising energy."""
    front: list[int] = []
    for at in sorted(range(len(energy)), key=lambda at: (energy[at], tardiness[at])):
        if not front or tardiness[at] < tardiness[front[-1]]:
            front.append(at)
    return front


def policy_bars(comparison: Comparison) -> go.Figure:
    """Four panels of bars over the same policies, each with its own unit and 95 % intervals."""
    names = [runs.name for runs in comparison.policies]
    colours = [colour(index) for index in range(len(names))]
    height = 90 + 34 * len(names)
    figure = sheet(height, margin={"t": 16})
    one_px = 104 + 28 * len(names)
    phone: dict[str, Any] = {"height": len(PANELS) * one_px}
    gap, tall = 0.035, 1.0 / len(PANELS)
    wide = (1.0 - gap * (len(PANELS) - 1)) / len(PANELS)
    for index, (title, field, factor, decimals) in enumerate(PANELS):
        values = [scaled(estimate(comparison.values(name, field)), factor) for name in names]
        number = str(index + 1) if index else ""
        figure.add_bar(
            x=[round(value.mean, 4) for value in values],
            y=names,
            orientation="h",
            width=0.66,
            error_x=error(values),
            marker={"color": colours},
            customdata=[said(value, "", decimals) for value in values],
            hovertemplate=f"<b>%{{y}}</b><br>{title} %{{customdata}}<extra></extra>",
            xaxis=f"x{number}",
            yaxis=f"y{number}",
            showlegend=False,
        )
        at = index * (wide + gap)
        figure.layout[f"xaxis{number}"] = {
            "domain": [at, at + wide],
            "anchor": f"y{number}",
            "title": {"text": title},
            "rangemode": "tozero",
            "nticks": 5,
            "fixedrange": True,
        }
        figure.layout[f"yaxis{number}"] = {
            "anchor": f"x{number}",
            "autorange": "reversed",
            "showticklabels": index == 0,
            "ticks": "",
            "showgrid": False,
            "fixedrange": True,
        }
        top = 1.0 - index * tall
        phone |= {
            f"xaxis{number}.domain": [0.0, 1.0],
            f"yaxis{number}.domain": [top - tall * (1 - 66 / one_px), top],
            f"yaxis{number}.showticklabels": True,
        }
    figure.update_layout(meta={"phone": {"layout": phone}})
    return figure


def power_over_time(samples: Sequence[SampleDay], order: Sequence[str] = ()) -> go.Figure:
    """Power of all GPUs, one step line per sample; `order` names policies whose colours these lines keep."""
    figure = _over_time(samples, order, "power of all GPUs (kW)", "kW")
    for trace, sample in zip(figure.data, samples, strict=True):
        edges_s = time_grid(sample.run.makespan_s)
        _set_steps(trace, edges_s, mean_power_w(sample, edges_s) / 1000)
    return figure


def queue_over_time(samples: Sequence[SampleDay], order: Sequence[str] = ()) -> go.Figure:
    """Jobs that have arrived, are not done and hold no slice, one step line per sample."""
    figure = _over_time(samples, order, "waiting jobs", "waiting")
    for trace, sample in zip(figure.data, samples, strict=True):
        edges_s = time_grid(sample.run.makespan_s)
        _set_steps(trace, edges_s, mean_waiting(sample, edges_s))
    return figure


def config_shares(comparison: Comparison) -> go.Figure:
    """Share of GPU time in each configuration, mean over seeds; all but the most used are one `other`."""
    names = [runs.name for runs in comparison.policies]
    known = sorted({cut for runs in comparison.policies for summary in runs.summaries for cut in summary.config_frac})
    share = np.array(
        [
            [np.mean([summary.config_frac.get(cut, 0.0) for summary in runs.summaries]) for cut in known]
            for runs in comparison.policies
        ]
    ).reshape(len(names), len(known))
    used = np.argsort(-share.sum(axis=0), kind="stable")
    stacks = [(known[cut], share[:, cut]) for cut in used[:TOP_CONFIGS]]
    if used.size > TOP_CONFIGS:
        stacks.append((f"other ({used.size - TOP_CONFIGS})", share[:, used[TOP_CONFIGS:]].sum(axis=1)))
    one_model = len({cut.partition(":")[0] for cut in known}) == 1
    figure = sheet(150 + 34 * len(names), margin={"t": 16})
    for index, (cut, values) in enumerate(stacks):
        label = cut.partition(":")[2] if one_model and ":" in cut else cut
        percent = [round(float(value) * 100, 2) for value in values]
        figure.add_bar(
            x=percent,
            y=names,
            orientation="h",
            width=0.66,
            name=label,
            marker={
                "color": "#9aa1a9" if index == TOP_CONFIGS else colour(index),
                "pattern": {"shape": "" if index == TOP_CONFIGS else hatch(index), "size": 6, "solidity": 0.25},
            },
            # Only where it can be read: the hover tells the rest.
            text=[label if value > 1.1 * len(label) else "" for value in percent],
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            insidetextfont={"color": "#ffffff", "size": 11.5},
            hovertemplate=f"<b>%{{y}}</b><br>{plain(cut)}: %{{x:.1f}} % of GPU time<extra></extra>",
        )
    unit = f"share of GPU time (%){', ' + known[0].partition(':')[0] if one_model else ''}"
    figure.update_xaxes(title_text=unit, range=[0, 100], fixedrange=True)
    figure.update_yaxes(autorange="reversed", ticks="", showgrid=False, fixedrange=True)
    # The legend starts under the axis title however tall the figure is.
    below = -64 / max(1, 150 + 34 * len(names) - 130)
    figure.update_layout(
        barmode="stack",
        legend={"y": below, "yanchor": "top", "traceorder": "normal"},
        meta={
            "phone": {
                "layout": {
                    "height": 300 + 34 * len(names),
                    "uniformtext": {"mode": "hide", "minsize": 10},
                    "xaxis.title.text": "share of GPU time (%)",
                }
            }
        },
    )
    return figure


def cuts_by_hour(sample: SampleDay) -> go.Figure:
    """Share of the GPUs in each configuration, hour by hour; blue is cut into few slices, brown into many."""
    edges_s = hour_grid(sample.run.makespan_s)
    names, n_gpus = time_in_cuts(sample, edges_s)
    share = n_gpus / np.maximum(n_gpus.sum(axis=0, keepdims=True), 1e-12)
    used = [at for at in np.argsort(-share.sum(axis=1), kind="stable").tolist() if share[at].any()]
    order = sorted(used[:TOP_CONFIGS], key=lambda at: (names[at].count("+"), names[at]))
    stacks = [(names[at], share[at]) for at in order]
    if rest := used[TOP_CONFIGS:]:
        stacks.append((f"other ({len(rest)})", share[rest].sum(axis=0)))
    one_model = len({name.partition(":")[0] for name in names}) == 1
    figure = sheet(400, margin={"t": 16})
    for index, (cut, values) in enumerate(stacks):
        label = cut.partition(":")[2] if one_model and ":" in cut else cut
        figure.add_bar(
            x=[hour + 0.5 for hour in range(values.size)],
            y=[round(100 * float(value), 2) for value in values],
            width=0.94,
            name=label,
            marker={"color": "#9aa1a9" if cut.startswith("other") else ramp(index, len(order))},
            customdata=[f"{hour}:00 – {hour + 1}:00" for hour in range(values.size)],
            hovertemplate=f"<b>{plain(cut)}</b> %{{y:.1f}} % of the GPUs<br>%{{customdata}}<extra></extra>",
        )
    figure.update_xaxes(title_text="time (h)", range=[0, edges_s.size - 1], nticks=N_TICKS, fixedrange=True)
    figure.update_yaxes(title_text="share of GPUs (%)", range=[0, 100], fixedrange=True)
    figure.update_layout(
        barmode="stack", legend={"y": -0.18, "yanchor": "top", "traceorder": "normal"}, showlegend=True
    )
    figure.update_layout(meta={"phone": {"layout": {"height": 520, "legend.y": -0.16, "xaxis.nticks": 6}}})
    return figure


def _over_time(samples: Sequence[SampleDay], order: Sequence[str], y_title: str, unit: str) -> go.Figure:
    figure = sheet(360)
    places = list(dict.fromkeys([*order, *(sample.policy for sample in samples)]))
    for sample in samples:
        index = places.index(sample.policy)
        figure.add_scatter(
            mode="lines",
            name=sample.policy,
            line={"color": colour(index), "dash": dash(index), "width": 1.6, "shape": "hv"},
            hovertemplate=f"%{{y:.2f}} {unit}<extra>{plain(sample.policy)}</extra>",
        )
    figure.update_xaxes(title_text="time (h)", hoverformat=".2f", showline=True, nticks=N_TICKS)
    figure.update_yaxes(title_text=y_title, rangemode="tozero", fixedrange=True)
    figure.update_layout(hovermode="x unified", showlegend=True)
    return legend_below_on_phone(figure)


def _set_steps(trace: Any, edges_s: Floats, values: Floats) -> None:
    """The bin means as a step line; the last one is said twice so that its step has a length."""
    trace.x0 = 0
    trace.dx = float(edges_s[1] - edges_s[0]) / 3600
    trace.y = np.append(values, values[-1]).astype(np.float32)


_CORNERS = {"top right": (1, 1), "bottom right": (1, -1), "top left": (-1, 1), "bottom left": (-1, -1)}
"""Where a label may stand from its marker; straight to the sides it would lie on the marker's own bars."""


def _label_corners(
    names: Sequence[str],
    across: Sequence[Estimate],
    up: Sequence[Estimate],
    x_range: tuple[float, float],
    log: bool,
) -> list[str]:
    """The corner for each label where it covers least of other markers, their bars and labels placed before.

    Works in pixels of a wide screen, as an estimate: a label is a box of 7 by 16 pixels a letter.
    """

    def height(value: float) -> float:
        return math.log10(max(value, 1e-9)) if log else value

    levels = [height(value.mean) for value in up]
    wide_px, tall_px = 1050 / (x_range[1] - x_range[0]), 300 / ((max(levels) - min(levels)) or 1.0)
    obstacles: list[tuple[int, float, float]] = []
    for index, (x, y) in enumerate(zip(across, up, strict=True)):
        half_x, half_y = (value if math.isfinite(value) else 0.0 for value in (x.half_width, y.half_width))
        for step in np.linspace(-1.0, 1.0, 17):
            obstacles.append((index, (x.mean + step * half_x) * wide_px, levels[index] * tall_px))
            obstacles.append((index, x.mean * wide_px, height(y.mean + step * half_y) * tall_px))
    corners = []
    for index in range(len(names)):
        half = 3.5 * len(names[index])
        at_x, at_y = across[index].mean * wide_px, levels[index] * tall_px
        others = [(ox, oy) for who, ox, oy in obstacles if who != index]
        boxes = {name: (at_x + right * (half + 8), at_y + above * 13) for name, (right, above) in _CORNERS.items()}
        covered = {name: _covered(box, half, others) for name, box in boxes.items()}
        corners.append(min(covered, key=covered.__getitem__))
        label_x, label_y = boxes[corners[-1]]
        obstacles += [(index, float(px), label_y) for px in np.linspace(label_x - half, label_x + half, 9)]
    return corners


def _covered(box: tuple[float, float], half: float, points: Sequence[tuple[float, float]]) -> int:
    """How many points lie in a label's box."""
    return sum(abs(box[0] - x) < half + 4 and abs(box[1] - y) < 12 for x, y in points)
