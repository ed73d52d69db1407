"""What README and docs tell a reader to type works, and prints what they say it prints.

A fence marked `console` is run: every line that begins with `$ smartmig `, in order, in one folder per document that
holds a copy of `scenarios/`. Lines below a command are its standard output, to the letter but for trailing spaces; a
command without such lines may print anything. In a fence marked `console skip`, and in any other fence, the commands
are not run, but their verbs and flags must exist. Tutorials are run as a whole, by `test_tutorials.py`.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from fences import fences, tidy
from smartmig.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [path for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))) if path.exists()]
RUN_HERE = [path for path in DOCUMENTS if path.parent.name != "tutorials"]
SHELL_WORDS = {"|", ">", ">>", "<", "&&", "||", ";", "&", "2>"}


@dataclass(frozen=True)
class Command:
    """One command of a document and what it is said to print (None: not said)."""

    line: int
    text: str
    runs: bool
    output: str | None


def commands(document: str) -> Iterator[Command]:
    for first_line, mark, lines in fences(document):
        yield from _commands_of(lines, first_line, runs=mark == "console")


def _commands_of(lines: list[str], first_line: int, runs: bool) -> Iterator[Command]:
    at = 0
    while at < len(lines):
        number, text = first_line + at, lines[at].strip()
        at += 1
        if not text.removeprefix("$ ").startswith("smartmig "):
            continue
        while text.endswith("\\") and at < len(lines):
            text = text[:-1] + lines[at].strip().removeprefix("> ")
            at += 1
        printed = []
        while text.startswith("$ ") and at < len(lines) and not lines[at].startswith("$ "):
            printed.append(lines[at])
            at += 1
        output = tidy("\n".join(printed))
        yield Command(number, text.removeprefix("$ "), runs and text.startswith("$ "), output or None)


def unknown_words(text: str) -> list[str]:
    """The verb and the flags of a command that do not exist."""
    words = shlex.split(text, comments=True)[1:]
    for stop, word in enumerate(words):
        if word in SHELL_WORDS:
            words = words[:stop]
            break
    node: Any = get_command(app)
    while hasattr(node, "commands"):
        verb = next((word for word in words if not word.startswith("-")), None)
        if verb is None:
            break
        if verb not in node.commands:
            return [verb]
        words.remove(verb)
        node = node.commands[verb]
    root = {"--install-completion", "--show-completion"} if hasattr(node, "commands") else set()
    known = {
        "--help",
        *root,
        *(flag for parameter in node.params for flag in (*parameter.opts, *parameter.secondary_opts)),
    }
    flags = [word.partition("=")[0] for word in words if re.match(r"--?[A-Za-z]", word)]
    return [flag for flag in flags if flag not in known]


@pytest.mark.slow
@pytest.mark.parametrize("document", RUN_HERE, ids=lambda path: str(path.relative_to(ROOT)))
def test_docs__commands_print_what_they_say(document: Path, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "scenarios", tmp_path / "scenarios")
    place = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{place}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "80", "NO_COLOR": "1"}
    environment["LC_ALL"] = "C.UTF-8"
    for command in commands(document.read_text(encoding="utf-8")):
        if not command.runs:
            continue
        done = subprocess.run(
            command.text,
            shell=True,
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        where = f"{document.name}:{command.line}: $ {command.text}"
        assert done.returncode == 0, f"{where}\n{done.stderr}"
        if command.output is not None:
            assert tidy(done.stdout) == command.output, where


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_docs__verbs_and_flags_exist(document: Path) -> None:
    for command in commands(document.read_text(encoding="utf-8")):
        unknown = unknown_words(command.text)
        assert not unknown, f"{document.name}:{command.line}: {command.text}: no {', '.join(unknown)}"


def test_commands__of_a_document() -> None:
    document = """
text with $ smartmig nothing
```console
$ smartmig gpus --json
[]

$ make demo
many lines
$ smartmig simulate --jobs x.csv \\
    --no-preempt
```
```console skip
$ smartmig reproduce s3-fig12
a table
```
```
smartmig trace show x.csv
```
"""
    assert list(commands(document)) == [
        Command(4, "smartmig gpus --json", True, "[]"),
        Command(9, "smartmig simulate --jobs x.csv --no-preempt", True, None),
        Command(13, "smartmig reproduce s3-fig12", False, "a table"),
        Command(17, "smartmig trace show x.csv", False, None),
    ]


@pytest.mark.parametrize(
    ("text", "unknown"),
    [
        ("smartmig --version", []),
        ("smartmig simulate --jobs x.csv --no-preempt --json | head -n 3", []),
        ("smartmig generate day --seed 3 -o day.csv", []),
        ("smartmig trace show --format=csv x.csv  # a comment --colour", []),
        ("smartmig compare --deadline -1:2", []),
        ("smartmig simulte --jobs x.csv", ["simulte"]),
        ("smartmig generate week", ["week"]),
        ("smartmig simulate --job x.csv --colour", ["--job", "--colour"]),
    ],
)
def test_unknown_words__are_found(text: str, unknown: list[str]) -> None:
    assert unknown_words(text) == unknown
