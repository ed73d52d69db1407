"""The verbs of `smartmig trace` on jobs of whole GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from smartmig.cli.console import print_json
from smartmig.cli.summary_lines import gang_lines
from smartmig.hardware.nodes import parse_nodes
from smartmig.registry import REQUESTS, load
from smartmig.workload.gang.filter import GangFilter, date_of, split_by_date
from smartmig.workload.gang.jobs_csv import write_gang_jobs
from smartmig.workload.gang.open import gang_trace
from smartmig.workload.gang.requests import with_requests
from smartmig.workload.gang.summary import summarise_gangs
from smartmig.workload.summary import QUANTILES
from smartmig.workload.trace_report import TraceReport

_SUFFIXES = (".csv.gz", ".csv")


def show(file: Path, name: str, knobs: dict[str, Any], chosen: GangFilter, nodes: str | None, as_json: bool) -> None:
    n_gpus = parse_nodes(nodes).n_gpus if nodes else 0
    jobs, report = gang_trace(file, name, **knobs).read()
    jobs, left_out = chosen.apply(jobs)
    facts = summarise_gangs(jobs, n_gpus)
    if as_json:
        answer = {"format": name, **asdict(facts), "nodes": nodes, "quantiles": QUANTILES}
        print_json({**answer, "left_out": left_out, "report": asdict(report)})
    else:
        lines = (*gang_lines(facts, nodes), "rows:", *(f"  {line}" for line in _told(report, left_out)))
        typer.echo("\n".join(lines))


def convert(
    file: Path, name: str, knobs: dict[str, Any], chosen: GangFilter, requests: str | None, seed: int, to: Path
) -> None:
    if requests is not None:
        load(REQUESTS, "request model", requests, "--requests")
    jobs, report = gang_trace(file, name, **knobs).read()
    # Before filtering, so that a job's request does not depend on the filter.
    asked = jobs if requests is None else with_requests(jobs, requests, seed)
    n_made_up = int((asked.limit_s != jobs.limit_s).sum())
    kept, left_out = chosen.apply(asked)
    write_gang_jobs(kept, to)
    typer.echo("\n".join(_told(report, left_out)), err=True)
    if requests is not None:
        typer.echo(f"{n_made_up} of {len(jobs)} requested times are made up: {requests}, seed {seed}", err=True)


def split(file: Path, name: str, knobs: dict[str, Any], chosen: GangFilter, dates: Sequence[str], prefix: Path) -> None:
    jobs, report = gang_trace(file, name, **knobs).read()
    jobs, left_out = chosen.apply(jobs)
    parts = split_by_date(jobs, dates)
    suffix = next((ending for ending in _SUFFIXES if prefix.name.endswith(ending)), "")
    for number, part in enumerate(parts, start=1):
        place = prefix.with_name(f"{prefix.name.removesuffix(suffix)}-{number}{suffix or '.csv'}")
        write_gang_jobs(part, place)
        typer.echo(f"{place}: {len(part)} jobs, {date_of(part, 0)} to {date_of(part, -1)}", err=True)
    typer.echo("\n".join(_told(report, left_out)), err=True)


def _told(report: TraceReport, left_out: dict[str, int]) -> Iterator[str]:
    yield from report.lines()
    for reason, count in left_out.items():
        yield f"  left out {count}: {reason}"
