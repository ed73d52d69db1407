"""Slurm's strings of generic resources, as counts.

Slurm writes them in several ways: `gpu:a100:4(S:0-1)` on nodes, `gres:gpu:2` or `gres/gpu:a100=2` in requests,
`gpu:a100:2(IDX:0,3)` in allocations.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

_COUNT = re.compile(r"(\d+)([kmgtp]?)", re.IGNORECASE)
_NOTE = re.compile(r"\([^)]*\)")


class Gres(NamedTuple):
    """A kind of resource."""

    name: str
    """`gpu` or `mig`"""
    type: str
    """`a100`, `1g.5gb` ...; empty = any"""


@lru_cache(maxsize=4096)
def parse_gres(text: str) -> Mapping[Gres, int]:
    """How many of each; kinds named twice add up. What cannot be read is left out. Thousands of jobs, looked at once a
    second, ask for the same few things."""
    counts: dict[Gres, int] = {}
    for word in _NOTE.sub("", text).split(","):
        parts = re.split(r"[:=]", word.strip().removeprefix("gres:").removeprefix("gres/"))
        if not parts[0] or parts[0] == "(null)":
            continue
        number = _COUNT.fullmatch(parts[-1]) if len(parts) > 1 else None
        if number is None:
            # A name alone, or a name and a type, asks for one.
            count, kind = 1, parts[1:]
        else:
            count, kind = int(number[1]) * 1024 ** " kmgtp".index(number[2].lower() or " "), parts[1:-1]
        gres = Gres(parts[0], ":".join(kind))
        counts[gres] = counts.get(gres, 0) + count
    return MappingProxyType(counts)


def total(counts: Mapping[Gres, int], name: str) -> int:
    """Of one name, whatever the types."""
    return sum(count for gres, count in counts.items() if gres.name == name)


def by_type(counts: Mapping[Gres, int], name: str) -> dict[str, int]:
    return {gres.type: count for gres, count in counts.items() if gres.name == name}


def write_gres(counts: Mapping[Gres, int]) -> str:
    """As `scontrol update node` reads it."""
    return ",".join(
        f"{gres.name}:{gres.type}:{count}" if gres.type else f"{gres.name}:{count}"
        for gres, count in counts.items()
        if count > 0
    )
