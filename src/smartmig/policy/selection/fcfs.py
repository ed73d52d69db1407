"""First come, first served."""

from __future__ import annotations

from dataclasses import dataclass

from smartmig.policy.selection.rule import Ordered


@dataclass(frozen=True)
class Fcfs(Ordered):
    """In order of submission."""
