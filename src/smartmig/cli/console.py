"""How verbs talk: results on stdout, progress on stderr."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from smartmig.errors import InputError

if TYPE_CHECKING:
    from smartmig.compare import Progress as Tell

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]


def output() -> Console:
    """Tables go here; wide enough for ours when it is a file or a pipe. Words are printed as they are: a name may hold
    brackets or colons."""
    console = Console(markup=False, emoji=False)
    return console if console.is_terminal else Console(width=140, markup=False, emoji=False)


def log(text: str) -> None:
    """One line to stderr."""
    Console(stderr=True, highlight=False, markup=False, emoji=False).print(text, style="dim", soft_wrap=True)


def prepare_place(path: Path) -> None:
    """Make the folder of a report before the long work, so that a place that cannot be written is refused now."""
    try:
        if path.is_dir():
            raise InputError(f"{path}: cannot write: it is a folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise InputError(f"{path}: cannot write: {error.strerror}") from None


def print_json(value: Any) -> None:
    print(json.dumps(_finite(value), indent=2, ensure_ascii=False))


def _finite(value: Any) -> Any:
    """JSON has no nan: say null."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


@contextmanager
def progress_bar() -> Iterator[Tell]:
    """A bar with rate and time left on stderr; a plain line now and then when that is no terminal."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    last_tenth = -1
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None, rate="")

        def tell(what: str, done: int, total: int) -> None:
            nonlocal last_tenth
            speed = bar.tasks[task].speed
            bar.update(task, description=what, completed=done, total=total, rate=f"{speed:.1f}/s" if speed else "")
            tenth = 10 * done // max(total, 1)
            if not console.is_terminal and tenth != last_tenth:
                last_tenth = tenth
                log(f"{what}: {done}/{total}")

        yield tell
