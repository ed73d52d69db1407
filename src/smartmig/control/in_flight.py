"""What we have asked for and the cluster does not show yet: without it the next decision would ask again."""

from __future__ import annotations

from dataclasses import dataclass, replace

from smartmig.types import (
    ClusterState,
    Instance,
    JobKey,
    Layout,
    MigGpu,
    NodeInfo,
    Outcome,
    Placement,
    Plan,
    Repartition,
    RunningJob,
    Start,
    Stop,
)


@dataclass(frozen=True)
class Pending:
    """Starts and cuts under way, since when."""

    starts: tuple[tuple[Start, float], ...] = ()
    cuts: tuple[tuple[Repartition, float], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.starts or self.cuts)


def handed_over(pending: Pending, plan: Plan, now_s: float) -> Pending:
    starts = tuple((action, now_s) for action in plan if isinstance(action, Start))
    cuts = tuple((action, now_s) for action in plan if isinstance(action, Repartition))
    return Pending((*pending.starts, *starts), (*pending.cuts, *cuts))


def refused(pending: Pending, outcomes: tuple[Outcome, ...]) -> Pending:
    """What the cluster did not accept is no longer under way."""
    failed = {id(outcome.action) for outcome in outcomes if not outcome.done and not isinstance(outcome.action, Stop)}
    return Pending(
        tuple(item for item in pending.starts if id(item[0]) not in failed),
        tuple(item for item in pending.cuts if id(item[0]) not in failed),
    )


def still(pending: Pending, state: ClusterState, patience_s: float) -> tuple[Pending, list[JobKey]]:
    """What is still under way as of this observation, and the starts that were never seen."""
    if not pending:
        return pending, []
    running = {job.request.key for job in state.running}
    queued = {request.key for request in state.queued}
    lost = [
        start.key
        for start, since_s in pending.starts
        if start.key in queued and start.key not in running and state.time_s - since_s > patience_s
    ]
    starts = tuple(
        (start, since_s)
        for start, since_s in pending.starts
        if start.key in queued and start.key not in running and start.key not in lost
    )
    cuts = tuple(
        (cut, since_s)
        for cut, since_s in pending.cuts
        if state.time_s - since_s <= patience_s and _layout(state, cut) not in (None, cut.layout)
    )
    return Pending(starts, cuts), lost


def _layout(state: ClusterState, cut: Repartition) -> Layout | None:
    node = next((one for one in state.nodes if one.name == cut.node), None)
    if node is None or cut.gpu >= len(node.gpus):
        return None
    return tuple(Placement(one.start, one.profile) for one in node.gpus[cut.gpu].instances)


def overlaid(state: ClusterState, pending: Pending) -> ClusterState:
    """The state as it will be once everything under way is done."""
    if not pending:
        return state
    moving = {start.key: (start, since_s) for start, since_s in pending.starts}
    coming = tuple(
        RunningJob(request, moving[request.key][1], moving[request.key][0].shares)
        for request in state.queued
        if request.key in moving
    )
    taken: dict[str, int] = {}
    for job in coming:
        for share in job.shares:
            taken[share.node] = taken.get(share.node, 0) + share.n_gpus
    cuts = {(cut.node, cut.gpu): cut.layout for cut, _ in pending.cuts}
    return replace(
        state,
        queued=tuple(request for request in state.queued if request.key not in moving),
        running=tuple(sorted((*state.running, *coming), key=lambda job: job.request.key.submit_s)),
        nodes=tuple(_cut(with_fewer_free(node, taken.get(node.name, 0)), cuts) for node in state.nodes),
    )


def with_fewer_free(node: NodeInfo, n_gpus: int) -> NodeInfo:
    return replace(node, n_free=max(node.n_free - n_gpus, 0)) if n_gpus else node


def _cut(node: NodeInfo, cuts: dict[tuple[str, int], Layout]) -> NodeInfo:
    if not any(name == node.name for name, _ in cuts):
        return node
    return replace(
        node,
        gpus=tuple(
            _becoming(card, cuts[node.name, gpu]) if (node.name, gpu) in cuts else card
            for gpu, card in enumerate(node.gpus)
        ),
    )


def _becoming(card: MigGpu, layout: Layout) -> MigGpu:
    """New instances exist but cannot be used yet."""
    present = {(one.start, one.profile): one for one in card.instances}
    return replace(
        card, instances=tuple(present.get((s, profile), Instance(s, profile, False)) for s, profile in layout)
    )
