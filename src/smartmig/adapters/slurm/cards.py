"""MIG cards behind Slurm's count-only resource `mig`.

Slurm counts slices per node and knows neither cards nor positions. We keep the layout of each card in the comment of
the node, `smartmig mig a100-40gb 0@1g.5gb,1@1g.5gb|0@4g.20gb`, with a bar between cards; it is believed as long as its
slices are those that Slurm counts. Otherwise (somebody changed the counts, or `scontrol reconfigure` reset them)
positions are solved afresh.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from smartmig.adapters.slurm.gres import by_type
from smartmig.adapters.slurm.records import NodeRecord
from smartmig.errors import InputError
from smartmig.hardware.layouts import extensions, is_valid
from smartmig.hardware.model import GpuModel, gpu_model
from smartmig.types import Layout, Placement

PREFIX = "smartmig mig "


@dataclass(frozen=True)
class MigKnobs:
    """What Slurm does not say about the cards behind `mig`."""

    model: str
    n_cards: int
    """on each node that has `mig`"""


def layouts_of(node: NodeRecord, knobs: MigKnobs) -> tuple[str, tuple[Layout, ...]] | str:
    """(model, layout of each card); a sentence when the counts cannot be so many cards of that model."""
    counts = Counter(by_type(node.has, "mig"))
    kept = _read(node.comment)
    if kept is not None and Counter(p.profile for layout in kept[1] for p in layout) == +counts:
        return kept
    model = gpu_model(kept[0] if kept is not None else knobs.model)
    n_cards = len(kept[1]) if kept is not None else knobs.n_cards
    known = {profile.name for profile in model.profiles}
    strange = sorted(set(+counts) - known)
    if strange:
        return f"node {node.name}: its mig slices {', '.join(strange)} are not those of {model.id}"
    names = sorted(counts.elements(), key=lambda name: (-model.profile(name).compute, name))
    found = _spread(model, names, (((),) * n_cards))
    if found is None:
        return f"node {node.name}: {n_cards} x {model.id} cannot be cut into {node.gres}"
    return model.id, found


def write_comment(model_id: str, layouts: tuple[Layout, ...]) -> str:
    cards = "|".join(",".join(f"{p.start}@{p.profile}" for p in layout) or "empty" for layout in layouts)
    return f"{PREFIX}{model_id} {cards}"


def counts_of(layouts: tuple[Layout, ...]) -> Mapping[str, int]:
    return Counter(placement.profile for layout in layouts for placement in layout)


def _read(comment: str) -> tuple[str, tuple[Layout, ...]] | None:
    if not comment.startswith(PREFIX):
        return None
    try:
        model_id, cards = comment.removeprefix(PREFIX).split(" ")
        layouts = tuple(_read_layout(card) for card in cards.split("|"))
        model = gpu_model(model_id)
        return (model_id, layouts) if all(is_valid(model, layout) for layout in layouts) else None
    except (ValueError, InputError):
        return None


def _read_layout(card: str) -> Layout:
    if card == "empty":
        return ()
    pairs = (word.split("@") for word in card.split(","))
    return tuple(Placement(int(start), profile) for start, profile in pairs)


def _spread(model: GpuModel, names: list[str], cards: tuple[Layout, ...]) -> tuple[Layout, ...] | None:
    """Large slices first, each on the first card that takes it; a search, because that may fail."""
    if not names:
        return cards
    tried: set[Layout] = set()
    for at, layout in enumerate(cards):
        if layout in tried:
            continue
        tried.add(layout)
        for longer in extensions(model, layout, names[:1]):
            found = _spread(model, names[1:], (*cards[:at], longer, *cards[at + 1 :]))
            if found is not None:
                return found
    return None
