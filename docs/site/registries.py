"""What there is to choose from: rules, cards, workloads, trace formats, adapters, reproductions, with their knobs."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any

from smartmig import registry
from smartmig.cli.gpus import power_label
from smartmig.cli.options import field_docs
from smartmig.hardware.layouts import configurations
from smartmig.hardware.model import gpu_model, gpu_model_ids
from smartmig.registry import load

CHAPTERS: tuple[tuple[str, str, Mapping[str, str]], ...] = (
    ("Placement rules", "`--placement`: which slice a job gets.", registry.PLACEMENTS),
    ("Repartition rules", "`--repartition`: how a GPU is cut.", registry.REPARTITIONS),
    ("Selection rules", "`--selection`: which queued job of whole GPUs is next.", registry.SELECTIONS),
    ("Allocation rules", "`--allocation`: which nodes and GPUs it gets.", registry.ALLOCATIONS),
    ("Workloads", "`smartmig generate`, `workload:` of a scenario.", registry.WORKLOADS),
    ("Trace formats, slices", "`smartmig trace`, `--format`.", registry.TRACES),
    ("Trace formats, whole GPUs", "`--world gang --trace`, `--format`.", registry.GANG_TRACES),
    ("Made-up requests", "`--requests`: times asked for where a trace has none.", registry.REQUESTS),
    ("Throughput curves", "`--curves`: how run times fall with the slice size.", registry.CURVE_SETS),
    ("Adapters", "`smartmig serve --adapter`: the cluster outside.", registry.ADAPTERS),
    ("Reproductions", "`smartmig reproduce`: published tables and figures.", registry.REPRODUCTIONS),
)


def page() -> Iterator[str]:
    yield "# Registries"
    yield ""
    yield "Every name that a flag or a scenario takes, made from the program's own registries. A knob stands behind the"
    yield "name: `--placement shortest-work:size_price=0.2`."
    for title, use, table in CHAPTERS:
        yield from ("", f"## {title}", "", use, "", "| id | what it is | knobs |", "|---|---|---|")
        for name in table:
            thing = load(table, title, name)
            yield f"| `{name}` | {_about(thing)} | {_knobs(thing)} |"
    yield from _cards()


def _cards() -> Iterator[str]:
    yield from ("", "## GPU models", "", "`--gpus`: what exists. Sources stand in each card's file.", "")
    yield "| id | card | profiles | configurations | W idle to full | power |"
    yield "|---|---|---|---|---|---|"
    for name in gpu_model_ids():
        card = gpu_model(name)
        profiles = ", ".join(f"`{profile.name}`" for profile in card.profiles if "+" not in profile.name)
        watts = f"{card.power.watts[0]:.4g} to {card.power.watts[-1]:.4g}"
        cuts = len(configurations(card))
        yield f"| `{name}` | {card.title} | {profiles} | {cuts} | {watts} | {power_label(card.power)} |"


def _about(thing: Any) -> str:
    told = inspect.getdoc(thing) or inspect.getdoc(sys.modules[thing.__module__]) or ""
    return " ".join(told.split("\n\n")[0].split()).replace("|", "\\|")


def _knobs(thing: Any) -> str:
    if not is_dataclass(thing):
        return ""
    docs = field_docs(thing) if inspect.isclass(thing) else {}
    told = []
    for field in fields(thing):
        meaning = " ".join(docs.get(field.name, "").split()).replace("|", "\\|")
        told.append(f"`{field.name}{_default(field)}`" + (f" {meaning}" if meaning else ""))
    return "<br>".join(told)


def _default(field: Field[Any]) -> str:
    if field.default is MISSING:
        return ""
    shown = getattr(field.default, "value", field.default)
    text = f"{shown:g}" if isinstance(shown, float) else str(shown) or '""'
    return f" = {text}" if len(text) < 40 else ""
