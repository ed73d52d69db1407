"""`smartmig reproduce`: a published table or figure, run again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from smartmig.cli import complete
from smartmig.cli.console import Json, log, output, prepare_place, print_json, progress_bar
from smartmig.errors import InputError
from smartmig.registry import REPRODUCTIONS, load
from smartmig.reproduce import s4
from smartmig.reproduce.figure import drawn_days, write_figure
from smartmig.reproduce.reproduction import Reproduction, result_json, result_table
from smartmig.reproduce.reproduction import reproduce as run_reproduction


def reproduce(
    what: Annotated[
        str | None,
        typer.Argument(
            help="Which table or figure; without it they are listed.", autocompletion=complete.reproductions
        ),
    ] = None,
    days: Annotated[int | None, typer.Option(min=2, help="Days (seeds) per row.")] = None,
    first_seed: Annotated[int, typer.Option(min=0, help="The first day.")] = 0,
    report: Annotated[
        Path | None, typer.Option("--report", "--figure", help="Where the page goes; default out/<id>.html.")
    ] = None,
    trace: Annotated[Path | None, typer.Option(help="s4-table: file of the Helios Venus trace.")] = None,
    traces: Annotated[Path | None, typer.Option(help="s4-table: folder that holds the public traces.")] = None,
    json_output: Json = False,
) -> None:
    """Run a published table or figure again: ours with intervals beside theirs, and why they differ."""
    if what is None:
        _list(json_output)
        return
    reproduction: Reproduction | s4.GangReproduction = load(REPRODUCTIONS, "reproduction", what)()
    path = report or Path("out") / f"{reproduction.id}.html"
    if isinstance(reproduction, s4.GangReproduction):
        _gangs(reproduction, trace, traces, days or reproduction.days, first_seed, path, json_output)
        return
    if trace is not None or traces is not None:
        raise InputError(f"--trace and --traces: {reproduction.id} makes its own days")
    prepare_place(path)
    with progress_bar() as tell:
        result = run_reproduction(reproduction, days or reproduction.days, first_seed, tell)
    write_figure(path, result, drawn_days(result, first_seed))
    if json_output:
        print_json(result_json(result))
    else:
        output().print(result_table(result))
    log(f"wrote {path}")


def _gangs(
    what: s4.GangReproduction,
    trace: Path | None,
    traces: Path | None,
    n_seeds: int,
    first_seed: int,
    path: Path,
    json_output: bool,
) -> None:
    s4.find_traces(trace, traces)
    prepare_place(path)
    with progress_bar() as tell:
        result = s4.reproduce_gangs(trace, traces, n_seeds, first_seed, tell)
    s4.write_s4_page(path, what, result)
    if json_output:
        print_json(s4.result_json(what, result))
    else:
        for table in s4.result_tables(what, result):
            output().print(table)
    for line in result.missing:
        log(f"left out: {line}. {s4.WHERE_TO_GET}")
    log(f"wrote {path}")


def _list(json_output: bool) -> None:
    known: list[Reproduction | s4.GangReproduction] = [
        load(REPRODUCTIONS, "reproduction", name)() for name in REPRODUCTIONS
    ]
    if json_output:
        print_json([{"id": r.id, "title": r.title, "source": r.source, "days": r.days} for r in known])
        return
    table = Table(box=None, pad_edge=False)
    for column in ("id", "what", "source"):
        table.add_column(column)
    for reproduction in known:
        table.add_row(reproduction.id, reproduction.title, reproduction.source)
    output().print(table)
