"""Jobs that ask for a number of nodes get it: the engine knows one node, or whole ones and a rest."""

from __future__ import annotations

from dataclasses import replace

from smartmig.control.in_flight import Pending, handed_over, overlaid, with_fewer_free
from smartmig.types import ClusterState, JobRequest, NodeState, Share, Start


def has_shape(request: JobRequest, shares: tuple[Share, ...]) -> bool:
    n_nodes = request.n_nodes
    return n_nodes == 0 or (
        len(shares) == n_nodes and all(share.n_gpus * n_nodes == request.n_gpus for share in shares)
    )


def in_shape(
    state: ClusterState, starts: list[Start], requests: list[JobRequest], accepted: list[frozenset[str]]
) -> tuple[list[Start], ClusterState]:
    """The starts in the shape that is asked for, and the cluster with them under way.

    Where there is no room for a shape now, what there is stays free for the job, as for the first of a queue; one that
    has no room on an empty cluster either keeps nothing from others. Neither waits in the state that is returned.
    """
    room = _room(state)
    begun: list[Start] = []
    kept: dict[str, int] = {}
    gone: set[JobRequest] = set()
    for start, request, own in zip(starts, requests, accepted, strict=True):
        shares, may_start = start.shares, True
        short = any(room[share.node] < share.n_gpus for share in shares)  # kept for one before it
        if not has_shape(request, shares) or (short and request.n_nodes):
            shares, may_start = _laid_anew(request, room, own, state)
        elif short:
            continue
        for share in shares:
            room[share.node] -= share.n_gpus
        if may_start:
            begun.append(replace(start, shares=shares))
        else:
            gone.add(request)
            for share in shares:
                kept[share.node] = kept.get(share.node, 0) + share.n_gpus
    waiting = replace(
        state,
        queued=tuple([request for request in state.queued if request not in gone]),
        nodes=tuple([with_fewer_free(node, kept.get(node.name, 0)) for node in state.nodes]),
    )
    return begun, overlaid(waiting, handed_over(Pending(), tuple(begun), state.time_s))


def _laid_anew(
    request: JobRequest, room: dict[str, int], accepted: frozenset[str], state: ClusterState
) -> tuple[tuple[Share, ...], bool]:
    """Where it starts, or what is kept for it; and which of the two."""
    each, rest = divmod(request.n_gpus, request.n_nodes)
    if rest or sum(node.n_gpus >= each for node in state.nodes if node.name in accepted) < request.n_nodes:
        return (), False
    places = sorted((free, name) for name, free in room.items() if name in accepted and free >= each)
    shares = tuple(Share(name, each) for _, name in places[: request.n_nodes])
    return shares, len(shares) == request.n_nodes


def _room(state: ClusterState) -> dict[str, int]:
    """GPUs of nodes that are up and that nobody holds."""
    held: dict[str, int] = {}
    for job in state.running:
        for share in job.shares:
            held[share.node] = held.get(share.node, 0) + share.n_gpus
    return {
        node.name: min(node.n_gpus - held.get(node.name, 0), node.n_free)
        for node in state.nodes
        if node.state is NodeState.up
    }
