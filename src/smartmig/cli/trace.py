"""`smartmig trace`: look at job files, public traces and measured curves, and turn traces into job files.

A trace has jobs for MIG slices or jobs of whole GPUs. Its format tells which; where a format can be read as either, it
is slices unless `--whole-gpus` says otherwise. What is done with whole GPUs is in `gang_trace.py`.
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from smartmig.cli import complete, gang_trace
from smartmig.cli.console import print_json
from smartmig.cli.options import with_flags
from smartmig.cli.summary_lines import slice_lines
from smartmig.errors import InputError, UnknownName
from smartmig.registry import CURVE_SETS, GANG_TRACES, TRACES, load
from smartmig.types import Jobs
from smartmig.workload.curves import SIZE_NAMES, Curve
from smartmig.workload.gang.filter import GangFilter
from smartmig.workload.gang.open import WHAT, missing_columns, no_format
from smartmig.workload.jobs_csv import write_jobs
from smartmig.workload.lines import read_start
from smartmig.workload.mix import parse_deadline
from smartmig.workload.summary import QUANTILES, summarise
from smartmig.workload.table import header_of
from smartmig.workload.trace_report import TraceReport

app = typer.Typer(help="Look at traces and turn them into job files.", no_args_is_help=True)

DAY_S = 86400.0

File = Annotated[Path, typer.Argument(help="The file; .gz is unpacked, - is a job file on standard input.")]
Format = Annotated[
    str | None,
    typer.Option("--format", help="Left out: told from the content.", autocompletion=complete.formats),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
WholeGpus = Annotated[
    bool, typer.Option("--whole-gpus", help="Read a format that can be either as jobs of whole GPUs, not of slices.")
]
Strict = Annotated[
    bool, typer.Option("--strict", help="Refuse a broken row. Left out: report it; only jobs for slices always refuse.")
]
ProcsPerGpu = Annotated[int | None, typer.Option(min=1, help="swf: processors that come with one GPU.")]
Given = Mapping[str, tuple[str, Any]]
"""flag -> (knob, value); None when the flag was not given"""


@app.command("show")
@with_flags(GangFilter)
def show(
    file: File,
    settings: GangFilter,
    format_: Format = None,
    whole_gpus: WholeGpus = False,
    nodes: Annotated[str | None, typer.Option(help="Whole GPUs: load on this cluster, e.g. 30x8.")] = None,
    strict: Strict = False,
    procs_per_gpu: ProcsPerGpu = None,
    as_json: Json = False,
) -> None:
    """What is in a trace: arrivals, load, run times, and what had to be assumed."""
    name, whole = told_format(file, format_, whole_gpus)
    reading = _gang_flags(strict, procs_per_gpu)
    if whole:
        gang_trace.show(file, name, knobs_of(GANG_TRACES, name, reading), settings, nodes, as_json)
        return
    _refuse_gang_flags(name, settings, {"--nodes": nodes, "--procs-per-gpu": procs_per_gpu})
    jobs, report = _read_slices(file, name, {}, 0)
    facts = summarise(jobs)
    if as_json:
        print_json({**asdict(facts), "quantiles": QUANTILES, "report": asdict(report)})
    else:
        typer.echo("\n".join((*slice_lines(facts), "rows:", *(f"  {line}" for line in report.lines()))))


@app.command("convert")
@with_flags(GangFilter)
def convert(
    file: File,
    output: Annotated[Path, typer.Option("-o", "--output", help="Job file to write; - is standard output.")],
    settings: GangFilter,
    format_: Format = None,
    whole_gpus: WholeGpus = False,
    strict: Strict = False,
    procs_per_gpu: ProcsPerGpu = None,
    requests: Annotated[
        str | None, typer.Option(help="Whole GPUs: made-up requested times where there are none, e.g. menu-1h.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Fixes all that is made up.")] = 0,
    slack: Annotated[str | None, typer.Option(help="LOW:HIGH; deadline = arrival + U(LOW, HIGH) x run time.")] = None,
    deadline_size: Annotated[int | None, typer.Option(help="Slice size the deadline counts in.")] = None,
    from_day: Annotated[float | None, typer.Option(help="Slices: first day of the trace to use, from 0.")] = None,
    days: Annotated[float | None, typer.Option(help="Slices: how many days to use.")] = None,
    curve: Annotated[str | None, typer.Option(help="Speedup curve of all jobs, e.g. bert-train, linear.")] = None,
    ls_curve: Annotated[str | None, typer.Option(help="openb: curve of latency-sensitive pods.")] = None,
    be_curve: Annotated[str | None, typer.Option(help="openb: curve of best-effort pods.")] = None,
    asked_share_only: Annotated[
        bool, typer.Option("--asked-share-only", help="openb: pods fit no slice below the one they ask for.")
    ] = False,
    time_scale: Annotated[float | None, typer.Option(help="openb: arrivals this many times as fast.")] = None,
    max_run_s: Annotated[float | None, typer.Option(help="openb: cut longer runs to this many seconds.")] = None,
    gpu_memory_gb: Annotated[float | None, typer.Option(help="openb: memory of the shared GPU.")] = None,
    exec_size: Annotated[int | None, typer.Option(help="genai: slice size the execution time was seen on.")] = None,
    load_: Annotated[float | None, typer.Option("--load", help="genai: times the requests.")] = None,
    jitter_s: Annotated[float | None, typer.Option(help="genai: how far copies move, in seconds.")] = None,
) -> None:
    """Turn a trace into a job file; the report goes to standard error."""
    slice_flags = {
        "--slack": ("deadline", None if slack is None else parse_deadline(slack, "--slack")),
        "--deadline-size": ("deadline_size", deadline_size),
        "--from-day": ("start_s", None if from_day is None else from_day * DAY_S),
        "--days": ("length_s", None if days is None else days * DAY_S),
        "--curve": ("curve", curve),
        "--ls-curve": ("ls_curve", ls_curve),
        "--be-curve": ("be_curve", be_curve),
        "--asked-share-only": ("smaller_fits", False if asked_share_only else None),
        "--time-scale": ("time_scale", time_scale),
        "--max-run-s": ("max_run_s", max_run_s),
        "--gpu-memory-gb": ("gpu_memory_gb", gpu_memory_gb),
        "--exec-size": ("exec_size", exec_size),
        "--load": ("load", load_),
        "--jitter-s": ("jitter_s", jitter_s),
    }
    name, whole = told_format(file, format_, whole_gpus)
    reading = _gang_flags(strict, procs_per_gpu)
    if whole:
        knobs = knobs_of(GANG_TRACES, name, {**reading, **slice_flags})
        gang_trace.convert(file, name, knobs, settings, requests, seed, output)
        return
    _refuse_gang_flags(name, settings, {"--requests": requests, "--procs-per-gpu": procs_per_gpu})
    jobs, report = _read_slices(file, name, slice_flags, seed)
    write_jobs(jobs, output)
    typer.echo("\n".join(report.lines()), err=True)


@app.command("split")
@with_flags(GangFilter)
def split(
    file: File,
    at: Annotated[list[str], typer.Option(help="First day of the next part, e.g. 2020-07-01 (UTC). Repeat for more.")],
    prefix: Annotated[Path, typer.Option("-o", "--output", help="Parts are written to PREFIX-1.csv, PREFIX-2.csv ...")],
    settings: GangFilter,
    format_: Format = None,
    whole_gpus: WholeGpus = False,
    strict: Strict = False,
    procs_per_gpu: ProcsPerGpu = None,
) -> None:
    """Cut a trace of whole-GPU jobs into periods; every job lands in exactly one."""
    name, whole = told_format(file, format_, whole_gpus)
    if not whole:
        raise InputError(f"{file}: the format '{name}' has jobs for slices, and only jobs of whole GPUs have dates")
    gang_trace.split(file, name, knobs_of(GANG_TRACES, name, _gang_flags(strict, procs_per_gpu)), settings, at, prefix)


@app.command("curves")
def curves(
    file: Annotated[Path, typer.Argument(help="A file of throughput measurements.")],
    format_: Format = None,
    fill_gaps: Annotated[
        bool, typer.Option("--fill-gaps", help="Interpolate sizes skipped between two measured ones.")
    ] = False,
    processes: Annotated[
        int | None, typer.Option(help="parvagpu: MPS processes that share a slice; 0 = the best number.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Measured throughput by slice size, relative to 1g."""
    knobs: dict[str, Any] = {"fill_gaps": True} if fill_gaps else {}
    if processes is not None:
        knobs["processes"] = processes or None
    found = measured_curves(file, format_, knobs)
    if as_json:
        print_json([asdict(curve) for curve in found])
        return
    width = max(len(curve.name) for curve in found)
    typer.echo(f"{'':{width}}  " + "  ".join(f"{name:>5}" for name in SIZE_NAMES))
    for curve in found:
        cells = "  ".join("    -" if math.isnan(v) else f"{v:5.2f}" for v in curve.speedup)
        typer.echo(f"{curve.name:{width}}  {cells}")


def measured_curves(path: Path, name: str | None = None, knobs: Mapping[str, Any] | None = None) -> tuple[Curve, ...]:
    """The curves in a file of measurements; the format is told from the header when `name` is None."""
    reader: Callable[..., tuple[Curve, ...]]
    if name is None:
        lacking = _missing(path, CURVE_SETS)
        name = min(lacking, key=lambda known: len(lacking[known]))
        if lacking[name]:
            raise no_format(path, lacking, "curve set")
    reader = load(CURVE_SETS, "curve set", name, "--format")
    known = inspect.signature(reader).parameters
    for knob in knobs or {}:
        if knob not in known:
            raise InputError(f"--{knob.replace('_', '-')}: the format '{name}' has no such knob")
    return reader(path, **(knobs or {}))


def told_format(path: Path, name: str | None, whole_gpus: bool) -> tuple[str, bool]:
    """The format of a file, and whether its jobs take whole GPUs."""
    if name is not None and name not in (*TRACES, *GANG_TRACES):
        raise UnknownName(WHAT, name, dict.fromkeys((*TRACES, *GANG_TRACES)), "--format")
    if name is not None and whole_gpus and name not in GANG_TRACES:
        raise InputError(f"--whole-gpus: the format '{name}' has jobs for slices only")
    if str(path) == "-":
        # Standard input can be read only once, so it cannot be looked at first.
        name = name or "csv"
        return name, whole_gpus or name not in TRACES
    if name is not None and name != "csv":
        return name, whole_gpus or name not in TRACES
    lacking = {(known, True): missing for known, missing in missing_columns(path).items()}
    if not whole_gpus:
        lacking = {**{(known, False): missing for known, missing in _missing(path, TRACES).items()}, **lacking}
    fitting = [told for told, missing in lacking.items() if not missing and name in (None, told[0])]
    if fitting:
        return fitting[0]
    if name is not None:
        # Its own reader says best what is wrong.
        return name, whole_gpus
    nearest_first = sorted(lacking, key=lambda told: -len(lacking[told]))
    raise no_format(path, {told[0]: lacking[told] for told in nearest_first})


def knobs_of(table: Mapping[str, str], name: str, flags: Given) -> dict[str, Any]:
    """The knobs of the flags that were given, all of which the format must have."""
    known = {field.name for field in fields(load(table, WHAT, name, "--format"))}
    given = {flag: (knob, value) for flag, (knob, value) in flags.items() if value is not None}
    for flag, (knob, _) in given.items():
        if knob not in known:
            raise InputError(f"{flag}: the format '{name}' has no such knob")
    return dict(given.values())


def _gang_flags(strict: bool, procs_per_gpu: int | None) -> Given:
    return {"--strict": ("strict", strict or None), "--procs-per-gpu": ("procs_per_gpu", procs_per_gpu)}


def _refuse_gang_flags(name: str, chosen: GangFilter, flags: Mapping[str, Any]) -> None:
    """Flags that only jobs of whole GPUs have."""
    named = {
        field.name: field.metadata.get("flag", (f"--{field.name.replace('_', '-')}",))[0] for field in fields(chosen)
    }
    filters = {flag: getattr(chosen, name) or None for name, flag in named.items()}
    for flag, value in {**filters, **flags}.items():
        if value is not None:
            hint = "; read it with --whole-gpus" if name in GANG_TRACES and name != "csv" else ""
            raise InputError(f"{flag}: only for jobs of whole GPUs, and the format '{name}' has jobs for slices{hint}")


def _read_slices(path: Path, name: str, flags: Given, seed: int) -> tuple[Jobs, TraceReport]:
    """Read a trace of jobs for slices with the knobs of the flags that were given."""
    knobs = knobs_of(TRACES, name, flags)
    opened: tuple[Jobs, TraceReport] = load(TRACES, WHAT, name)(path, **knobs).read(seed)
    return opened


def _missing(path: Path, table: Mapping[str, str]) -> dict[str, list[str]]:
    """Format -> the columns a file lacks to be in it."""
    header = set(header_of(read_start(path)))
    required = {name: sys.modules[load(table, "format", name).__module__].REQUIRED for name in table}
    return {name: [column for column in columns if column not in header] for name, columns in required.items()}
