"""One HTML file that holds everything: text, tables, figures and the library that draws them. It asks no network."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from smartmig.atomic import atomic_write
from smartmig.report import figures
from smartmig.report.comparison import Comparison, SampleDay
from smartmig.report.tables import caption, comparison_cells
from smartmig.report.theme import FONT, template
from smartmig.report.timeline import slice_timeline


@dataclass(frozen=True, eq=False)
class Section:
    """One part of a page: a heading, what it says, and a figure or a table or neither."""

    title: str
    text: str
    """plain text; a blank line starts a paragraph, lines that start with `- ` are a list"""
    figure: go.Figure | None = None
    table_rows: Sequence[Sequence[str]] | None = None
    """the headings, then the rows; the first cell of a row names it"""
    strong_row: int | None = None
    """which row (from 0, headings not counted) stands out"""


def write_page(path: Path, title: str, intro: str, sections: Sequence[Section]) -> None:
    """Write the page at once. Raises `InputError` when `path` cannot be written."""
    body = "\n".join(_section(index, section) for index, section in enumerate(sections))
    contents = "".join(
        f'<li><a href="#part-{index}">{html.escape(section.title)}</a></li>' for index, section in enumerate(sections)
    )
    has_figures = any(section.figure is not None for section in sections)
    themes = _script_json({"light": template(), "dark": template(dark=True)})
    draw = resources.files("smartmig.report").joinpath("static/page.js").read_text(encoding="utf-8")
    drawing = (
        f"<script>{get_plotlyjs()}</script>\n"
        f'<script type="application/json" id="themes">{themes}</script>\n<script>{draw}</script>\n'
        if has_figures
        else ""
    )
    with atomic_write(path) as stream:
        stream.write(
            f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f'<meta name="color-scheme" content="light dark">\n'
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
            f"<title>{html.escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
            f'<header><h1>{html.escape(title)}</h1>\n<div class="intro">{_prose(intro)}</div>\n'
            f'<nav aria-label="Contents"><ul>{contents}</ul></nav></header>\n<main>\n'
        )
        if has_figures:
            stream.write("<noscript><p>The figures need JavaScript; the text and tables do not.</p></noscript>\n")
        stream.write(f"{body}\n</main>\n{drawing}</body>\n</html>\n")


def comparison_page(
    path: Path, comparison: Comparison, samples: Sequence[SampleDay], extra: Sequence[Section] = ()
) -> None:
    """The whole report of a comparison; `samples` are the days drawn in full, `extra` comes before the notes."""
    write_page(path, comparison.title, *comparison_parts(comparison, samples, extra))


def comparison_parts(
    comparison: Comparison, samples: Sequence[SampleDay], extra: Sequence[Section] = ()
) -> tuple[str, list[Section]]:
    """What the report says first, and its sections."""
    names = [runs.name for runs in comparison.policies]
    headings, rows, best = comparison_cells(comparison)
    table = [headings, *([f"{value} {beside}".strip() for value, beside in row] for row in rows)]
    sections = [Section("Results", caption(comparison), table_rows=table, strong_row=best)]
    if len(names) > 1 or comparison.bound_energy_j is not None:
        sections += _costs(comparison)
    sections += day_sections(samples, names)
    if any(summary.config_frac for runs in comparison.policies for summary in runs.summaries):
        sections.append(
            Section(
                "How the GPUs were cut",
                "Share of GPU time in each configuration, mean over the seeds.",
                figures.config_shares(comparison),
            )
        )
    sections += extra
    if comparison.notes:
        sections.append(Section("Notes", "\n".join(f"- {note}" for note in comparison.notes)))
    n_jobs = sum(summary.n_jobs for summary in comparison.policies[0].summaries) / len(comparison.seeds)
    least = rows[best]
    intro = (
        f"{len(names)} {'policy' if len(names) == 1 else 'policies'} on {len(comparison.seeds)} "
        f"{'seed' if len(comparison.seeds) == 1 else 'seeds'} of about {n_jobs:,.0f} jobs. "
        f"Least ET: {least[0][0]}, {' '.join(least[5]).strip()}."
    )
    return intro, sections


def _costs(comparison: Comparison) -> list[Section]:
    return [
        Section(
            "Energy against tardiness",
            "Each marker is a policy's mean over the seeds, the bars its 95 % intervals. Lower left is better. The "
            "dotted line joins the Pareto front: the policies that no other one beats in both."
            + (" No schedule lies in the grey area." if comparison.bound_energy_j is not None else ""),
            figures.energy_tardiness_scatter(comparison),
        ),
        Section(
            "Policy by policy",
            "Means over the seeds with 95 % intervals. Shorter is better in every panel.",
            figures.policy_bars(comparison),
        ),
    ]


def day_sections(samples: Sequence[SampleDay], order: Sequence[str] = ()) -> list[Section]:
    """Days drawn in full: slices, power, queue, cuts by the hour; `order` names policies whose colours lines keep."""
    if not samples:
        return []
    sections = [
        Section(
            f"The day under {sample.policy}",
            "Each band is a GPU, from its first memory slice at the top to its last; frames are the instances it is "
            "cut into. A block is a job on its instance, strong where the job ended after its deadline. Without a "
            "frame it is being re-cut or not cut at all. With a mouse, drag across to zoom in, point at a job to see "
            "which one it is, double-click to go back.",
            slice_timeline(sample),
        )
        for sample in samples
    ]
    sections += [
        Section(
            "Power over the day",
            "All GPUs together, idle power included, mean of each time step.",
            figures.power_over_time(samples, order),
        ),
        Section(
            "Waiting jobs",
            "Jobs that have arrived, are not done and hold no slice, mean of each time step.",
            figures.queue_over_time(samples, order),
        ),
    ]
    recut = [sample for sample in samples if sample.run.n_repartitions] or samples[:1]
    return sections + [
        Section(
            f"Cuts by the hour under {sample.policy}",
            "Share of the GPUs in each configuration, hour by hour: blue is cut into few slices, brown into many.",
            figures.cuts_by_hour(sample),
        )
        for sample in recut
        if sample.run.cuts is not None
    ]


def _section(index: int, section: Section) -> str:
    parts = [f'<section id="part-{index}"><h2>{html.escape(section.title)}</h2>', _prose(section.text)]
    if section.table_rows is not None:
        parts.append(_table(section))
    if section.figure is not None:
        parts.append(_drawn(index, section))
    return "\n".join([*parts, "</section>"])


def _table(section: Section) -> str:
    rows = section.table_rows or [[]]
    head = "".join(f'<th scope="col">{html.escape(cell)}</th>' for cell in rows[0])
    lines = []
    for number, row in enumerate(rows[1:]):
        first = f'<th scope="row">{html.escape(row[0])}</th>' if row else ""
        rest = "".join(f"<td>{_quiet_interval(cell)}</td>" for cell in row[1:])
        strong = ' class="best"' if number == section.strong_row else ""
        lines.append(f"<tr{strong}>{first}{rest}</tr>")
    name = html.escape(section.title, quote=True)
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{name}"><table><caption>{name}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def _quiet_interval(cell: str) -> str:
    value, mark, beside = cell.partition(" ± ")
    return html.escape(value) + (f' <span class="quiet">± {html.escape(beside)}</span>' if mark else "")


def _drawn(index: int, section: Section) -> str:
    """The figure as data, without its template: the page holds both templates once."""
    content, height, narrow = figure_data(section.figure)
    label = html.escape(section.title, quote=True)
    zoom = _ZOOM.replace("NAME", label) if "zoom" in (content["layout"].get("meta") or {}) else ""
    return (
        f'<figure>{zoom}<div class="plot" role="group" aria-label="{label}" data-figure="figure-{index}" '
        f'style="--tall:{height}px;--tall-narrow:{narrow}px"></div></figure>\n'
        f'<script type="application/json" id="figure-{index}">{_script_json(content)}</script>'
    )


def figure_data(figure: Any) -> tuple[dict[str, Any], int, int]:
    """A figure as plain data without its template; its height, and that on a narrow screen."""
    content: dict[str, Any] = json.loads(figure.to_json())
    layout = content["layout"]
    layout.pop("template", None)
    height = layout.get("height", 450)
    narrow = ((layout.get("meta") or {}).get("phone") or {}).get("layout", {}).get("height", height)
    return content, height, narrow


def _prose(text: str) -> str:
    parts: list[str] = []
    for block in text.split("\n\n"):
        lines = [line.strip() for line in block.strip().splitlines() if line.strip()]
        if lines and all(line.startswith("- ") for line in lines):
            parts.append("<ul>" + "".join(f"<li>{html.escape(line[2:])}</li>" for line in lines) + "</ul>")
        elif lines:
            parts.append(f"<p>{html.escape(' '.join(lines))}</p>")
    return "\n".join(parts)


def _script_json(content: Any) -> str:
    # A `</script>` or `<!--` inside a string would end or hide the element that holds it.
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False, allow_nan=False).replace("<", "\\u003c")


_ZOOM = (
    '<div class="zoom" role="group" aria-label="Window of: NAME" hidden>'
    '<button type="button" data-step="in">Zoom in</button><button type="button" data-step="out">Zoom out</button>'
    '<button type="button" data-step="back">Earlier</button><button type="button" data-step="on">Later</button>'
    '<button type="button" data-step="all">Whole day</button><output></output></div>'
)

_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; font-src data:"
)
"""The browser itself refuses every request: what the page shows is in the page."""

_LIGHT = "--paper:#ffffff;--ink:#1c2128;--quiet:#59626d;--line:#dfe4ea;--tint:#f1f4f7;--accent:#1f6aa5"
_DARK = "--paper:#15181d;--ink:#e4e7eb;--quiet:#a3abb5;--line:#2c323a;--tint:#1f242b;--accent:#6fb3e6"

_STYLE = f"""
:root{{color-scheme:light dark;{_LIGHT}}}
@media (prefers-color-scheme:dark){{:root{{{_DARK}}}}}
*{{box-sizing:border-box}}
html{{scroll-behavior:smooth;-webkit-text-size-adjust:100%}}
body{{margin:0 auto;max-width:1180px;padding:0 24px 64px;background:var(--paper);color:var(--ink);
font:16px/1.55 {FONT}}}
header{{padding:40px 0 8px}}
h1{{font-size:clamp(1.5rem,4vw,2.1rem);line-height:1.2;margin:0 0 12px;text-wrap:balance}}
h2{{font-size:1.2rem;line-height:1.3;margin:0 0 6px}}
p,li{{max-width:84ch}}
p{{margin:0 0 12px}}
section>p{{color:var(--quiet);font-size:.94rem}}
.intro{{font-size:1.05rem}}
nav ul{{display:flex;flex-wrap:wrap;gap:4px 18px;list-style:none;margin:12px 0 0;padding:0;font-size:.9rem}}
a{{color:var(--accent)}}
section{{padding:28px 0 12px;border-top:1px solid var(--line);margin-top:20px}}
figure{{margin:0}}
.plot{{width:100%;min-height:var(--tall)}}
.zoom{{display:flex;flex-wrap:wrap;gap:6px;align-items:center;margin:4px 0 8px;font-size:.88rem}}
.zoom[hidden]{{display:none}}
.zoom output{{color:var(--quiet);margin-left:6px}}
.zoom button{{font:inherit;color:var(--ink);background:var(--tint);border:1px solid var(--line);border-radius:6px;
padding:4px 10px;cursor:pointer}}
.zoom button:hover{{border-color:var(--accent)}}
.zoom button:focus-visible{{outline:2px solid var(--accent);outline-offset:2px}}
.scroll{{overflow-x:auto;margin:8px 0}}
.scroll:focus-visible{{outline:2px solid var(--accent);outline-offset:2px}}
table{{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums;min-width:100%}}
caption{{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}}
th,td{{padding:7px 10px;text-align:right;vertical-align:top;border-bottom:1px solid var(--line);white-space:nowrap}}
thead th{{white-space:normal;vertical-align:bottom;font-weight:600;color:var(--quiet);font-size:.84rem;min-width:5.2em}}
th:first-child{{text-align:left;padding-left:0;position:sticky;left:0;background:var(--paper)}}
tbody th{{font-weight:500}}
.best th,.best td{{font-weight:700;background:var(--tint)}}
.best th:first-child{{background:linear-gradient(90deg,var(--accent) 3px,var(--tint) 3px);padding-left:10px}}
.quiet{{display:block;color:var(--quiet);font-weight:400;font-size:.86em}}
@media (max-width:640px){{body{{padding:0 14px 40px;font-size:15px}}header{{padding-top:24px}}
.plot{{min-height:var(--tall-narrow)}}
tbody th{{white-space:normal;min-width:8.5em;border-right:1px solid var(--line)}}}}
@page{{margin:14mm}}
@media print{{:root{{{_LIGHT}}}body{{max-width:none;padding:0;font-size:11pt}}nav,.zoom{{display:none!important}}
section{{break-inside:avoid;border:0}}.scroll{{overflow:visible}}table{{font-size:7pt;min-width:0;width:100%}}
th,td{{padding:3px}}tbody th{{white-space:normal}}thead th{{min-width:0}}.modebar{{display:none!important}}
*{{print-color-adjust:exact;-webkit-print-color-adjust:exact}}}}
"""
