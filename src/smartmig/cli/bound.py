"""`smartmig bound`: the energy no schedule can go below."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from smartmig.bounds.energy import paper_energy_bound_j
from smartmig.cli.console import Json, output, print_json
from smartmig.cli.options import Gpus
from smartmig.hardware.cluster import parse_gpus
from smartmig.metrics.objective import watt_minutes
from smartmig.workload.jobs_csv import read_jobs


def bound(
    jobs: Annotated[Path, typer.Option(help="Job file; - is standard input.")],
    gpus: Gpus = "8xa100-40gb",
    json_output: Json = False,
) -> None:
    """S3's lower bound on energy for a job file and a cluster."""
    energy_j = paper_energy_bound_j(read_jobs(jobs), parse_gpus(gpus))
    if json_output:
        print_json({"energy_paper_j": energy_j})
    else:
        output().print(f"energy at least {energy_j / 3.6e6:.2f} kWh ({watt_minutes(energy_j):,.0f} W·min)")
