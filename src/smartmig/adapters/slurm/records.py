"""What Slurm says of jobs, nodes and partitions, as it says it: the one shape both ways of asking give."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Generic, TypeVar

from smartmig.adapters.slurm.gres import Gres, parse_gres
from smartmig.adapters.slurm.states import COMPLETING, HOLDING

FIELD_END, RECORD_END = "\x1f", "\x1e"


@dataclass(frozen=True)
class JobRecord:
    """A job, or the tasks of an array that nobody has told apart yet; fields in the shim's order."""

    job_id: int
    array_job_id: int
    """0 = not of an array"""
    array_task_id: int | None
    """of a task that is a job of its own"""
    array_tasks: str
    """tasks that share this record, e.g. `0-9,12`"""
    array_max_tasks: int
    """that may run at a time; 0 = any number"""
    state: str
    """`PENDING`, `RUNNING+COMPLETING` ..."""
    reason: str
    partition: str
    """may name several, joined by commas"""
    priority: int
    """0 = held"""
    nice: int
    submit_s: int
    eligible_s: int
    """not before; 0 = not said"""
    start_s: int
    end_s: int
    limit_min: int | None
    """None = no limit"""
    user_id: int
    account: str
    nodes: tuple[str, ...]
    n_nodes: int
    """at least so many"""
    max_nodes: int
    """0 = any number"""
    n_cpus: int
    n_tasks: int
    memory_mb: int
    memory_per_cpu: bool
    tres_per_node: str
    tres_per_job: str
    tres_per_socket: str
    tres_per_task: str
    gres_detail: str
    """of each node in turn, joined by `;`"""
    dependency: str
    het_job_id: int
    features: str
    excluded_nodes: tuple[str, ...]
    required_nodes: tuple[str, ...]
    reservation: str
    shared: int
    """0 = wants nodes for itself"""
    comment: str
    admin_comment: str
    cpus_per_tres: str = ""
    mem_per_tres: str = ""
    """MB"""

    @property
    def base_state(self) -> str:
        return self.state.partition("+")[0]

    @property
    def holds(self) -> bool:
        """Whether it has nodes."""
        return self.base_state in HOLDING or COMPLETING in self.state

    @cached_property
    def partitions(self) -> tuple[str, ...]:
        return tuple(self.partition.split(","))


@dataclass(frozen=True)
class NodeRecord:
    """A node, fields in the shim's order."""

    name: str
    state: str
    gres: str
    gres_used: str
    n_cpus: int
    n_cpus_used: int
    memory_mb: int
    memory_used_mb: int
    features: str
    comment: str

    @cached_property
    def has(self) -> Mapping[Gres, int]:
        return parse_gres(self.gres)

    @cached_property
    def used(self) -> Mapping[Gres, int]:
        return parse_gres(self.gres_used)


@dataclass(frozen=True)
class PartitionRecord:
    name: str
    state: str
    """UP = it starts jobs, else DOWN"""
    nodes: tuple[str, ...]
    max_min: int | None
    """longest time limit; None = none"""


@dataclass(frozen=True)
class ReservationRecord:
    name: str
    nodes: tuple[str, ...]
    start_s: int
    end_s: int


Record = TypeVar("Record", JobRecord, NodeRecord, PartitionRecord, ReservationRecord)


def _number(text: str) -> int:
    return int(text or 0)


def _maybe_number(text: str) -> int | None:
    return int(text) if text else None


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(",")) if text else ()


_READERS: dict[str, Callable[[str], Any]] = {
    "int": _number,
    "int | None": _maybe_number,
    "tuple[str, ...]": _names,
    "bool": lambda text: text == "1",
    "str": str,
}


class RecordReader(Generic[Record]):
    """Turns the shim's text into records; a line that was there last time gives the very same object."""

    def __init__(self, kind: type[Record]) -> None:
        self._kind: type[Record] = kind
        self._readers = [_READERS[str(field.type)] for field in fields(kind)]
        self._known: dict[str, Record] = {}
        self.last: tuple[Record, ...] | None = None
        """what was read last; None = nothing yet"""

    def read(self, text: str) -> tuple[Record, ...]:
        known, now = self._known, dict[str, Record]()
        for line in text.split(RECORD_END)[:-1]:
            record = known.get(line)
            if record is None:
                values = line.split(FIELD_END)
                record = self._kind(*(read(value) for read, value in zip(self._readers, values, strict=False)))
            now[line] = record
        self._known = now
        self.last = tuple(now.values())
        return self.last
