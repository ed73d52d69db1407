"""A cluster of whole GPUs: its nodes, as one writes them on the command line, and when they are away."""

from __future__ import annotations

import csv
import math
import re
from dataclasses import dataclass
from pathlib import Path

from smartmig.errors import InputError
from smartmig.hardware.cluster import MAX_GPUS

_ENTRY = re.compile(
    r"(?P<count>[0-9]{1,9})\s*[x*]\s*(?P<gpus>[0-9]{1,9})(:(?P<model>[^@:,]+)(@(?P<speed>[0-9.]+))?)?", re.I
)


@dataclass(frozen=True)
class Node:
    """A machine."""

    n_gpus: int
    model: str = ""
    """of its GPUs; empty takes every job, whatever model that names"""
    speed: float = 1.0
    """how much faster than the run times say"""
    switch: int = 0
    """the switch it hangs on: nodes of one switch are near each other"""


@dataclass(frozen=True)
class Outage:
    """A node that takes no jobs for a while."""

    node: int
    from_s: float
    to_s: float
    """inf: it never comes back"""
    drain: bool = False
    """what runs there may end; otherwise it is killed and queued again"""


@dataclass(frozen=True)
class NodeCluster:
    """Nodes by index, and their outages."""

    nodes: tuple[Node, ...]
    outages: tuple[Outage, ...] = ()

    def __post_init__(self) -> None:
        if not self.nodes or any(node.n_gpus < 1 or not node.speed > 0 for node in self.nodes):
            raise InputError("a cluster needs nodes, each with at least one GPU and a speed above 0")
        for outage in self.outages:
            if not 0 <= outage.node < len(self.nodes) or not 0 <= outage.from_s < outage.to_s:
                raise InputError(f"{outage}: needs a node from 0 to {len(self.nodes) - 1} and 0 <= from_s < to_s")

    @property
    def n_gpus(self) -> int:
        return sum(node.n_gpus for node in self.nodes)


def parse_nodes(text: str, nodes_per_switch: int | None = None, where: str = "--nodes") -> NodeCluster:
    """`20x8:a100,10x4:v100@0.5` -> twenty nodes of 8 GPUs, then ten of 4 whose jobs take twice as long.

    Without `nodes_per_switch` all nodes hang on one switch. Raises `InputError` with the entry's position.
    """
    nodes: list[Node] = []
    n_gpus = 0
    for position, entry in enumerate(text.split(","), start=1):
        at = f"{where}: entry {position} '{entry.strip()[:40]}'"
        match = _ENTRY.fullmatch(entry.strip())
        if match is None:
            raise InputError(f"{at}: cannot be read; write NODESxGPUS[:MODEL[@SPEED]], for example '30x8'.")
        count, gpus = int(match["count"]), int(match["gpus"])
        speed = _speed(match["speed"], at)
        if count < 1 or gpus < 1:
            raise InputError(f"{at}: counts must be at least 1.")
        n_gpus += count * gpus
        if n_gpus > MAX_GPUS:
            raise InputError(f"{at}: {n_gpus} GPUs in all; the limit is {MAX_GPUS}.")
        model = (match["model"] or "").strip()
        for _ in range(count):
            switch = len(nodes) // nodes_per_switch if nodes_per_switch else 0
            nodes.append(Node(gpus, model, speed, switch))
    return NodeCluster(tuple(nodes))


def _speed(text: str | None, at: str) -> float:
    try:
        speed = float(text) if text is not None else 1.0
    except ValueError:
        speed = math.nan
    if not 0 < speed < math.inf:
        raise InputError(f"{at}: a speed of {text}; it must be a number above 0.")
    return speed


OUTAGE_COLUMNS = ["node", "from_s", "to_s", "kind"]
OUTAGE_KINDS = ("failure", "drain")


def read_outages(path: Path) -> tuple[Outage, ...]:
    """A CSV of `node,from_s,to_s,kind`, kind being failure or drain. Raises `InputError` with file and line."""
    outages = []
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.reader(file)
            if next(rows, None) != OUTAGE_COLUMNS:
                raise InputError(f"{path}:1: expected the header {','.join(OUTAGE_COLUMNS)}")
            for row in rows:
                try:
                    node, from_s, to_s, kind = row
                    outages.append(Outage(int(node), float(from_s), float(to_s), OUTAGE_KINDS.index(kind) == 1))
                except ValueError:
                    raise InputError(
                        f"{path}:{rows.line_num}: cannot be read; write NODE,FROM,TO,{' or '.join(OUTAGE_KINDS)}"
                    ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot read: {getattr(error, 'strerror', error)}") from None
    return tuple(outages)
