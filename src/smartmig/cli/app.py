"""The verbs, put together."""

from __future__ import annotations

import typer

from smartmig import __version__
from smartmig.cli import generate, journal, slurm, token, trace, train
from smartmig.cli.bound import bound
from smartmig.cli.compare import compare
from smartmig.cli.demo import demo
from smartmig.cli.doctor import doctor
from smartmig.cli.evaluate import evaluate
from smartmig.cli.export import export
from smartmig.cli.gpus import gpus
from smartmig.cli.kill import kill, resume
from smartmig.cli.layouts import layouts
from smartmig.cli.plan import plan
from smartmig.cli.policies import policies
from smartmig.cli.replay import replay
from smartmig.cli.reproduce import reproduce
from smartmig.cli.serve import serve
from smartmig.cli.simulate import simulate
from smartmig.cli.study import study
from smartmig.cli.train_ranges import ranges
from smartmig.cli.train_steps import steps

app = typer.Typer(
    help="Schedule jobs on partitioned (MIG) and whole GPUs: simulate, compare, learn, run live.",
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
app.command()(study)
app.command()(bound)
app.command()(evaluate)
app.command()(demo)
app.command()(policies)
app.command()(gpus)
app.command()(layouts)
app.command()(serve)
app.command()(plan)
app.command()(kill)
app.command()(resume)
app.command()(replay)
app.command()(export)
app.command()(doctor)
app.add_typer(journal.app, name="journal")
app.add_typer(token.app, name="token")
app.add_typer(generate.app, name="generate")
app.add_typer(trace.app, name="trace")
train.app.command()(ranges)
train.app.command()(steps)
app.add_typer(train.app, name="train")
app.add_typer(slurm.app, name="slurm")
