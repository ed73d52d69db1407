"""From a file to its reader: the format is the one that was asked for, or the first that the file fits."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

from smartmig.errors import InputError
from smartmig.registry import GANG_TRACES, load
from smartmig.workload.gang.trace import GangTrace
from smartmig.workload.lines import read_start

WHAT = "trace format"


def gang_trace(path: Path, name: str | None = None, **knobs: Any) -> GangTrace:
    """The reader of a file of whole-GPU jobs, with the knobs its format has.

    Raises `InputError` for a file that fits no format, a format nobody registered, and a knob the format has not.
    """
    if name is None:
        lacking = missing_columns(path)
        name = min(lacking, key=lambda known: len(lacking[known]))
        if lacking[name]:
            raise no_format(path, lacking)
    reader: type[GangTrace] = load(GANG_TRACES, WHAT, name)
    known = {field.name for field in fields(reader)}
    for knob in knobs:
        if knob not in known:
            raise InputError(f"{knob}: the format '{name}' has no such knob")
    return reader(path, **knobs)


def missing_columns(path: Path) -> dict[str, list[str]]:
    """Format -> what the file lacks to be in it."""
    start = read_start(path)
    return {name: load(GANG_TRACES, WHAT, name).missing(start) for name in GANG_TRACES}


def no_format(path: Path, lacking: dict[str, list[str]], what: str = WHAT) -> InputError:
    """What to say of a file that fits none of the formats, with the nearest one."""
    nearest = min(lacking, key=lambda name: len(lacking[name]))
    return InputError(
        f"{path}:1: the header fits no {what}; nearest is '{nearest}', without {', '.join(lacking[nearest])}. "
        f"Known: {', '.join(lacking)}."
    )
