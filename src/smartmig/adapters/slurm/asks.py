"""What a Slurm job asks for, in our words; or why only Slurm can place it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from smartmig.adapters.slurm.gres import by_type, parse_gres
from smartmig.adapters.slurm.records import JobRecord, NodeRecord

PLACED = ("gpu", "mig")
_FEATURES = re.compile(r"[\w.+-]+(?:[&|,][\w.+-]+)*")


@dataclass(frozen=True)
class Ask:
    """Whole GPUs, or one MIG slice."""

    n_gpus: int
    """0 = one slice of `profile`"""
    n_nodes: int = 0
    """exactly so many, evenly; 0 = any number"""
    gpu_type: str = ""
    """as Slurm's configuration calls it; empty = any"""
    profile: str = ""


def asks_gpus(record: JobRecord) -> bool:
    """Whether the job is one of those the submit script holds."""
    asked = ",".join((record.tres_per_node, record.tres_per_job, record.tres_per_socket, record.tres_per_task))
    return not record.het_job_id and any(gres.name in PLACED and count for gres, count in parse_gres(asked).items())


def read_ask(record: JobRecord) -> Ask | str:
    """A sentence instead when the request cannot be said in our words."""
    if record.het_job_id:
        return "it is a part of a heterogeneous job"
    if record.shared == 0:
        return "it asks for nodes of its own (--exclusive)"
    if record.tres_per_socket:
        return "it counts GPUs by socket"
    if record.features and not _FEATURES.fullmatch(record.features):
        return f"its constraint '{record.features}' is more than names joined by & or |"
    if "&" in record.features and "|" in record.features:
        return f"its constraint '{record.features}' mixes & and |"
    if not asks_gpus(record):
        return "it asks for no GPU"
    ways = [way for way in (record.tres_per_node, record.tres_per_job, record.tres_per_task) if way]
    counts = {gres: count for gres, count in parse_gres(ways[0]).items() if count}
    others = sorted({gres.name for gres in counts} - set(PLACED))
    if len(ways) != 1 or others:
        return f"it asks for {', '.join(others)}" if others else "it counts GPUs in two ways"
    if len(counts) != 1:
        return "it asks for several kinds of GPU"
    ((gres, count),) = counts.items()
    fixed = record.n_nodes if record.max_nodes == record.n_nodes else 0
    if gres.name == "mig":
        if count != 1 or record.n_nodes != 1 or not gres.type or not record.tres_per_node:
            return "it asks for anything but one MIG slice of a named profile"
        return Ask(0, 0, "", gres.type)
    if record.tres_per_node:
        return Ask(count * record.n_nodes, record.n_nodes, gres.type)
    if record.tres_per_task:
        if count > 1 and record.n_tasks > 1 and fixed != 1:
            return "each of its tasks asks for several GPUs"
        count *= record.n_tasks
    n_nodes = max(fixed, record.n_nodes if record.n_nodes > 1 else 0)
    if n_nodes and count % n_nodes:
        return f"{count} GPUs cannot be split evenly over {n_nodes} nodes"
    return Ask(count, n_nodes, gres.type)


def has_features(node: NodeRecord, wanted: str) -> bool:
    """Slurm's simple constraints: names joined by & (or a comma), or by |."""
    if not wanted:
        return True
    has = set(node.features.split(","))
    if "|" in wanted:
        return any(name in has for name in wanted.split("|"))
    return all(name in has for name in re.split("[&,]", wanted))


def read_tasks(text: str, at_most: int) -> list[int]:
    """The first tasks of `0-9:2,12%4`."""
    tasks: list[int] = []
    for word in text.partition("%")[0].split(","):
        found = re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", word)
        if found is not None:
            first = int(found[1])
            for task in range(first, int(found[2] or first) + 1, int(found[3] or 1)):
                if len(tasks) == at_most:
                    return tasks
                tasks.append(task)
    return tasks


def gpus_by_node(record: JobRecord) -> list[tuple[str, str, int, str]]:
    """(node, `gpu` or `mig`, how many, type) that a running job holds."""
    held = []
    details = record.gres_detail.split(";")
    for at, node in enumerate(record.nodes):
        counts = parse_gres(details[at] if at < len(details) else "")
        for name in PLACED:
            held += [(node, name, count, kind) for kind, count in by_type(counts, name).items() if count]
    return held
