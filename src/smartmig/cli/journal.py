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
    session: Annotated[
        int | None, typer.Option(min=1, help="Of a simulated cluster; 1 is the journal's first. Default: the newest.")
    ] = None,
    json_output: Json = False,
) -> None:
    """Write the jobs that ran and ended as a trace: whole-GPU jobs, or MIG jobs where there were no others.

    All sessions of a real cluster are one trace; each of a simulated cluster, which begins anew, is one of its own.
    """
    from smartmig.control.effect import gang_jobs, mig_jobs
    from smartmig.control.history import KINDS, histories
    from smartmig.workload.gang.jobs_csv import write_gang_jobs
    from smartmig.workload.jobs_csv import write_jobs

    prepare_place(out)
    pasts = histories(_open(journal).records(kinds=KINDS))
    n_sessions = sum(len(past.sessions) for past in pasts)
    if session is not None and session > n_sessions:
        raise InputError(f"--session: got {session}, allowed are 1 to {n_sessions}")
    found = [past for past in pasts if (session in past.sessions if session else past.finished)]
    done = found[-1].finished if found else []
    whole = [one for one in done if one.request.n_gpus > 0]
    slices = [one for one in done if one.request.n_gpus == 0 and len(one.request.run_s) == 5]
    if not whole and not slices:
        where = f" in session {session}" if session else ""
        raise InputError(f"{journal}: no job was seen to run and end{where}")
    if len(pasts) > 1:
        mine = ", ".join(map(str, found[-1].sessions))
        log(f"session {mine} of {n_sessions}; the others watched other clusters: --session N")
    if whole:
        write_gang_jobs(gang_jobs(whole), out)
    else:
        write_jobs(mig_jobs(slices), out)
    n_written = len(whole) or len(slices)
    if json_output:
        print_json(
            {
                "n_jobs": n_written,
                "world": "gang" if whole else "mig",
                "out": str(out),
                "sessions": found[-1].sessions,
                "n_sessions": n_sessions,
            }
        )
    else:
        log(f"{n_written} {'job' if n_written == 1 else 'jobs'} written to {out}")
