"""Files that a live policy reads: what a journal remembers of them, and whether they are still the same."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from smartmig.control.decide import LivePolicy
from smartmig.errors import InputError
from smartmig.policy.allocation.learned import Learned as LearnedAllocation
from smartmig.policy.gang_files import HAND_MADE, agents_file, agents_of, times_file
from smartmig.policy.placement.learned import Learned as LearnedPlacement
from smartmig.policy.placement.learned import prices_file
from smartmig.policy.policy_file import JOINT, SHIPPED
from smartmig.policy.repartition.mean_field import MeanField, shipped_name
from smartmig.policy.selection.learned import Learned as LearnedSelection

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
        placement, repartition = policy.mig.placement, policy.mig.repartition
        if isinstance(placement, LearnedPlacement) and placement.policy_file != HAND_MADE:
            yield PAIR if placement.policy_file == JOINT else prices_file(placement.policy_file or "drain")
        if isinstance(repartition, MeanField):
            yield _mean_field(repartition.policy_file)


def _mean_field(name: str) -> Path:
    if name == JOINT:
        return PAIR
    return Path(name) if name else SHIPPED / shipped_name(n_gpus=2, drain=True)


def _name(path: Path) -> str:
    return OURS + path.name if path.parent == SHIPPED else str(path)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
