"""Which nodes a job may go to right now: one rule for those who decide and for the guard."""

from __future__ import annotations

from smartmig.types import ClusterState, JobRequest, Reservation


def bars(reservation: Reservation, request: JobRequest, now_s: float) -> bool:
    """Whether the job, started now, could be in the way of those the nodes are reserved for."""
    others = request.user not in reservation.users
    return others and now_s < reservation.to_s and now_s + request.limit_s > reservation.from_s


def fence(request: JobRequest, node: str, state: ClusterState) -> str:
    """The reservation of others that keeps the job from the node; empty when none does."""
    for one in state.reservations:
        if node in one.nodes and bars(one, request, state.time_s):
            return one.name
    return ""


def reserved_now(state: ClusterState) -> dict[str, list[Reservation]]:
    """Reservations that have begun, by node."""
    found: dict[str, list[Reservation]] = {}
    for one in state.reservations:
        if one.from_s <= state.time_s < one.to_s:
            for node in one.nodes:
                found.setdefault(node, []).append(one)
    return found
