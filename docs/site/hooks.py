"""What mkdocs asks while it builds the site: reference pages come from the program itself, so they cannot be old."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import registries
import routes
import verbs
from mkdocs.structure.files import File, Files

DECISIONS = Path(__file__).parents[1] / "decisions"


def decisions() -> Iterator[str]:
    """Why things are as they are: a line per decision."""
    yield "# Decisions"
    yield ""
    yield "What was chosen, what else was thought of, and why."
    yield ""
    for path in _decisions():
        yield f"- [{_title(path)}]({path.name})"


def _decisions() -> list[Path]:
    return sorted(DECISIONS.glob("[0-9]*.md"))


def _title(path: Path) -> str:
    with path.open(encoding="utf-8") as lines:
        return re.sub(r"^#\s*(\d+:\s*)?", "", lines.readline()).strip()


PAGES = {
    "decisions/index.md": decisions,
    "reference/cli.md": verbs.page,
    "reference/api.md": routes.page,
    "reference/registries.md": registries.page,
}


def on_config(config: Any) -> Any:
    """Every decision is in the navigation."""
    for chapter in config.nav:
        if "Decisions" in chapter:
            pages = [{_title(path): f"decisions/{path.name}"} for path in _decisions()]
            chapter["Decisions"] = ["decisions/index.md", *pages]
    return config


def on_files(files: Files, config: Any) -> Files:
    for path, make in PAGES.items():
        files.append(File.generated(config, path, content="\n".join(make()) + "\n"))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    return "\n".join(_site_fences(markdown))


def _site_fences(markdown: str) -> Iterator[str]:
    """`console skip` means something to our tests only."""
    for line in markdown.splitlines():
        yield re.sub(r"^(\s*`{3,}console) skip$", r"\1", line)
