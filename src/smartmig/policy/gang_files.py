"""Trained agents and run times by name or path, read once."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

from smartmig.policy.gang_network import hand_made
from smartmig.policy.policy_file import GANG, RUN_TIMES, SHIPPED, read_policy
from smartmig.policy.run_times import RunTimes, run_times_of
from smartmig.types import Floats

HAND_MADE = "hand-made"
DEFAULT = "slowdown"


@dataclass(frozen=True, eq=False)
class Agents:
    """Both agents' weights, and the run times they were trained with."""

    weights: Floats
    predictor: str = ""
    ranges: Floats | None = None
    """(2, N_OUTLINE) of what they saw in training, if the file says"""


def agents_of(name: str) -> Agents:
    """A policy by path, a shipped one by name (empty: the default), or the hand-made one that training begins with.

    Raises `InputError` for a file that cannot be used.
    """
    if name == HAND_MADE:
        return Agents(hand_made())
    path = agents_file(name)
    return _agents(path, path.stat().st_mtime_ns if path.is_file() else 0)


def times_of(name: str) -> RunTimes:
    """The same for run times."""
    path = times_file(name)
    return _times(path, path.stat().st_mtime_ns if path.is_file() else 0)


def agents_file(name: str) -> Path:
    """Of a policy by path or name; the hand-made one has none."""
    return _place(f"gang-{name or DEFAULT}.npz", name)


def times_file(name: str) -> Path:
    return _place(f"run-times-{name}.npz", name)


def _place(shipped: str, name: str) -> Path:
    place = SHIPPED / shipped
    return place if "/" not in name and place.is_file() else Path(name or shipped)


# A run asks for its policy several times; a file that changed is another one.
@functools.lru_cache(maxsize=8)
def _agents(path: Path, changed_ns: int) -> Agents:
    del changed_ns
    policy = read_policy(path, GANG)
    beside = str(policy.about.settings.get("run_times", ""))
    return Agents(policy.weights, str(path.with_name(beside)) if beside else "", policy.ranges)


@functools.lru_cache(maxsize=8)
def _times(path: Path, changed_ns: int) -> RunTimes:
    del changed_ns
    return run_times_of(read_policy(path, RUN_TIMES).weights)
