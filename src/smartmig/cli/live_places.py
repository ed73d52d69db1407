"""Where a controller keeps its things, for every live verb; cheap to import."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from smartmig.errors import MissingPackage

JournalPlace = Annotated[str, typer.Option(help="SQLite file or postgresql:// URL. Default: journal.db at home.")]
JournalArgument = Annotated[str, typer.Argument(help="SQLite file or postgresql:// URL.")]
KillFile = Annotated[str, typer.Option(help="The kill switch's file. Default: kill at home.")]


def home() -> Path:
    """$SMARTMIG_HOME, or the user's state folder."""
    if given := os.environ.get("SMARTMIG_HOME"):
        return Path(given)
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "smartmig"


def journal_place(given: str) -> str:
    return given or os.environ.get("SMARTMIG_JOURNAL", "") or str(home() / "journal.db")


def kill_place(given: str) -> Path:
    return Path(given) if given else home() / "kill"


def needs(what: str, *packages: str) -> None:
    """Raises `MissingPackage` for the first that is not installed."""
    from importlib.util import find_spec

    for package in packages:
        if find_spec(package) is None:
            raise MissingPackage(what, "live", package)
