"""MIG cards of a live cluster as the engine counts them, and the next step from one cut to another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from smartmig.control.access import reserved_now
from smartmig.hardware.cuts import CutTable, cut_table
from smartmig.hardware.layouts import can_add, configurations, multiset
from smartmig.hardware.model import GpuModel, gpu_model
from smartmig.policy.view import World
from smartmig.sim.mig.world import Settings, build_world, offered_classes
from smartmig.types import (
    SLICE_SIZES,
    ClusterState,
    Floats,
    Instance,
    Layout,
    MigGpu,
    NodeState,
    Placement,
)

if TYPE_CHECKING:
    from smartmig.control.mig import MigPolicy


@dataclass(frozen=True)
class Card:
    """One card of a node that is up, and not reserved for people of whom nobody waits."""

    node: str
    gpu: int
    model: GpuModel
    instances: tuple[Instance, ...]
    layout: Layout
    """the instances, as a cut"""
    goal: Layout
    """what it is being cut to; its present layout when nothing is wanted"""
    busy: frozenset[int]
    """starts of instances that someone uses"""
    busy_by_others: tuple[int, ...]
    kept: bool = False
    """its node is reserved now: whoever that is for finds the card as it was"""

    @property
    def name(self) -> str:
        return f"{self.node}/{self.gpu}"


Known = dict[int, tuple[MigGpu, GpuModel, Layout]]
"""Cards seen before, by identity: those that did not change are the same objects."""


def cards_of(state: ClusterState, targets: Mapping[str, Layout], known: Known | None = None) -> list[Card]:
    known = {} if known is None else known
    if len(known) > 4096:
        known.clear()
    busy: dict[tuple[str, int], set[int]] = {}
    for job in state.running:
        for share in job.shares:
            if share.n_gpus == 0:
                busy.setdefault((share.node, share.gpu), set()).add(share.start)
    reserved = reserved_now(state)
    users = {request.user for request in state.queued if request.n_gpus == 0} if reserved else set[str]()
    cards = []
    for node in state.nodes:
        held_for = reserved.get(node.name, ())
        # Rules that saw cards which nobody who waits may use would go on planning with them.
        in_vain = any(users.isdisjoint(one.users) for one in held_for)
        if node.state is not NodeState.up or in_vain:
            continue
        for gpu, card in enumerate(node.gpus):
            if id(card) not in known:
                layout = tuple(Placement(one.start, one.profile) for one in card.instances)
                known[id(card)] = card, gpu_model(card.model), layout
            _, model, layout = known[id(card)]
            used = frozenset(busy.get((node.name, gpu), ())) | {*card.busy_by_others}
            kept = bool(held_for)
            goal = targets.get(f"{node.name}/{gpu}", layout) if targets and not kept else layout
            cards.append(Card(node.name, gpu, model, card.instances, layout, goal, used, card.busy_by_others, kept))
    return cards


@dataclass(frozen=True, eq=False)
class Table:
    """What stays the same while cards are cut among the usual configurations."""

    cuts: CutTable
    world: World
    knobs: Floats
    """of the repartition rule; scratch included, so copy them"""
    offered: dict[str, int]
    """by id of the model: slice classes (bits) of the configurations the rule may ask for"""
    class_of: dict[tuple[str, str], int]
    """by ids of card and profile: hashing a whole card takes longer than deciding"""
    column_of: dict[tuple[str, str], int]
    configs: dict[tuple[str, Layout], int]

    def config_of(self, card: Card) -> int:
        at = (card.model.id, card.goal)
        if at not in self.configs:
            self.configs[at] = self.cuts.config_of(self.cuts.models.index(card.model), card.goal)
        return self.configs[at]


def table_of(cards: list[Card], known: dict[Any, Table], policy: MigPolicy, settings: Settings) -> Table:
    """The table for these cards; cuts that are no configuration of their card get an entry of their own."""
    layouts = tuple(_entry(card) for card in cards)
    gpus = tuple(card.model for card in cards)
    key = (tuple(gpu.id for gpu in gpus), layouts)
    if key not in known:
        if len(known) > 64:
            known.clear()
        cuts = cut_table(gpus, layouts)
        world = build_world(cuts, policy.placement, settings, policy.repartition.counted)
        named = [(cuts.models[model].id, profile) for model, profile in cuts.classes]
        names = {(model, profile.name): at for at, (model, profile) in enumerate(named)}
        columns = {(model, profile.name): SLICE_SIZES.index(profile.compute) for model, profile in named}
        knobs = policy.repartition.knobs(cuts, world) if type(policy.repartition).control else np.zeros(1)
        offered = offered_classes(cuts, policy.repartition.reachable(cuts))
        classes = [(cuts.models[model].id, 1 << at) for at, (model, _) in enumerate(cuts.classes)]
        by_model = {model.id: offered & sum(bit for of, bit in classes if of == model.id) for model in cuts.models}
        known[key] = Table(cuts, world, knobs, by_model, names, columns, {})
    return known[key]


def _entry(card: Card) -> Layout:
    return _table_entry(card.model.id, card.layout, card.goal)


@lru_cache(maxsize=4096)
def _table_entry(model_id: str, layout: Layout, goal: Layout) -> Layout:
    model = gpu_model(model_id)
    usual = configurations(model)
    profiles = {placement.profile for cut in usual for placement in cut}
    if any(one.profile not in profiles for one in layout):
        return layout
    names = multiset(model, goal)
    return usual[0] if any(multiset(model, cut) == names for cut in usual) else goal


def towards(card: Card, target: Layout, held: set[int]) -> Layout:
    """The cut nearest to the target that leaves every busy instance, and those about to be, where they are."""
    wanted = set(target)
    used = card.busy | held
    layout: Layout = tuple(one for one in card.layout if one.start in used or (one in wanted))
    for placement in target:
        if placement not in layout and can_add(card.model, layout, placement):
            layout = tuple(sorted((*layout, placement)))
    return layout
