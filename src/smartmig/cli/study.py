"""`smartmig study`: placing learned a step at a time: S1's ablations, and its algorithm against others."""

from __future__ import annotations

import shutil
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from smartmig.cli.console import Json, log, output, prepare_place, print_json, progress_bar
from smartmig.cli.options import Gpus
from smartmig.cli.train import needs_torch
from smartmig.hardware.cluster import parse_gpus, parse_layouts
from smartmig.report.page import Section, write_page
from smartmig.report.published import published_bars
from smartmig.reproduce.s1 import LAYOUTS
from smartmig.sim.mig.run import Cluster
from smartmig.train.study import Row, ablations, algorithms, run_study


class Study(StrEnum):
    """What is varied."""

    ablations = "ablations"
    algorithms = "algorithms"


HEADINGS = ("", "", "placings", "trained (s)", "return", "late (%)", "tardiness (min)", "energy (kWh)", "ET")


def study(
    what: Annotated[Study, typer.Argument(help="ablations: one setting of S1's changed at a time; algorithms.")],
    steps: Annotated[int, typer.Option(min=64, help="Placings each variant learns from (S1: 500000).")] = 50_000,
    days: Annotated[int, typer.Option(min=2, help="Test days.")] = 20,
    gpus: Gpus = "8xa100-40gb",
    layouts: Annotated[str, typer.Option(help="How each GPU is cut; default: S1's.")] = LAYOUTS,
    multiplier: Annotated[float, typer.Option(help="Load of the days (20 for 8 GPUs).")] = 20.0,
    seed: Annotated[int, typer.Option(min=0, help="Of everything drawn.")] = 0,
    figure: Annotated[Path | None, typer.Option(help="Where the picture goes; default out/study-<what>.html.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Do not train again what an earlier run has.")] = False,
    json_output: Json = False,
) -> None:
    """Train MaskablePPO as S1 does, with one thing changed at a time, or other algorithms on the same budget.

    Needs stable-baselines3 and sb3-contrib. Every variant runs on the same test days, without preemption. What is
    trained lies in a folder beside the picture, for --resume.
    """
    with needs_torch("sb3"):
        from smartmig.train.stepwise import train_placer
    path = figure or Path("out") / f"study-{what.value}.html"
    prepare_place(path)
    cards = parse_gpus(gpus, "--gpus")
    cluster = Cluster(cards, parse_layouts(layouts, cards, "--layouts"))
    variants = (ablations if what is Study.ablations else algorithms)(steps, seed)
    shares = (0.25, 0.5) if what is Study.algorithms else ()
    kept = path.with_suffix(".trained")
    if not resume:
        shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(exist_ok=True)
    with progress_bar() as tell:
        rows = run_study(train_placer, cluster, variants, days, multiplier, tell, shares, kept)
    cells = [_cells(row) for row in rows]
    _draw(path, what, rows, cells, days)
    if json_output:
        print_json([_json(row) for row in rows])
    else:
        table = Table(title=f"S1's placing, {what.value}: {days} test days, mean ± 95 % interval", title_justify="left")
        for heading in HEADINGS:
            table.add_column(heading, justify="left" if not heading else "right")
        for line in cells:
            table.add_row(*line)
        output().print(table)
    log(f"wrote {path}")


def _cells(row: Row) -> list[str]:
    def said(name: str, digits: int, scale: float = 1.0) -> str:
        value = row.of(name, scale)
        return f"{value.mean:.{digits}f} ± {value.half_width:.{digits}f}"

    learned = row.steps > 0
    return [
        row.group,
        row.label,
        f"{row.steps:,}" if learned else "",
        f"{row.train_s:.0f}" if learned else "",
        f"{sum(row.earned) / len(row.earned):.4g}" if learned else "",
        said("late_frac", 1, 100.0),
        said("mean_tardiness_s", 2, 1 / 60),
        said("energy_kwh", 2),
        said("et", 3),
    ]


def _json(row: Row) -> dict[str, Any]:
    numbers = {name: row.of(name) for name in ("late_frac", "mean_tardiness_s", "energy_j", "et")}
    return {
        "group": row.group,
        "label": row.label,
        "steps": row.steps,
        "train_s": row.train_s,
        "return": sum(row.earned) / len(row.earned) if row.earned else None,
        **{name: {"mean": value.mean, "half_width": value.half_width} for name, value in numbers.items()},
    }


def _draw(path: Path, what: Study, rows: list[Row], cells: list[list[str]], days: int) -> None:
    of_steps = what is Study.algorithms
    labels = [f"{row.label}, {row.steps:,}" if of_steps and row.steps else f"{row.group}: {row.label}" for row in rows]
    sections = [
        Section(title, "", published_bars(labels, {"": [row.of(name, scale) for row in rows]}, {}, title), None)
        for title, name, scale in (("late (%)", "late_frac", 100.0), ("ET", "et", 1.0))
    ]
    sections.append(Section("Numbers", "", None, [list(HEADINGS), *cells]))
    intro = f"Every variant on the same {days} test days; means, with 95 % intervals as whiskers."
    write_page(path, f"S1's placing: {what.value}", intro, sections)
