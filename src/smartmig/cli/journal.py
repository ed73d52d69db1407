"""`smartmig journal`: look at a controller's journal, or make a trace of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from smartmig.cli.console import Json, log, prepare_place, print_json
from smartmig.cli.live_places import JournalArgument, needs
from smartmig.errors import InputError, UnknownName

app = typer.Typer(help="A controller's journal: show its records, export its jobs.", no_args_is_help=True)

NEEDED = ("smartmig journal", "sqlalchemy", "alembic")


def _open(journal: str) -> Any:
    needs(*NEEDED)
    from smartmig.control.journal import open_journal

    return open_journal(journal)


@app.command()
def show(
    journal: JournalArgument,
    kind: Annotated[list[str] | None, typer.Option(help="Only these: decision, outcome, audit, error ...")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10**9, help="The newest so many.")] = 20,
    json_output: Json = False,
) -> None:
    """The newest records, oldest of them first."""
    needs(*NEEDED)
    from dataclasses import asdict

    from smartmig.control.journal import KINDS

    for one in kind or ():
        if one not in KINDS:
            raise UnknownName("kind", one, KINDS, "--kind")
    records = list(_open(journal).records(kinds=tuple(kind or ()), limit=limit, newest=True))[::-1]
    if json_output:
        print_json([asdict(record) for record in records])
        return
    for record in records:
        text = json.dumps(record.body, ensure_ascii=False)
        print(f"{record.seq:>8} {record.time_s:>16.3f} {record.kind:9} {text[:200]}")


@app.command()
def export(
    journal: JournalArgument,
    out: Annotated[Path, typer.Option("--out", "-o", help="CSV to write.")],
    json_output: Json = False,
) -> None:
    """Write the jobs that ran and ended as a trace: whole-GPU jobs, or MIG jobs where there were no others."""
    from smartmig.control.effect import gang_jobs, mig_jobs
    from smartmig.control.replay import finished_jobs
    from smartmig.workload.gang.jobs_csv import write_gang_jobs
    from smartmig.workload.jobs_csv import write_jobs

    prepare_place(out)
    done = finished_jobs(_open(journal).records(kinds=("state", "decision", "outcome")))
    whole = [one for one in done if one.request.n_gpus > 0]
    slices = [one for one in done if one.request.n_gpus == 0 and len(one.request.run_s) == 5]
    if not whole and not slices:
        raise InputError(f"{journal}: no job was seen to run and end")
    if whole:
        write_gang_jobs(gang_jobs(whole), out)
    else:
        write_jobs(mig_jobs(slices), out)
    n_written = len(whole) or len(slices)
    if json_output:
        print_json({"n_jobs": n_written, "world": "gang" if whole else "mig", "out": str(out)})
    else:
        log(f"{n_written} jobs written to {out}")
