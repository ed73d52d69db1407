"""`smartmig generate`: made-up jobs, written as a job file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from smartmig.errors import InputError
from smartmig.types import Jobs
from smartmig.workload.curves import Curve, gaps_filled
from smartmig.workload.diurnal import DiurnalDay
from smartmig.workload.jobs_csv import write_jobs
from smartmig.workload.mix import parse_deadline
from smartmig.workload.poisson import FixedRate
from smartmig.workload.summary import summarise

app = typer.Typer(help="Make up jobs and write them as a job file.", no_args_is_help=True)

Output = Annotated[Path, typer.Option("-o", "--output", help="Job file to write; .gz is packed, - is standard output.")]
Seed = Annotated[int, typer.Option(min=0, help="Fixes every random number.")]
Deadline = Annotated[str, typer.Option(help="LOW:HIGH; deadline = arrival + U(LOW, HIGH) x run time.")]
DeadlineSize = Annotated[int, typer.Option(help="Slice size whose run time the deadline counts in: 1, 2, 3, 4 or 7.")]
InferenceFrac = Annotated[float, typer.Option(help="Share of inference jobs; the rest trains.")]
BertFrac = Annotated[float, typer.Option(help="Share of jobs with BERT's curve; the rest has ResNet-50's.")]
LinearFrac = Annotated[float, typer.Option(help="Share of jobs made linear in the slice size.")]
CappedFrac = Annotated[float, typer.Option(help="Share of jobs that stop gaining at 3g.")]
Curves = Annotated[
    Path | None,
    typer.Option(help="Draw the jobs' curves from this file of measurements; sizes skipped in it are interpolated."),
]


@app.command("day")
def day(
    output: Output,
    seed: Seed = 0,
    multiplier: Annotated[float, typer.Option(help="Times the base arrival rate; 20 loads eight GPUs.")] = 20.0,
    days: Annotated[int, typer.Option(help="How many days follow each other.")] = 1,
    deadline: Deadline = "1:1.5",
    deadline_size: DeadlineSize = 7,
    inference_frac: InferenceFrac = 0.8,
    bert_frac: BertFrac = 2 / 3,
    linear_frac: LinearFrac = 0.0,
    capped_frac: CappedFrac = 0.0,
    curves: Curves = None,
) -> None:
    """A day whose arrival rate follows the hour."""
    workload = DiurnalDay(
        multiplier=multiplier,
        days=days,
        deadline=parse_deadline(deadline, "--deadline"),
        deadline_size=deadline_size,
        inference_frac=inference_frac,
        bert_frac=bert_frac,
        linear_frac=linear_frac,
        capped_frac=capped_frac,
        curves=_read_curves(curves),
    )
    _write(workload.jobs(seed), output)


@app.command("fixed-rate")
def fixed_rate(
    output: Output,
    seed: Seed = 0,
    jobs: Annotated[int, typer.Option(help="How many jobs arrive.")] = 1000,
    rate: Annotated[float, typer.Option(help="Mean arrivals per minute.")] = 1.0,
    deadline: Deadline = "1:1.5",
    deadline_size: DeadlineSize = 7,
    inference_frac: InferenceFrac = 0.8,
    bert_frac: BertFrac = 2 / 3,
    linear_frac: LinearFrac = 0.0,
    capped_frac: CappedFrac = 0.0,
    curves: Curves = None,
) -> None:
    """Jobs at a constant mean rate."""
    workload = FixedRate(
        n_jobs=jobs,
        rate_per_min=rate,
        deadline=parse_deadline(deadline, "--deadline"),
        deadline_size=deadline_size,
        inference_frac=inference_frac,
        bert_frac=bert_frac,
        linear_frac=linear_frac,
        capped_frac=capped_frac,
        curves=_read_curves(curves),
    )
    _write(workload.jobs(seed), output)


def _read_curves(path: Path | None) -> tuple[Curve, ...]:
    if path is None:
        return ()
    # Imported here: only this flag needs the readers of measurements.
    from smartmig.cli.trace import measured_curves

    return tuple(gaps_filled(curve) for curve in measured_curves(path))


def _write(jobs: Jobs, output: Path) -> None:
    if len(jobs) == 0:
        raise InputError("--multiplier: so few arrivals that this day has no job; raise it or try another seed")
    write_jobs(jobs, output)
    facts = summarise(jobs)
    place = "standard output" if str(output) == "-" else output
    typer.echo(
        f"{facts.n_jobs} jobs over {facts.last_s / 3600:.1f} h, {facts.sizes[0].offered_h:.1f} 1g-hours "
        f"({facts.sizes[-1].offered_h:.1f} 7g-hours), written to {place}",
        err=True,
    )
