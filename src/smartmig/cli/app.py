"""The verbs, put together."""

from __future__ import annotations

import typer

from smartmig import __version__
from smartmig.cli import generate, slurm, trace, train
from smartmig.cli.bound import bound
from smartmig.cli.compare import compare
from smartmig.cli.demo import demo
from smartmig.cli.evaluate import evaluate
from smartmig.cli.gpus import gpus
from smartmig.cli.layouts import layouts
from smartmig.cli.policies import policies
from smartmig.cli.reproduce import reproduce
from smartmig.cli.simulate import simulate

app = typer.Typer(
    help="Schedule jobs on partitioned (MIG) GPUs: simulate, compare, learn, see how far from the best.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


@app.callback()
def _root(version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print it.")) -> None:
    del version


app.command()(simulate)
app.command()(compare)
app.command()(reproduce)
app.command()(bound)
app.command()(evaluate)
app.command()(demo)
app.command()(policies)
app.command()(gpus)
app.command()(layouts)
app.add_typer(generate.app, name="generate")
app.add_typer(trace.app, name="trace")
app.add_typer(train.app, name="train")
app.add_typer(slurm.app, name="slurm")
