"""Which nodes a job may ever use, and whether it is ours to place at all."""

from __future__ import annotations

from collections.abc import Sequence

from smartmig.adapters.slurm import asks, marks
from smartmig.adapters.slurm.gres import by_type, total
from smartmig.adapters.slurm.records import JobRecord, NodeRecord, PartitionRecord
from smartmig.adapters.slurm.rooms import Needs, empty_room, needs_of
from smartmig.adapters.slurm.states import PARTITION_UP, node_state
from smartmig.types import NodeState


def own_nodes(record: JobRecord) -> tuple[str, ...]:
    """The nodes its owner asked for: in the record until we pin it, in our mark from then on."""
    mark = marks.read_start(record.admin_comment)
    return record.required_nodes if mark is None else mark.own


def ends_in_time(record: JobRecord, part: PartitionRecord) -> bool:
    return part.max_min is None or (record.limit_min is not None and record.limit_min <= part.max_min)


def needs_on_each(record: JobRecord, ask: asks.Ask, nodes: Sequence[NodeRecord]) -> Needs:
    """Of a job on each node, on as many as it takes for its GPUs."""
    most = max((total(node.has, "gpu") for node in nodes), default=0)
    n_nodes = ask.n_nodes or -(-ask.n_gpus // max(most, 1))
    return needs_of(record, n_nodes, ask.n_gpus // max(n_nodes, 1))


def allowed(record: JobRecord, needs: Needs, nodes: Sequence[NodeRecord]) -> list[NodeRecord]:
    """Nodes that the job may ever use."""
    own = own_nodes(record)
    return [
        node
        for node in nodes
        if node.name not in record.excluded_nodes
        and (not own or node.name in own)
        and asks.has_features(node, record.features)
        and empty_room(node).holds(needs)
    ]


def have(some: Sequence[NodeRecord], ask: asks.Ask, nodes: Sequence[NodeRecord]) -> bool:
    """Whether some of the nodes, if they were idle, had what is asked for."""
    if ask.n_gpus == 0:
        return any(total(node.has, "mig") for node in some)  # of whatever profile: cards can be cut anew
    wide = not ask.n_nodes and ask.n_gpus > max((_gpus(node, ask) for node in nodes), default=0)
    if wide:
        return sum(_gpus(node, ask) for node in some) >= ask.n_gpus
    n_nodes = max(ask.n_nodes, 1)
    return sum(_gpus(node, ask) * n_nodes >= ask.n_gpus for node in some) >= n_nodes


def only_slurm(record: JobRecord, part: PartitionRecord, nodes: Sequence[NodeRecord]) -> str:
    """Why only Slurm can place the job; empty if we can, or if nobody can."""
    ask = asks.read_ask(record)
    if isinstance(ask, str):
        return ask
    nodes = [node for node in nodes if node.name in part.nodes]
    own = own_nodes(record)
    n_named = sum(_gpus(node, ask) for node in nodes if node.name in own)
    if own and (len(own) < ask.n_nodes or (not ask.n_nodes and n_named < ask.n_gpus)):
        return "its nodelist names only some of its nodes"
    needs = needs_on_each(record, ask, nodes)
    found = allowed(record, needs, nodes)
    if not found and not ask.n_nodes and (record.cpus_per_tres or record.mem_per_tres):
        return "with each GPU it asks for so much that it takes more nodes than for its GPUs alone"
    if len(record.partitions) > 1:
        up = [node for node in found if node_state(node.state) is NodeState.up]
        if part.state != PARTITION_UP or not ends_in_time(record, part) or not have(up, ask, nodes):
            return f"partition {part.name} cannot take it, and it names others"
    return ""


def _gpus(node: NodeRecord, ask: asks.Ask) -> int:
    return by_type(node.has, "gpu").get(ask.gpu_type, 0) if ask.gpu_type else total(node.has, "gpu")
