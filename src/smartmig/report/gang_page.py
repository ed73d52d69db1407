"""A whole-GPU comparison as one page: numbers, waiting over time, utilisation by partition, who waits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import plotly.graph_objects as go

from smartmig.metrics.statistics import estimate
from smartmig.report.drawing import legend_below_on_phone, log_ticks, sheet
from smartmig.report.gang_fairness import NOTE as FAIRNESS_NOTE
from smartmig.report.gang_fairness import by_size, fairness_rows, size_names, user_rows
from smartmig.report.gang_tables import NOTE, GangComparison, comparison_rows
from smartmig.report.page import Section, write_page
from smartmig.report.theme import colour, dash
from smartmig.types import Floats

HEIGHT = 420
MOST_DRAWN = 8
"""More lines than this nobody can tell apart."""


def gang_page(path: Path, comparison: GangComparison) -> None:
    write_page(path, comparison.title, *gang_parts(comparison))


def gang_parts(comparison: GangComparison) -> tuple[str, list[Section]]:
    """What the page says first, and its sections."""
    n = len(comparison.seeds)
    of = f"{n} seeds of made-up requests, the same for all" if n > 1 else "one run each"
    policies = f"{len(comparison.policies)} {'policy' if len(comparison.policies) == 1 else 'policies'}"
    intro = f"{policies}, {of}. " + " ".join(f"{note[:1].upper()}{note[1:]}." for note in comparison.notes)
    sections = [Section("Numbers", NOTE, None, comparison_rows(comparison), _best(comparison))]
    if comparison.series:
        sections.append(waiting_section(comparison))
        sections.append(_busy(comparison))
    sections.append(_by_size(comparison))
    sections.append(Section("Who waits", FAIRNESS_NOTE, None, fairness_rows(comparison)))
    if users := user_rows(comparison):
        text = f"Mean wait in hours of the users who wait longest under {comparison.policies[0][0]}."
        sections.append(Section("Waiting by user", text, None, users))
    return intro, sections


def waiting_section(comparison: GangComparison) -> Section:
    """The queue over time, policy by policy."""
    figure = _figure("jobs in the queue")
    for at, policy in enumerate(_drawn(comparison)):
        series = comparison.series[policy]
        figure.add_scatter(
            x=_times(series.time_s),
            y=np.round(series.waiting_jobs, 2).tolist(),
            mode="lines",
            name=comparison.policies[policy][0],
            line={"color": colour(at), "dash": dash(at), "width": 1.8},
        )
    figure.update_yaxes(rangemode="tozero")
    text = f"Seed {comparison.seeds[0]}: mean length of the queue.{_left_out(comparison)}"
    return Section("Waiting over time", text, figure)


def _busy(comparison: GangComparison) -> Section:
    figure = _figure("GPUs held (%)")
    for at, policy in enumerate(_drawn(comparison)):
        name, series = comparison.policies[policy][0], comparison.series[policy]
        for part, busy in series.busy_by_part.items():
            figure.add_scatter(
                x=_times(series.time_s),
                y=np.round(100 * busy, 1).tolist(),
                mode="lines",
                name=name if len(series.busy_by_part) == 1 else f"{name}: {part}",
                line={"color": colour(at), "dash": dash(at), "width": 1.5},
            )
    figure.update_yaxes(range=[0, 104])
    text = f"Seed {comparison.seeds[0]}: share of the GPUs of each partition (GPU model) that jobs hold."
    text += _left_out(comparison)
    return Section("Utilisation by partition", text, figure)


def _by_size(comparison: GangComparison) -> Section:
    figure = _figure("mean bounded slowdown")
    sizes = size_names(comparison)
    for at, policy in enumerate(_drawn(comparison)):
        name, runs = comparison.policies[policy]
        means = [round(estimate(by_size(runs, "slowdown_by_size", size)).mean, 3) for size in sizes]
        labels = [f"{size} GPU{'s' if size != '1' else ''}" for size in sizes]
        figure.add_bar(x=labels, y=means, name=name, marker={"color": colour(at)})
    figure.update_yaxes(type="log", **log_ticks())
    text = f"Means over seeds; the axis is logarithmic.{_left_out(comparison)}"
    return Section("Slowdown by job size", text, figure)


def _drawn(comparison: GangComparison) -> list[int]:
    """The policies in the pictures, in the table's order: all, or those with the least slowdown, none of them twice."""
    if len(comparison.policies) <= MOST_DRAWN:
        return list(range(len(comparison.policies)))
    slowdowns = [comparison.values(at, "mean_bounded_slowdown") for at in range(len(comparison.policies))]
    first = {tuple(values): at for at, values in reversed(list(enumerate(slowdowns)))}
    return sorted(sorted(first.values(), key=lambda at: float(np.mean(slowdowns[at])))[:MOST_DRAWN])


def _left_out(comparison: GangComparison) -> str:
    drawn = len(_drawn(comparison))
    return f" The {drawn} policies with the least slowdown." if drawn < len(comparison.policies) else ""


def _best(comparison: GangComparison) -> int:
    places = range(len(comparison.policies))
    return min(places, key=lambda at: float(comparison.values(at, "mean_bounded_slowdown").mean()))


def _figure(title: str) -> go.Figure:
    figure = sheet(HEIGHT, margin={"t": 64})
    figure.update_yaxes(title_text=title)
    return legend_below_on_phone(figure)


def _times(time_s: Floats) -> list[str]:
    return [str(moment) for moment in time_s.astype("int64").astype("M8[s]")]
