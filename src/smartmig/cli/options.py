"""Flags that several verbs share, and how their text becomes values."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Any

import typer
import yaml

from smartmig.errors import InputError
from smartmig.scenario import RuleSpec


class Recut(StrEnum):
    paper = "paper"
    drain = "drain"


class Speed(StrEnum):
    as_given = "as-given"
    estimated = "estimated"


Gpus = Annotated[str, typer.Option(help="Cluster, e.g. 8xa100-40gb or 4xa100-40gb,4xh200-141gb.")]
Layouts = Annotated[
    str | None,
    typer.Option(help="One cut per GPU: configuration numbers or 4g+2g+1g; 2x10 repeats. Default: the policy's own."),
]
Preempt = Annotated[bool, typer.Option("--preempt/--no-preempt", help="Decide every slice anew at every event.")]
RecutMode = Annotated[
    Recut, typer.Option(help="paper: a re-cut GPU is down 4 s; drain: idle instances only, beside running work.")
]
RestartS = Annotated[float, typer.Option(min=0, max=1e9, help="Seconds a stopped job loses when it starts again.")]
SpeedMode = Annotated[
    Speed, typer.Option(help="as-given: run times hold on every GPU model; estimated: scale them by model.")
]


def rule_spec(text: str, where: str) -> RuleSpec:
    """`id` or `id:knob=value,knob=value`; a value is YAML on one line, its own commas stand in brackets."""
    name, _, rest = text.partition(":")
    if not rest:
        return name.strip()
    spec: dict[str, Any] = {"id": name.strip()}
    for part in re.split(r",(?![^\[]*\])", rest):
        knob, equals, value = part.partition("=")
        if not equals:
            raise InputError(f"{where}: '{part}' in '{text}' is not knob=value")
        try:
            spec[knob.strip()] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise InputError(f"{where}: the value in '{part}' cannot be read") from None
    return spec
