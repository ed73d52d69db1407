"""`smartmig trace`: look at job files, public traces and measured curves, and turn traces into job files."""

from __future__ import annotations

import inspect
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from smartmig.errors import InputError
from smartmig.registry import CURVE_SETS, TRACES, load
from smartmig.types import Jobs
from smartmig.workload.curves import SIZE_NAMES, Curve
from smartmig.workload.jobs_csv import write_jobs
from smartmig.workload.mix import parse_deadline
from smartmig.workload.summary import QUANTILES, Summary, summarise
from smartmig.workload.table import header_of, read_start
from smartmig.workload.trace_report import TraceReport

app = typer.Typer(help="Look at traces and turn them into job files.", no_args_is_help=True)

DAY_S = 86400.0
_BAR_WIDTH = 40

File = Annotated[Path, typer.Argument(help="The file; .gz is unpacked, - is a job file on standard input.")]
Format = Annotated[str | None, typer.Option("--format", help="Left out: told from the header.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("show")
def show(file: File, format_: Format = None, as_json: Json = False) -> None:
    """What is in a trace: arrivals, load, run times, deadlines, and what had to be assumed."""
    jobs, report = _open_trace(file, format_, {})
    facts = summarise(jobs)
    if as_json:
        _print_json({**asdict(facts), "quantiles": QUANTILES, "report": asdict(report)})
    else:
        typer.echo("\n".join((*_summary_lines(facts), "rows:", *(f"  {line}" for line in report.lines()))))


@app.command("convert")
def convert(
    file: File,
    output: Annotated[Path, typer.Option("-o", "--output", help="Job file to write; - is standard output.")],
    format_: Format = None,
    seed: Annotated[int, typer.Option(min=0, help="Fixes deadlines and copies.")] = 0,
    slack: Annotated[str | None, typer.Option(help="LOW:HIGH; deadline = arrival + U(LOW, HIGH) x run time.")] = None,
    deadline_size: Annotated[int | None, typer.Option(help="Slice size the deadline counts in.")] = None,
    from_day: Annotated[float | None, typer.Option(help="First day of the trace to use, from 0.")] = None,
    days: Annotated[float | None, typer.Option(help="How many days to use.")] = None,
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
    """Turn a public trace into a job file; the report goes to standard error."""
    flags = {
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
    jobs, report = _open_trace(file, format_, flags, seed)
    write_jobs(jobs, output)
    typer.echo("\n".join(report.lines()), err=True)


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
        _print_json([asdict(curve) for curve in found])
        return
    width = max(len(curve.name) for curve in found)
    typer.echo(f"{'':{width}}  " + "  ".join(f"{name:>5}" for name in SIZE_NAMES))
    for curve in found:
        cells = "  ".join("    -" if math.isnan(v) else f"{v:5.2f}" for v in curve.speedup)
        typer.echo(f"{curve.name:{width}}  {cells}")


def measured_curves(path: Path, name: str | None = None, knobs: Mapping[str, Any] | None = None) -> tuple[Curve, ...]:
    """The curves in a file of measurements; the format is told from the header when `name` is None."""
    reader: Callable[..., tuple[Curve, ...]]
    name = name or _guess(path, CURVE_SETS, "curve set")
    reader = load(CURVE_SETS, "curve set", name, "--format")
    known = inspect.signature(reader).parameters
    for knob in knobs or {}:
        if knob not in known:
            raise InputError(f"--{knob.replace('_', '-')}: the format '{name}' has no such knob")
    return reader(path, **(knobs or {}))


def _open_trace(
    path: Path, name: str | None, flags: Mapping[str, tuple[str, Any]], seed: int = 0
) -> tuple[Jobs, TraceReport]:
    """Read a trace with the knobs of the flags that were given."""
    # Standard input can be read only once, so it cannot be looked at first.
    name = name or ("csv" if str(path) == "-" else _guess(path, TRACES, "trace format"))
    trace_class = load(TRACES, "trace format", name, "--format")
    known = {field.name for field in fields(trace_class)}
    knobs = {}
    for flag, (knob, value) in flags.items():
        if value is None:
            continue
        if knob not in known:
            raise InputError(f"{flag}: the format '{name}' has no such knob")
        knobs[knob] = value
    opened: tuple[Jobs, TraceReport] = trace_class(path, **knobs).read(seed)
    return opened


def _guess(path: Path, table: Mapping[str, str], what: str) -> str:
    """The registered format whose columns the file has; for a near miss the error names the missing ones."""
    header = set(header_of(read_start(path)))
    missing: dict[str, list[str]] = {}
    for name in table:
        columns = sys.modules[load(table, what, name).__module__].REQUIRED
        missing[name] = [column for column in columns if column not in header]
        if not missing[name]:
            return name
    nearest = min(missing, key=lambda name: len(missing[name]))
    raise InputError(
        f"{path}:1: the header fits no {what}; nearest is '{nearest}', without {', '.join(missing[nearest])}. "
        f"Known: {', '.join(table)}."
    )


def _summary_lines(facts: Summary) -> Iterator[str]:
    yield f"jobs: {facts.n_jobs}"
    yield f"span: {(facts.last_s - facts.first_s) / 3600:.2f} h, first at {facts.first_s:.0f} s"
    yield f"sublinearity: {facts.sublinearity:.3f} (1 = linear)"
    yield "arrivals by hour of the day:"
    most = max(facts.arrivals_by_hour)
    for hour, count in enumerate(facts.arrivals_by_hour):
        yield f"  {hour:02d} {count:7d} {'#' * round(_BAR_WIDTH * count / most)}".rstrip()
    yield "run time in seconds, by slice size:"
    quantiles = "".join(f"{_quantile_name(q):>10}" for q in QUANTILES)
    yield f"  size    fits  slice-hours{quantiles}"
    for size in facts.sizes:
        cells = "".join(f"{'-':>10}" if math.isnan(v) else f"{v:10.1f}" for v in size.run_s)
        yield f"  {size.size}g  {size.n_fit:8d}  {size.offered_h:11.1f}{cells}"
    yield "deadline - arrival, over the run time on the fastest slice:"
    yield f"{'':25}{quantiles}"
    yield f"{'':25}{''.join(f'{v:10.2f}' for v in facts.slack)}"
    yield "kinds:"
    for kind, count in facts.kinds.items():
        yield f"  {count:8d}  {kind or '(none)'}"


def _quantile_name(q: float) -> str:
    return "max" if q == 1 else f"p{round(100 * q):02d}"


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(_without_nan(value), indent=2, allow_nan=False))


def _without_nan(value: Any) -> Any:
    """JSON has no nan: null stands for "none here"."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return value
