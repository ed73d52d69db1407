"""`smartmig reproduce`: a published table or figure, run again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from smartmig.cli.console import Json, log, output, prepare_place, print_json, progress_bar
from smartmig.registry import REPRODUCTIONS, load
from smartmig.reproduce.figure import write_figure
from smartmig.reproduce.reproduction import Reproduction, result_json, result_table
from smartmig.reproduce.reproduction import reproduce as run_reproduction


def reproduce(
    what: Annotated[str | None, typer.Argument(help="Which table or figure; without it they are listed.")] = None,
    days: Annotated[int | None, typer.Option(min=2, help="Days (seeds) per row.")] = None,
    first_seed: Annotated[int, typer.Option(min=0, help="The first day.")] = 0,
    figure: Annotated[Path | None, typer.Option(help="Where the figure goes; default out/<id>.html.")] = None,
    json_output: Json = False,
) -> None:
    """Run a published table or figure again: ours with intervals beside theirs, and why they differ."""
    if what is None:
        _list(json_output)
        return
    reproduction: Reproduction = load(REPRODUCTIONS, "reproduction", what)()
    path = figure or Path("out") / f"{reproduction.id}.html"
    prepare_place(path)
    with progress_bar() as tell:
        result = run_reproduction(reproduction, days or reproduction.days, first_seed, tell)
    write_figure(path, result)
    if json_output:
        print_json(result_json(result))
    else:
        output().print(result_table(result))
    log(f"wrote {path}")


def _list(json_output: bool) -> None:
    known: list[Reproduction] = [load(REPRODUCTIONS, "reproduction", name)() for name in REPRODUCTIONS]
    if json_output:
        print_json([{"id": r.id, "title": r.title, "source": r.source, "days": r.days} for r in known])
        return
    table = Table(box=None, pad_edge=False)
    for column in ("id", "what", "source"):
        table.add_column(column)
    for reproduction in known:
        table.add_row(reproduction.id, reproduction.title, reproduction.source)
    output().print(table)
