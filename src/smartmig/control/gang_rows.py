"""Whole-GPU jobs and nodes of a live cluster as the engine counts them: rows, users, classes of nodes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from smartmig.control.rows import JobTable
from smartmig.errors import InputError
from smartmig.hardware.nodes import Node, NodeCluster
from smartmig.policy.gang_view import World
from smartmig.sim.gang.world import MAX_MODELS, GangPolicy, build_world
from smartmig.types import Ints, JobRequest, NodeInfo

COLUMNS = np.dtype([(name, np.float64) for name in ("submit_s", "limit_s", "predicted_s", "n_gpus", "user", "wish")])


class GangTable(JobTable):
    """Whole-GPU requests; users and wishes (GPU models, node lists) are numbered as they come."""

    def __init__(self) -> None:
        super().__init__(COLUMNS)
        self.users: dict[str, int] = {}
        self.wishes: dict[tuple[str, tuple[str, ...]], int] = {}

    def forget(self, n_present: int) -> bool:
        void = super().forget(n_present)
        if void:
            self.users, self.wishes = {}, {}
        return void

    def row(self, request: JobRequest) -> tuple[float, ...]:
        guess = request.predicted_s or request.limit_s
        user = self.users.setdefault(request.user, len(self.users))
        wish = self.wishes.setdefault((request.gpu_model.lower(), request.nodes), len(self.wishes))
        return request.key.submit_s, request.limit_s, guess, request.n_gpus, user, wish


class Classes(NamedTuple):
    """Nodes that no present job tells apart share a class; the engine calls it a GPU model."""

    world: World
    names: tuple[str, ...]
    """of the nodes"""
    place_of: dict[str, int]
    """where each name stands"""
    members: tuple[tuple[str, frozenset[str]], ...]
    """by class: GPU model, node names"""
    sizes: Ints  # (3, n_classes) GPUs together, most and fewest of one node
    masks: Ints  # by wish: classes (bits) that grant it; 0 where nobody has the wish


def classify(
    nodes: tuple[NodeInfo, ...],
    wishes: dict[int, tuple[str, tuple[str, ...]]],
    fenced: tuple[tuple[str, ...], ...],
    policy: GangPolicy,
) -> Classes:
    """The fewest classes that tell apart models, node lists and reservations.

    The engine knows so many and no more: wishes beyond them are not granted, so such jobs wait, which is safe.
    """
    lists = [frozenset(listed) for _, listed in wishes.values() if listed]
    splits = [*map(frozenset, fenced), *dict.fromkeys(lists)]
    while True:
        kinds = [(node.gpu_model.lower(), *(node.name in split for split in splits)) for node in nodes]
        distinct = list(dict.fromkeys(kinds))
        if len(distinct) <= MAX_MODELS or not splits:
            break
        splits.pop()
    if len(distinct) > MAX_MODELS:
        raise InputError(f"{len(distinct)} GPU models in one cluster; the limit is {MAX_MODELS}")
    of_node = [distinct.index(kind) for kind in kinds]
    members = tuple(
        (str(kind[0]), frozenset(node.name for node, own in zip(nodes, of_node, strict=True) if own == at))
        for at, kind in enumerate(distinct)
    )
    sizes = np.array(
        [
            [f(n.n_gpus for n, own in zip(nodes, of_node, strict=True) if own == at) for at in range(len(distinct))]
            for f in (sum, max, min)
        ]
    )
    masks = np.zeros(max(wishes, default=0) + 1, dtype=np.int64)
    for wish, (model, listed) in wishes.items():
        wanted = {one.strip() for one in model.split("|")} - {""}
        masks[wish] = sum(
            1 << bit
            for bit, (name, own) in enumerate(members)
            if (not wanted or not name or name in wanted) and (not listed or own <= frozenset(listed))
        )
    cluster = NodeCluster(
        tuple(Node(n.n_gpus, f"class {own}", n.speed, n.switch) for n, own in zip(nodes, of_node, strict=True))
    )
    names = tuple(node.name for node in nodes)
    index = {name: at for at, name in enumerate(names)}
    return Classes(build_world(cluster, policy), names, index, members, sizes, masks)
