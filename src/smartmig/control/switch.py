"""How much a controller may do, and the file that takes it all away."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from smartmig.atomic import atomic_write
from smartmig.errors import InputError


class Mode(StrEnum):
    observe = "observe"
    """look and write down"""
    shadow = "shadow"
    """decide and write down; the cluster schedules by itself"""
    act = "act"
    """in charge"""


def is_thrown(kill_file: Path) -> bool:
    """Whether the file is there. Raises `InputError` for a place that can hold none."""
    try:
        if kill_file.is_dir():
            raise InputError(f"{kill_file}: the kill switch is a file, and this is a folder")
        return kill_file.exists()
    except OSError as error:
        raise InputError(f"{kill_file}: cannot hold the kill switch: {error.strerror}") from None


def throw_switch(kill_file: Path, why: str) -> None:
    """Make the kill file; whoever sees it lets go. Raises `InputError` when it cannot be made."""
    if is_thrown(kill_file):
        return
    try:
        kill_file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(kill_file) as file:
            file.write(f"{why}\n")
    except OSError as error:
        raise InputError(f"{kill_file}: cannot hold the kill switch: {error.strerror}") from None
