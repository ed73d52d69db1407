"""Files that a live policy reads: what they saw in training, what a journal remembers of them, and whether they are
still the same."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from smartmig.control.decide import GANG, MIG, LivePolicy
from smartmig.control.guard import Ranges
from smartmig.control.mig import MigPolicy
from smartmig.errors import InputError
from smartmig.policy.allocation.learned import Learned as LearnedAllocation
from smartmig.policy.gang_files import HAND_MADE, agents_file, agents_of, times_file
from smartmig.policy.placement.learned import Learned as LearnedPlacement
from smartmig.policy.placement.learned import prices_file
from smartmig.policy.policy_file import JOINT, MEAN_FIELD, PRICES, SHIPPED, read_policy
from smartmig.policy.repartition.mean_field import MeanField, shipped_name
from smartmig.policy.selection.learned import Learned as LearnedSelection
from smartmig.types import Floats

OURS = "shipped:"
"""before the names of files that come with the package"""

PAIR = SHIPPED / "joint-drain.npz"
"""for cards that are cut beside running work, as live ones are"""


def digests(policy: LivePolicy) -> dict[str, str]:
    """SHA-256 of every file the policy reads, by its name."""
    return {_name(path): _digest(path) for path in sorted(set(_files(policy)))}


def check_digests(where: str, recorded: Mapping[str, str]) -> None:
    """Raises `InputError` for a file that is not what it was when it was recorded."""
    for name, digest in recorded.items():
        path = SHIPPED / name.removeprefix(OURS) if name.startswith(OURS) else Path(name)
        then = f"recorded was one with SHA-256 {digest[:16]}"
        remedy = "replay needs that one, or another policy by --selection, --placement and so on"
        try:
            now = _digest(path)
        except (OSError, ValueError):
            raise InputError(f"{where}: policy file {path}: cannot be read; {then}; {remedy}") from None
        if now != digest:
            raise InputError(f"{where}: policy file {path}: has SHA-256 {now[:16]}, {then}; {remedy}")


def _files(policy: LivePolicy) -> Iterator[Path]:
    if policy.gang is not None:
        selection, allocation = policy.gang.selection, policy.gang.allocation
        for rule in (selection, allocation):
            if isinstance(rule, (LearnedSelection, LearnedAllocation)) and rule.policy_file != HAND_MADE:
                yield agents_file(rule.policy_file)
        if isinstance(selection, LearnedSelection):
            predictor = selection.predictor or agents_of(selection.policy_file).predictor
            if predictor:
                yield times_file(predictor)
    if policy.mig is not None:
        yield from _mig_files(policy.mig).values()


def _mig_files(policy: MigPolicy) -> dict[str, Path]:
    """By kind of file, as `read_policy` asks for it."""
    found: dict[str, Path] = {}
    placement, repartition = policy.placement, policy.repartition
    if isinstance(repartition, MeanField):
        name = repartition.policy_file
        found[MEAN_FIELD] = (
            PAIR if name == JOINT else Path(name) if name else SHIPPED / shipped_name(n_gpus=2, drain=True)
        )
    if isinstance(placement, LearnedPlacement) and placement.policy_file != HAND_MADE:
        name = placement.policy_file
        found[PRICES] = PAIR if name == JOINT else prices_file(name or "drain")
    return found


def trained_ranges(policy: LivePolicy) -> Ranges:
    """What the policy's networks saw in training, where their files say so."""
    found: dict[str, list[Floats | None]] = {GANG: [], MIG: []}
    if policy.gang is not None and isinstance(policy.gang.selection, LearnedSelection):
        found[GANG].append(agents_of(policy.gang.selection.policy_file).ranges)
    if policy.mig is not None:
        found[MIG] += [read_policy(path, kind).ranges for kind, path in _mig_files(policy.mig).items()]
    known = {world: [one for one in some if one is not None] for world, some in found.items()}
    # Networks of one world read the same inputs: what all of them saw.
    return {
        world: (np.max([low for low, _ in some], axis=0), np.min([high for _, high in some], axis=0))
        for world, some in known.items()
        if some
    }


def _name(path: Path) -> str:
    return OURS + path.name if path.parent == SHIPPED else str(path)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
