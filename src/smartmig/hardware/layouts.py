"""How one GPU may be cut, derived from the placement rules of its profiles.

A set of instances is valid when they share no memory slice, each begins at a start its profile allows, their compute
slices sum to no more than the card has, no profile exceeds its count, and at most one has the media engines
(NVIDIA MIG User Guide, "Supported MIG Profiles"). Taking an instance away never breaks a rule, which the searches
below and `transitions.py` lean on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache

from smartmig.errors import InputError
from smartmig.hardware.model import GpuModel, Profile
from smartmig.types import Layout, Placement

EMPTY = "empty"
"""How a card without instances is written where a cut is expected."""


def base_profiles(model: GpuModel) -> tuple[Profile, ...]:
    """One profile per compute size: no media engines, fewest memory slices."""
    return tuple(profile for profile in model.profiles if profile.key == f"{profile.compute}g")


def placement_sets(model: GpuModel, profiles: Sequence[Profile] | None = None) -> tuple[Layout, ...]:
    """Every valid set of instances of `profiles` (default `base_profiles`), the empty one included."""
    return _placement_sets(model, base_profiles(model) if profiles is None else tuple(profiles))


def maximal_sets(model: GpuModel, profiles: Sequence[Profile] | None = None) -> tuple[Layout, ...]:
    """The valid sets to which no instance of `profiles` can be added, ordered as `configurations`."""
    return _maximal_sets(model, base_profiles(model) if profiles is None else tuple(profiles))


def multisets(model: GpuModel, profiles: Sequence[Profile] | None = None) -> tuple[tuple[str, ...], ...]:
    """The distinct multisets of profile names of the maximal sets, each from large to small."""
    return tuple(dict.fromkeys(multiset(model, layout) for layout in maximal_sets(model, profiles)))


def nondominated(model: GpuModel, profiles: Sequence[Profile] | None = None) -> tuple[tuple[str, ...], ...]:
    """The multisets that are not strictly contained in another one."""
    counted = [Counter(names) for names in multisets(model, profiles)]
    return tuple(
        names
        for names, own in zip(multisets(model, profiles), counted, strict=True)
        if not any(own < other for other in counted)
    )


@cache
def configurations(model: GpuModel) -> tuple[Layout, ...]:
    """The cuts a controller chooses from; index 0 is configuration 1.

    They are the non-dominated multisets of the base profiles. On the A100 these are the twelve configurations of
    Yu et al., SMART-MIG (arXiv 2606.29775), in their order: sizes sorted from large to small, compared
    lexicographically, largest first. Each stands for its placement whose left-to-right sizes are largest.
    """
    return tuple(solve_cut(model, names) for names in nondominated(model))


def multiset(model: GpuModel, layout: Layout) -> tuple[str, ...]:
    """Profile names of a layout from large to small, whatever their positions."""
    return _large_first(model, [placement.profile for placement in layout])


def check_layout(model: GpuModel, layout: Layout, where: str = "") -> None:
    """Raise `InputError` naming the first rule the layout breaks; `UnknownName` for a profile the card lacks."""
    prefix = f"{where}: " if where else ""
    owner: dict[int, Placement] = {}
    count: Counter[str] = Counter()
    media: list[str] = []
    compute = 0
    for placement in sorted(layout):
        profile = model.profile(placement.profile)
        if placement.profile != profile.name:
            raise InputError(f"{prefix}a layout names '{placement.profile}'; write the full name {profile.name}.")
        label = f"{placement.profile} at memory slice {placement.start}"
        if placement.start not in profile.starts:
            starts = ", ".join(map(str, profile.starts))
            raise InputError(f"{prefix}illegal start on {model.id}: {label}. {profile.name} may start at {starts}.")
        for slot in range(placement.start, placement.start + profile.memory_slices):
            if slot in owner:
                other = owner[slot]
                raise InputError(
                    f"{prefix}overlap on {model.id}: {label} and {other.profile} at memory slice {other.start} "
                    f"share memory slice {slot}."
                )
            owner[slot] = placement
        count[profile.name] += 1
        if count[profile.name] > profile.max_count:
            raise InputError(f"{prefix}too many {profile.name} on {model.id}: at most {profile.max_count}.")
        if profile.media:
            media.append(label)
        compute += profile.compute
    if len(media) > 1:
        raise InputError(f"{prefix}two +me instances on {model.id}: {' and '.join(media)}. At most one is possible.")
    if compute > model.n_compute:
        raise InputError(f"{prefix}compute sum on {model.id} is {compute} slices, at most {model.n_compute}.")


def is_valid(model: GpuModel, layout: Layout) -> bool:
    """Whether `check_layout` would pass."""
    try:
        check_layout(model, layout)
    except InputError:
        return False
    return True


def can_add(model: GpuModel, layout: Layout, placement: Placement) -> bool:
    """Whether one more instance keeps a valid layout valid."""
    profile = model.profile(placement.profile)
    if placement.start not in profile.starts:
        return False
    end = placement.start + profile.memory_slices
    compute = profile.compute
    same = 1
    for other_start, other_name in layout:
        other = model.profile(other_name)
        if other_start < end and placement.start < other_start + other.memory_slices:
            return False
        if other.media and profile.media:
            return False
        compute += other.compute
        same += other.name == profile.name
    return compute <= model.n_compute and same <= profile.max_count


@lru_cache(maxsize=65536)
def room(model: GpuModel, layout: Layout) -> int:
    """What could still be created beside `layout`: compute slices summed over every base profile and legal start."""
    return sum(
        profile.compute
        for profile in base_profiles(model)
        for start in profile.starts
        if can_add(model, layout, Placement(start, profile.name))
    )


def extensions(model: GpuModel, layout: Layout, names: Sequence[str]) -> Iterator[Layout]:
    """Every valid layout that is `layout` plus one instance of each of `names`; each set comes once."""
    if not names:
        yield layout
        return
    yield from _extend(model, layout, _large_first(model, names), 0)


def solve_cut(model: GpuModel, cut: Sequence[str], where: str = "") -> Layout:
    """A legal placement of these profiles (keys or names, any order); `InputError` when there is none.

    Of several, the one whose left-to-right compute sizes are lexicographically largest; then the one that leaves most
    `room`; then the leftmost.
    """
    names = tuple(model.profile(name).name for name in cut)
    found = _solve(model, _large_first(model, names))
    if found is None:
        prefix = f"{where}: " if where else ""
        raise InputError(f"{prefix}impossible cut '{'+'.join(cut)}' on {model.id}: {_why_impossible(model, names)}.")
    return found


def split_cut(text: str) -> tuple[str, ...]:
    """`1g.5gb+me+2g` -> (`1g.5gb+me`, `2g`): `+me` belongs to the name before it. `empty` has no instances."""
    if text.strip().lower() == EMPTY:
        return ()
    tokens: list[str] = []
    for token in (part.strip().lower() for part in text.split("+")):
        if token == "me" and tokens:
            tokens[-1] += "+me"
        else:
            tokens.append(token)
    return tuple(tokens)


def layout_text(model: GpuModel, layout: Layout) -> str:
    """Keys from left to right, `4g+2g+1g`; `empty` without instances."""
    return "+".join(model.profile(placement.profile).key for placement in sorted(layout)) or EMPTY


def sizes(model: GpuModel, layout: Layout) -> tuple[int, ...]:
    """Compute slices of the instances from left to right."""
    return tuple(model.profile(placement.profile).compute for placement in sorted(layout))


@cache
def _placement_sets(model: GpuModel, profiles: tuple[Profile, ...]) -> tuple[Layout, ...]:
    by_start = [[profile for profile in profiles if start in profile.starts] for start in range(model.n_memory)]
    sets: list[Layout] = []

    def grow(slot: int, layout: Layout) -> None:
        if slot >= model.n_memory:
            sets.append(layout)
            return
        grow(slot + 1, layout)
        for profile in by_start[slot]:
            placement = Placement(slot, profile.name)
            if can_add(model, layout, placement):
                grow(slot + profile.memory_slices, (*layout, placement))

    grow(0, ())
    return tuple(sets)


@cache
def _maximal_sets(model: GpuModel, profiles: tuple[Profile, ...]) -> tuple[Layout, ...]:
    options = [Placement(start, profile.name) for profile in profiles for start in profile.starts]
    maximal = [
        layout
        for layout in _placement_sets(model, profiles)
        if not any(can_add(model, layout, option) for option in options)
    ]

    def rank(layout: Layout) -> tuple[list[tuple[int, int]], tuple[int, ...]]:
        parts = [model.profile(name) for name in multiset(model, layout)]
        return [(part.compute, part.memory_slices) for part in parts], sizes(model, layout)

    return tuple(sorted(maximal, key=rank, reverse=True))


@cache
def _solve(model: GpuModel, names: tuple[str, ...]) -> Layout | None:
    return max(
        extensions(model, (), names),
        key=lambda layout: (sizes(model, layout), room(model, layout), [-start for start, _ in layout]),
        default=None,
    )


def _large_first(model: GpuModel, names: Sequence[str]) -> tuple[str, ...]:
    def rank(name: str) -> tuple[int, int, str]:
        profile = model.profile(name)
        return -profile.compute, -profile.memory_slices, profile.name

    return tuple(sorted((model.profile(name).name for name in names), key=rank))


def _extend(model: GpuModel, layout: Layout, names: tuple[str, ...], least_start: int) -> Iterator[Layout]:
    # Equal names stand side by side, and each later one starts further right: no set is met twice.
    name, rest = names[0], names[1:]
    for start in model.profile(name).starts:
        placement = Placement(start, name)
        if start < least_start or not can_add(model, layout, placement):
            continue
        grown = tuple(sorted((*layout, placement)))
        if not rest:
            yield grown
        else:
            yield from _extend(model, grown, rest, start + 1 if rest[0] == name else 0)


def _why_impossible(model: GpuModel, names: Sequence[str]) -> str:
    profiles = [model.profile(name) for name in names]
    compute = sum(profile.compute for profile in profiles)
    memory = sum(profile.memory_slices for profile in profiles)
    if compute > model.n_compute:
        return f"it needs {compute} compute slices and the card has {model.n_compute}"
    if memory > model.n_memory:
        return f"it needs {memory} memory slices and the card has {model.n_memory}"
    for name, count in Counter(names).items():
        if count > model.profile(name).max_count:
            return f"at most {model.profile(name).max_count} of {name} fit"
    if sum(profile.media for profile in profiles) > 1:
        return "at most one instance can have the media engines (+me)"
    return "no legal starts keep these instances apart"
