"""The verbs, put together; each is imported when it is asked for, because some bring compilers and solvers along."""

from __future__ import annotations

from collections.abc import Collection
from importlib import import_module
from typing import Any

import typer

from smartmig import __version__

VERBS = {
    "simulate": "simulate:simulate",
    "compare": "compare:compare",
    "reproduce": "reproduce:reproduce",
    "study": "study:study",
    "bound": "bound:bound",
    "evaluate": "evaluate:evaluate",
    "demo": "demo:demo",
    "policies": "policies:policies",
    "gpus": "gpus:gpus",
    "layouts": "layouts:layouts",
    "serve": "serve:serve",
    "plan": "plan:plan",
    "kill": "kill:kill",
    "resume": "kill:resume",
    "replay": "replay:replay",
    "export": "export:export",
    "doctor": "doctor:doctor",
}
GROUPS: dict[str, tuple[str, ...]] = {
    "journal": (),
    "token": (),
    "generate": (),
    "trace": (),
    "train": ("train_ranges:ranges", "train_steps:steps"),
    "slurm": (),
}
"""With their verbs that stand in files of their own."""


def _load(place: str) -> Any:
    module, _, attribute = place.partition(":")
    return getattr(import_module(f"smartmig.cli.{module}"), attribute)


def _version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


def _root(version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print it.")) -> None:
    del version


def make_app(asked: Collection[str] = ()) -> typer.Typer:
    """With the first verb among these words alone; with all of them when there is none, for help and for mistakes."""
    app = typer.Typer(
        help="Schedule jobs on partitioned (MIG) and whole GPUs: simulate, compare, learn, run live.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    app.callback()(_root)
    only = next((word for word in asked if word in VERBS or word in GROUPS or word == "--version"), None)
    for name, place in VERBS.items():
        if only in (None, name):
            app.command(name)(_load(place))
    for name, more in GROUPS.items():
        if only in (None, name):
            group: typer.Typer = _load(f"{name}:app")
            known = [one.callback for one in group.registered_commands]
            for verb in map(_load, more):
                if verb not in known:
                    group.command()(verb)
            app.add_typer(group, name=name)
    return app
