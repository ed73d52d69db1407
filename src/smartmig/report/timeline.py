"""The slice timeline: every GPU's cut over the day with the jobs on it.

The figure holds a picture of the whole day and, packed in `layout.meta["zoom"]`, the stretches and instances
themselves; the page draws those of the window as soon as they are few enough, and goes back to the picture when not.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import plotly.graph_objects as go

from smartmig.metrics.summary import tardiness_s
from smartmig.report.comparison import SampleDay
from smartmig.report.day import merge_segments, segments_of
from smartmig.report.drawing import sheet
from smartmig.report.packed import pack_integers, pack_texts
from smartmig.report.picture import paint_gpus, paint_slices
from smartmig.report.theme import LATE, ON_TIME
from smartmig.types import Floats, Ints, Segments

DRAWN_AT_ONCE = 6000
"""Rectangles a browser draws without a pause; with more of them in the window the picture stays."""

MIN_KEPT = 100_000
"""Stretches a page holds at least; beyond them it holds two a job, the longest, so that it stays a file to mail."""

SLICES_DRAWN = 400
"""Memory slices of a cluster up to which the picture shows each; above, a GPU is one shade."""

PICTURE_COLUMNS = 2880
"""A day at half a minute a pixel: finer than a screen, and zooming in shows the jobs themselves."""

TICK_S = 0.1
"""Times in the page count in tenths of a second."""

PHONE_HEIGHT_PX = 1000


def slice_timeline(sample: SampleDay) -> go.Figure:
    """Every GPU as a band of its memory slices over the day, every stretch of a job as a rectangle on its instance."""
    drawn = merge_segments(segments_of(sample))
    late_s = tardiness_s(sample.jobs, sample.run)
    tops = np.cumsum([0, *(slices + 1 for slices in sample.memory_slices)])
    end_s = max(sample.run.makespan_s, 1e-6)
    kept = _longest(drawn, max(MIN_KEPT, 2 * len(sample.jobs)))
    figure = sheet(90 + int(min(1400, max(11.0 * tops[-1], 8 * len(sample.gpu_names)))), margin={"t": 34, "b": 44})
    figure.add_layout_image(
        source=_picture(sample, drawn, late_s, end_s),
        **{"x": 0, "y": 0, "sizex": end_s / 3600, "sizey": int(tops[-1]), "yanchor": "top"},
        **{"xref": "x", "yref": "y", "sizing": "stretch", "layer": "above"},
    )
    for name, fill, line in (
        ("instance", "rgba(122,128,136,.10)", "rgba(122,128,136,.75)"),
        ("on time", ON_TIME, ON_TIME),
        ("late", LATE, LATE),
    ):
        # Filled by the page, which knows the window.
        figure.add_bar(orientation="h", x=[], y=[], name=name, showlegend=False)
        figure.data[-1].marker = {"color": fill, "line": {"color": line, "width": 1 if name == "instance" else 0}}
    # All at once: plotly checks every shape again for each one added.
    edge = {"type": "rect", "x0": 0, "x1": end_s / 3600, "xref": "x", "yref": "y"}
    bands = zip(tops.tolist(), sample.memory_slices, strict=False)
    figure.update_layout(shapes=[edge | {"y0": top, "y1": top + slices} for top, slices in bands])
    marks = f'<span style="color:{ON_TIME}">■</span> on time   <span style="color:{LATE}">■</span> late   □ instance'
    corner = {"x": 0, "y": 1, "xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "bottom", "yshift": 6}
    figure.add_annotation(text=marks, **corner)
    unique = len(set(sample.gpu_names)) == len(sample.gpu_names)
    ticks = _ticks(len(sample.gpu_names))
    figure.update_yaxes(
        tickvals=[float(tops[gpu] + sample.memory_slices[gpu] / 2) for gpu in ticks],
        ticktext=[sample.gpu_names[gpu] if unique else f"{gpu} · {sample.gpu_names[gpu]}" for gpu in ticks],
        range=[int(tops[-1]), -0.5],
        showgrid=False,
        ticks="",
        fixedrange=len(sample.gpu_names) <= 16,
    )
    figure.update_xaxes(title_text="time (h)", range=[0, end_s / 3600], nticks=14)
    tall = 90 + int(min(PHONE_HEIGHT_PX, 7.5 * tops[-1]))
    phone = {"dragmode": False, "xaxis.nticks": 6, "height": tall, "yaxis.tickfont.size": 10}
    figure.update_layout(
        barmode="overlay",
        hovermode="closest",
        meta={
            "phone": {"layout": phone},
            "zoom": {
                "at_once": DRAWN_AT_ONCE,
                "end_h": end_s / 3600,
                "n_stretches": int(drawn.job.size),
                "gpus": [*sample.gpu_names],
                "tops": tops[:-1].tolist(),
                "stretches": _packed(_chosen(drawn, kept)),
                "instances": _packed(_instances(sample)),
                "jobs": _packed_jobs(sample, late_s),
            },
        },
    )
    return figure


def _longest(drawn: Segments, n: int) -> Ints:
    """Which stretches the page holds, in their order."""
    if drawn.job.size <= n:
        return np.arange(drawn.job.size)
    return np.sort(np.argpartition(drawn.from_s - drawn.to_s, n)[:n])


def _chosen(segments: Segments, which: Ints) -> Segments:
    return Segments(**{name: column[which] for name, column in vars(segments).items()})


def _instances(sample: SampleDay) -> Segments:
    none = np.zeros(0, dtype=np.int64)
    there = sample.run.instances or Segments(none, none, none, none, none, np.zeros(0), np.zeros(0))
    return _chosen(there, np.lexsort((there.from_s, there.start, there.gpu)))


def _picture(sample: SampleDay, drawn: Segments, late_s: Floats, end_s: float) -> str:
    late = late_s[drawn.job] > 0
    edges_s = np.linspace(0.0, end_s, min(PICTURE_COLUMNS, math.ceil(end_s)) + 1)
    n_slices = sum(sample.memory_slices)
    if n_slices > SLICES_DRAWN:
        n_compute = [len(watts) - 1 for watts in sample.watts]
        return paint_gpus(drawn, late, sample.memory_slices, n_compute, edges_s, (ON_TIME, LATE))
    rows = max(2, min(6, 1600 // n_slices))
    return paint_slices(drawn, late, sample.memory_slices, edges_s, (ON_TIME, LATE), rows)


def _packed(segments: Segments) -> dict[str, Any]:
    begin = _tick(segments.from_s)
    return {
        "n": int(segments.job.size),
        "job": pack_integers(np.maximum(segments.job, 0)),
        "gpu": pack_integers(segments.gpu),
        "start": pack_integers(segments.start),
        "size": pack_integers(segments.size),
        "span": pack_integers(segments.span),
        "from": pack_integers(begin),
        "lasts": pack_integers(_tick(segments.to_s) - begin),
    }


def _packed_jobs(sample: SampleDay, late_s: Floats) -> dict[str, Any]:
    kinds, kind = np.unique(sample.jobs.kind, return_inverse=True)
    return {
        "n": len(sample.jobs),
        "id": pack_texts(sample.jobs.job_id),
        "kind": pack_integers(kind),
        "kinds": [str(name) for name in kinds],
        "deadline": pack_integers(_tick(np.clip(sample.jobs.deadline_s, 0.0, 1e8))),
        "late": pack_integers(_tick(late_s)),
    }


def _tick(time_s: Floats) -> Ints:
    return np.rint(np.asarray(time_s) / TICK_S).astype(np.int64)


def _ticks(n_gpus: int) -> range:
    """Which GPUs are named at the axis."""
    return range(0, n_gpus, max(1, math.ceil(n_gpus / 48)))
