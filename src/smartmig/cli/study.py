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
from smartmig.metrics.study import Row
from smartmig.report.study import said_over, study_cells, write_study
from smartmig.reproduce.s1 import LAYOUTS
from smartmig.sim.mig.run import Cluster
from smartmig.train.study import ablations, algorithms, run_study


class Study(StrEnum):
    """What is varied."""

    ablations = "ablations"
    algorithms = "algorithms"


def study(
    what: Annotated[Study, typer.Argument(help="ablations: one setting of S1's changed at a time; algorithms.")],
    steps: Annotated[int, typer.Option(min=64, help="Placings each variant learns from (S1: 500000).")] = 50_000,
    days: Annotated[int, typer.Option(min=2, help="Test days.")] = 20,
    trainings: Annotated[int, typer.Option(min=1, help="Times each variant is trained, with other seeds.")] = 1,
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
        rows = run_study(train_placer, cluster, variants, days, trainings, multiplier, tell, shares, kept)
    write_study(path, f"S1's placing: {what.value}", rows, days, trainings)
    if json_output:
        print_json([_json(row) for row in rows])
    else:
        headings, *lines = study_cells(rows)
        table = Table(title=f"S1's placing, {what.value}: {said_over(days, trainings)}", title_justify="left")
        for at, heading in enumerate(headings):
            table.add_column(heading, justify="right" if at else "left")
        for line in lines:
            table.add_row(*line)
        output().print(table)
    log(f"wrote {path}")


def _json(row: Row) -> dict[str, Any]:
    numbers = {name: row.of(name) for name in ("late_frac", "mean_tardiness_s", "energy_j", "et")}
    return {
        "group": row.group,
        "label": row.label,
        "steps": row.steps,
        "train_s": row.train_s,
        "trainings": len(row.runs) if row.steps else 0,
        "return": row.earned,
        **{name: {"mean": value.mean, "half_width": value.half_width} for name, value in numbers.items()},
    }
