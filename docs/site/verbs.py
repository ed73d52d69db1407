"""The command line's reference: every verb and option, as `--help` tells them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from smartmig.cli.app import make_app


def page() -> Iterator[str]:
    yield "# Command line"
    yield ""
    yield "Made from the program's own help. `--json` prints one object instead of a table; results go to standard"
    yield "output, progress and notes to standard error. Exit code 0: done, 1: refused or failed, 2: bad usage or bad"
    yield "input, 130: stopped with Ctrl-C."
    root = get_command(make_app())
    above = root.make_context("smartmig", [], resilient_parsing=True)
    yield from _verbs(root, above, "smartmig", 2)


def _verbs(group: Any, above: Any, name: str, level: int) -> Iterator[str]:
    for verb, command in group.commands.items():
        context = command.make_context(verb, [], parent=above, resilient_parsing=True)
        yield ""
        yield f"{'#' * level} {name} {verb}"
        yield ""
        yield from (command.help or "").strip().splitlines()
        if hasattr(command, "commands"):
            yield from _verbs(command, context, f"{name} {verb}", level + 1)
            continue
        yield ""
        yield "```text"
        yield context.get_usage().removeprefix("Usage: ")
        yield "```"
        yield ""
        yield "| option | what it says |"
        yield "|---|---|"
        for parameter in command.params:
            record = parameter.get_help_record(context)
            if record is not None and parameter.name != "help":
                flags, text = record
                yield f"| <code>{_cell(flags)}</code> | {_cell(' '.join(text.split()))} |"


def _cell(text: str) -> str:
    return text.replace("<", "&lt;").replace("|", "&#124;")
