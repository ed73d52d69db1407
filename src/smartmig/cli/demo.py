"""`smartmig demo`: what `make demo` runs: a day of jobs on eight MIG GPUs under several policies."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from smartmig.cli.console import Json, log, output, prepare_place, print_json, progress_bar
from smartmig.compare import compare, sample_days, with_seeds
from smartmig.report.page import comparison_page
from smartmig.report.tables import comparison_json, comparison_table
from smartmig.scenario import PolicySpec, Scenario

DEMO = Scenario(
    version=1,
    title="A day of about 4,150 jobs on eight A100-40GB",
    policies=(
        PolicySpec(name="static cut, categorical EDF (S3)"),
        PolicySpec(name="no partition, EDF", placement="edf-fastest", repartition="no-partition", preempt=False),
        PolicySpec(name="static cut, largest first (S1)", placement="largest-first", preempt=False),
        PolicySpec(name="slice count, categorical EDF", repartition="slice-count"),
        PolicySpec(name="slice count, shortest work", placement="shortest-work", repartition="slice-count"),
        PolicySpec(name="learned cuts, shortest work", placement="shortest-work", repartition="mean-field"),
    ),
    seeds=10,
)


def demo(
    seeds: Annotated[int, typer.Option(min=1, help="How many days.")] = DEMO.seeds,
    report: Annotated[Path, typer.Option(help="Where the HTML report goes.")] = Path("out/demo.html"),
    json_output: Json = False,
) -> None:
    """Compare six policies on the same days, print the table, write the report."""
    plan = with_seeds(DEMO, seeds, None)
    prepare_place(report)
    log("a day of jobs on eight GPUs under six policies; the first run compiles them (about a minute)")
    with progress_bar() as tell:
        result = compare(plan, tell)
    comparison_page(report, result, sample_days(plan, result))
    if json_output:
        print_json(comparison_json(result))
    else:
        output().print(comparison_table(result, output().width))
    log(f"wrote {report}: open it in a browser")
