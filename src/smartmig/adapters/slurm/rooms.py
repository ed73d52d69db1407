"""CPUs and memory beside the GPUs of a node, which policies do not look at."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from smartmig.adapters.slurm.gres import parse_gres, total
from smartmig.adapters.slurm.records import JobRecord, NodeRecord


class Needs(NamedTuple):
    """Of a job on one node, at least."""

    cpus: int = 0
    memory_mb: int = 0
    all_memory: bool = False
    """nobody else may have any (`--mem=0`)"""

    def __str__(self) -> str:
        return f"{self.cpus} CPUs or {'all memory' if self.all_memory else f'{self.memory_mb} MB'}"


NO_NEEDS = Needs()


def needs_of(record: JobRecord, n_nodes: int, n_gpus: int) -> Needs:
    """Of a job on `n_nodes`, where it gets `n_gpus`. What it asks for with each GPU, Slurm counts only as it starts."""
    per_gpu = total(parse_gres(record.cpus_per_tres), "gpu")
    cpus = max(-(-record.n_cpus // max(n_nodes, record.n_nodes, 1)), per_gpu * n_gpus)
    memory_mb = total(parse_gres(record.mem_per_tres), "gpu") * n_gpus
    if not memory_mb:
        memory_mb = record.memory_mb * (cpus if record.memory_per_cpu else 1)
    return Needs(cpus, memory_mb, memory_mb == 0)


class Room(NamedTuple):
    """What is free of a node."""

    cpus: int
    memory_mb: int
    whole_mb: int
    """the node's memory, if it were idle"""

    def holds(self, needs: Needs) -> bool:
        enough = self.memory_mb >= (self.whole_mb if needs.all_memory else needs.memory_mb)
        return enough and self.cpus >= needs.cpus

    def without(self, needs: Needs, counts_memory: bool) -> Room:
        memory_mb = (self.whole_mb if counts_memory else 0) if needs.all_memory else needs.memory_mb
        return Room(self.cpus - needs.cpus, self.memory_mb - memory_mb, self.whole_mb)


def empty_room(node: NodeRecord) -> Room:
    return Room(node.n_cpus, node.memory_mb, node.memory_mb)


def room_on(node: NodeRecord) -> Room:
    return Room(node.n_cpus - node.n_cpus_used, node.memory_mb - node.memory_used_mb, node.memory_mb)


def counts_memory(nodes: Iterable[NodeRecord]) -> bool:
    """Whether Slurm hands out memory at all. Where it does not, jobs that say nothing of it look as if they asked for
    all of it, and may share a node."""
    return any(node.memory_used_mb for node in nodes)


class Rooms:
    """Of all nodes at a time."""

    def __init__(self, nodes: Sequence[NodeRecord], tempting: set[str], coming: Iterable[tuple[str, Needs]]) -> None:
        """`tempting`: nodes with free GPUs; `coming`: what was started there a moment ago."""
        self._spare = {node.name: room_on(node) for node in nodes if node.name in tempting}
        counted: bool | None = None
        for name, needs in coming:
            if name in self._spare:
                counted = counts_memory(nodes) if counted is None else counted
                self._spare[name] = self._spare[name].without(needs, counted)
        self._lacking: dict[Needs, frozenset[str]] = {}

    def lacking(self, needs: Needs) -> frozenset[str]:
        """Nodes whose free GPUs are of no use just now to a job with these needs."""
        found = self._lacking.get(needs)
        if found is None:
            found = frozenset(name for name, room in self._spare.items() if not room.holds(needs))
            self._lacking[needs] = found
        return found
