"""How much a controller may do, and the file that takes it all away."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from smartmig.atomic import atomic_write


class Mode(StrEnum):
    observe = "observe"
    """look and write down"""
    shadow = "shadow"
    """decide and write down; the cluster schedules by itself"""
    act = "act"
    """in charge"""


def throw_switch(kill_file: Path, why: str) -> None:
    """Make the kill file; whoever sees it lets go."""
    if not kill_file.exists():
        kill_file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(kill_file) as file:
            file.write(f"{why}\n")
