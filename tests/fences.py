"""Fences of Markdown documents, for the tests that run what stands in them."""

from __future__ import annotations

import re
from collections.abc import Iterator

FENCE = re.compile(r"\s*(`{3,})(.*)")


def fences(document: str) -> Iterator[tuple[int, str, list[str]]]:
    """(number of its first line, what stands after the backticks, its lines) of every fence."""
    open_fence: tuple[int, str, str] | None = None
    inside: list[str] = []
    for number, line in enumerate(document.splitlines(), start=1):
        found = FENCE.fullmatch(line)
        if open_fence is None:
            if found:
                open_fence, inside = (number + 1, found[1], found[2].strip()), []
        elif found and found[1] == open_fence[1] and not found[2].strip():
            yield open_fence[0], open_fence[2], inside
            open_fence = None
        else:
            inside.append(line)
    assert open_fence is None, f"the fence above line {open_fence and open_fence[0]} is never closed"


def tidy(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.splitlines()).strip("\n")
