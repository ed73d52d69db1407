"""What a shell offers after TAB: names from the registries, nothing that has to be computed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from smartmig.hardware.model import gpu_model_ids
from smartmig.registry import (
    ALLOCATIONS,
    GANG_TRACES,
    PLACEMENTS,
    REPARTITIONS,
    REPRODUCTIONS,
    REQUESTS,
    SELECTIONS,
    TRACES,
)

Complete = Callable[[str], list[str]]


def beginning_with(begun: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(begun)]


def names_in(table: Mapping[str, str]) -> Complete:
    """Ids of a registry."""

    def complete(incomplete: str) -> list[str]:
        return beginning_with(incomplete, table)

    return complete


def gpu_models(incomplete: str) -> list[str]:
    """Ids of GPU models."""
    return beginning_with(incomplete, gpu_model_ids())


def clusters(incomplete: str) -> list[str]:
    """`4xa100-40gb,4xh2` -> the models that the last group may become."""
    before, comma, group = incomplete.rpartition(",")
    count, times, begun = group.rpartition("x")
    if times and not count.isdigit():
        count, times, begun = "", "", group
    return [f"{before}{comma}{count}{times}{name}" for name in gpu_models(begun)]


placements = names_in(PLACEMENTS)
repartitions = names_in(REPARTITIONS)
selections = names_in(SELECTIONS)
allocations = names_in(ALLOCATIONS)
formats = names_in({**TRACES, **GANG_TRACES})
requests = names_in(REQUESTS)
reproductions = names_in(REPRODUCTIONS)
