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
from smartmig.metrics.summary import tardiness_s
from smartmig.report.comparison import Comparison, SampleDay
from smartmig.report.day import mean_power_w, mean_waiting, merge_segments, paint, segments_of, time_grid
from smartmig.report.drawing import error, legend_below_on_phone, plain, said, sheet
from smartmig.report.tables import scaled
from smartmig.report.theme import LATE, ON_TIME, colour, dash, hatch, marker
from smartmig.types import Floats, Ints, Segments

MAX_RECTANGLES = 12_000
"""More than this many shapes take a browser over a second: beyond it the day is drawn as one picture."""

MAX_HOVERS = 2000
"""Stretches that answer the pointer when the day is one picture."""

PICTURE_COLUMNS = 6000
"""A day at about 14 s a pixel: four times the width of a screen, for zooming in."""

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
    """Energy against mean tardiness, one marker per policy; the lower left corner is best."""
    names = [runs.name for runs in comparison.policies]
    energy = [estimate(comparison.values(name, "energy_kwh")) for name in names]
    late = [scaled(estimate(comparison.values(name, "mean_tardiness_s")), 1 / 60) for name in names]
    means = [value.mean for value in late]
    # Policies often differ tenfold in tardiness; on a linear axis the good ones would sit on top of each other.
    log = min(means) > 0 and max(means) / min(means) > 8
    heights = [math.log10(mean) if log else mean for mean in means]
    reach = [value.half_width if math.isfinite(value.half_width) else 0.0 for value in energy]
    low = min(value.mean - half for value, half in zip(energy, reach, strict=True))
    high = max(value.mean + half for value, half in zip(energy, reach, strict=True))
    room = (high - low or 1.0) * 0.28
    sides = _label_corners(names, energy, late, (low - room, high + room), log)
    figure = sheet(460)
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
        # Plotly writes 20 and 0.2 both as "2" between powers of ten.
        ticks = [digit * 10.0**power for power in range(-4, 7) for digit in (1, 2, 5)]
        figure.update_yaxes(type="log", range=[min(heights) - 0.35, max(heights) + 0.3])
        figure.update_yaxes(tickvals=ticks, ticktext=[f"{tick:g}" for tick in ticks])
    else:
        figure.update_yaxes(rangemode="tozero")
    figure.update_yaxes(title_text=f"mean tardiness (min{', log scale' if log else ''})", showline=True)
    figure.update_layout(
        showlegend=False,
        meta={
            "phone": {
                "layout": {"showlegend": True, "legend.y": -0.22, "legend.yanchor": "top", "height": 520},
                "data": {"mode": "markers"},
            }
        },
    )
    return figure


def policy_bars(comparison: Comparison) -> go.Figure:
    """Four panels of bars over the same policies, each with its own unit and 95 % intervals."""
    names = [runs.name for runs in comparison.policies]
    colours = [colour(index) for index in range(len(names))]
    height = 90 + 34 * len(names)
    figure = sheet(height, margin={"t": 16})
    phone: dict[str, Any] = {"height": len(PANELS) * (70 + 28 * len(names))}
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
            f"yaxis{number}.domain": [top - tall * 0.62, top],
            f"yaxis{number}.showticklabels": True,
        }
    figure.update_layout(meta={"phone": {"layout": phone}})
    return figure


def slice_timeline(sample: SampleDay) -> go.Figure:
    """Every GPU as a band of its memory slices over the day, every stretch of a job as a rectangle on its instance.

    A day with more than MAX_RECTANGLES stretches becomes one picture, and the longest of them answer the pointer.
    """
    drawn = merge_segments(segments_of(sample))
    late_s = tardiness_s(sample.jobs, sample.run)
    late = late_s[drawn.job] > 0
    tops = np.cumsum([0, *(slices + 1 for slices in sample.memory_slices)])
    centre = tops[drawn.gpu] + drawn.start + drawn.span / 2
    figure = sheet(90 + int(min(1400, max(11.0 * tops[-1], 8 * len(sample.gpu_names)))), margin={"t": 34, "b": 44})
    end_h = max(sample.run.makespan_s, 1e-9) / 3600
    dense = drawn.job.size > MAX_RECTANGLES
    if dense:
        rows = max(2, min(6, 4000 // int(tops[-1])))
        edges_s = np.linspace(0.0, end_h * 3600, min(PICTURE_COLUMNS, math.ceil(end_h * 3600)) + 1)
        source = paint(drawn, late, sample.memory_slices, edges_s, (ON_TIME, LATE), rows)
        picture = {"source": source, "xref": "x", "yref": "y", "sizing": "stretch", "layer": "above"}
        figure.add_layout_image(picture | {"x": 0, "y": 0, "sizex": end_h, "sizey": int(tops[-1]), "yanchor": "top"})
        longest = np.argsort(drawn.from_s - drawn.to_s, kind="stable")[:MAX_HOVERS]
        figure.add_scatter(
            x=_hours((drawn.from_s + drawn.to_s)[longest] / 2),
            y=centre[longest].astype(np.float32),
            mode="markers",
            marker={"size": 6, "opacity": 0},
            customdata=_stretch_facts(sample, drawn, late_s, longest),
            hovertemplate=_STRETCH_HOVER,
            showlegend=False,
        )
    else:
        for is_late, name, paint_colour in ((False, "on time", ON_TIME), (True, "late", LATE)):
            chosen = np.flatnonzero(late == is_late)
            figure.add_bar(
                orientation="h",
                # Plotly keeps this one as plain numbers, so short ones: 1e-5 h is 36 ms.
                base=np.round(drawn.from_s[chosen] / 3600, 5).tolist(),
                x=_hours((drawn.to_s - drawn.from_s)[chosen]),
                y=centre[chosen].astype(np.float32),
                width=(drawn.span[chosen] - 0.14).astype(np.float32),
                marker={"color": paint_colour},
                customdata=_stretch_facts(sample, drawn, late_s, chosen),
                hovertemplate=_STRETCH_HOVER,
                name=name,
                showlegend=False,
            )
    for gpu, slices in enumerate(sample.memory_slices):
        y0 = int(tops[gpu])
        figure.add_shape(type="rect", x0=0, x1=end_h, y0=y0, y1=y0 + slices, xref="x", yref="y")
    figure.add_annotation(
        text=f'<span style="color:{ON_TIME}">■</span> on time   <span style="color:{LATE}">■</span> late',
        **{"x": 0, "y": 1, "xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "bottom", "yshift": 6},
    )
    unique = len(set(sample.gpu_names)) == len(sample.gpu_names)
    figure.update_yaxes(
        tickvals=[tops[gpu] + slices / 2 for gpu, slices in enumerate(sample.memory_slices)],
        ticktext=[name if unique else f"{gpu} · {name}" for gpu, name in enumerate(sample.gpu_names)],
        range=[int(tops[-1]), -0.5],
        showgrid=False,
        ticks="",
        fixedrange=True,
    )
    told = f"   ·   the pointer finds the {MAX_HOVERS:,} longest of {drawn.job.size:,} stretches" if dense else ""
    figure.update_xaxes(title_text=f"time (h){told}", range=[0, end_h], nticks=N_TICKS)
    figure.update_layout(
        barmode="overlay",
        hovermode="closest",
        hoverdistance=12,
        meta={
            "phone": {
                "layout": {
                    "dragmode": False,
                    "xaxis.nticks": 6,
                    "height": 90 + int(min(1000, 7.5 * tops[-1])),
                    "yaxis.tickfont.size": 10,
                    "xaxis.title.text": "time (h)",
                }
            }
        },
    )
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


_STRETCH_HOVER = (
    "<b>job %{customdata[0]}</b>  %{customdata[1]}<br>%{customdata[2]} on GPU %{customdata[3]}<br>"
    "%{customdata[4]}<br>deadline %{customdata[5]}<br>%{customdata[6]}<extra></extra>"
)


def _stretch_facts(sample: SampleDay, drawn: Segments, late_s: Floats, chosen: Ints) -> list[list[str]]:
    facts = []
    for index in chosen:
        job, gpu = drawn.job[index], drawn.gpu[index]
        facts.append(
            [
                str(sample.jobs.job_id[job]),
                str(sample.jobs.kind[job]),
                f"{drawn.size[index]}g",
                f"{gpu} · {sample.gpu_names[gpu]}",
                f"{_clock(drawn.from_s[index])} – {_clock(drawn.to_s[index])}",
                _clock(sample.jobs.deadline_s[job]),
                f"late by {late_s[job] / 60:.1f} min" if late_s[job] > 0 else "on time",
            ]
        )
    return facts


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


def _hours(time_s: Floats) -> Any:
    # 32 bits keep a week to a tenth of a second at half the size.
    return (time_s / 3600).astype(np.float32)


def _clock(time_s: float) -> str:
    whole = int(time_s)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


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
