"""How one cut becomes another while part of the GPU keeps running: keep what fits, change only what must change.

An instance is kept when the same profile stays at the same start. Destroys come before creates: every set on the way
is then part of the old or of the new layout, and a part of a valid layout is valid.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import Literal

from smartmig.errors import InputError
from smartmig.hardware.layouts import can_add, check_layout, extensions, multiset, room
from smartmig.hardware.model import GpuModel
from smartmig.types import Layout, Placement


@dataclass(frozen=True)
class Step:
    """One call to the driver."""

    action: Literal["destroy", "create"]
    placement: Placement


@dataclass(frozen=True)
class Transition:
    """What stays, what goes, what comes, and an order that is valid at every step."""

    keep: Layout
    destroy: Layout
    create: Layout
    steps: tuple[Step, ...]

    @property
    def target(self) -> Layout:
        """The layout at the end."""
        return tuple(sorted(self.keep + self.create))


def transition(model: GpuModel, current: Layout, target: Layout) -> Transition:
    """From exactly these placements to exactly those; `InputError` when either layout is invalid."""
    check_layout(model, current, "current layout")
    check_layout(model, target, "target layout")
    return _between(model, current, target)


def least_disruption(
    model: GpuModel, current: Layout, busy: Collection[Placement], wanted: Sequence[str]
) -> Transition | None:
    """The gentlest way to a layout that holds one instance of each of `wanted` (keys or names, repeats count).

    Busy instances stay where they are; one whose profile is wanted counts for it. Idle instances stay too unless they
    are in the way. Fewest destroyed, then fewest created, then least `fragmentation`, then leftmost. None when the
    busy instances leave no room. Raises `InputError` for an invalid layout or a busy instance that is not in it.
    """
    check_layout(model, current, "current layout")
    for placement in busy:
        if placement not in current:
            raise InputError(
                f"busy instance {placement.profile} at memory slice {placement.start} is not in the layout."
            )
    need = Counter(model.profile(name).name for name in wanted)
    fixed = tuple(placement for placement in current if placement in busy)
    idle = tuple(placement for placement in current if placement not in busy)
    for n_destroyed in range(len(idle) + 1):
        found: list[tuple[int, float, Layout]] = []
        for kept in combinations(idle, len(idle) - n_destroyed):
            keep = tuple(sorted(fixed + kept))
            missing = need - Counter(placement.profile for placement in keep)
            for target in extensions(model, keep, tuple(missing.elements())):
                found.append((missing.total(), fragmentation(model, target), target))
        if found:
            return _between(model, current, min(found)[2])
    return None


def where_to_create(model: GpuModel, current: Layout, profile: str) -> Placement | None:
    """The legal start for one more instance that leaves the least fragmentation; None when nothing fits."""
    check_layout(model, current, "current layout")
    kind = model.profile(profile)
    options = [Placement(start, kind.name) for start in kind.starts]
    return min(
        (option for option in options if can_add(model, current, option)),
        key=lambda option: (fragmentation(model, tuple(sorted((*current, option)))), option.start),
        default=None,
    )


def fragmentation(model: GpuModel, current: Layout) -> float:
    """How much the positions of the instances cost, from 0 (nothing) to 1 (all that could have been free is blocked).

    The room of a layout is the compute slices of every base profile at every start where it could still be created,
    summed. Fragmentation is the share of room lost against the best placement of the same instances:
    1 - room(layout) / max room over its rearrangements; 0 when even the best leaves none.
    """
    best = _best_room(model, multiset(model, current))
    return 1.0 - room(model, tuple(sorted(current))) / best if best else 0.0


@cache
def _best_room(model: GpuModel, names: tuple[str, ...]) -> int:
    return max(room(model, layout) for layout in extensions(model, (), names))


def _between(model: GpuModel, current: Layout, target: Layout) -> Transition:
    keep = tuple(sorted(set(current) & set(target)))
    destroy = tuple(sorted(set(current) - set(target)))
    create = tuple(sorted(set(target) - set(current)))
    # Large instances first: where a driver picks the start itself, small ones must not take a large one's place.
    large_first = sorted(create, key=lambda placement: (-model.profile(placement.profile).compute, placement.start))
    steps = (*(Step("destroy", placement) for placement in destroy), *(Step("create", p) for p in large_first))
    return Transition(keep, destroy, create, steps)
